"""Compiled programs: shapes, memory orders, groups of rows, several results, updates in place, checks, accuracy, size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from pullback.ir import DTYPES, OPS, ArrayType, Builder, Function, Loc, Value
from pullback.ir.core.types import F32, F64, I64, dtype_of
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.shapes.extents import abstract
from tests.support.targets import assert_close, compiled, run_targets
from tests.support.work_counter import calls_in

Build = Callable[..., Any]
RNG = np.random.default_rng(0)
START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Each test draws the same numbers, whichever ran before."""
    RNG.bit_generator.state = START


def function_of(build: Build, *types: ArrayType) -> Function:
    b = Builder()
    parameters = [Value(t, f"x{k}") for k, t in enumerate(types)]
    results = build(b, *parameters)
    return b.function("f", parameters, [results] if isinstance(results, Value) else list(results))


def type_of(array: Any) -> ArrayType:
    return ArrayType(dtype_of(np.asarray(array).dtype), np.asarray(array).shape)


def check(build: Build, *arguments: Any, ulps: float = 0, floor: float = 0.0) -> tuple[Any, ...]:
    """All targets agree with the interpreter; returns the compiled results."""
    results = run_targets(function_of(build, *map(type_of, arguments)), arguments)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for k, (a, e) in enumerate(zip(result, expected, strict=True)):
            assert_close(a, e, ulps, floor, note=f"result {k} on {target}")
    return results["cpu"]


def normal(*shape: int, dtype: Any = np.float64) -> Any:
    return RNG.normal(size=shape).astype(dtype)


def spread(b: Any, row: Value, like: Value, *axes: int) -> Value:
    result: Value = b.broadcast(row, axes=axes, shape=like.type.shape)
    return result


def softmax(b: Any, x: Value) -> Value:
    last = x.type.rank - 1
    top = spread(b, b.max(x, axes=(last,)), x, last)
    weights = b.exp(b.sub(x, top))
    return b.div(weights, spread(b, b.sum(weights, axes=(last,)), x, last))  # type: ignore[no-any-return]


def layer_norm(b: Any, x: Value, scale: Value, shift: Value) -> list[Value]:
    """The normalised rows, their means and their variances."""
    rank = x.type.rank
    last, others = rank - 1, tuple(range(rank - 1))
    count = b.full(x.type.shape[-1], ArrayType(x.type.dtype, x.type.shape[:-1]))
    mean = b.div(b.sum(x, axes=(last,)), count)
    centred = b.sub(x, spread(b, mean, x, last))
    variance = b.div(b.sum(b.mul(centred, centred), axes=(last,)), count)
    root = b.sqrt(b.add(variance, b.full(1e-5, variance.type)))
    unit = b.div(centred, spread(b, root, x, last))
    out = b.add(b.mul(unit, spread(b, scale, x, *others)), spread(b, shift, x, *others))
    return [out, mean, variance]


# memory orders


def transposed(x: Any) -> Any:
    return x.T


