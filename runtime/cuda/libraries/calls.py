"""Launches that a library does in a kernel's place: with their sizes, ready to be called, and which of both it is to be.

A routine of a kernel is done by the kernel of ours, by a library, or, where there is neither, by the CPU. Between the first two a
choice is measured where both can do it (``choices``).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pullback.codegen.cuda.source.launch import Launch, Routine
from pullback.ir.core.op import OPS
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.library.routines import Argument, Library
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices.choices import Choice, Key, choices
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.libraries.libraries import Handle, libraries_of
from pullback.runtime.cuda.libraries.routines import NUMBERS, RECORDS, Record, Step

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.device import Device

MOST = 2**31 - 1
LARGEST = 256
"""The largest order of a matrix that one block is given."""
LARGEST_OF = {"syevd": 64}
"""That of routines with more steps."""
FEW = 32
"""Without a measurement a block does matrices up to this order, and batches."""
WORTH = 1 << 18
"""Without a measurement a library does products of more multiplications."""
OURS, LIBRARY = "ours", "library"
LETTERS = {("f32", False): "S", ("f64", False): "D", ("f32", True): "C", ("f64", True): "Z"}


@dataclass(frozen=True, slots=True, eq=False)
class Called:
    """A routine that a library does. ``operands``: the kernel's arguments whose addresses it takes; then come those of the
    buffers ``scratch``, by number. ``captures``: it may be captured in a graph. ``call(addresses, stream)`` does it."""

    name: str
    operands: tuple[int, ...]
    scratch: tuple[int, ...]
    captures: bool
    call: Callable[[Sequence[int], Any], None]


@dataclass(frozen=True, slots=True, eq=False)
class Sized:
    """A routine with its sizes: the shapes of its operands, without batch, and how many there are in a batch."""

    routine: Routine
    op: Library
    shapes: tuple[tuple[int, ...], ...]
    batch: int

    @property
    def is_empty(self) -> bool:
        """Whether a matrix has no elements, or the batch none."""
        refs = [k for k in range(len(self.shapes)) if k not in self.op.work]
        return not self.batch or any(not math.prod(self.shapes[k]) for k in refs)

    @property
    def order(self) -> int:
        """The largest extent of the matrix that is factored or solved with."""
        return max(self.shapes[0], default=1)

    @property
    def params(self) -> dict[str, Any]:
        kind = (self.routine.dtype, self.routine.is_complex)
        return {**dict(self.routine.params), "complex": self.routine.is_complex, "numbers": NUMBERS[kind]}

    @property
    def letter(self) -> str:
        return LETTERS[self.routine.dtype, self.routine.is_complex]

    @property
    def bytes(self) -> int:
        """Of one number."""
        return DTYPES[self.routine.dtype].bytes * (2 if self.routine.is_complex else 1)

    def element(self, position: int) -> int:
        """The bytes of an element of an operand."""
        if position in self.op.integers:
            return 4
        return DTYPES[self.routine.dtype].bytes if position in self.op.real else self.bytes

    def step(self, position: int) -> int:
        """The bytes from an operand's matrix to that of the next element of the batch."""
        is_batched = self.routine.operands[position].is_batched
        return math.prod(self.shapes[position]) * self.element(position) if is_batched else 0


def sized(routine: Routine, sizes: Mapping[str, int]) -> Sized:
    op = OPS[routine.name]
    assert isinstance(op, Library)
    shapes = tuple(tuple(value_of(e, sizes) for e in each.shape) for each in routine.operands)
    return Sized(routine, op, shapes, math.prod(value_of(e, sizes) for e in routine.batch))


def is_known(routine: Routine) -> bool:
    """Whether there is a record of what a library would do."""
    return routine.name in RECORDS


def block_does(launch: Launch, call: Sized) -> bool:
    """Whether a launch is of use for these sizes; one block cannot do much."""
    if not launch.name or not call.routine.is_small:
        return bool(launch.name)
    counts = (math.prod(shape) for k, shape in enumerate(call.shapes) if k not in call.op.work)
    return call.is_empty or (call.order <= min(LARGEST, LARGEST_OF.get(call.routine.name, LARGEST)) and max(counts) <= MOST)


