"""Kernel launches with their sizes filled in: the argument block of each, and the values that a call still adds to it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices.choices import Choice
from pullback.runtime.cuda.libraries import calls as cuda_calls
from pullback.runtime.cuda.libraries.calls import LibraryCall

if TYPE_CHECKING:
    from pullback.codegen.cuda.source.launch import Launch, Launches, Scratch

LETTERS = {"f64": "d", "f32": "f", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u64": "Q", "u32": "I", "u16": "H", "u8": "B"}
"""The ``struct`` letter of each scalar dtype; other dtypes are packed as unsigned integers of the same bits."""
BITS = {1: ("B", np.uint8), 2: ("H", np.uint16)}


@dataclass(frozen=True, slots=True, eq=False)
class SizedLaunch:
    """One launch, with ``shared`` bytes of shared memory per block. ``values``: its arguments; a call fills in the operands'
    addresses at ``pointers``, their strides at ``strides``, scalars at ``scalars``, the addresses of the kernel's scratch
    buffers at ``scratch``, and the address of its status at ``status``."""

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
class SizedKernel:
    """The launches of a kernel, in order, and the library calls that replace some. ``scratch``: the name and the bytes of each
    of its scratch buffers. ``is_on_host``: with these sizes the CPU has to run the kernel. ``choices``: the choices made."""

    starts: tuple[SizedLaunch | LibraryCall, ...]
    scratch: tuple[tuple[str, int], ...]
    has_status: bool
    is_on_host: bool = False
    choices: tuple[Choice, ...] = ()


ON_HOST = SizedKernel((), (), False, True)
Choose = Callable[["Launch", list[tuple[str, int]]], "tuple[Choice, LibraryCall | None] | None"]
"""Returns the choice for a launch that a library may replace, and appends the buffers that the library needs; None if the CPU
has to run it."""


def sized_kernel(kernel: Launches, sizes: Mapping[str, int], choose: Choose, max_shared_bytes: int) -> SizedKernel:
    """Return a kernel with its sizes s0, s1, ..., on a device whose blocks have at most ``max_shared_bytes`` of shared memory."""
    blocks = [each.blocks(sizes) for each in kernel.launches]
    scratch = [(s.name, _bytes(s, kernel.launches[s.launch], blocks[s.launch], sizes, max_shared_bytes)) for s in kernel.scratch]
    starts: list[SizedLaunch | LibraryCall] = []
    choices: list[Choice] = []
    for each, count in zip(kernel.launches, blocks, strict=True):
        if any(value_of(e, sizes) > cuda_calls.MAX_ORDER for e in each.orders):
            return ON_HOST
        is_routine = each.routine is not None and (each.tiles is None or count > 0)
        choice = choose(each, scratch) if is_routine else None
        if is_routine and choice is None:
            return ON_HOST
        if choice is not None:
            choices.append(choice[0])
        if choice is not None and choice[1] is not None:
            starts.append(choice[1])
        elif count:
            starts.append(sized_launch(each, blocks, count, sizes, max_shared_bytes))
    has_status = any(isinstance(start, SizedLaunch) and start.status for start in starts)
    return SizedKernel(tuple(starts), tuple(scratch), has_status, False, tuple(choices))


def _bytes(own: Scratch, launch: Launch, blocks: int, sizes: Mapping[str, int], max_shared_bytes: int) -> int:
    """Return the bytes of a scratch buffer; it is one element if shared memory replaces it."""
    if own.is_private and launch.shared(sizes, max_shared_bytes):
        return own.dtype.bytes
    return blocks * math.prod(value_of(e, sizes) for e in own.shape) * own.dtype.bytes


def sized_launch(each: Launch, blocks: Sequence[int], count: int, sizes: Mapping[str, int], max_shared_bytes: int) -> SizedLaunch:
    letters: list[str] = []
    values: list[Any] = []
    slots: dict[str, list[Any]] = {kind: [] for kind in ("pointers", "strides", "scalars", "scratch", "status")}
    for at, slot in enumerate(each.slots):
        letter, value = "q", 0
        match slot:
            case ("pointer", int(position)):
                letter = "Q"
                slots["pointers"].append((at, position))
            case ("stride", int(position), int(axis)):
                slots["strides"].append((at, position, axis))
            case ("scalar", int(position), str(dtype)):
                letter = LETTERS.get(dtype) or BITS[DTYPES[dtype].bytes][0]
                slots["scalars"].append((at, position, dtype))
            case ("size", int(size)):
                value = sizes[f"s{size}"]
            case ("scratch", int(which)):
                letter = "Q"
                slots["scratch"].append((at, which))
            case ("blocks", int(which)):
                value = blocks[which]
            case ("number", int(constant)):
                letter, value = "i", constant
            case ("shared",):
                letter, value = "i", each.shared(sizes, max_shared_bytes)
            case ("width",):
                letter, value = "i", each.width_for(sizes)
            case ("chunks",):
                letter, value = "i", each.chunks_for(sizes)
            case ("parts",):
                letter, value = "i", each.parts(sizes)
            case ("status",):
                letter = "Q"
                slots["status"].append(at)
            case _:
                raise AssertionError(slot)
        letters.append(letter)
        values.append(value)
    packing = struct.Struct("@" + "".join(letters))
    parts = {kind: tuple(entries) for kind, entries in slots.items()}
    block, shared = (each.threads_for(sizes), 1, 1), each.shared(sizes, max_shared_bytes)
    return SizedLaunch(each.name, (count, 1, 1), block, shared, packing, values, **parts)


def scalar_bits(value: Any, dtype: str) -> Any:
    """Return a scalar as the value that its ``struct`` letter packs."""
    if dtype in LETTERS:
        return DTYPES[dtype].numpy.type(value).item()
    return int(np.asarray(value, DTYPES[dtype].numpy).view(BITS[DTYPES[dtype].bytes][1]))


def scalar_key(value: Any, dtype: str) -> bytes:
    """Return bytes that distinguish scalars of a launch: 0.0 and -0.0 differ."""
    letter = LETTERS.get(dtype) or BITS[DTYPES[dtype].bytes][0]
    return struct.pack(letter, scalar_bits(value, dtype))