VIEWS: dict[str, Callable[[Any], Any]] = {
    "fortran": np.asfortranarray,
    "every other row": lambda x: np.repeat(x, 2, 0)[::2],
    "every third column": lambda x: np.repeat(x, 3, 1)[:, 1::3],
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "one row repeated": lambda x: np.broadcast_to(x[0], x.shape),
    "one column repeated": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "one number": lambda x: np.broadcast_to(x[0, 0], x.shape),
    "unaligned": lambda x: np.frombuffer(b"\0" * 4 + x.tobytes(), np.uint8)[4:].view(x.dtype).reshape(x.shape)[:, ::-1],
}
READERS: dict[str, Build] = {
    "map": lambda b, x: b.add(b.mul(x, x), x),
    "rows": lambda b, x: b.sum(x, axes=(1,)),
    "columns": lambda b, x: b.max(x, axes=(0,)),
    "all": lambda b, x: b.sum(x, axes=(0, 1)),
    "softmax": softmax,
    "product": lambda b, x: b.contract(x, x, spec="ij,kj->ik"),
    "transpose": lambda b, x: b.transpose(x, perm=(1, 0)),
    "reshape": lambda b, x: b.reshape(x, shape=(x.type.shape[1], x.type.shape[0])),
    "slice": lambda b, x: b.slice(x, start=(1, 2), step=(2, 3), shape=(3, 5)),
    "gather": lambda b, x: b.gather(x, b.iota(shape=(4,), axis=0, dtype=I64), axes=(0,)),
    "position": lambda b, x: b.argmin(x, axes=(0,)),
    "in place": lambda b, x: b.slice_add(x, b.full(1, x.type.with_shape((2, 2))), start=(1, 1), step=(1, 1)),
    "concat": lambda b, x: b.concat(x, x, axis=1, starts=(0, 19), shape=(7, 38)),
    "recurrence": lambda b, x: b.linear_recurrence(x, x, axis=1, reverse=True),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("reader", READERS)
def test_memory_orders(view: str, reader: str) -> None:
    x = VIEWS[view](np.round(normal(7, 19), 2))
    assert not x.flags.c_contiguous
    check(READERS[reader], x, ulps=16, floor=8.0)


def test_memory_orders_of_rank_3_and_of_small_elements() -> None:
    x = np.round(normal(5, 4, 37) * 5)
    for dtype, perm in itertools.product((np.float32, np.int8, np.bool_, np.float16), itertools.permutations(range(3))):
        array = np.transpose(x.astype(dtype), perm)
        other = np.ascontiguousarray(array)
        check(lambda b, x, y: [b.eq(x, y), b.max(x, axes=(1,)), b.max(y, axes=(0, 2))], array, other)


def test_strides_are_read_at_each_call() -> None:
    """One executable serves every strided argument."""
    base = normal(12, 20)
    views = [base[:6, ::2], base[::2, :10], base[::-2, 10:][:, ::-1], np.broadcast_to(base[0, :10], (6, 10))]
    program = compiled(function_of(lambda b, x: b.exp(x), ArrayType(F64, (6, 10))), ["strided"])
    for view in [*views, np.ascontiguousarray(views[0])]:
        assert_close(program.run([view])[0], np.exp(view), 4)


# shapes

EXTENTS = (0, 1, 2, 17)


@pytest.mark.parametrize(
    "shape", [(), *itertools.product(EXTENTS), *itertools.product(EXTENTS, EXTENTS), (3, 0, 2), (1, 1, 1), (2, 3, 5)]
)
def test_maps_and_reductions_of_every_shape(shape: tuple[int, ...]) -> None:
    def build(b: Any, x: Value) -> list[Value]:
        axes = tuple(range(x.type.rank))
        results = [b.tanh(x), b.sum(b.mul(x, x), axes=axes), b.max(x, axes=axes)]
        for axis in axes:
            results += [b.sum(x, axes=(axis,)), b.min(b.neg(x), axes=(axis,)), b.flip(x, axes=(axis,))]
        return results

    check(build, normal(*shape), ulps=16, floor=1.0)


@pytest.mark.parametrize("shape", [(9,), (3, 17), (17, 3), (2, 5, 3), (3, 1, 19), (2, 3, 2, 5), (2, 2, 9, 1)])
def test_every_set_of_axes(shape: tuple[int, ...]) -> None:
    """Rows, columns, middle axes and all axes are reduced, alone and together in one program."""
    x = normal(*shape)
    axes = [k for r in range(1, len(shape) + 1) for k in itertools.combinations(range(len(shape)), r)]
    check(lambda b, x: [b.sum(x, axes=a) for a in axes], x, ulps=16, floor=4.0)
    check(lambda b, x: [b.prod(b.exp(x), axes=a) for a in axes], x, ulps=64)
    for a in axes:
        check(lambda b, x, a=a: b.max(b.abs(x), axes=a), x)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_along_any_axis(name: str, rank: int) -> None:
    """The position of the first of equal elements is returned; NaN precedes all others."""
    shape = (3, 19, 4)[:rank]
    ties = RNG.integers(0, 3, shape).astype(np.float64)
    with_nan = np.where(RNG.random(shape) < 0.15, np.nan, ties)
    zeros = np.where(RNG.random(shape) < 0.5, 0.0, -0.0)
    for x in (ties, with_nan, zeros, normal(*shape), ties.astype(np.int8), ties > 1, with_nan.astype(np.float16)):
        results = check(lambda b, x: [getattr(b, name)(x, axes=(a,)) for a in range(rank)], x)
        for axis, result in enumerate(results):
            np.testing.assert_array_equal(result, getattr(np, name)(x, axis))


def test_a_last_axis_of_one_element() -> None:
    """Its vector loop has a single lane, known when it is compiled; narrowed results must not overrun theirs."""

    def build(b: Any, x: Value) -> list[Value]:
        moved = b.shift(x, axis=1, offset=1)
        narrow = b.cast(b.mul(moved, moved), dtype=DTYPES["i8"])
        return [b.squeeze(narrow, axes=(2,)), b.squeeze(moved, axes=(2,))]

    check(build, RNG.integers(-9, 9, (3, 17, 1)))


def test_rearranged() -> None:
    def build(b: Any, x: Value) -> list[Value]:
        y = b.mul(x, x)
        part = b.slice(y, start=(1, 0, 2), step=(2, 1, 3), shape=(2, 3, 4))
        whole = b.pad(part, start=(1, 0, 0), step=(3, 2, 1), shape=(6, 7, 4))
        turned = b.transpose(whole, perm=(2, 0, 1))
        joined = b.concat(turned, b.neg(turned), turned, axis=1, starts=(0, 6, 12), shape=(4, 18, 7))
        moved = b.shift(b.shift(joined, axis=1, offset=2), axis=2, offset=-3)
        mirrored = b.flip(moved, axes=(0, 2))
        return [mirrored, b.sum(mirrored, axes=(1,)), b.reshape(mirrored, shape=(18 * 7, 4)), b.add(joined, mirrored)]

    check(build, normal(5, 3, 12), ulps=8, floor=1.0)


def test_indices_negative_and_repeated() -> None:
    index = np.array([3, -1, 0, 0, -4, 3, 3])

    def build(b: Any, x: Value, i: Value, v: Value) -> list[Value]:
        read = b.gather(x, i, axes=(0,))
        added = b.scatter_add(x, i, v, axes=(0,))
        pairs = b.gather(added, i, i, axes=(0, 1))
        return [read, b.sum(read, axes=(0,)), added, b.scatter_set(x, i, v, axes=(0,)), pairs, b.gather(b.exp(x), i, axes=(1,))]

    check(build, normal(4, 4), index, normal(7, 4), ulps=8, floor=1.0)
    check(lambda b, x, i: b.gather(x, i, axes=(0,)), normal(4), np.zeros((0, 3), np.int64))


# groups of rows


@pytest.mark.parametrize("shape", [(5, 33), (1, 1), (40, 3), (2, 3, 20), (0, 4), (3, 0)])
def test_softmax_and_its_gradient(shape: tuple[int, ...]) -> None:
    def build(b: Any, x: Value, y: Value) -> Sequence[Value]:
        inner = Builder()
        p, q = Value(x.type, "p"), Value(y.type, "q")
        loss = inner.sum(inner.mul(softmax(inner, p), q), axes=tuple(range(len(shape))))
        result: Sequence[Value] = b.emit(OPS["gradient"], (x, y), {"wrt": (0, 1)}, [inner.block([p, q], [loss])])
        return result

    _, _, weights = check(build, normal(*shape) * 3, normal(*shape), ulps=64, floor=1.0)
    if weights.size:
        np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-14)


