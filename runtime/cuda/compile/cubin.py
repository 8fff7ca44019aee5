"""The registers and memory that each kernel of a cubin uses, read from the file.

A cubin is an ELF file. Its section ".nv.info" holds attributes by function: a byte of form, a byte of name, then two bytes
that are the value or the size of what follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from pullback.ir.core.records import dataclass
from pullback.runtime.compile import elf

_MACHINE = 190
_REGISTERS, _FRAME = 0x2F, 0x11
_SIZED = 4
_FUNCTION, _ENTRY = 0x12, 0x10
_RESERVED, _RESERVED_FROM = 1024, 90
"""The bytes of a block's shared memory that the system reserves, and the first architecture whose section sizes include them."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The resources of one kernel: registers per thread; bytes of ``local`` memory per thread (arrays and spilled registers);
    bytes of shared memory per block, without what a launch adds."""

    registers: int
    local: int
    shared: int

    def __str__(self) -> str:
        return f"{self.registers} registers, {self.local} bytes local, {self.shared} bytes shared"


def resources(payload: bytes) -> dict[str, Resources]:
    """Return the resources of a cubin's kernels, by name; empty if the bytes are no valid cubin."""
    if elf.machine(payload) != _MACHINE:
        return {}
    try:
        return _resources(payload)
    except (struct.error, ValueError, IndexError):
        return {}


def architecture(payload: bytes) -> int:
    """Return a cubin's architecture, such as 90 for "sm_90". CUDA 13 raised the version of the format and moved the field."""
    version, flags = payload[8], struct.unpack_from("<I", payload, 48)[0]
    return int(flags >> 8 if version >= 8 else flags) & 0xFF


def _resources(payload: bytes) -> dict[str, Resources]:
    sections = elf.sections(payload)
    symbols = list(elf.symbols(payload, sections))
    kernels = {s.ordinal: s.name for s in symbols if s.info == _FUNCTION and s.other & _ENTRY and s.section}
    by_name = {s.name: s for s in sections}
    reserved = _RESERVED if architecture(payload) >= _RESERVED_FROM else 0
    values = {(name, index): value for name, index, value in _attributes(payload, by_name.get(".nv.info"))}
    result = {}
    for index, name in kernels.items():
        shared = by_name.get(f".nv.shared.{name}")
        result[name] = Resources(
            registers=values[_REGISTERS, index],
            local=values.get((_FRAME, index), 0),
            shared=max(0, shared.size - reserved) if shared else 0,
        )
    return dict(sorted(result.items()))


def _attributes(payload: bytes, section: elf.Section | None) -> Iterator[tuple[int, int, int]]:
    """Yield (attribute, symbol, value) for the attributes that hold a symbol index and a value."""
    at, end = (section.start, section.start + section.size) if section else (0, 0)
    while at + 4 <= end:
        form, name, size = struct.unpack_from("<BBH", payload, at)
        at += 4
        if form == _SIZED:
            if size == 8:
                symbol, value = struct.unpack_from("<II", payload, at)
                yield name, symbol, value
            at += size
