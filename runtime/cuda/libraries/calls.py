"""Library calls that replace launches, with their sizes filled in, and the choice between the two.

The routine of a kernel is run by the generated kernel, by a library, or, if there is neither, by the CPU. The choice between
the first two is measured if both can run it (``choices``).
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from pullback.codegen.cuda.source.launch import Launch, Routine
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.library.routines import Argument, Library
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices.choices import Choice, Key, choices
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.libraries.libraries import Handle, libraries_of
from pullback.runtime.cuda.libraries.routines import RECORDS, TYPE_CODES, Record, Step

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.device import Device

MAX_INT = 2**31 - 1
MAX_ORDER = 256
"""The largest order of a matrix that one thread block processes."""
MAX_ORDERS = {"syevd": 64}
"""The same limit for routines with more steps."""
SMALL_ORDER = 32
"""The largest order for which one thread block is chosen without a measurement; batches are given to blocks too."""
MIN_LIBRARY_SIZE = 1 << 18
"""The number of multiplications from which a library is chosen for products without a measurement."""
OURS, LIBRARY = "ours", "library"
LETTERS = {("f32", False): "S", ("f64", False): "D", ("f32", True): "C", ("f64", True): "Z"}


@dataclass(frozen=True, slots=True, eq=False)
class LibraryCall:
    """A routine run by a library. ``operands``: the kernel's arguments whose addresses it takes; then come the addresses of
    the buffers ``scratch``, by index. ``captures``: it may be captured in a graph. ``call(addresses, stream)`` runs it."""

    name: str
    operands: tuple[int, ...]
    scratch: tuple[int, ...]
    captures: bool
    call: Callable[[Sequence[int], Any], None]


@dataclass(frozen=True, slots=True, eq=False)
class SizedRoutine:
    """A routine with its sizes: the shapes of its operands, without the batch axes, and the number of matrices in the batch."""

    routine: Routine
    op: Library
    shapes: tuple[tuple[int, ...], ...]
    batch: int

    @property
    def is_empty(self) -> bool:
        """Whether the batch or a matrix has no elements."""
        refs = [k for k in range(len(self.shapes)) if k not in self.op.work]
        return not self.batch or any(not math.prod(self.shapes[k]) for k in refs)

    @property
    def order(self) -> int:
        """The largest extent of the matrix that is factored or solved with."""
        return max(self.shapes[0], default=1)

    @property
    def params(self) -> dict[str, Any]:
        kind = (self.routine.dtype, self.routine.is_complex)
        return {**dict(self.routine.params), "complex": self.routine.is_complex, "numbers": TYPE_CODES[kind]}

    @property
    def letter(self) -> str:
        return LETTERS[self.routine.dtype, self.routine.is_complex]

    @property
    def bytes(self) -> int:
        """The bytes of one scalar."""
        return DTYPES[self.routine.dtype].bytes * (2 if self.routine.is_complex else 1)

    def element(self, position: int) -> int:
        """Return the bytes of an element of an operand."""
        if position in self.op.integers:
            return 4
        return DTYPES[self.routine.dtype].bytes if position in self.op.real else self.bytes

    def step(self, position: int) -> int:
        """Return the bytes from an operand's matrix to that of the next element of the batch; 0 if it is not batched."""
        is_batched = self.routine.operands[position].is_batched
        return math.prod(self.shapes[position]) * self.element(position) if is_batched else 0


def sized_routine(routine: Routine, sizes: Mapping[str, int]) -> SizedRoutine:
    op = OPS[routine.name]
    assert isinstance(op, Library)
    shapes = tuple(tuple(value_of(e, sizes) for e in each.shape) for each in routine.operands)
    return SizedRoutine(routine, op, shapes, math.prod(value_of(e, sizes) for e in routine.batch))


def has_record(routine: Routine) -> bool:
    """Return whether there is a record of how a library runs a routine."""
    return routine.name in RECORDS