@pytest.mark.parametrize("shape", [(6, 31), (2, 4, 16), (1, 1)])
def test_layer_norm_and_its_gradient(shape: tuple[int, ...]) -> None:
    def build(b: Any, *values: Value) -> Sequence[Value]:
        inner = Builder()
        parameters = [Value(v.type, "p") for v in values]
        out, mean, variance = layer_norm(inner, *parameters)
        loss = inner.sum(inner.tanh(out), axes=tuple(range(len(shape))))
        region = inner.block(parameters, [loss, out, mean, variance])
        result: Sequence[Value] = b.emit(OPS["gradient"], values, {"wrt": (0, 1, 2)}, [region])
        return result

    check(build, normal(*shape), normal(shape[-1]), normal(shape[-1]), ulps=2**12, floor=1.0)


def test_a_softmax_is_one_kernel() -> None:
    assert compiled(function_of(softmax, ArrayType(F64, (5, 33)))).kernels == 1


def test_values_used_in_several_groups() -> None:
    def build(b: Any, x: Value, w: Value) -> list[Value]:
        h = b.tanh(x)
        rows, columns = b.sum(h, axes=(1,)), b.sum(h, axes=(0,))
        product = b.contract(h, w, spec="ij,jk->ik")
        back = b.contract(product, w, spec="ik,jk->ij")
        whole = b.add(b.mul(h, spread(b, rows, h, 1)), b.add(back, spread(b, columns, h, 0)))
        total = b.sum(whole, axes=(0, 1))
        return [h, rows, columns, product, b.div(whole, spread(b, total, h, 0, 1)), total, b.mul(total, total)]

    check(build, normal(9, 21), normal(21, 4), ulps=2**10, floor=4.0)


