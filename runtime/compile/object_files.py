"""The symbols of object files: the functions that an object defines, and those that it needs from outside.

Layouts: System V ABI, chapter 4 (ELF); "PE Format" of Microsoft, chapter 5 (COFF); ``mach-o/loader.h`` and ``nlist.h``
(Mach-O).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from pullback.runtime.compile import elf

Symbols = tuple[set[str], set[str]]

_COFF_MACHINES = (0x8664, 0xAA64)


def object_symbols(payload: bytes) -> Symbols | None:
    """Return the (defined, undefined) global symbols of a 64-bit little-endian object file, without the underscore that Mach-O
    prepends; None for another format."""
    reader: Callable[[bytes], Symbols]
    if payload[:6] == elf.MAGIC:
        reader = _elf
    elif payload[:4] == b"\xcf\xfa\xed\xfe":
        reader = _mach_o
    elif len(payload) > 20 and struct.unpack_from("<H", payload)[0] in _COFF_MACHINES:
        reader = _coff
    else:
        return None
    return reader(payload)


def _elf(payload: bytes) -> Symbols:
    symbols = [s for s in elf.symbols(payload, elf.sections(payload)) if s.info >> 4 and s.name]
    return {s.name for s in symbols if s.section}, {s.name for s in symbols if not s.section}


def _mach_o(payload: bytes) -> Symbols:
    defined: set[str] = set()
    undefined: set[str] = set()
    at = 32
    for _ in range(struct.unpack_from("<I", payload, 16)[0]):
        command, size = struct.unpack_from("<II", payload, at)
        if command == 2:
            table, count, strings, _ = struct.unpack_from("<IIII", payload, at + 8)
            for n in range(count):
                name, kind, _, _, _ = struct.unpack_from("<IBBHQ", payload, table + 16 * n)
                if kind & 1 and not kind & 0xE0:
                    (defined if kind & 0x0E else undefined).add(elf.text(payload, strings + name).removeprefix("_"))
        at += size
    return defined, undefined


def _coff(payload: bytes) -> Symbols:
    defined: set[str] = set()
    undefined: set[str] = set()
    table, count = struct.unpack_from("<II", payload, 8)
    strings, n = table + 18 * count, 0
    while n < count:
        short, value, section, _, storage, more = struct.unpack_from("<8sIhHBB", payload, table + 18 * n)
        n += 1 + more
        if storage == 2 and (section > 0 or section == -1):
            defined.add(_coff_name(payload, short, strings))
        elif storage == 2 and not value:
            undefined.add(_coff_name(payload, short, strings))
    return defined, undefined


def _coff_name(payload: bytes, short: bytes, strings: int) -> str:
    if short[:4] == b"\0\0\0\0":
        return elf.text(payload, strings + int(struct.unpack_from("<I", short, 4)[0]))
    return short.rstrip(b"\0").decode()