def planned(device: Device, call: Sized, buffers: list[tuple[str, int]]) -> Called | None:
    """The routine as a library does it, its own buffers appended to the kernel's; None where none can. Raises DeviceError."""
    record = RECORDS.get(call.routine.name)
    if record is None or any(e > MOST for shape in call.shapes for e in (*shape, call.batch)):
        return None
    if call.is_empty:
        return _cleared(call)
    handles = {step.library: libraries_of(device).handle(step.library) for step in record.all_steps}
    if any(h is None or not h.has(s.name(call.letter)) for s in record.all_steps for h in [handles[s.library]]):
        return None
    here = {name: handle for name, handle in handles.items() if handle is not None}
    work = _asked(record, call, here)
    sizes = [*(n * call.bytes for n in record.own(call.shapes)), *([max(work, 1) * call.bytes] if record.query else [])]
    first = len(buffers)
    buffers += [(f"{call.routine.name} of a library", max(size, 1)) for size in sizes]
    operands = tuple(k for k in range(len(call.shapes)) if k not in call.op.work)
    title = "/".join(dict.fromkeys(here[step.library].wanted.title for step in record.steps))
    return Called(
        f"{title}'s {call.routine.name}", tuple(call.routine.operands[k].position for k in operands),
        tuple(range(first, len(buffers))), record.captures, _Work(record, call, here, operands, work),
    )  # fmt: skip


def _cleared(call: Sized) -> Called:
    """What is left to do of matrices without elements: to say that nothing went wrong."""
    infos = tuple(k for k in call.op.writes if k in call.op.integers and not call.shapes[k] and k not in call.op.work)

    def work(addresses: Sequence[int], stream: Any) -> None:
        for address, k in zip(addresses, infos, strict=True):
            count = call.batch if call.routine.operands[k].is_batched else 1
            if count:
                cuda.memset_d32_async(address, 0, count, stream)

    return Called(call.routine.name, tuple(call.routine.operands[k].position for k in infos), (), True, work)