def block_can_run(launch: Launch, call: SizedRoutine) -> bool:
    """Return whether a launch can run these sizes; one thread block only processes small matrices."""
    if not launch.name or not call.routine.is_for_small_matrices:
        return bool(launch.name)
    sizes = (math.prod(shape) for k, shape in enumerate(call.shapes) if k not in call.op.work)
    return call.is_empty or (call.order <= min(MAX_ORDER, MAX_ORDERS.get(call.routine.name, MAX_ORDER)) and max(sizes) <= MAX_INT)


def library_call(device: Device, call: SizedRoutine, buffers: list[tuple[str, int]]) -> LibraryCall | None:
    """Return the library call of a routine, with its scratch buffers appended to the kernel's; None if no library can run it.
    Raises DeviceError."""
    record = RECORDS.get(call.routine.name)
    if record is None or any(e > MAX_INT for shape in call.shapes for e in (*shape, call.batch)):
        return None
    if call.is_empty:
        return _cleared(call)
    handles = {step.library: libraries_of(device).handle(step.library) for step in record.all_steps}
    if any(h is None or not h.has(s.name(call.letter)) for s in record.all_steps for h in [handles[s.library]]):
        return None
    available = {name: handle for name, handle in handles.items() if handle is not None}
    work = _workspace_size(record, call, available)
    sizes = [*(n * call.bytes for n in record.own(call.shapes)), *([max(work, 1) * call.bytes] if record.query else [])]
    first = len(buffers)
    buffers += [(f"{call.routine.name} of a library", max(size, 1)) for size in sizes]
    operands = tuple(k for k in range(len(call.shapes)) if k not in call.op.work)
    title = "/".join(dict.fromkeys(available[step.library].wanted.title for step in record.steps))
    return LibraryCall(
        f"{title}'s {call.routine.name}", tuple(call.routine.operands[k].position for k in operands),
        tuple(range(first, len(buffers))), record.captures, _LibraryWork(record, call, available, operands, work),
    )  # fmt: skip


def _cleared(call: SizedRoutine) -> LibraryCall:
    """Return the work that is left for matrices without elements: setting the infos to 0, success."""
    infos = tuple(k for k in call.op.writes if k in call.op.integers and not call.shapes[k] and k not in call.op.work)

    def work(addresses: Sequence[int], stream: Any) -> None:
        for address, k in zip(addresses, infos, strict=True):
            count = call.batch if call.routine.operands[k].is_batched else 1
            if count:
                cuda.memset_d32_async(address, 0, count, stream)

    return LibraryCall(call.routine.name, tuple(call.routine.operands[k].position for k in infos), (), True, work)