def test_pairs_are_never_stored() -> None:
    """n x n differences, reduced over either axis, in a program whose temporaries are O(n)."""

    def build(b: Any, x: Value, y: Value) -> list[Value]:
        shape = (x.type.shape[0], y.type.shape[0])
        difference = b.sub(b.broadcast(x, axes=(1,), shape=shape), b.broadcast(y, axes=(0,), shape=shape))
        near = b.exp(b.neg(b.mul(difference, difference)))
        return [b.sum(near, axes=(0,)), b.sum(near, axes=(1,)), b.sum(near, axes=(0, 1))]

    x, y = normal(40), normal(33)
    check(build, x, y, ulps=2**8)
    program = compiled(function_of(build, type_of(x), type_of(y)))
    program.run([x, y])
    (instance,) = program.executable.instances.values()
    assert instance.arena_bytes < 40 * 33


# results


def test_results_have_memory_of_their_own() -> None:
    def build(b: Any, x: Value) -> list[Value]:
        y = b.exp(x)
        flat = b.reshape(y, shape=(12,))
        return [y, y, flat, b.reshape(x, shape=(2, 6)), b.reshape(x, shape=(12,))]

    x = normal(3, 4)
    results = check(build, x, ulps=4)
    for a, c in itertools.combinations(results, 2):
        assert not np.shares_memory(a, c)
    assert not any(np.shares_memory(a, x) for a in results)


def test_an_argument_returned_whole_is_itself() -> None:
    x, y = normal(3), normal(3)
    program = compiled(function_of(lambda b, x, y: [x, b.add(x, y), x], type_of(x), type_of(y)))
    first, total, last = program.run([x, y])
    assert first is x and last is x
    np.testing.assert_array_equal(total, x + y)


def test_an_argument_is_never_written() -> None:
    x, value = normal(4, 4), normal(2, 2)
    kept = x.copy()

    def build(b: Any, x: Value, v: Value) -> list[Value]:
        once = b.slice_set(x, v, start=(0, 0), step=(1, 1))
        twice = b.slice_add(once, v, start=(2, 2), step=(1, 1))
        return [
            twice,
            b.slice_set(twice, v, start=(1, 0), step=(2, 3)),
            b.slice_add(b.reshape(x, shape=(16,)), b.reshape(v, shape=(4,)), start=(3,), step=(2,)),
        ]

    check(build, x, value)
    np.testing.assert_array_equal(x, kept)


def test_a_chain_of_updates_is_made_in_place() -> None:
    """Each update of a buffer without other uses is written to the buffer itself: the whole is copied once in all."""

    def build(b: Any, x: Value) -> Value:
        out = b.exp(x)
        for k in range(6):
            out = b.slice_set(out, b.slice(x, start=(k,), step=(1,), shape=(2,)), start=(2 * k,), step=(1,))
            out = b.scatter_add(out, b.full(k, ArrayType(I64, (3,))), b.full(k + 1, ArrayType(F64, (3,))), axes=(0,))
        return out  # type: ignore[no-any-return]

    check(build, normal(64), ulps=8)
    program = compiled(function_of(build, ArrayType(F64, (4096,))))
    program.run([normal(4096)])
    (instance,) = program.executable.instances.values()
    assert instance.arena_bytes < 4096


