"""The sections and symbols of 64-bit little-endian ELF files (System V ABI, chapter 4): code for Linux and for NVIDIA's GPUs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

MAGIC = b"\x7fELF\x02\x01"
_SYMBOLS = 2
"""The section type of a symbol table (SHT_SYMTAB)."""


class Section(NamedTuple):
    """``start`` and ``size``: its bytes in the file (none if ``kind`` is 8, SHT_NOBITS). ``link``: the index of a related
    section. ``each``: the bytes of one table entry."""

    name: str
    kind: int
    start: int
    size: int
    link: int
    each: int


class Symbol(NamedTuple):
    """A symbol and its index in the table. ``section`` is 0 for one that is defined elsewhere; ``info`` and ``other`` are the
    raw fields."""

    ordinal: int
    name: str
    info: int
    other: int
    section: int


def machine(payload: bytes) -> int:
    """Return the ELF code of the target processor; 0 if the bytes are no such file."""
    return int(struct.unpack_from("<H", payload, 18)[0]) if payload[:6] == MAGIC and len(payload) >= 64 else 0


def sections(payload: bytes) -> list[Section]:
    """Return the sections, in order."""
    start, size, count, names = struct.unpack_from("<Q", payload, 40)[0], *struct.unpack_from("<HHH", payload, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", payload, start + n * size) for n in range(count)]
    strings = headers[names][4] if count else 0
    return [Section(text(payload, strings + s[0]), s[1], s[4], s[5], s[6], s[9]) for s in headers]


def symbols(payload: bytes, sections: list[Section]) -> Iterator[Symbol]:
    """Yield the symbols of a file with these sections."""
    for table in sections:
        if table.kind != _SYMBOLS:
            continue
        strings = sections[table.link].start
        for index, at in enumerate(range(table.start, table.start + table.size, table.each)):
            name, info, other, section = struct.unpack_from("<IBBH", payload, at)
            yield Symbol(index, text(payload, strings + name), info, other, section)


def text(payload: bytes, at: int) -> str:
    """Return the zero-terminated string at an offset."""
    return payload[at : payload.index(b"\0", at)].decode()
