"""What the code of NVIDIA's GPUs says of itself: the registers and memory that each kernel takes.

A cubin is an ELF file. Its section ".nv.info" holds attributes by function: a byte of form, a byte of name, two bytes of value
or of the size of what follows.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pullback.runtime.compile import elf

_MACHINE = 190
_REGISTERS, _FRAME = 0x2F, 0x11
_SIZED = 4
_FUNCTION, _ENTRY = 0x12, 0x10
_RESERVED, _RESERVES = 1024, 90
"""Bytes of a block's shared memory that the system takes, and the architecture from which on they are in the sizes."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Of one kernel: registers of a thread; bytes that a thread has in memory (``local``: arrays and spilled registers); bytes
    of shared memory of a block, but for what a launch adds."""

    registers: int
    local: int
    shared: int

    def __str__(self) -> str:
        return f"{self.registers} registers, {self.local} bytes local, {self.shared} bytes shared"


def resources(payload: bytes) -> dict[str, Resources]:
    """The kernels of a cubin, by name; none where it is not one."""
    if elf.machine(payload) != _MACHINE:
        return {}
    try:
        return _resources(payload)
    except (struct.error, ValueError, IndexError):
        return {}


def architecture(payload: bytes) -> int:
    """The number of a cubin's architecture, 90 of "sm_90". CUDA 13 raised the version of the format and moved it."""
    version, flags = payload[8], struct.unpack_from("<I", payload, 48)[0]
    return int(flags >> 8 if version >= 8 else flags) & 0xFF


def _resources(payload: bytes) -> dict[str, Resources]:
    sections = elf.sections(payload)
    symbols = list(elf.symbols(payload, sections))
    kernels = {s.number: s.name for s in symbols if s.info == _FUNCTION and s.other & _ENTRY and s.section}
    by_name = {s.name: s for s in sections}
    reserved = _RESERVED if architecture(payload) >= _RESERVES else 0
    values = {(name, number): value for name, number, value in _attributes(payload, by_name.get(".nv.info"))}
    found = {}
    for number, name in kernels.items():
        shared = by_name.get(f".nv.shared.{name}")
        found[name] = Resources(
            registers=values[_REGISTERS, number],
            local=values.get((_FRAME, number), 0),
            shared=max(0, shared.size - reserved) if shared else 0,
        )
    return dict(sorted(found.items()))


def _attributes(payload: bytes, section: elf.Section | None) -> Iterator[tuple[int, int, int]]:
    """(name, symbol, value) of the attributes that hold a symbol and a number."""
    at, end = (section.start, section.start + section.size) if section else (0, 0)
    while at + 4 <= end:
        form, name, size = struct.unpack_from("<BBH", payload, at)
        at += 4
        if form == _SIZED:
            if size == 8:
                symbol, value = struct.unpack_from("<II", payload, at)
                yield name, symbol, value
            at += size
