"""Program ops: the instructions of a compiled program. Buffers are references; launches run kernels on them in order.

``launch``: operands are the kernel's arguments; ``sizes`` gives the kernel's sizes s0, s1, ... as extents or lists of extents
to multiply; ``failures`` lists the meaning of each status code above 0, as (error, message, place).

Control flow is in regions, which read the buffers of the enclosing blocks: ``loop`` (counted), ``loop_while`` and ``branch``.
State passes from one iteration of a loop to the next in buffers that persist, or in references that the region takes and
yields, which allows double buffering.

    %h1: &f64[n], %spare1: &f64[n] = loop %i, %h, %spare {length=[k], reverse=false} (%h0: &f64[n], %spare0: &f64[n]) {
      %x: &f64[n] = row %xs, %i
      launch %h0, %x, %spare0 {kernel=k0, sizes=[n]}
      yield %spare0, %h0
    }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.types import BOOL, I64, ArrayType, RefType, StackType, Type, is_by_value, scalar

PROGRAM = frozenset({"program"})


class Alloc(Op):
    """A dense buffer, contents undefined."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (RefType(params["dtype"], tuple(params["shape"])),)


class View(Op):
    """The memory of a dense buffer under another shape with the same number of elements; or a complex buffer seen as its real
    and imaginary parts along a last axis of two, and the reverse, in any layout."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (ref,) = types
        if not isinstance(ref, RefType) or (ref.layout != "c" and params["dtype"] is ref.dtype):
            raise TypeError(f"takes a dense buffer, found {ref}")
        if params["dtype"].part is not ref.dtype.part:
            raise TypeError(f"memory of {ref.dtype} is not that of {params['dtype']}")
        return (RefType(params["dtype"], tuple(params["shape"]), ref.layout, ref.space),)


class Launch(Op):
    """Runs the kernel named by ``kernel``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        for t in types:
            if isinstance(t, ArrayType) and t.rank:
                raise TypeError(f"arguments are references or scalars, found {t}")
        return ()


class Free(Op):
    """Ends the life of a buffer allocated by ``alloc``, or of a stack."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if len(types) != 1 or not isinstance(types[0], RefType | StackType):
            raise TypeError("takes one buffer or stack")
        return ()


class Copy(Op):
    """Fills the second buffer, which is dense, with the first buffer or a scalar. Does nothing if they are the same memory."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        source, target = types
        if not isinstance(target, RefType) or target.layout != "c" or getattr(source, "layout", "c") != "c":
            raise TypeError("fills a dense buffer with a dense one")
        if (source.dtype, source.shape) != (target.dtype, target.shape) or (source.rank and isinstance(source, ArrayType)):
            raise TypeError(f"{target} cannot be filled with {source}")
        return ()


class Row(Op):
    """The part of a dense buffer at one index of its first axis, or one value of a stack. Operands: the buffer or stack, the
    index."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        sequence, index = types
        _check_i64(index)
        if isinstance(sequence, StackType):
            return (RefType(sequence.dtype, sequence.shape),)
        if not isinstance(sequence, RefType) or not sequence.rank or sequence.layout != "c":
            raise TypeError(f"takes a dense buffer or a stack, found {sequence}")
        return (RefType(sequence.dtype, sequence.shape[1:]),)


class Stack(Op):
    """A new stack: empty, or with as many values of undefined contents as its operand gives."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        for t in types:
            _check_i64(t)
        return (StackType(params["dtype"], tuple(params["shape"])),)


class Push(Op):
    """Appends one value of undefined contents to a stack and returns its buffer, which is valid until the next push."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (stack,) = types
        if not isinstance(stack, StackType):
            raise TypeError(f"takes a stack, found {stack}")
        return (RefType(stack.dtype, stack.shape),)


class StoreStackLength(Op):
    """Fills a buffer with the count of values in a stack. Operands: the stack, the buffer."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        stack, target = types
        if not isinstance(stack, StackType) or target != RefType(I64):
            raise TypeError("takes a stack and a buffer of an i64")
        return ()


class BindExtent(Op):
    """Defines an extent by value, from here to the end of its block, as the number in a buffer or a scalar."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (count,) = types
        _check_i64(count)
        if len(params["extent"]) != 1 or not is_by_value(params["extent"][0]):
            raise TypeError("defines one extent by value")
        return ()


class Repeat(Op):
    """A counted loop: runs its region for each position, which it writes into the buffer that is its first operand. With
    ``length=[n]`` there are n positions, with ``length=[]`` the second operand is the count. The region takes and yields
    the references that follow; the results are those of the last iteration. ``reverse``: from the last position to the
    first."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        counted = not params["length"]
        for t in types[: 1 + counted]:
            _check_i64(t)
        return _check_carried(types[1 + counted :], region)


class RepeatWhile(Op):
    """Runs its second region as long as the first one yields a buffer that holds true. The first operand is a buffer that
    holds the index of the iteration, and at the end the trip count. Both regions take the references that follow; the
    second yields them."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        condition, body = regions
        _check_i64(types[0])
        if [v.type for v in condition.results] != [RefType(BOOL)] or _parameter_types(condition) != tuple(types[1:]):
            raise TypeError("the first region takes the references and yields a bool")
        return _check_carried(types[1:], body)


class Branch(Op):
    """Runs the region whose position is its operand, an i64. Regions take and yield nothing."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (index,) = types
        _check_i64(index)
        if not regions or any(region.parameters or region.results for region in regions):
            raise TypeError("regions take and yield nothing")
        return ()


def _check_i64(t: Type) -> None:
    if t not in (RefType(I64), scalar(I64)):
        raise TypeError(f"takes an i64, found {t}")


def _parameter_types(region: Region) -> tuple[Type, ...]:
    return tuple(v.type for v in region.parameters)


def _check_carried(types: Sequence[Type], region: Region) -> tuple[Type, ...]:
    if _parameter_types(region) != tuple(types) or tuple(v.type for v in region.results) != tuple(types):
        raise TypeError("the region takes and yields the references")
    return tuple(types)


alloc = Alloc(name="alloc", typed=("dtype", "shape"), extents=("shape",), vocabularies=PROGRAM)
view = View(name="view", typed=("dtype", "shape"), extents=("shape",), vocabularies=PROGRAM)
launch = Launch(name="launch", effect="effect", extents=("sizes",), vocabularies=PROGRAM)
free = Free(name="free", effect="effect", vocabularies=PROGRAM)
copy = Copy(name="copy", effect="effect", vocabularies=PROGRAM)
row = Row(name="row", vocabularies=PROGRAM)
stack = Stack(name="stack", typed=("dtype", "shape"), extents=("shape",), effect="effect", vocabularies=PROGRAM)
push = Push(name="push", effect="effect", vocabularies=PROGRAM)
store_stack_length = StoreStackLength(name="store_stack_length", effect="effect", vocabularies=PROGRAM)
bind_extent = BindExtent(name="bind_extent", extents=("extent",), effect="effect", vocabularies=PROGRAM)
loop = Repeat(name="loop", extents=("length",), effect="effect", vocabularies=PROGRAM)
loop_while = RepeatWhile(name="loop_while", effect="effect", vocabularies=PROGRAM)
branch = Branch(name="branch", effect="effect", vocabularies=PROGRAM)
