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
"""The first that was seen to take our options."""
_WITHOUT_CACHE = (13, 0)
"""From here on NVRTC keeps a cache of its own, which would hide beneath ours."""
_FAILED = 6


class Nvrtc:
    """The library at ``path``. All methods may be called from any thread. Raises OSError where it is none, or too old."""

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
        """The machine code of CUDA C for an architecture such as "sm_90". Raises CompileError."""
        return self._compiled(text, arch, options, "CUBIN")[0]

    def ptx(self, text: str, arch: str, options: Sequence[str]) -> str:
        """The PTX of CUDA C for an architecture. Raises CompileError."""
        made, _ = self._compiled(text, arch.replace("sm_", "compute_"), options, "PTX")
        return made.decode().rstrip("\0")

    def explained(self, text: str, arch: str, options: Sequence[str]) -> tuple[bytes, str]:
        """The machine code, and what ptxas says of each kernel: registers, spills, shared memory. Raises CompileError."""
        return self._compiled(text, arch, [*options, "--ptxas-options=-v"], "CUBIN")

    def architectures(self) -> list[str]:
        """The architectures that there is code for, the oldest first."""
        count = ctypes.c_int()
        self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        found = (ctypes.c_int * count.value)()
        self._library.nvrtcGetSupportedArchs(found)
        return [f"sm_{number}" for number in found]

    def _compiled(self, text: str, arch: str, options: Sequence[str], what: str) -> tuple[bytes, str]:
        """The result of one kind, and the log."""
        own = ["--no-cache"] if self.version >= _WITHOUT_CACHE else []
        given = [option.encode() for option in (f"--gpu-architecture={arch}", *own, *options)]
        program = ctypes.c_void_p()
        self._check(self._library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None))
        try:
            status = self._library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
            log = self._output(program, "ProgramLog").decode(errors="replace").strip("\0\n")
            if status == _FAILED and log:
                raise CompileError(text, log)
            if status:
                raise self._error(status, arch, log)
            return self._output(program, what), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _output(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(self._library[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
        room = ctypes.create_string_buffer(max(1, size.value))
        self._check(self._library[f"nvrtcGet{what}"](program, room))
        return room.raw[: size.value]

    def _error(self, status: int, arch: str, log: str) -> CompileError:
        known, arch = self.architectures(), arch.replace("compute_", "sm_")
        if arch not in known:
            return NoArchitecture("", f"{self.name} makes no code for {arch}, but for {', '.join(known)}")
        return CompileError("", f"{self.name}: {log or self._library.nvrtcGetErrorString(status).decode()}")

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"{self.name}: {self._library.nvrtcGetErrorString(status).decode()}")


def find() -> tuple[Nvrtc | None, str]:
    """NVRTC, or None; and, if it is None, what the attempts to load it said."""
    problems: list[str] = []
    for path in toolkit.libraries("nvrtc"):
        try:
            return Nvrtc(path), ""
        except (OSError, AttributeError) as error:
            problems.append(str(error))
    return None, problems[0]


