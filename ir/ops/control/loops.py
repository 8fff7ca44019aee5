"""Control flow: ``switch`` (one of several regions), ``scan`` (a region for each position of a sequence) and ``while`` (a
region repeated while a condition region yields true). Regions are closed; the outside values that they read are captures,
the last operands.

A scan has ``carried`` values that pass from one iteration to the next, and ``sliced`` sequences of which each iteration reads
one row; each iteration yields the new carried values and a row of each result sequence. With ``length=[n]`` the trip count is
n and sequences are arrays with a leading axis of n; with ``length=[]`` the first operand is the trip count and sequences are
*stacks*, whose length is the trip count. ``reverse``: from the last position to the first; the index and the rows are those of
the position.

A ``while`` has carried values, and result sequences that are stacks; it also returns its trip count.

A loop may have the param ``checkpoint=sqrt``: its gradient stores residuals of about sqrt(n) of its n iterations, and
recomputes the others; or ``checkpoint=sums``: its gradient stores the residuals of all iterations, but adds up products in the
iterations, without storing their operands for one product after the loop.

    %h1: f64[3], %hs: f64[n,3] = scan %h, %xs, %w {carried=1, length=[n], reverse=false, sliced=1}
        (%i: i64[], %h0: f64[3], %x: f64[3], %w0: f64[3]) { ... yield %next, %y }
    %x1: f64[], %trips: i64[], %xs: f64[*] = while %x, %tol {carried=1}
        (%i: i64[], %x0: f64[], %tol0: f64[]) { ... yield %go_on } (%i0: i64[], %x2: f64[], %tol1: f64[]) { ... yield %next, %x2 }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.types import I64, ArrayType, StackType, Type, scalar


def _is_scalar(t: Type, dtype: Any = I64) -> bool:
    return isinstance(t, ArrayType) and t == scalar(dtype)


def _check_types(actual: Sequence[Type], expected: Sequence[Type], description: str, same: Same) -> None:
    """Check that the types ``actual`` are ``expected``, with extents that must agree. Raises TypeError."""
    if len(actual) != len(expected):
        raise TypeError(f"{len(actual)} values where there are {len(expected)} {description}")
    for t, e in zip(actual, expected, strict=True):
        if type(t) is not type(e) or t.dtype is not e.dtype or t.rank != e.rank:
            raise TypeError(f"{t} where {description} are {e}")
        for a, b in zip(t.shape, e.shape, strict=True):
            same(a, b)


class Switch(Op):
    """Runs the region whose position is its first operand, an i64 in range, on the other operands."""

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        return tuple(types[1:])

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if not regions or not types or not _is_scalar(types[0]):
            raise TypeError("takes an i64 scalar, operands and at least one region")
        results = tuple(v.type for v in regions[0].results)
        for region in regions:
            _check_types([v.type for v in region.parameters], types[1:], "operands", same)
            _check_types([v.type for v in region.results], results, "the first region's results", same)
        return results


class Loop(Op):
    """An op that runs a region for each iteration."""

    def first(self, params: Mapping[str, Any]) -> int:
        """Return the position of the first carried operand."""
        raise NotImplementedError(self.name)


class Scan(Loop):
    """A counted loop over sequences (see the module). Params ``carried``, ``sliced``, ``length``, ``reverse``. The region
    takes the index (i64), the carried values, the rows and the captures; it yields the carried values and a row of each
    result sequence."""

    def first(self, params: Mapping[str, Any]) -> int:
        return 0 if params["length"] else 1

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        start = self.first(params)
        middle = start + params["carried"]
        end = middle + params["sliced"]
        return (scalar(I64), *types[start:middle], *map(_row, types[middle:end]), *types[end:])

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        length, start, carried = tuple(params["length"]), self.first(params), params["carried"]
        if len(types) < start + carried + params["sliced"] or len(length) > 1:
            raise TypeError("takes the carried values, the sequences and the captures, and has one length")
        if not length and not _is_scalar(types[0]):
            raise TypeError("without a length the first operand is the count, an i64 scalar")
        for t in types[start + carried : start + carried + params["sliced"]]:
            if not isinstance(t, ArrayType if length else StackType) or (length and not t.rank):
                raise TypeError(f"sequences are {'arrays with a leading axis' if length else 'stacks'}, found {t}")
            if length:
                same(t.shape[0], length[0])
        _check_types([v.type for v in region.parameters], self.inside(types, params), "parameters", same)
        results = [v.type for v in region.results]
        _check_types(results[:carried], types[start : start + carried], "carried values", same)
        return (*types[start : start + carried], *(_sequence(t, length) for t in results[carried:]))


class ElementwiseScan(Scan):
    """A scan without sequences whose iterations compute each element of the carried arrays and of the result rows, all of one
    shape, from scalars and from carried elements at the same index: a kernel may run all iterations of one element before those
    of the next (``codegen.fuse.interchange``)."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        results = super().infer(types, params, regions, same)
        carried = params["carried"]
        shapes = [t.shape for t in results[:carried] if isinstance(t, ArrayType) and t.shape]
        if params["sliced"] or not shapes or not all(isinstance(t, ArrayType) for t in results):
            raise TypeError("takes no sequences, gives no stacks, and carries an array")
        shapes += [t.shape[1:] for t in results[carried:]]
        for shape in shapes[1:]:
            if len(shape) != len(shapes[0]):
                raise TypeError("the carried arrays and the result rows must have one shape")
            for e, f in zip(shape, shapes[0], strict=True):
                same(e, f)
        return results


class While(Loop):
    """A loop with a condition (see the module). Param ``carried``. Both regions, the condition and the body, take the index
    (i64), the carried values and the captures; the condition yields a bool, the body the carried values and a row of each
    result sequence."""

    def first(self, params: Mapping[str, Any]) -> int:
        return 0

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        return (scalar(I64), *types)

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        condition, body = regions
        carried = params["carried"]
        if len(types) < carried:
            raise TypeError("takes the carried values and the captures")
        for region in regions:
            _check_types([v.type for v in region.parameters], self.inside(types, params), "parameters", same)
        if len(condition.results) != 1 or not _is_scalar(condition.results[0].type, "bool"):
            raise TypeError("the first region gives one bool")
        results = [v.type for v in body.results]
        _check_types(results[:carried], types[:carried], "carried values", same)
        return (*types[:carried], scalar(I64), *(_sequence(t, ()) for t in results[carried:]))


class StackLength(Op):
    """The number of values in a stack."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if len(types) != 1 or not isinstance(types[0], StackType):
            raise TypeError("takes one stack")
        return (scalar(I64),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        return (np.int64(len(operands[0])),)


def _row(t: Type) -> Type:
    """Return the type of one row of a sequence."""
    return ArrayType(t.dtype, t.shape[1:] if isinstance(t, ArrayType) else t.shape)


def _sequence(t: Type, length: tuple[Any, ...]) -> Type:
    """Return the type of a sequence of rows."""
    if not isinstance(t, ArrayType):
        raise TypeError(f"a sequence is of arrays, found {t}")
    return ArrayType(t.dtype, (*length, *t.shape)) if length else StackType(t.dtype, t.shape)


switch = Switch(name="switch")
scan = Scan(name="scan", extents=("length",))
elementwise_scan = ElementwiseScan(name="elementwise_scan", extents=("length",))
while_ = While(name="while")
stack_length = StackLength(name="stack_length", nondifferentiable="a length is an integer")
