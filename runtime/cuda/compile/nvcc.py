"""nvcc, the compiler of CUDA's toolkit, as a process of its own: CUDA C to machine code or PTX, without a driver."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pullback.runtime.compile.validation import CompileError
from pullback.runtime.cuda.compile import toolkit
from pullback.runtime.cuda.driver.errors import NoArchitecture

_VERSION = re.compile(r"\bV(\d+)\.(\d+)\.(\d+)")
_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")


class Nvcc:
    """The program at ``path``. All methods may be called from any thread. Raises OSError where it does not run."""

    def __init__(self, path: str) -> None:
        self.path = path
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        found = _VERSION.search(said)
        if found is None:
            raise OSError(f"{path} --version names no version")
        self.version = (int(found[1]), int(found[2]))
        self.name = f"nvcc {found[0][1:]}"
        self.stamp = " ".join([self.name, *(os.environ.get(flags, "") for flags in _FLAGS)])

    def cubin(self, text: str, arch: str, options: Sequence[str]) -> bytes:
        """The machine code of CUDA C for an architecture such as "sm_90". Raises CompileError."""
        return self._compiled(text, arch, options, "cubin")[0]

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        """The PTX of CUDA C for an architecture. Raises CompileError."""
        return self._compiled(text, arch.replace("sm_", "compute_"), options, "ptx")[0].decode()

    def explained(self, text: str, arch: str, options: Sequence[str]) -> tuple[bytes, str]:
        """The machine code, and what ptxas says of each kernel: registers, spills, shared memory. Raises CompileError."""
        return self._compiled(text, arch, [*options, "--ptxas-options=-v"], "cubin")

    def _compiled(self, text: str, arch: str, options: Sequence[str], kind: str) -> tuple[bytes, str]:
        """The file of one kind, and what was printed."""
        with tempfile.TemporaryDirectory(prefix="pullback-nvcc-") as folder:
            source, made = Path(folder, "kernels.cu"), Path(folder, f"kernels.{kind}")
            source.write_text(text, encoding="utf-8")
            command = [self.path, f"--{kind}", f"--gpu-architecture={arch}", *options, "--output-file", str(made), "kernels.cu"]
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
            except OSError as error:
                raise CompileError(text, f"{self.path}: {error.strerror or error}") from None
            if done.returncode or not made.is_file():
                kind_of = NoArchitecture if "Unsupported gpu architecture" in done.stderr else CompileError
                raise kind_of(text, done.stderr or done.stdout or f"{self.path} ends with status {done.returncode}")
            return made.read_bytes(), done.stderr


def find() -> tuple[Nvcc | None, str]:
    """nvcc, or None; and, if it is None, why."""
    path = toolkit.program("nvcc")
    if path is None:
        return None, "there is no nvcc"
    try:
        return Nvcc(path), ""
    except OSError as error:
        return None, str(error)
