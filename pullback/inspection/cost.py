"""The cost report: the operations and bytes of each kernel of a call, counted from its kernel IR with the sizes of the call."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pullback.inspection.provenance import Anatomy, Step, dissect, members, unmarked
from pullback.ir.core.op import OPS, Op
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Instruction, Loc, walk
from pullback.ir.core.types import DType, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.functions import TableEntry
from pullback.ir.ops.kernel.kernel import (
    Extent,
    Fail,
    For,
    If,
    Load,
    Local,
    Prefetch,
    Private,
    RowView,
    SelectRef,
    StageRows,
    Store,
    StridedOrCopy,
    Subview,
    combined_values,
)
from pullback.ir.ops.kernel.matmul import COLUMNS, Product
from pullback.ir.ops.library.routines import Library
from pullback.ir.shapes.extents import value_of
from pullback.programs.call import Call
from pullback.programs.report import Report, counted, paragraph, places, table

CLASSES = ("add", "multiply", "divide", "compare", "function", "integer")
"""The classes of ops that are counted."""
OF_FLOATS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("add", "sub", "neg"), ("add",)),
    "mul": ("multiply",),
    "fma": ("multiply", "add"),
    **dict.fromkeys(("div", "sqrt"), ("divide",)),
    **dict.fromkeys(("cast", "bitcast"), ()),
}
"""The classes of ops on floats. Any other cheap op is "compare" (comparisons, choices, roundings, signs); expensive ones are
"function" (exp, sin, pow, ...)."""


MOST_LANES = 1 << 22
"""Largest trip count of a loop for which the effects of its index are counted."""


@dataclass(frozen=True, kw_only=True)
class LineCost:
    """The part of a kernel's work that comes from one location of the user's, with the note of a gradient as "pullback(mul)".

    ``flops`` and ``functions``: as in ``KernelCost``. ``bytes``: those of all loads and stores, each as often as it runs.
    """

    loc: Loc
    flops: int
    functions: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class KernelCost:
    """Hold the cost of one launch, or in a loop of the ``launches`` of one launch instruction.

    Attributes
    ----------
    kernel : str
        The name of the kernel.
    ops : tuple of str
        The array ops that it runs.
    lines : tuple of Loc
        The user's lines of these ops.
    counts : mapping of str to int
        The number of ops of each class. "integer" includes index arithmetic.
    bytes_read : int
        The bytes read, each element once, as if a cache held them all.
    bytes_written : int
        The bytes written, each element once.
    calls : mapping of str to int
        The library calls, by name.
    is_exact : bool
        False if a trip count or the branch taken is unknown.
    launches : int
        The number of launches.
    is_single : bool
        Whether all floats that it reads and writes have 32 bits or less.
    by_line : tuple of LineCost
        The flops, functions and bytes of loads and stores by the user's locations.
    flops : int
        Additions, multiplications, divisions and square roots, one each.
    functions : int
        Functions such as ``exp``, which cost as much as 10 to 50 flops each.
    bytes : int
        The bytes read and written.
    intensity : float
        Operations per byte.

    See Also
    --------
    Cost : Holds the kernels of a call.

    Examples
    --------
    >>> kernel = pb.jit(lambda x: x * x + 1).cost(np.ones(1000)).kernels[0]
    >>> kernel.flops, kernel.bytes_read, kernel.bytes_written
    (2000, 8000, 8000)
    """

    kernel: str
    ops: tuple[str, ...]
    lines: tuple[Loc, ...]
    counts: Mapping[str, int]
    bytes_read: int
    bytes_written: int
    calls: Mapping[str, int]
    is_exact: bool = True
    launches: int = 1
    is_single: bool = False
    by_line: tuple[LineCost, ...] = ()

    @property
    def flops(self) -> int:
        """Additions, multiplications, divisions and square roots of floats."""
        return self.counts["add"] + self.counts["multiply"] + self.counts["divide"]

    @property
    def functions(self) -> int:
        """Evaluations of exp, sin, pow, ..."""
        return self.counts["function"]

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float:
        """Flops per byte."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, kw_only=True, repr=False)