def _workspace_size(record: Record, call: SizedRoutine, handles: Mapping[str, Handle]) -> int:
    """Return the number of elements of workspace that the library needs."""
    if record.query is None:
        return 0
    handle, size = handles[record.query.library], ctypes.c_int()
    arguments = record.query.arguments(call.params)
    values = [ctypes.c_void_p(handle.anchor) if a[0] in ADDRESSES else _value(a, call, handle, 0) for a in arguments]
    at = len(values) - sum(a[0] == "made" for a in arguments)
    with handle.lock:
        handle.call(record.query.name(call.letter), *values[:at], ctypes.byref(size), *values[at:])
    return size.value


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A step with all its arguments except the ``addresses``, each with its index among the arguments."""

    handle: Handle
    name: str
    arguments: Sequence[Any]
    addresses: Sequence[tuple[int, Argument]]


class _LibraryWork:
    """The calls of a routine, for each element of the batch."""

    def __init__(
        self, record: Record, call: SizedRoutine, handles: Mapping[str, Handle], operands: Sequence[int], work: int
    ) -> None:
        self.call, self.operands = call, operands
        self.own = len(record.own(call.shapes))
        self.handles = list(dict.fromkeys(handles[step.library] for step in record.steps))
        self.steps = [self._prepared(handles[step.library], step, work) for step in record.steps]
        self.iterations = 1 if record.is_batched else call.batch

    def _prepared(self, handle: Handle, step: Step, work: int) -> _Prepared:
        args = step.arguments(self.call.params)
        arguments = [None if a[0] in ADDRESSES else _value(a, self.call, handle, work) for a in args]
        return _Prepared(
            handle, step.name(self.call.letter), arguments, [(k, a) for k, a in enumerate(args) if a[0] in ADDRESSES]
        )

    def __call__(self, addresses: Sequence[int], stream: Any) -> None:
        by_operand = dict(zip(self.operands, addresses, strict=False))
        buffers = addresses[len(self.operands) :]
        with ExitStack() as held:
            for handle in self.handles:
                held.enter_context(handle.lock)
                handle.use_stream(stream)
            for iteration in range(self.iterations):
                for step in self.steps:
                    values = [*step.arguments]
                    for k, a in step.addresses:
                        if a[0] == "ref":
                            at = by_operand[a[1]] + iteration * self.call.step(a[1])
                        else:
                            at = buffers[a[1] if a[0] == "own" else self.own]
                        values[k] = ctypes.c_void_p(at)
                    step.handle.call(step.name, *values)


ADDRESSES = ("ref", "own", "work")
"""The kinds of arguments that are addresses."""


def _value(a: Argument, call: SizedRoutine, handle: Handle, work: int) -> Any:
    """Return an argument that is no address as a C value."""
    match a:
        case ("code" | "integer", int(constant)):
            return ctypes.c_int(constant)
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
            return handle.created_by(function)
    raise AssertionError(a)


# the choice between generated kernel and library


Seconds = Callable[[Launch, SizedRoutine, "LibraryCall | None", Sequence[int]], float]
"""Measures a candidate: the launch itself, or a library call with buffers of these bytes."""


def choose_routine(
    device: Device, launch: Launch, sizes: Mapping[str, int], buffers: list[tuple[str, int]], seconds: Seconds
) -> tuple[Choice, LibraryCall | None] | None:
    """Return the choice for a launch's routine, and the library call that replaces the launch, or None if the launch runs
    itself; the call's buffers are appended to the kernel's. Returns None if the CPU has to run it."""
    assert launch.routine is not None
    call = sized_routine(launch.routine, sizes)
    has_kernel = block_can_run(launch, call)
    key = key_of(device, call)
    if has_kernel and call.is_empty:
        return Choice(key=key, chosen=OURS, how="only"), None
    extra: list[tuple[str, int]] = []
    try:
        library = library_call(device, call, extra)
    except DeviceError:
        library = None
    if library is None and not has_kernel:
        return None
    candidates: dict[str, Callable[[], float]] = {}
    if has_kernel:
        candidates[OURS] = lambda: seconds(launch, call, None, ())
    if library is not None:
        candidates[LIBRARY] = lambda: seconds(launch, call, library, [size for _, size in extra])
    choice = choices.choose(key, candidates, LIBRARY if OURS not in candidates or _is_large(call, candidates) else OURS)
    if choice.chosen == OURS:
        return choice, None
    assert library is not None
    first = len(buffers)
    buffers += extra
    numbers = tuple(range(first, first + len(extra)))
    return choice, LibraryCall(library.name, library.operands, numbers, library.captures, library.call)


def _is_large(call: SizedRoutine, candidates: Mapping[str, Any]) -> bool:
    """Return whether a library is chosen without a measurement."""
    if LIBRARY not in candidates:
        return False
    if not call.routine.is_for_small_matrices:
        depth = call.shapes[0][0 if dict(call.routine.params)["transpose_a"] else 1]
        return math.prod(call.shapes[2]) * depth * call.batch >= MIN_LIBRARY_SIZE
    return call.order > SMALL_ORDER and call.batch * SMALL_ORDER <= call.order


def key_of(device: Device, call: SizedRoutine) -> Key:
    """Return the key of a choice: extents from 32 on, and batches, are rounded up to powers of two."""
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
    return extent if extent <= SMALL_ORDER else 1 << (extent - 1).bit_length()
