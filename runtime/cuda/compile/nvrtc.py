"""NVRTC, CUDA's run-time compiler, through ctypes: CUDA C to machine code or PTX, in this process and without a driver."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

from pullback.runtime.compile.validation import CompileError
from pullback.runtime.cuda.compile import toolkit
from pullback.runtime.cuda.driver.errors import NoArchitecture

OLDEST = (12, 1)
"""The oldest version known to accept our options."""
_HAS_CACHE_FROM = (13, 0)
"""From this version on NVRTC keeps a cache of its own, which is turned off: the kernel cache does the same."""
_FAILED = 6
"""NVRTC's status of a text that does not compile (NVRTC_ERROR_COMPILATION)."""


class Nvrtc:
    """The library at ``path``. All methods may be called from any thread. The constructor raises OSError if it does not load,
    or is too old."""

    def __init__(self, path: str) -> None:
        for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so.*")) if os.sep in path else ():
            ctypes.CDLL(str(builtins))
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        self.version = (major.value, minor.value)
        if self.version < OLDEST:
            raise OSError(f"{path} is NVRTC {major.value}.{minor.value}: {OLDEST[0]}.{OLDEST[1]} or later is needed")
        self.name = f"NVRTC {major.value}.{minor.value}"
        size = os.stat(path).st_size if os.sep in path else 0
        self.stamp = f"{self.name}, {size} bytes"

    def cubin(self, text: str, arch: str, options: Sequence[str]) -> bytes:
        """Return the machine code of CUDA C for an architecture such as "sm_90". Raises CompileError."""
        return self._compiled(text, arch, options, "CUBIN")[0]

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        """Return the PTX of CUDA C for an architecture. Raises CompileError."""
        code, _ = self._compiled(text, arch.replace("sm_", "compute_"), options, "PTX")
        return code.decode().rstrip("\0")

    def explained(self, text: str, arch: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Return the machine code and the report of ptxas on each kernel: registers, spills, shared memory. Raises
        CompileError."""
        return self._compiled(text, arch, [*options, "--ptxas-options=-v"], "CUBIN")

    def architectures(self) -> list[str]:
        """Return the supported architectures, oldest first."""
        count = ctypes.c_int()
        self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        self._library.nvrtcGetSupportedArchs(numbers)
        return [f"sm_{each}" for each in numbers]

    def _compiled(self, text: str, arch: str, options: Sequence[str], kind: str) -> tuple[bytes, str]:
        """Return the result of one kind, and the log."""
        own = ["--no-cache"] if self.version >= _HAS_CACHE_FROM else []
        arguments = [option.encode() for option in (f"--gpu-architecture={arch}", *own, *options)]
        program = ctypes.c_void_p()
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None))
        try:
            status = self._library.nvrtcCompileProgram(program, len(arguments), (ctypes.c_char_p * len(arguments))(*arguments))
            log = self._output(program, "ProgramLog").decode(errors="replace").strip("\0\n")
            if status == _FAILED and log:
                raise CompileError(text, log)
            if status:
                raise self._error(status, arch, log)
            return self._output(program, kind), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, kind: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._library[f"nvrtcGet{kind}Size"](program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(max(1, size.value))
        self._check(self._library[f"nvrtcGet{kind}"](program, buffer))
        return buffer.raw[: size.value]

    def _error(self, status: int, arch: str, log: str) -> CompileError:
        supported, arch = self.architectures(), arch.replace("compute_", "sm_")
        if arch not in supported:
            return NoArchitecture("", f"{self.name} makes no code for {arch}, but for {', '.join(supported)}")
        return CompileError("", f"{self.name}: {log or self._library.nvrtcGetErrorString(status).decode()}")

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"{self.name}: {self._library.nvrtcGetErrorString(status).decode()}")


def find() -> tuple[Nvrtc | None, str]:
    """Return (NVRTC, ""), or None and the first error met while loading it."""
    problems: list[str] = []
    for path in toolkit.libraries("nvrtc"):
        try:
            return Nvrtc(path), ""
        except (OSError, AttributeError) as error:
            problems.append(str(error))
    return None, problems[0]