def test_no_results_and_no_arguments() -> None:
    assert compiled(function_of(lambda b: [])).run([]) == ()
    line, count = check(lambda b: [b.iota(shape=(2, 5), axis=1, dtype=I64), b.count(shape=(2, 5))])
    np.testing.assert_array_equal(line, np.tile(np.arange(5), (2, 1)))
    assert int(count) == 10


# checks


def test_checks_pass_and_fail_in_program_order() -> None:
    def build(b: Any, x: Value) -> list[Value]:
        zero = b.full(0, x.type)
        b.at(Loc("user.py", 3)).emit(OPS["check"], (b.gt(x, zero),), {"error": "ValueError", "message": "x must be positive"})
        total = b.sum(x, axes=(0,))
        b.at(Loc("user.py", 4)).emit(
            OPS["check"], (b.lt(total, b.full(100, total.type)),), {"error": "IndexError", "message": "x is too large"}
        )
        return [b.sqrt(x)]

    program = compiled(function_of(build, ArrayType(F64, (37,))))
    x = np.linspace(1, 2, 37)
    assert_close(program.run([x])[0], np.sqrt(x))
    low = np.where(np.arange(37) == 36, -1.0, x)
    cases = [(low, "ValueError", "x must be positive"), (x * 50, "IndexError", "x is too large")]
    cases += [
        (np.where(np.arange(37) == 20, -1.0, x * 1e6), "ValueError", "x must be positive"),
        (x * np.nan, "ValueError", "x must be positive"),
    ]
    for argument, error, message in cases:
        with pytest.raises(CheckFailed, match=message) as raised:
            program.run([argument])
        assert raised.value.error == error
        with pytest.raises(CheckFailed, match=message):
            interpret(program.function, argument)
    assert_close(program.run([x])[0], np.sqrt(x))


def test_checks_of_scalars_of_nothing_and_in_several_groups() -> None:
    def build(b: Any, x: Value, n: Value) -> list[Value]:
        b.emit(OPS["check"], (b.ge(n, b.full(0, n.type)),), {"error": "ValueError", "message": "first"})
        row = b.sum(x, axes=(1,))
        b.emit(OPS["check"], (b.lt(row, b.full(9, row.type)),), {"error": "ValueError", "message": "second"})
        column = b.max(x, axes=(0,))
        b.emit(OPS["check"], (b.lt(column, b.full(5, column.type)),), {"error": "ValueError", "message": "third"})
        return [row, column]

    program = compiled(function_of(build, ArrayType(F64, (3, 4)), ArrayType(I64)))
    ones = np.ones((3, 4))
    assert len(program.run([ones, np.int64(1)])) == 2
    for x, n, message in (
        (ones, -1, "first"),
        (ones * 9, -1, "first"),
        (ones * 9, 0, "second"),
        (np.diag([7.0] * 4)[:3], 0, "third"),
    ):
        with pytest.raises(CheckFailed, match=message):
            program.run([x, np.int64(n)])
    empty = compiled(function_of(build, ArrayType(F64, (0, 4)), ArrayType(I64)))
    empty.run([np.zeros((0, 4)), np.int64(0)])


