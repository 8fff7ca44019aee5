"""Kernels of sorts and scatters for many threads, which sort together.

A scatter stably sorts its values by their target rows, and then each row collects its values: so the order of the threads does
not matter, and the last of several values that are stored to one row is the one that stays. Integers are added atomically by
any thread (``atomic_add``): their sums do not depend on the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.codegen.kernels.elements import in_part, wrapped
from pullback.codegen.kernels.ops.segment_sum import Lists, row_of
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import I64, Extent, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import ScatterSum
from pullback.ir.ops.library.sort import Sort
from pullback.ir.shapes.extents import product

LENGTH_BITS = 48
"""The number of bits of an index in a binary search: arrays have fewer than 2**48 elements."""


def cooperative_kernel(i: Instruction) -> Draft:
    """Return the kernel of a ``sort``, ``argsort``, ``scatter_add``, ``scatter_set`` or ``scatter_sum``."""
    if isinstance(i.op, Sort):
        return _sort(i)
    if isinstance(i.op, ScatterSum):
        b = KernelBuilder()
        b.location = i.loc
        shape, axes = i.result.type.shape, tuple(i.params["axes"])
        scattered = _Scatter(b, i, i.operands[:-1], i.operands[-1], axes, shape, True)
        return Draft(kernel=b.kernel(scattered.run(True)), sizes=b.sizes(), scratch=scattered.scratch)
    return _update(i)


def _sort(i: Instruction) -> Draft:
    b = KernelBuilder()
    b.location = i.loc
    x, result = i.operands[0].type, i.result.type
    spare = RefType(result.dtype, result.shape)
    references = [Value(RefType(t.dtype, b.shape(t.shape)), name) for t, name in ((x, "x"), (result, "out"), (spare, "spare"))]
    assert isinstance(i.op, Sort)
    b.here("argsort_rows" if i.op.gives_places else "sort_rows", *references)
    return Draft(kernel=b.kernel(references), sizes=b.sizes(), scratch=(spare,))


def _update(i: Instruction) -> Draft:
    """Return a kernel that copies the base and updates the copy, with a variant that updates in place."""
    base, *indices, values = i.operands
    drafts: list[tuple[Function, Any, Any]] = []
    for copies in (True, False):
        b = KernelBuilder()
        b.location = i.loc
        shape = b.shape(base.type.shape)
        scattered = _Scatter(
            b,
            i,
            indices,
            values,
            tuple(i.params["axes"]),
            base.type.shape,
            i.op.accumulate,  # type: ignore[attr-defined]
        )
        parameters = scattered.parameters
        if copies:
            source = Value(RefType(base.type.dtype, shape), "base")
            index = [b.open("ijklmnop"[min(k, 7)]) for k in range(len(shape))]
            b.here("store", b.here("load", source, *index), scattered.out, *index)
            for at, extent in zip(reversed(index), reversed(base.type.shape), strict=True):
                b.close(at, b.extent_of(extent))
            parameters = [source, *parameters]
        scattered.run(False)
        drafts.append((b.kernel(parameters), b.sizes(), scattered.scratch))
    (copying, sizes, scratch), (in_place, other, _) = drafts
    if other != sizes:
        raise AssertionError("both kernels must have the same sizes")
    return Draft(kernel=copying, sizes=sizes, scratch=scratch, in_place=in_place)


class OrderedLists(Lists):
    """The lists of ``Lists``, built by many threads: the look-ups are sorted by their rows."""

    def __init__(self, b: KernelBuilder, lookups: Extent, rows: Extent, row_index: Any) -> None:
        super().__init__(b, lookups, rows, row_index)
        self.scratch = (*self.scratch, RefType(I64, (lookups,)), RefType(I64, (lookups,)))
        self.keys, self.spare = (Value(RefType(I64, b.shape((lookups,))), name) for name in ("keys", "spare"))

    @property
    def parameters(self) -> tuple[Value, ...]:
        return (*super().parameters, self.keys, self.spare)

    def make(self) -> None:
        b = self.b
        k = b.open("k")
        b.here("store", self.row_index(k), self.keys, k)
        b.close(k, self.lookups)
        b.here("argsort_rows", self.keys, self.order, self.spare, self.rows)
        row = b.open("r")
        b.here("store", self.end(row), self.ends, row)
        b.close(row, self.rows)

    def end(self, row: Value) -> Value:
        """Return the number of look-ups that go to a row or to an earlier one, by binary search bit by bit, the highest bit
        first."""
        b, one = self.b, self.b.const(1, I64)
        bit, end_so_far = b.open("n"), b.bound(I64, "end")
        longer = b.add(end_so_far, b.raw_shl(one, b.sub(b.const(LENGTH_BITS - 1, I64), bit)))
        fits = b.le(longer, self.lookups)
        position = b.here("load_if", self.order, fits, b.sub(longer, one))
        key = b.here("load_if", self.keys, fits, position)
        after = b.select(b.bitand(fits, b.le(key, row)), longer, end_so_far)
        (end,) = b.close(bit, b.const(LENGTH_BITS, I64), (b.const(0, I64),), (after,), None, (end_so_far,))
        return end


class _Scatter:
    """A scatter of ``values`` into ``out`` of a shape, at indices of some axes."""

    def __init__(
        self, b: KernelBuilder, i: Instruction, indices: Any, values: Value, axes: tuple[int, ...], shape: Shape, adds: bool
    ) -> None:
        self.b, self.instruction, self.axes, self.shape, self.adds = b, i, axes, shape, adds
        rank = indices[0].type.rank
        self.indexed = indices[0].type.shape
        self.extents = tuple(shape[a] for a in axes)
        self.rest = tuple(a for a in range(len(shape)) if a not in axes)
        inner_shape = values.type.shape[rank:]
        self.written = dict(zip(self.rest, inner_shape, strict=True))
        lookups = product(self.indexed)
        self.indices = [Value(RefType(I64, b.shape((lookups,))), f"x{k}") for k in range(len(indices))]
        self.values = Value(RefType(values.type.dtype, b.shape((lookups, *inner_shape))), f"x{len(indices)}")
        self.out = Value(RefType(i.result.type.dtype, b.shape(shape)), "out")
        self.lookups = b.extent_of(lookups)
        self.in_any_order = adds and values.type.dtype.is_integer and values.type.dtype.bits >= 32
        self.lists = None if self.in_any_order else OrderedLists(
            b, lookups, product(self.extents), lambda k: row_of(b, [b.load(ref, k) for ref in self.indices], self.extents)
        )  # fmt: skip

    @property
    def scratch(self) -> tuple[RefType, ...]:
        return self.lists.scratch if self.lists is not None else ()

    @property
    def parameters(self) -> list[Value]:
        return [*self.indices, self.values, self.out, *(self.lists.parameters if self.lists is not None else ())]

    def run(self, from_zero: bool) -> list[Value]:
        """Emit the scatter, row by row; return the kernel's parameters. ``from_zero``: ``out`` is uninitialised and starts as
        zeros."""
        b = self.b
        if self.lists is None:
            if from_zero:
                nothing = b.const(0, self.out.type.dtype)
                self.over(range(len(self.shape)), lambda index: b.here("store", nothing, self.out, *index))
            self.add_in_any_order()
            return self.parameters
        self.lists.make()
        row = b.open("r")
        places = dict(zip(self.axes, self.unravel(row), strict=True))
        inner = []
        for a in self.rest:
            inner.append(b.open("ijklmnop"[min(a, 7)]))
            places[a] = in_part(b, self.instruction, a, inner[-1])
        target = [places[a] for a in range(len(self.shape))]
        lists = self.lists
        first, count = lists.span(row)
        if self.adds:
            self.add(lists, target, inner, first, count, from_zero)
        else:
            last = b.sub(b.add(first, count), b.const(1, I64))
            is_met = b.gt(count, b.const(0, I64))
            value = b.here("load_if", self.values, is_met, b.here("load_if", lists.order, is_met, last), *inner)
            b.here("store_if", value, self.out, is_met, *target)
        for at, a in zip(reversed(inner), reversed(self.rest), strict=True):
            b.close(at, b.extent_of(self.written[a]))
        b.close(row, lists.rows, independent=True)
        return self.parameters

    def over(self, axes: Iterable[int], body: Callable[[list[Value]], object]) -> None:
        """Emit loops over some axes around the instructions that ``body`` appends for an index."""
        b, axes = self.b, list(axes)
        index = [b.open("ijklmnop"[min(a, 7)]) for a in axes]
        body(index)
        for at, a in zip(reversed(index), reversed(axes), strict=True):
            b.close(at, b.extent_of(self.written.get(a, self.shape[a])))

    def add_in_any_order(self) -> None:
        """Add integers atomically, in any order."""
        b = self.b
        k = b.open("k")
        looked_up = [wrapped(b, b.load(ref, k), b.extent_of(e)) for ref, e in zip(self.indices, self.extents, strict=True)]

        def add(inner: list[Value]) -> None:
            moved = [in_part(b, self.instruction, a, position) for a, position in zip(self.rest, inner, strict=True)]
            places = {**dict(zip(self.axes, looked_up, strict=True)), **dict(zip(self.rest, moved, strict=True))}
            b.here("atomic_add", b.load(self.values, k, *inner), self.out, *(places[a] for a in range(len(self.shape))))

        self.over(self.rest, add)
        b.close(k, self.lookups)

    def add(self, lists: Lists, target: list[Value], inner: list[Value], first: Value, count: Value, from_zero: bool) -> None:
        b, dtype = self.b, self.values.type.dtype
        k = b.open("k")
        value = b.here("load", self.values, b.here("load", lists.order, b.add(first, k)), *inner)
        (total,) = b.close(k, count, (b.const(0, dtype),), (value,), ("add",), short=bool(inner))
        if from_zero:
            b.here("store", total, self.out, *target)
            return
        b.here("store_if", b.add(b.here("load", self.out, *target), total), self.out, b.gt(count, b.const(0, I64)), *target)

    def unravel(self, row: Value) -> tuple[Value, ...]:
        """Return the index of a row in the axes that are looked up."""
        b, index = self.b, []
        for extent in reversed(self.extents[1:]):
            size = b.extent_of(extent)
            quotient = b.idiv(row, size)
            index.append(b.sub(row, b.mul(quotient, size)))
            row = quotient
        return (row, *reversed(index))
