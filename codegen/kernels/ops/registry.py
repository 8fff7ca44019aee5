"""Kernels of the ops that are not part of a group: matrix products, scatters, writes into a part of an array, recurrences.

A complex operand or result is a real reference with a last axis of two, its parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.codegen.kernels.elements import in_part, wrapped
from pullback.codegen.kernels.ops.batched_matmul import batch_kernel
from pullback.codegen.kernels.ops.complex_batched_matmul import complex_batch_kernel
from pullback.codegen.kernels.ops.cooperative_sort import cooperative_kernel
from pullback.codegen.kernels.ops.linalg import linalg_kernel, memory, product_kernel
from pullback.codegen.kernels.ops.segment_sum import scatter_sum_kernel
from pullback.codegen.kernels.ops.sort import sort_kernel, unsort_kernel
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import I64, DType, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.index import Place, Scatter, ScatterSum
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.scan import Accumulate, LinearRecurrence
from pullback.ir.ops.library.family import Linalg
from pullback.ir.ops.library.fourier import Fourier
from pullback.ir.ops.library.sort import Sort, Unsort
from pullback.ir.passes.complex.arithmetic import Pair, add, mul


def takes_strided(instruction: Instruction, target: str) -> bool:
    """Return whether the kernel of an instruction takes its operands in strided layouts."""
    is_product = isinstance(instruction.op, Contract) and "z" not in instruction.params["spec"]
    return is_product and target == "cpu" and not instruction.result.type.dtype.is_complex


def op_kernel(instruction: Instruction, target: str = "cpu", layouts: Sequence[str] = ()) -> Draft:
    """Return the kernel of one instruction. Its operands are dense buffers, unless it takes strided ones. ``target``: "cpu" or
    "cuda"; ``layouts`` of the operands, "c" or "strided". Raises NotImplementedError for an op without a kernel."""
    if target == "cuda" and isinstance(instruction.op, Scatter | ScatterSum | Sort) and not _is_single(instruction):
        return cooperative_kernel(instruction)
    match instruction.op:
        case Contract() if target == "cpu" and "z" in instruction.params["spec"]:
            make = complex_batch_kernel if instruction.result.type.dtype.is_complex else batch_kernel
            return make(instruction)
        case Contract():
            return product_kernel(instruction, target, layouts)
        case Scatter():
            return _update(instruction, _scatter)
        case ScatterSum():
            return scatter_sum_kernel(instruction)
        case Place():
            return _update(instruction, _place)
        case Accumulate():
            return _accumulation(instruction)
        case LinearRecurrence() if instruction.result.type.dtype.is_complex:
            return _complex_recurrence(instruction)
        case LinearRecurrence():
            return _recurrence(instruction)
        case Reduce():
            return _complex_product(instruction)
        case Fourier():
            return _transform(instruction)
        case Sort():
            return sort_kernel(instruction)
        case Unsort():
            return unsort_kernel(instruction)
        case Linalg():
            return linalg_kernel(instruction, target)
    raise NotImplementedError(f"there is no kernel for {instruction.op.name}")


def _is_single(i: Instruction) -> bool:
    """Return whether an instruction is a scatter at one position, whose values go to different elements."""
    return isinstance(i.op, Scatter) and not i.operands[1].type.rank


def _refs(b: KernelBuilder, values: Sequence[Value], names: str) -> list[Value]:
    return [Value(memory(b, v.type), name) for v, name in zip(values, names.split(), strict=True)]


def _loops(b: KernelBuilder, shape: Shape, body: Any) -> None:
    """Emit a nest of loops over a shape around ``body`` of the index."""
    counts = [b.extent_of(e) for e in shape]
    index = [b.open("ijklmnop"[min(k, 7)]) for k in range(len(shape))]
    body(tuple(index))
    for i, count in zip(reversed(index), reversed(counts), strict=True):
        b.close(i, count)


def _transform(i: Instruction) -> Draft:
    """Return the kernel of a Fourier transform: along the last axis all lines at once; along another axis the lines of the
    axes after it, in loops over the axes before it."""
    op = i.op
    assert isinstance(op, Fourier)
    b = KernelBuilder()
    b.location = i.loc
    references = _refs(b, (i.operands[0], i.result), "x out")
    shape, axis = i.operands[0].type.shape, i.params["axis"]
    is_last = axis == len(shape) - 1

    def body(index: tuple[Value, ...]) -> None:
        refs = references
        for position in index:
            refs = [b.here("subview", ref, position) for ref in refs]
        b.here("fft_1d", *refs, routine=op.routine(i.params), axis=axis if is_last else 0)

    _loops(b, () if is_last else shape[:axis], body)
    return Draft(kernel=b.kernel(references), sizes=b.sizes())


def _update(i: Instruction, body: Any) -> Draft:
    """Return a kernel that copies the base and updates the copy, with a variant that updates in place."""
    base, *rest = i.operands
    drafts: list[tuple[Function, tuple[Any, ...]]] = []
    for copies in (True, False):
        b = KernelBuilder()
        b.location = i.loc
        b.shape(base.type.shape)
        (source, out) = _refs(b, (base, i.result), "base out")
        parameters = _refs(b, rest, " ".join(f"x{k}" for k in range(len(rest))))
        for value in rest:
            b.shape(value.type.shape)
        if copies:
            _loops(b, base.type.shape, lambda index: b.here("store", b.here("load", source, *index), out, *index))  # noqa: B023
        body(b, i, out, parameters)
        drafts.append((b.kernel([*([source] if copies else []), *parameters, out]), b.sizes()))
    (copying, sizes), (in_place, other) = drafts
    if other != sizes:
        raise AssertionError("both kernels must have the same sizes")
    return Draft(kernel=copying, sizes=sizes, in_place=in_place)


def _scatter(b: KernelBuilder, i: Instruction, out: Value, parameters: Sequence[Value]) -> None:
    *indices, values = parameters
    rank = i.operands[1].type.rank
    shape = i.operands[0].type.shape
    index_by_axis = dict(zip(i.params["axes"], indices, strict=True))

    def body(index: tuple[Value, ...]) -> None:
        rest, target = list(index[rank:]), []
        for axis, extent in enumerate(shape):
            if axis in index_by_axis:
                position, is_proved = b.load(index_by_axis[axis], *index[:rank]), axis in i.params.get("in_range", ())
                target.append(position if is_proved else wrapped(b, position, b.extent_of(extent)))
            else:
                target.append(in_part(b, i, axis, rest.pop(0)))
        value = b.load(values, *index)
        if i.op.accumulate:  # type: ignore[attr-defined]
            value = b.add(b.here("load", out, *target), value)
        b.here("store", value, out, *target)

    ordered(b, i.operands[-1].type.shape, rank, body)


def ordered(b: KernelBuilder, shape: Shape, rank: int, body: Any) -> None:
    """Emit loops over a shape around ``body``; the first ``rank`` loops run in order, since different iterations may write to
    one element."""
    counts = [b.extent_of(e) for e in shape]
    index = [b.open("ijklmnop"[min(k, 7)]) for k in range(len(shape))]
    body(tuple(index))
    for axis in reversed(range(len(shape))):
        if axis < rank:
            b.close_ordered(index[axis], counts[axis])
        else:
            b.close(index[axis], counts[axis])


def _place(b: KernelBuilder, i: Instruction, out: Value, parameters: Sequence[Value]) -> None:
    (values,) = parameters
    shape = i.operands[1].type.shape

    def body(index: tuple[Value, ...]) -> None:
        target = [in_part(b, i, axis, position) for axis, position in enumerate(index)]
        value = b.load(values, *index)
        if i.op.accumulate:  # type: ignore[attr-defined]
            value = b.add(b.here("load", out, *target), value)
        b.here("store", value, out, *target)

    _loops(b, shape, body)


def _recurrence(i: Instruction) -> Draft:
    """Return the kernel of a linear recurrence: along its axis in order; the other axes are loops around it."""
    b = KernelBuilder()
    b.location = i.loc
    factors, terms, out = _refs(b, (*i.operands, i.result), "a b h")
    shape, axis = i.result.type.shape, i.params["axis"]
    others = shape[:axis] + shape[axis + 1 :]
    count = b.extent_of(shape[axis])
    dtype = i.result.type.dtype

    def body(around: tuple[Value, ...]) -> None:
        start = b.const(0, dtype)
        step = b.open("t")
        state = b.bound(dtype, "h")
        position = b.sub(b.sub(count, b.const(1, "i64")), step) if i.params["reverse"] else step
        index = (*around[:axis], position, *around[axis:])
        after = b.add(b.mul(b.load(factors, *index), state), b.load(terms, *index))
        b.here("store", after, out, *index)
        b.close(step, count, (start,), (after,), None, (state,))

    _loops(b, others, body)
    return Draft(kernel=b.kernel([factors, terms, out]), sizes=b.sizes())


def _accumulation(i: Instruction) -> Draft:
    """Return the kernel of an accumulation: along its axis in order; the other axes are loops around it."""
    b = KernelBuilder()
    b.location = i.loc
    x, out = _refs(b, (*i.operands, i.result), "x out")
    shape, axis = i.result.type.shape, i.params["axis"]
    count, dtype = b.extent_of(shape[axis]), i.result.type.dtype
    assert isinstance(i.op, Accumulate)
    combine, first = OPS[i.op.combine], b.const(i.op.first(dtype), dtype)

    def body(around: tuple[Value, ...]) -> None:
        step = b.open("t")
        state = b.bound(dtype, "h")
        position = b.sub(b.sub(count, b.const(1, "i64")), step) if i.params["reverse"] else step
        index = (*around[:axis], position, *around[axis:])
        (after,) = b.emit(combine, (state, b.load(x, *index)))
        b.here("store", after, out, *index)
        b.close(step, count, (first,), (after,), None, (state,))

    _loops(b, shape[:axis] + shape[axis + 1 :], body)
    return Draft(kernel=b.kernel([x, out]), sizes=b.sizes())


def _numbers(b: KernelBuilder, ref: Value, index: Sequence[Value]) -> Pair:
    """Return the parts of a complex element."""
    return b.load(ref, *index, b.const(0, I64)), b.load(ref, *index, b.const(1, I64))


def _put_numbers(b: KernelBuilder, pair: Pair, ref: Value, index: Sequence[Value]) -> None:
    for k, part in enumerate(pair):
        b.here("store", part, ref, *index, b.const(k, I64))


def _carried(b: KernelBuilder, dtype: DType) -> Pair:
    return b.bound(dtype, "re"), b.bound(dtype, "im")


def _complex_recurrence(i: Instruction) -> Draft:
    """Return the kernel of a linear recurrence of complex numbers, as ``_recurrence`` does."""
    b = KernelBuilder()
    b.location = i.loc
    factors, terms, out = _refs(b, (*i.operands, i.result), "a b h")
    shape, axis = i.result.type.shape, i.params["axis"]
    others = shape[:axis] + shape[axis + 1 :]
    count = b.extent_of(shape[axis])
    dtype = i.result.type.dtype.part

    def body(around: tuple[Value, ...]) -> None:
        start = b.const(0, dtype)
        step = b.open("t")
        state = _carried(b, dtype)
        position = b.sub(b.sub(count, b.const(1, "i64")), step) if i.params["reverse"] else step
        index = (*around[:axis], position, *around[axis:])
        after = add(b, mul(b, _numbers(b, factors, index), state), _numbers(b, terms, index))
        _put_numbers(b, after, out, index)
        b.close(step, count, (start, start), after, None, state)

    _loops(b, others, body)
    return Draft(kernel=b.kernel([factors, terms, out]), sizes=b.sizes())


def _complex_product(i: Instruction) -> Draft:
    """Return the kernel of a product of complex numbers over axes, in order."""
    b = KernelBuilder()
    b.location = i.loc
    source, out = _refs(b, (i.operands[0], i.result), "x out")
    shape, axes = i.operands[0].type.shape, i.params["axes"]
    kept = [k for k in range(len(shape)) if k not in axes]
    dtype = i.result.type.dtype.part

    def body(around: tuple[Value, ...]) -> None:
        product: Pair = b.const(1, dtype), b.const(0, dtype)
        starts, counts, steps, states = [], [b.extent_of(shape[a]) for a in axes], [], []
        for _ in axes:
            steps.append(b.open("t"))
            starts.append(product)
            product = _carried(b, dtype)
            states.append(product)
        index_of_axis = dict(zip((*kept, *axes), (*around, *steps), strict=True))
        product = mul(b, product, _numbers(b, source, [index_of_axis[k] for k in range(len(shape))]))
        for step, count, start, state in reversed(list(zip(steps, counts, starts, states, strict=True))):
            re, im = b.close(step, count, start, product, None, state)
            product = re, im
        _put_numbers(b, product, out, around)

    _loops(b, tuple(shape[k] for k in kept), body)
    return Draft(kernel=b.kernel([source, out]), sizes=b.sizes())