@pytest.mark.parametrize("failing", [{k} for k in range(6)] + [{1, 4}, {2, 5}, {3, 4, 5}, {0, 5}, set(range(6)), set()], ids=str)
def test_the_first_failure_in_program_order_wins(failing: set[int]) -> None:
    """Checks of alternating shapes, which are not one kernel, of arguments and of computed values."""
    shapes = [(5,), (3, 4), (5,), (), (3, 4), (5,)]

    def build(b: Any, *values: Value) -> list[Value]:
        total = b.full(0.0, ArrayType(F64))
        for k, x in enumerate(values):
            y = b.exp(x) if k % 2 else x
            held = b.lt(y, b.full(50, y.type))
            b.at(Loc("user.py", k + 1)).emit(OPS["check"], (held,), {"error": "ValueError", "message": f"check {k}"})
            total = b.add(total, b.sum(y, axes=tuple(range(y.type.rank))))
        return [total]

    program = compiled(function_of(build, *(ArrayType(F64, s) for s in shapes)))
    arguments = [np.full(s, 60.0 if k in failing else 1.0) for k, s in enumerate(shapes)]
    if not failing:
        assert_close(program.run(arguments)[0], interpret(program.function, *arguments)[0], 16)
        return
    with pytest.raises(CheckFailed, match=rf"check {min(failing)}\b") as raised:
        program.run(arguments)
    assert raised.value.__notes__ == [f"user.py:{min(failing) + 1}"]


def test_an_earlier_check_of_a_later_kernel_fails_first() -> None:
    def build(b: Any, x: Value, y: Value) -> list[Value]:
        first, second = b.exp(x), b.exp(y)
        for value, message in ((second, "earlier"), (first, "later")):
            b.emit(OPS["check"], (b.lt(value, b.full(3, value.type)),), {"error": "ValueError", "message": message})
        return [first, second]

    program = compiled(function_of(build, ArrayType(F64, (5,)), ArrayType(F64, (3, 4))))
    for x, y, message in ((2, 2, "earlier"), (2, 1, "later"), (1, 2, "earlier")):
        with pytest.raises(CheckFailed, match=message):
            program.run([np.full(5, float(x)), np.full((3, 4), float(y))])


def test_a_check_is_kept_though_nothing_reads_its_group() -> None:
    def build(b: Any, x: Value) -> list[Value]:
        b.emit(OPS["check"], (b.gt(x, b.full(0, x.type)),), {"error": "ValueError", "message": "positive"})
        return []

    program = compiled(function_of(build, ArrayType(F64, (3,))))
    program.run([np.ones(3)])
    with pytest.raises(CheckFailed, match="positive"):
        program.run([np.zeros(3)])


# accuracy of sums


@pytest.mark.parametrize("count", [100, 5_000, 40_000, 300_001])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_no_less_accurate_than_pairwise(dtype: Any, count: int) -> None:
    """Sums of rows and whole arrays against NumPy's pairwise sums; of columns against NumPy's, which add row by row."""
    x = (RNG.random(count) + 0.1).astype(dtype)
    exact = math.fsum(x.tolist())
    unit = np.finfo(dtype).eps * exact
    bound = max(2 * abs(float(np.sum(x)) - exact), 4 * unit)
    program = compiled(function_of(lambda b, x: b.sum(x, axes=(0,)), type_of(x)))
    assert abs(float(program.run([x])[0]) - exact) <= bound
    rows = np.stack([x, x])
    (totals,) = compiled(function_of(lambda b, x: b.sum(x, axes=(1,)), type_of(rows))).run([rows])
    assert np.all(np.abs(totals.astype(np.float64) - exact) <= bound)
    columns = np.ascontiguousarray(rows.T)
    (totals,) = compiled(function_of(lambda b, x: b.sum(x, axes=(0,)), type_of(columns))).run([columns])
    bound_of_columns = 2 * np.abs(columns.sum(0).astype(np.float64) - exact) + 4 * unit
    assert np.all(np.abs(totals.astype(np.float64) - exact) <= bound_of_columns)
    (total,) = compiled(function_of(lambda b, x: b.sum(x, axes=(0, 1)), type_of(rows))).run([rows])
    assert abs(float(total) - 2 * exact) <= 2 * bound


# templates, calls, size


