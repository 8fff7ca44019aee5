"""The sections and symbols of 64-bit little-endian ELF files (System V ABI, chapter 4): code of Linux and of NVIDIA's GPUs."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

MAGIC = b"\x7fELF\x02\x01"
_SYMBOLS = 2


class Section(NamedTuple):
    """``start`` and ``size``: its bytes in the file, where one of ``kind`` 8 has none. ``link``: another section."""

    name: str
    kind: int
    start: int
    size: int
    link: int
    each: int


class Symbol(NamedTuple):
    """``section`` is 0 for one that is defined elsewhere; ``info`` and ``other`` as in the file."""

    number: int
    name: str
    info: int
    other: int
    section: int


def machine(payload: bytes) -> int:
    """For what processor it is; 0 for what is no such file."""
    return int(struct.unpack_from("<H", payload, 18)[0]) if payload[:6] == MAGIC and len(payload) >= 64 else 0


def sections(payload: bytes) -> list[Section]:
    """The sections, in order."""
    start, size, count, names = struct.unpack_from("<Q", payload, 40)[0], *struct.unpack_from("<HHH", payload, 58)
    found = [struct.unpack_from("<IIQQQQIIQQ", payload, start + n * size) for n in range(count)]
    strings = found[names][4] if count else 0
    return [Section(text(payload, strings + s[0]), s[1], s[4], s[5], s[6], s[9]) for s in found]


def symbols(payload: bytes, found: list[Section]) -> Iterator[Symbol]:
    """The symbols of a file with these sections."""
    for table in found:
        if table.kind != _SYMBOLS:
            continue
        strings = found[table.link].start
        for number, at in enumerate(range(table.start, table.start + table.size, table.each)):
            name, info, other, section = struct.unpack_from("<IBBH", payload, at)
            yield Symbol(number, text(payload, strings + name), info, other, section)


def text(payload: bytes, at: int) -> str:
    """The text that ends with a zero."""
    return payload[at : payload.index(b"\0", at)].decode()
