"""C sources, compiled by the machine's C compiler into a folder of the checkout on first use."""

import ctypes
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE.parent.parent / "build" / "benchmarks"
FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-fno-math-errno", "-fno-trapping-math")


def compiled(name: str) -> ctypes.CDLL:
    """The library made of `name`.c.

    Raises: NotImplementedError without a C compiler.
    """
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise NotImplementedError("no C compiler")
    sources = b"".join(path.read_bytes() for path in sorted(HERE.glob("*.[ch]")))
    digest = hashlib.sha256(sources + repr((compiler, FLAGS)).encode()).hexdigest()[:16]
    library = BUILT / f"{name}-{digest}.so"
    if not library.exists():
        BUILT.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}")
        command = [compiler, *FLAGS, "-shared", "-fPIC", "-o", str(partial), str(HERE / f"{name}.c"), "-lmvec", "-lm"]
        subprocess.run(command, check=True)
        partial.rename(library)
    return ctypes.CDLL(str(library))