class Cost(Report):
    """Hold the work and memory traffic of one call, launch by launch.

    Attributes
    ----------
    function : str
        The function with its transforms.
    kernels : tuple of KernelCost
        The cost of each launch.
    total : KernelCost
        Their sum.
    launches : int
        The number of launches.
    headline : str
        The first line of the text, which has one row for equal launches.

    See Also
    --------
    Profile : The times of the same steps.

    Examples
    --------
    >>> report = pb.jit(lambda x: np.sum(np.sin(x))).cost(np.ones(1000))
    >>> report.launches, report.total.functions
    (1, 1000)
    """

    function: str
    kernels: tuple[KernelCost, ...]

    @property
    def total(self) -> KernelCost:
        """The sum over all launches."""
        return _total(self.kernels, "total")

    @property
    def launches(self) -> int:
        """The number of kernels launched."""
        return self.total.launches

    @property
    def headline(self) -> str:
        """The text's first line."""
        total = self.total
        calls = f", {counted(sum(total.calls.values()), 'library call')}" if total.calls else ""
        work = f"{counted(total.flops, 'flop')}, {counted(total.functions, 'function')}, {total.bytes:,} bytes moved"
        launches = counted(self.launches, "launch", "launches")
        return f"{self.function}: {work}, {launches}{calls}"

    def __str__(self) -> str:
        lines = paragraph(self.headline, "")
        if not self.kernels:
            return "\n".join(lines)
        header = ("kernel", "flops", "functions", "read", "written", "flops/byte", "lines and ops")
        alike: dict[tuple[str, ...], list[KernelCost]] = {}
        for kernel in self.kernels:
            alike.setdefault(_row(kernel, coverage_text(kernel)), []).append(kernel)
        totals = [(_total(same, key[0]), key[-1]) for key, same in alike.items()]
        rows = [_row(total, words, total.launches) for total, words in totals]
        if len(rows) > 1:
            rows.append(_row(self.total, places(self.total.lines)))
        lines += table(header, rows, right=header[1:6])
        by_class = ", ".join(f"{name} {count:,}" for name, count in self.total.counts.items() if count)
        return "\n".join([*lines, *paragraph(f"ops by class: {by_class or 'none'}", "")])


def _total(kernels: Sequence[KernelCost], name: str) -> KernelCost:
    return KernelCost(
        kernel=name,
        ops=(),
        lines=tuple(dict.fromkeys(loc for k in kernels for loc in k.lines)),
        counts={word: sum(k.counts[word] for k in kernels) for word in CLASSES},
        bytes_read=sum(k.bytes_read for k in kernels),
        bytes_written=sum(k.bytes_written for k in kernels),
        calls=_merged(k.calls for k in kernels),
        is_exact=all(k.is_exact for k in kernels),
        launches=sum(k.launches for k in kernels),
    )


def _row(k: KernelCost, words: str, times: int = 1) -> tuple[str, ...]:
    flops = f"{k.flops:,}{'' if k.is_exact else '+'}"
    numbers = (flops, f"{k.functions:,}", f"{k.bytes_read:,}", f"{k.bytes_written:,}", f"{k.intensity:.2f}")
    return (f"{k.kernel} x{times:,}" if times > 1 else k.kernel, *numbers, words)


def coverage_text(cost: KernelCost) -> str:
    """Return the lines, ops and library calls of launches as text."""
    ops = ", ".join(dict.fromkeys(cost.ops))
    calls = ", ".join(f"{count:,} x {name}" for name, count in cost.calls.items())
    return ": ".join(word for word in (places(cost.lines), ops) if word) + (f" ({calls})" if calls and cost.ops else "")


def _merged(many: Any) -> dict[str, int]:
    """Return the sum of several counts of library calls."""
    totals: dict[str, int] = {}
    for calls in many:
        for name, count in calls.items():
            totals[name] = totals.get(name, 0) + count
    return totals


def cost(call: Call) -> Cost:
    """Return the cost report of a call."""
    anatomy = dissect(call)
    steps = () if anatomy is None else anatomy.steps
    return Cost(function=call.title, kernels=tuple(cost_of(anatomy, step) for step in steps if anatomy is not None))


def cost_of(anatomy: Anatomy, step: Step) -> KernelCost:
    """Return the cost of all launches of one step."""
    sizes = {f"s{k}": value_of(e, anatomy.sizes) for k, e in enumerate(step.launch.params["sizes"])}
    count = _Counter(sizes)
    count.block(step.kernel.body)
    all_ops = [] if step.source is None else list(members(step.source))
    ops = [i for i in all_ops if not isinstance(i.op, Constant | Count)] or all_ops
    refs = [v for v in step.kernel.parameters if isinstance(v.type, RefType)]
    return KernelCost(
        kernel=step.kernel.name,
        ops=("copy",) if step.is_copy else tuple(i.op.name for i in ops),
        lines=tuple(dict.fromkeys(loc for i in ops if (loc := unmarked(anatomy.loc(i))))),
        counts={word: runs * step.times for word, runs in count.counts.items()},
        bytes_read=step.times * sum(count.touched(v, count.loads) for v in refs),
        bytes_written=step.times * sum(count.touched(v, count.stores) for v in refs),
        calls={name: runs * step.times for name, runs in count.calls.items()},
        is_exact=count.is_exact and step.is_known,
        launches=step.times,
        is_single=_is_single(refs),
        by_line=tuple(_by_line(anatomy, count, step.times)),
    )