def _asked(record: Record, call: Sized, handles: Mapping[str, Handle]) -> int:
    """How many elements of memory the library wants to work in."""
    if record.query is None:
        return 0
    handle, found = handles[record.query.library], ctypes.c_int()
    arguments = record.query.arguments(call.params)
    given = [ctypes.c_void_p(handle.anchor) if a[0] in PLACES else _value(a, call, handle, 0) for a in arguments]
    at = len(given) - sum(a[0] == "made" for a in arguments)
    with handle.lock:
        handle.call(record.query.name(call.letter), *given[:at], ctypes.byref(found), *given[at:])
    return found.value


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A step with all its arguments but the addresses ``places``, each with its number among the arguments."""

    handle: Handle
    name: str
    arguments: Sequence[Any]
    places: Sequence[tuple[int, Argument]]


class _Work:
    """The calls of a routine, for each element of the batch."""

    def __init__(self, record: Record, call: Sized, handles: Mapping[str, Handle], operands: Sequence[int], work: int) -> None:
        self.call, self.operands = call, operands
        self.own = len(record.own(call.shapes))
        self.handles = list(dict.fromkeys(handles[step.library] for step in record.steps))
        self.steps = [self._prepared(handles[step.library], step, work) for step in record.steps]
        self.turns = 1 if record.at_once else call.batch

    def _prepared(self, handle: Handle, step: Step, work: int) -> _Prepared:
        given = step.arguments(self.call.params)
        arguments = [None if a[0] in PLACES else _value(a, self.call, handle, work) for a in given]
        return _Prepared(handle, step.name(self.call.letter), arguments, [(k, a) for k, a in enumerate(given) if a[0] in PLACES])

    def __call__(self, addresses: Sequence[int], stream: Any) -> None:
        places = dict(zip(self.operands, addresses, strict=False))
        buffers = addresses[len(self.operands) :]
        with ExitStack() as held:
            for handle in self.handles:
                held.enter_context(handle.lock)
                handle.on(stream)
            for turn in range(self.turns):
                for step in self.steps:
                    given = [*step.arguments]
                    for k, a in step.places:
                        if a[0] == "ref":
                            at = places[a[1]] + turn * self.call.step(a[1])
                        else:
                            at = buffers[a[1] if a[0] == "own" else self.own]
                        given[k] = ctypes.c_void_p(at)
                    step.handle.call(step.name, *given)


PLACES = ("ref", "own", "work")
"""Arguments that are addresses."""


def _value(a: Argument, call: Sized, handle: Handle, work: int) -> Any:
    """An argument as a C value, if it is no address."""
    match a:
        case ("code" | "integer", int(number)):
            return ctypes.c_int(number)
        case ("extent", int(position), int(axis)):
            return ctypes.c_int(call.shapes[position][axis])
        case ("lead", int(position)):
            return ctypes.c_int(max(call.shapes[position][-1], 1))
        case ("stride", int(position)):
            return ctypes.c_longlong(call.step(position) // call.bytes)
        case ("batch",):
            return ctypes.c_int(call.batch)
        case ("lwork",):
            return ctypes.c_int(work)
        case ("one",) | ("zero",):
            of = ctypes.c_float if call.routine.dtype == "f32" else ctypes.c_double
            return ctypes.byref((of * 2)(float(a[0] == "one"), 0.0))
        case ("made", str(function)):
            return handle.made(function)
    raise AssertionError(a)


# which of both


Seconds = Callable[[Launch, Sized, "Called | None", Sequence[int]], float]
"""What measures a candidate: the launch itself, or what is called in its place with buffers of these bytes."""


def chosen(
    device: Device, launch: Launch, sizes: Mapping[str, int], buffers: list[tuple[str, int]], seconds: Seconds
) -> tuple[Choice, Called | None] | None:
    """What does a launch's routine: the launch itself, or what is called in its place, whose buffers are appended to the
    kernel's. None where the CPU has to."""
    assert launch.routine is not None
    call = sized(launch.routine, sizes)
    ours = block_does(launch, call)
    key = key_of(device, call)
    if ours and call.is_empty:
        return Choice(key=key, chosen=OURS, how="only"), None
    extra: list[tuple[str, int]] = []
    try:
        library = planned(device, call, extra)
    except DeviceError:
        library = None
    if library is None and not ours:
        return None
    candidates: dict[str, Callable[[], float]] = {}
    if ours:
        candidates[OURS] = lambda: seconds(launch, call, None, ())
    if library is not None:
        candidates[LIBRARY] = lambda: seconds(launch, call, library, [size for _, size in extra])
    found = choices.choose(key, candidates, LIBRARY if OURS not in candidates or _is_large(call, candidates) else OURS)
    if found.chosen == OURS:
        return found, None
    assert library is not None
    first = len(buffers)
    buffers += extra
    numbers = tuple(range(first, first + len(extra)))
    return found, Called(library.name, library.operands, numbers, library.captures, library.call)


def _is_large(call: Sized, candidates: Mapping[str, Any]) -> bool:
    """Whether a library would be taken without a measurement."""
    if LIBRARY not in candidates:
        return False
    if not call.routine.is_small:
        depth = call.shapes[0][0 if dict(call.routine.params)["transpose_a"] else 1]
        return math.prod(call.shapes[2]) * depth * call.batch >= WORTH
    return call.order > FEW and call.batch * FEW <= call.order


def key_of(device: Device, call: Sized) -> Key:
    """What a choice depends on: extents count by their power of two from 32 on, and batches from one on."""
    extents = " ".join(
        "x".join(str(_class(e)) for e in shape) or "1" for k, shape in enumerate(call.shapes) if k not in call.op.work
    )
    kind = f"{'complex ' if call.routine.is_complex else ''}{call.routine.dtype}"
    flags = " ".join(name for name, value in call.routine.params if value is True)
    batch = 1 << (call.batch - 1).bit_length() if call.batch > 1 else 1
    record = RECORDS.get(call.routine.name)
    handles = [libraries_of(device).handle(name) for name in dict.fromkeys(s.library for s in record.all_steps)] if record else []
    versions = " ".join(f"{h.wanted.name} {h.version}" for h in handles if h is not None)
    words = (kind, extents, f"batch {batch}", flags, f"{device.title} {device.arch}", versions)
    return Key(subject=call.routine.name, details=tuple(word for word in words if word))


def _class(extent: int) -> int:
    return extent if extent <= FEW else 1 << (extent - 1).bit_length()
