"""Exported libraries loaded in this process: opened, initialised with the functions and threads that they need, and called."""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pullback.codegen.export.interface import FIRST_CHECK, HOOKS
from pullback.runtime.program import interrupts
from pullback.runtime.program.launcher import address_of
from pullback.runtime.program.native_addresses import native_address
from pullback.runtime.threads import threads


class NotExported(Exception):
    """Raised for a library that lacks a symbol of exported ones."""


class Library:
    """An exported library. ``manifest``: its embedded description. The constructor raises OSError and NotExported."""

    first_check = FIRST_CHECK

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._open(path.absolute())
            self._types: dict[int, tuple[Any, ...]] = {}
            if self.manifest.encode() not in path.read_bytes():
                self._open_copy()
            pointer, i64 = ctypes.c_void_p, ctypes.c_int64
            self._call = ctypes.CFUNCTYPE(i64, pointer, pointer, pointer)(self._address(f"{self.name}_call"))
            self._init = ctypes.CFUNCTYPE(i64, pointer)(self._address(f"{self.name}_init"))
            self._error = ctypes.CFUNCTYPE(ctypes.c_char_p, i64)(self._address(f"{self.name}_error"))
        except (AttributeError, ValueError, UnicodeDecodeError) as error:
            raise NotExported(str(error)) from None

    def _open(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self.name = ctypes.string_at(self._address("pullback_exported")).decode()
        self.manifest = ctypes.string_at(self._address(f"{self.name}_manifest")).decode()

    def _open_copy(self) -> None:
        """Open a copy of the file under another name: the system returned a library still loaded under this name."""
        with tempfile.TemporaryDirectory(prefix="pullback") as folder:
            copy = Path(folder) / self.path.name
            shutil.copyfile(self.path, copy)
            self._open(copy)

    def _address(self, symbol: str) -> int:
        return int(ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value or 0)

    def initialise(self, needs: Sequence[tuple[Any, ...]]) -> int:
        """Initialise the library with the worker pool of this process and the functions that it needs. Return 0, or the status
        that says why it cannot run."""
        pool = threads.table()
        pool_functions = threads.functions()
        hooks = {"user": pool, "parallel_for": pool_functions["run"], "poll": address_of(interrupts.table())}
        if any(slot[0] in ("library", "gemm") for slot in needs):
            hooks |= {"before_library": pool_functions["enter"], "after_library": pool_functions["leave"]}
        fields = [threads.get_num_threads(), *(hooks.get(name, 0) for name in HOOKS), *map(native_address, needs)]
        words = (ctypes.c_int64 * (1 + len(fields)))(8 * (1 + len(fields)), *fields)
        return int(self._init(ctypes.addressof(words)))

    def call(self, extents: Sequence[int], arguments: Sequence[Any], results: Sequence[Any]) -> int:
        """Call the function on dense arrays and return its status."""
        types = self._types.get(len(results))
        if types is None:
            lengths = len(extents), len(arguments), len(results)
            types = self._types[len(results)] = tuple([ctypes.c_int64 * max(n, 1) for n in lengths])
        words, inputs, outputs = types
        return int(self._call(words(*extents), inputs(*map(address_of, arguments)), outputs(*map(address_of, results))))

    def message(self, status: int) -> str:
        """Return the message of a status."""
        return str(self._error(status).decode())