def _by_line(anatomy: Anatomy, count: _Counter, times: int) -> Iterator[LineCost]:
    """Yield the work of a kernel by the user's locations, in the order in which the kernel meets them."""
    works: dict[Loc, dict[str, int]] = {}
    for loc, work in count.work.items():
        users = unmarked(anatomy.users_loc(loc))
        total = works.setdefault(users, dict.fromkeys(work, 0))
        for word, amount in work.items():
            total[word] += amount * times
    for loc, work in works.items():
        if loc and any(work.values()):
            flops = work["add"] + work["multiply"] + work["divide"]
            yield LineCost(loc=loc, flops=flops, functions=work["function"], bytes=work["bytes"])


def _is_single(refs: Sequence[Value]) -> bool:
    parts = [v.type.dtype.part for v in refs]
    return all(part.bytes <= 4 for part in parts if part.is_float) and any(part.is_float for part in parts)


@dataclass(eq=False)
class _Counter:
    """Counts the work of a kernel by walking it with the number of times that each block runs.

    A loop is walked once, unless the work in its body depends on its index: then once with all iterations together, each of
    which is a *lane*. ``values`` are the known values of integers: a scalar, or one for each lane. ``times`` is the number of
    runs of the instructions in each lane. ``tables``: the references that an entry of a table may be, read in equal parts.
    ``work``: the counts, and the bytes loaded and stored, by the location of the instructions; ``loc`` is the present one.
    """

    sizes: Mapping[str, int]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0))
    loads: dict[Value, int] = field(default_factory=dict)
    stores: dict[Value, int] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    values: dict[Value, Any] = field(default_factory=dict)
    roots: dict[Value, Value] = field(default_factory=dict)
    tables: dict[Value, list[Value]] = field(default_factory=dict)
    times: Any = field(default_factory=lambda: np.ones(1, np.int64))
    is_exact: bool = True
    work: dict[Loc, dict[str, int]] = field(default_factory=dict)
    loc: Loc = NOWHERE

    @property
    def runs(self) -> int:
        """The number of runs of the instructions, over all lanes."""
        return int(self.times.sum())

    def block(self, block: Block) -> None:
        outer = self.loc
        for i in block.instructions:
            self.loc = i.loc or outer
            self.instruction(i)
        self.loc = outer

    def add(self, name: str, amount: int) -> None:
        """Count some work of the present instruction."""
        if name in self.counts:
            self.counts[name] += amount
        work = self.work.get(self.loc)
        if work is None:
            work = self.work[self.loc] = dict.fromkeys((*CLASSES, "bytes"), 0)
        work[name] += amount

    def instruction(self, i: Instruction) -> None:
        match i.op:
            case Extent():
                self.values[i.result] = np.int64(value_of(i.params["size"], self.sizes))
            case Constant():
                self.values[i.result] = i.result.type.dtype.numpy.type(i.params["value"])
            case Load():
                self.count_traffic(self.loads, i.operands[0], self.runs)
            case Store():
                self.count_traffic(self.stores, i.operands[1], self.runs)
            case Subview() | RowView() | StridedOrCopy() | StageRows():
                self.roots[i.result] = self.root(i.operands[0])
            case TableEntry() if isinstance(i.operands[1].type, RefType):
                self.tables[i.result] = [self.root(v) for v in i.operands[1:]]
            case TableEntry():
                if all(v in self.values for v in i.operands):
                    position, *entries = (self.values[v] for v in i.operands)
                    self.values[i.result] = _entry(position, entries)
            case SelectRef():
                self.roots[i.result] = self.root(i.operands[1])
            case For():
                self.loop(i)
            case If():
                self.branch(i)
            case Library():
                self.library(i)
            case Product():
                self.product(i)
            case Elementwise():
                self.elementwise(i)
            case Fail() | Local() | Prefetch() | Private():
                pass
            case _:
                self.count_call(i.op.name, self.runs)

    def loop(self, i: Instruction) -> None:
        trips = self.values.get(i.operands[0])
        self.is_exact &= trips is not None
        trips = np.broadcast_to(1 if trips is None else trips, self.times.shape)
        (body,) = i.regions
        if _index_controls_work(body) and trips.sum() <= MOST_LANES:
            self.count_lanes(body, trips)
        else:
            self.count_body(body, self.times * trips)
        if "combine" not in i.params:
            return
        inside = int((self.times * trips).sum())
        for name, values in combined_values(i.params.get("combine", ()), i.results[len(i.params.get("scan", ())) :]):
            dtype = values[0].type.dtype
            if name.startswith("arg"):
                self.add("compare" if dtype.is_float else "integer", inside)
            else:
                self.count(OPS[name], dtype, inside)

    def branch(self, i: Instruction) -> None:
        holds = self.values.get(i.operands[0])
        self.is_exact &= holds is not None
        self.count_body(i.regions[0], self.times * (1 if holds is None else holds))

    def count_body(self, body: Block, times: Any) -> None:
        """Count a body that runs ``times`` in each lane."""
        outer, self.times = self.times, times
        self.block(body)
        self.times = outer

    def count_lanes(self, body: Block, trips: Any) -> None:
        """Count a loop's body with a lane for each iteration."""
        lane = np.repeat(np.arange(len(trips)), trips)
        outer, self.values = self.values, {v: x if x.ndim == 0 else x[lane] for v, x in self.values.items()}
        self.values[body.parameters[0]] = np.arange(len(lane)) - (np.cumsum(trips) - trips)[lane]
        self.count_body(body, self.times[lane])
        self.values = outer

    def library(self, i: Instruction) -> None:
        assert isinstance(i.op, Library)
        shapes = [tuple(value_of(e, self.sizes) for e in v.type.shape) for v in i.operands]
        for name in ("multiply", "add"):
            self.add(name, i.op.products(shapes, i.params) * self.runs)
        self.count_call(i.op.name, self.runs)
        for counts, positions in ((self.loads, i.op.reads), (self.stores, i.op.writes)):
            for k in positions:
                self.count_traffic(counts, i.operands[k], math.prod(shapes[k]) * self.runs)

    def product(self, i: Instruction) -> None:
        """Count a matrix product that reads each element of its operands once."""
        sizes = [self.values.get(v) for v in i.operands[:3]]
        self.is_exact &= all(size is not None for size in sizes)
        rows, columns, depth = (1 if size is None else size for size in sizes)
        runs = rows * -(-columns // COLUMNS)
        for region, times in zip(i.regions, (rows * depth, depth * columns, rows * columns, runs), strict=False):
            self.count_body(region, self.times * times)
        for name in ("multiply", "add"):
            self.add(name, int((self.times * rows * columns * depth).sum()))
        combined = (*i.params.get("combine", ()), *i.params.get("row_combine", ()))
        for name, value in zip(combined, i.regions[2].results, strict=True):
            self.count(OPS[name], value.type.dtype, int((self.times * rows * columns).sum()))

    def elementwise(self, i: Instruction) -> None:
        assert isinstance(i.op, Elementwise)
        data = i.operands[1 if i.op.gives == "select" else 0]
        self.count(i.op, data.type.dtype, self.runs)
        if all(v in self.values for v in i.operands):
            types = [v.type for v in i.results]
            self.values[i.result] = i.op.evaluate([self.values[v] for v in i.operands], i.params, types)[0][()]

    def count(self, op: Op, dtype: DType, times: int) -> None:
        if not dtype.is_float:
            self.add("integer", times)
            return
        is_expensive = isinstance(op, Elementwise) and not op.cheap
        for name in OF_FLOATS.get(op.name, ("function" if is_expensive else "compare",)):
            self.add(name, times)

    def count_call(self, name: str, times: int) -> None:
        if times:
            self.calls[name] = self.calls.get(name, 0) + times

    def count_traffic(self, counts: dict[Value, int], ref: Value, elements: int) -> None:
        self.add("bytes", elements * ref.type.dtype.bytes)
        roots = self.tables.get(ref) or [self.root(ref)]
        for root in roots:
            counts[root] = counts.get(root, 0) + -(-elements // len(roots))

    def root(self, ref: Value) -> Value:
        return self.roots.get(ref, ref)

    def touched(self, ref: Value, counts: Mapping[Value, int]) -> int:
        """Return the bytes of a buffer that are read or written, each counted once."""
        elements = 1
        for extent in ref.type.shape:
            elements *= value_of(extent, self.sizes)
        return min(elements, counts.get(ref, 0)) * ref.type.dtype.bytes


def _index_controls_work(body: Block) -> bool:
    """Return whether a loop's index determines how often something in its body runs."""
    dependent = {body.parameters[0]}
    for i in walk(body):
        if isinstance(i.op, For | If) and i.operands[0] in dependent:
            return True
        if isinstance(i.op, Elementwise | TableEntry) and not dependent.isdisjoint(i.operands):
            dependent.update(i.results)
    return False


def _entry(position: Any, entries: Sequence[Any]) -> Any:
    """Return the entries at positions, one for each lane."""
    lanes = np.broadcast_arrays(position, *entries)
    return np.stack(lanes[1:])[(lanes[0], *np.indices(lanes[0].shape))][()]
