"""Disassemble the code of NVIDIA's GPUs (SASS) with nvdisasm or cuobjdump, if one is installed."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from pullback.runtime.cuda.compile import toolkit
from pullback.runtime.cuda.compile.cubin import resources

TOOLS = (("nvdisasm", "-c"), ("cuobjdump", "-sass"))
MISSING = "neither nvdisasm nor cuobjdump is here (pip install nvidia-cuda-nvdisasm, or NVIDIA's CUDA toolkit)"


class NoTool(RuntimeError):
    """Raised if there is no disassembler, or if it failed."""


def tool() -> tuple[str, str] | None:
    """Return the path of a disassembler and its option; None if there is none."""
    for name, option in TOOLS:
        path = toolkit.program(name)
        if path is not None:
            return path, option
    return None


def sass(code: bytes) -> str:
    """Return the assembly of a cubin, after a list of each kernel's resources. Raises NoTool."""
    program = tool()
    if program is None:
        raise NoTool(f"assembly of a GPU cannot be shown: {MISSING}")
    path, option = program
    with tempfile.TemporaryDirectory(prefix="pullback-sass-") as folder:
        file = Path(folder, "kernels.cubin")
        file.write_bytes(code)
        try:
            done = subprocess.run([path, option, str(file)], capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise NoTool(f"{path}: {error.strerror or error}") from None
    if done.returncode:
        raise NoTool(f"{path}: {done.stderr.strip() or f'it ends with status {done.returncode}'}")
    head = "".join(f"// {name}: {taken}\n" for name, taken in resources(code).items())
    return head + "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"
