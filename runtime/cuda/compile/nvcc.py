"""nvcc, the compiler of CUDA's toolkit, run as a process: CUDA C to machine code or PTX, without a driver."""

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
    """The program at ``path``. All methods may be called from any thread. The constructor raises OSError if it does not run."""

    def __init__(self, path: str) -> None:
        self.path = path
        output = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
        version = _VERSION.search(output)
        if version is None:
            raise OSError(f"{path} --version names no version")
        self.version = (int(version[1]), int(version[2]))
        self.name = f"nvcc {version[0][1:]}"
        self.stamp = " ".join([self.name, *(os.environ.get(flags, "") for flags in _FLAGS)])

    def cubin(self, text: str, arch: str, options: Sequence[str]) -> bytes:
        """Return the machine code of CUDA C for an architecture such as "sm_90". Raises CompileError."""
        return self._compiled(text, arch, options, "cubin")[0]

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        """Return the PTX of CUDA C for an architecture. Raises CompileError."""
        return self._compiled(text, arch.replace("sm_", "compute_"), options, "ptx")[0].decode()

    def explained(self, text: str, arch: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Return the machine code and the report of ptxas on each kernel: registers, spills, shared memory. Raises
        CompileError."""
        return self._compiled(text, arch, [*options, "--ptxas-options=-v"], "cubin")

    def _compiled(self, text: str, arch: str, options: Sequence[str], kind: str) -> tuple[bytes, str]:
        """Return the compiled file of one kind, and what nvcc printed."""
        with tempfile.TemporaryDirectory(prefix="pullback-nvcc-") as folder:
            source, target = Path(folder, "kernels.cu"), Path(folder, f"kernels.{kind}")
            source.write_text(text, encoding="utf-8")
            command = [self.path, f"--{kind}", f"--gpu-architecture={arch}", *options, "--output-file", str(target), "kernels.cu"]
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
            except OSError as error:
                raise CompileError(text, f"{self.path}: {error.strerror or error}") from None
            if done.returncode or not target.is_file():
                kind_of = NoArchitecture if "Unsupported gpu architecture" in done.stderr else CompileError
                raise kind_of(text, done.stderr or done.stdout or f"{self.path} ends with status {done.returncode}")
            return target.read_bytes(), done.stderr


def find() -> tuple[Nvcc | None, str]:
    """Return (nvcc, ""), or None and the reason."""
    path = toolkit.program("nvcc")
    if path is None:
        return None, "there is no nvcc"
    try:
        return Nvcc(path), ""
    except OSError as error:
        return None, str(error)
