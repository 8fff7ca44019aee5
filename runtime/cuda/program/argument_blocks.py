"""Launches of kernels with their sizes filled in: the argument block of each, and what a call still puts into it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.core.types import DTYPES
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices.choices import Choice
from pullback.runtime.cuda.libraries import calls as cuda_calls
from pullback.runtime.cuda.libraries.calls import Called

if TYPE_CHECKING:
    from pullback.codegen.cuda.source.launch import Launch, Launches, Scratch

LETTERS = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u64": "Q", "u32": "I", "u16": "H", "u8": "B"}
"""What packs a scalar; of other dtypes the bits, as an unsigned integer."""
BITS = {1: ("B", np.uint8), 2: ("H", np.uint16)}


@dataclass(frozen=True, slots=True, eq=False)
class Started:
    """One launch, ``shared`` bytes of shared memory a block. ``values``: its arguments, in which a call fills in at ``pointers``
    the addresses of operands, at ``strides`` theirs, at ``scalars`` theirs, at ``scratch`` those of the kernel's own memory and
    at ``status`` that of its status."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    packing: struct.Struct
    values: list[Any]
    pointers: tuple[tuple[int, int], ...]
    strides: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[int, int, str], ...]
    scratch: tuple[tuple[int, int], ...]
    status: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """The launches of a kernel, one after the other, and what libraries do in place of some. ``scratch``: the name and the bytes
    of each of its own buffers. ``is_on_host``: the CPU has to do it all, with these sizes. ``choices``: what was chosen."""

    starts: tuple[Started | Called, ...]
    scratch: tuple[tuple[str, int], ...]
    has_status: bool
    is_on_host: bool = False
    choices: tuple[Choice, ...] = ()


ON_HOST = Bound((), (), False, True)
Choose = Callable[["Launch", list[tuple[str, int]]], "tuple[Choice, Called | None] | None"]
"""Says of a launch that a library may do what is to, and appends what memory that takes; None where the CPU has to."""


def bound(kernel: Launches, sizes: Mapping[str, int], choose: Choose, room: int) -> Bound:
    """A kernel with its sizes s0, s1, ..., on a device that gives a block ``room`` bytes of shared memory."""
    blocks = [each.blocks(sizes) for each in kernel.launches]
    scratch = [(s.name, _bytes(s, kernel.launches[s.launch], blocks[s.launch], sizes, room)) for s in kernel.scratch]
    starts: list[Started | Called] = []
    choices: list[Choice] = []
    for each, count in zip(kernel.launches, blocks, strict=True):
        if any(value_of(e, sizes) > cuda_calls.LARGEST for e in each.orders):
            return ON_HOST
        is_routine = each.routine is not None and (each.tiles is None or count > 0)
        found = choose(each, scratch) if is_routine else None
        if is_routine and found is None:
            return ON_HOST
        if found is not None:
            choices.append(found[0])
        if found is not None and found[1] is not None:
            starts.append(found[1])
        elif count:
            starts.append(started(each, blocks, count, sizes, room))
    has_status = any(isinstance(start, Started) and start.status for start in starts)
    return Bound(tuple(starts), tuple(scratch), has_status, False, tuple(choices))


def _bytes(own: Scratch, launch: Launch, blocks: int, sizes: Mapping[str, int], room: int) -> int:
    """What a kernel's own memory takes, which is there even if it is of no use."""
    if own.is_private and launch.shared(sizes, room):
        return own.dtype.bytes
    return blocks * math.prod(value_of(e, sizes) for e in own.shape) * own.dtype.bytes


def started(each: Launch, blocks: Sequence[int], count: int, sizes: Mapping[str, int], room: int) -> Started:
    letters: list[str] = []
    values: list[Any] = []
    found: dict[str, list[Any]] = {kind: [] for kind in ("pointers", "strides", "scalars", "scratch", "status")}
    for at, slot in enumerate(each.slots):
        letter, value = "q", 0
        match slot:
            case ("pointer", int(position)):
                letter = "Q"
                found["pointers"].append((at, position))
            case ("stride", int(position), int(axis)):
                found["strides"].append((at, position, axis))
            case ("scalar", int(position), str(dtype)):
                letter = LETTERS.get(dtype) or BITS[DTYPES[dtype].bytes][0]
                found["scalars"].append((at, position, dtype))
            case ("size", int(size)):
                value = sizes[f"s{size}"]
            case ("scratch", int(which)):
                letter = "Q"
                found["scratch"].append((at, which))
            case ("blocks", int(which)):
                value = blocks[which]
            case ("number", int(number)):
                letter, value = "i", number
            case ("shared",):
                letter, value = "i", each.shared(sizes, room)
            case ("width",):
                letter, value = "i", each.width_for(sizes)
            case ("chunks",):
                letter, value = "i", each.chunks_for(sizes)
            case ("parts",):
                letter, value = "i", each.parts(sizes)
            case ("status",):
                letter = "Q"
                found["status"].append(at)
            case _:
                raise AssertionError(slot)
        letters.append(letter)
        values.append(value)
    packing = struct.Struct("@" + "".join(letters))
    parts = {kind: tuple(those) for kind, those in found.items()}
    block, shared = (each.threads_for(sizes), 1, 1), each.shared(sizes, room)
    return Started(each.name, (count, 1, 1), block, shared, packing, values, **parts)


def scalar_bits(value: Any, dtype: str) -> Any:
    """A scalar as what its letter packs."""
    if dtype in LETTERS:
        return DTYPES[dtype].numpy.type(value).item()
    return int(np.asarray(value, DTYPES[dtype].numpy).view(BITS[DTYPES[dtype].bytes][1]))


def scalar_key(value: Any, dtype: str) -> bytes:
    """What tells scalars apart in a launch: 0.0 and -0.0 are two."""
    letter = LETTERS.get(dtype) or BITS[DTYPES[dtype].bytes][0]
    return struct.pack(letter, scalar_bits(value, dtype))