def test_one_program_serves_all_sizes() -> None:
    """A template made for one shape computes others, empty ones included, and keeps an instance for each."""

    def build(b: Any, x: Value, y: Value) -> list[Value]:
        return [softmax(b, x), b.contract(x, y, spec="ij,jk->ik"), b.sum(x, axes=(0, 1)), b.flip(y, axes=(0,))]

    first = compiled(function_of(build, ArrayType(F64, (3, 4)), ArrayType(F64, (4, 2))))
    for n, m, k in ((3, 4, 2), (1, 1, 1), (50, 7, 9), (0, 3, 2), (2, 0, 5), (6, 9, 0), (3, 4, 2)):
        x, y = normal(n, m), normal(m, k)
        other = abstract(function_of(build, type_of(x), type_of(y)))
        assert list(other.sizes) == list(first.sizes) and len(other.constants) == len(first.constants)
        result = first.executable.run([x, y, *first.constants], other.sizes)
        for a, e in zip(result, interpret(function_of(build, type_of(x), type_of(y)), x, y), strict=True):
            assert_close(a, e, 2**8, 1.0)
    assert len(first.executable.instances) == 6


def test_calls_from_many_threads() -> None:
    def build(b: Any, x: Value) -> list[Value]:
        y = softmax(b, x)
        return [b.contract(y, x, spec="ij,kj->ik"), b.sum(y, axes=(0,))]

    program = compiled(function_of(build, ArrayType(F64, (20, 30))))
    inputs = [normal(20, 30) for _ in range(32)]
    expected = [program.run([x]) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            runs = pool.map(lambda x: program.executable.run([x, *program.constants], program.sizes), inputs)
            for result, wanted in zip(runs, expected, strict=True):
                for a, e in zip(result, wanted, strict=True):
                    np.testing.assert_array_equal(a, e)


def chain(length: int, dtype: Any = F64) -> Function:
    """Elementwise ops in a row; every hundredth reads the argument again."""

    def build(b: Any, x: Value) -> Value:
        y = x
        for k in range(length):
            if k % 100 == 99:
                y = b.tanh(b.mul(y, x))
            else:
                y = b.add(y, x) if k % 2 else b.mul(y, b.full(0.5, x.type))
        return y

    return function_of(build, ArrayType(dtype, (50,)))


def test_long_chains() -> None:
    x = normal(50)
    short = chain(300)
    assert_close(compiled(short).run([x])[0], interpret(short, x)[0], 64)


@pytest.mark.slow
@pytest.mark.parametrize("longest", [2_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_a_long_chain_compiles_in_near_linear_time(longest: int) -> None:
    x = normal(50)
    work = []
    for length in (longest // 4, longest):
        function = chain(length)
        calls, program = calls_in(compiled, function)
        work.append(calls)
        assert_close(program.run([x])[0], interpret(function, x)[0], 64)
    assert work[1] < 5 * work[0], work


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_matrix_products_of_every_orientation_and_batch(dtype: str) -> None:
    extents = dict(zip("bcmnk", (3, 2, 5, 7, 4), strict=True))
    specs = [
        "mk,kn->mn",
        "mk,nk->mn",
        "km,kn->mn",
        "km,nk->nm",
        "bmk,bkn->bmn",
        "bmk,bnk->bnm",
        "mk,bkn->bmn",
        "bcmk,bckn->bcmn",
        "bmk,cnk->bmcn",
        "mk,mk->m",
        "mk,mk->",
    ]
    for spec in specs:
        words = spec.split("->")[0].split(",")
        arrays = [normal(*(extents[k] for k in word), dtype=DTYPES[dtype].numpy) for word in words]
        check(lambda b, x, y, spec=spec: b.contract(x, y, spec=spec), *arrays, ulps=64, floor=1.0)
    for n, m, k in ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1)):
        x, y = normal(n, k, dtype=DTYPES[dtype].numpy), normal(k, m, dtype=DTYPES[dtype].numpy)
        check(lambda b, x, y: b.contract(x, y, spec="ij,jk->ik"), x, y, ulps=8)


def test_scalars() -> None:
    """Rank-0 arguments come by value, of every dtype."""

    def build(b: Any, x: Value, y: Value) -> list[Value]:
        return [b.add(x, y), b.eq(x, y), b.broadcast(x, axes=(0,), shape=(5,)), y, b.reshape(x, shape=(1, 1))]

    for dtype in DTYPES.values():
        if dtype.kind != "c":
            values = [np.asarray(v).astype(dtype.numpy) for v in (3, 1)]
            check(build, *values)
    check(lambda b, x: b.cast(x, dtype=F32), np.float64(1e300))
