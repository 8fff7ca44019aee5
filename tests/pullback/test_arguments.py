"""Arguments and results: what a call leaves in its arguments, and whose memory the results are, as NumPy has it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from tests.support import numpy_calls

Call = Callable[..., Any]


def flat(tree: Any) -> list[Any]:
    """The leaves of nested containers."""
    if dataclasses.is_dataclass(tree):
        tree = list(vars(tree).values())
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for t in tree for leaf in flat(t)] if isinstance(tree, list | tuple) else [tree]


def copied(tree: Any) -> Any:
    """The same arguments anew, in the same memory order and byte order."""
    if isinstance(tree, list | tuple):
        return type(tree)(copied(t) for t in tree)
    if isinstance(tree, dict):
        return {k: copied(t) for k, t in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return dataclasses.replace(tree, **{k: copied(v) for k, v in vars(tree).items()})
    if not isinstance(tree, np.ndarray) or not tree.ndim:
        return tree.copy() if isinstance(tree, np.ndarray) else tree
    memory = np.zeros(sum(abs(s) * (n - 1) for s, n in zip(tree.strides, tree.shape)) + tree.itemsize, np.uint8)
    start = sum(-s * (n - 1) for s, n in zip(tree.strides, tree.shape) if s < 0)
    built: Any = np.ndarray(tree.shape, tree.dtype, memory.data, start, tree.strides) if tree.size else tree.copy()
    built[...] = tree
    return built


def same(result: Any, expected: Any) -> None:
    """Equal leaves, of one dtype, shape and kind."""
    pairs = list(zip(flat(result), flat(expected), strict=True))
    for f, e in pairs:
        assert isinstance(f, np.ndarray) == (isinstance(e, np.ndarray) and (e.ndim > 0 or isinstance(f, np.ndarray)))
        if e is None:
            assert f is None
            continue
        f, e = np.asarray(f), np.asarray(e)
        assert (f.dtype.newbyteorder("="), f.shape) == (e.dtype.newbyteorder("="), e.shape)
        np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-12)


def as_numpy(function: Call, *args: Any) -> None:
    """Two calls leave in the arguments, and return, what the plain function does; an argument returned is the caller's."""
    compiled = pb.jit(function)
    for _ in range(2):
        plain, ours = copied(args), copied(args)
        expected, result = function(*plain), compiled(*ours)
        same(result, expected)
        same(ours, plain)
        for f, e in zip(flat(result), flat(expected), strict=True):
            whose = [k for k, a in enumerate(flat(plain)) if a is e and isinstance(a, np.ndarray)]
            assert [k for k, a in enumerate(flat(ours)) if a is f and isinstance(a, np.ndarray)] == whose


# writes


def item(x: Any) -> Any:
    x[0] = 7
    return x.sum()


def operators(x: Any) -> Any:
    x += 1
    x *= x
    x -= x[:1]
    return x


def through_views(x: Any) -> Any:
    part = x[1:]
    part *= 3
    x[::-1][0] = 9
    return part, x[:2], x


def by_ufunc(x: Any) -> Any:
    np.add(x, 1, out=x)
    np.negative(x, out=x, where=x > 2)
    return np.multiply(x, 2, out=x)


def by_functions(x: Any) -> Any:
    np.copyto(x, x + 1, where=x > 0)
    np.add.at(x, [0, 0], 2)
    x.fill(x.sum())
    x[...] = np.cumsum(x, 0)


def masked(x: Any) -> Any:
    x[x > 1] = 0
    return np.maximum(x, 0.5)


def conditionally(x: Any) -> Any:
    alias = x
    alias[0] += 1
    return x is alias


def nothing(x: Any) -> Any:
    x[:0] = 5
    x[:] = x
    return x


WRITES = [item, operators, through_views, by_ufunc, by_functions, masked, conditionally, nothing]
LAYOUTS = {
    "dense": np.arange(4.0),
    "reversed": np.arange(8.0)[::-2],
    "fortran": np.asfortranarray(np.arange(6.0).reshape(3, 2)),
    "transposed": np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1),
    "swapped": np.arange(4).astype(">f8"),
    "float32": np.arange(4, dtype=np.float32),
    "int": np.arange(4),
    "unaligned": np.frombuffer(bytes(33), np.uint8)[1:].view(np.float64).copy(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", WRITES)
def test_writes_reach_the_callers_array(function: Call, layout: str) -> None:
    as_numpy(function, LAYOUTS[layout])


def cell(x: Any) -> Any:
    x += 1
    x[...] *= 3
    x[()] = x + 2
    return x


def empty(x: Any) -> Any:
    x += 1
    x[:] = 3
    return x


def rebinding(x: Any) -> Any:
    x += 1
    return x


def test_ranks_and_scalars() -> None:
    as_numpy(cell, np.array(2.0))
    as_numpy(empty, np.zeros((0, 3)))
    for scalar in (3, 2.5, np.float32(2), np.int64(4)):
        same(pb.jit(rebinding)(scalar), rebinding(scalar))


@dataclasses.dataclass
class Layer:
    w: Any
    b: Any


def in_containers(layer: Any, params: Any, pair: Any) -> Any:
    layer.w += 1
    params["a"]["b"] -= 0.5 * layer.b
    params["a"]["b"] = params["a"]["b"]
    pair[0][1] = 8
    pair[1][:] = pair[0]
    return params, layer.w


def test_arrays_in_containers() -> None:
    as_numpy(in_containers, Layer(np.ones(2), np.full(2, 3.0)), {"a": {"b": np.arange(2.0)}}, (np.ones(2), np.zeros(2)))


def swapped(x: Any, y: Any) -> None:
    kept = x.copy()
    x[:] = y
    y[:] = kept


def rows(x: Any, i: int) -> Any:
    row = x[i]
    row += 1
    x[i] *= 2
    return row


def test_arguments_that_change_places() -> None:
    as_numpy(swapped, np.zeros(2), np.ones(2))
    as_numpy(rows, np.ones((3, 2)), 1)


def test_other_transforms_write_once() -> None:
    def inner(w: Any, count: Any) -> Any:
        count += 1
        w *= 2.0
        return np.sum(w**3) * count[0]

    def loss(w: Any, count: Any) -> Any:
        return inner(w, count)

    for function in (loss, lambda w, count: pb.jit(inner)(w, count)):
        w, count = np.array([1.0, 2.0]), np.zeros(1)
        value, slope = pb.value_and_grad(function)(w, count)
        np.testing.assert_allclose(value, 72.0)
        np.testing.assert_allclose(slope, [24.0, 96.0])
        same((w, count), (np.array([2.0, 4.0]), np.array([1.0])))
    w, count = np.array([1.0, 2.0]), np.zeros(1)
    curvature = pb.grad(lambda w, count: pb.grad(loss)(w, count).sum())(w, count)
    np.testing.assert_allclose(curvature, [48.0, 96.0])
    same((w, count), (np.array([2.0, 4.0]), np.array([1.0])))


def test_arrays_of_an_outer_function_written_inside_a_gradient() -> None:
    def outer(x: Any) -> Any:
        log = np.zeros(2)
        first = log[:1]

        def loss(x: Any) -> Any:
            first[0] = 5.0
            log[1] += x.sum()
            return np.sum(x**2)

        slope = pb.grad(loss)(x)
        return slope, log, first

    result = pb.jit(outer)(np.ones(3))
    same(result, (np.full(3, 2.0), np.array([5.0, 3.0]), np.array([5.0])))


def test_a_differentiated_array_has_one_name() -> None:
    def two_names(x: Any) -> Any:
        def loss(p: Any) -> Any:
            p[0] = 3.0
            return np.sum(p * x)

        return pb.grad(loss)(x)

    with pytest.raises(pb.TraceError, match="under one name"):
        pb.jit(two_names)(np.ones(2))


def test_a_scaled_sort_of_writes() -> None:
    def scale(x: Any, k: Any) -> Any:
        x[1:] = x[:-1] * k
        return x

    as_numpy(scale, np.arange(5.0), 2.0)


# what is refused, with nothing written


def test_read_only_arguments_raise_before_anything_runs() -> None:
    def both(x: Any, y: Any) -> Any:
        x[0] = 5
        y[0] = 6

    compiled = pb.jit(both)
    compiled(np.zeros(2), np.zeros(2))
    x, y = np.zeros(2), np.zeros(2)
    y.flags.writeable = False
    for _ in range(2):
        with pytest.raises(ValueError, match="assignment destination is read-only"):
            compiled(x, y)
    assert not x.any()

    def tolerant(x: Any) -> Any:
        try:
            x[0] = 1
        except ValueError:
            return x * 2
        return x

    compiled = pb.jit(tolerant)
    for array in (y, x, y, x):
        same(compiled(array), tolerant(array))


def test_arrays_that_share_memory() -> None:
    def into(x: Any, y: Any) -> Any:
        x[0] = y[1]
        return x + y

    compiled, whole = pb.jit(into), np.arange(6.0)
    for x, y in ((whole, whole), (whole[:3], whole[2:5]), (whole[::-1], whole)):
        with pytest.raises(pb.TraceError, match="argument x, which shares memory with y") as caught:
            compiled(x, y)
        assert caught.value.file == __file__
    same(whole, np.arange(6.0))
    as_numpy(into, *np.arange(6.0).reshape(2, 3))
    same(compiled(whole[::2], whole[1::2]), np.array([4.0, 5.0, 9.0]))
    with pytest.raises(pb.TraceError, match="whose elements share memory"):
        compiled(np.lib.stride_tricks.as_strided(whole, (3, 2), (8, 8)), np.ones(2))
    same(pb.jit(lambda x, y: x + y)(whole[1:4], whole[2:5]), np.array([3.0, 5.0, 7.0]))


SHARED = np.zeros(3)


def test_arrays_from_outside() -> None:
    def reading(x: Any) -> Any:
        x[0] = 1
        return x + SHARED

    with pytest.raises(pb.TraceError, match="shares memory with SHARED"):
        pb.jit(reading)(SHARED[:])
    as_numpy(reading, np.zeros(3))


def test_a_failed_check_writes_nothing() -> None:
    def picked(x: Any, i: Any) -> Any:
        x[0] = 9
        x[1] = x[i]
        return x

    compiled, x = pb.jit(picked), np.zeros(3)
    with pytest.raises(IndexError):
        compiled(x, 7)
    assert not x.any()
    compiled(x, 0)
    same(x, np.array([9.0, 9.0, 0.0]))


# results


def views(x: Any) -> Any:
    return {"t": x.T, "part": x[::2], "same": x[...], "flat": x.reshape(-1), "row": x[0], "itself": x, "again": [x.T, x, x.T]}


def test_results_are_the_callers_own() -> None:
    x = np.arange(12.0).reshape(3, 4)
    result = pb.jit(views)(x)
    same(result, views(x))
    results = [r for r in flat(result) if r is not x]
    assert len(flat(result)) - len(results) == 2
    for k, r in enumerate(results):
        assert r.flags.writeable and r.flags.owndata and r.base is None
        assert not any(np.shares_memory(r, other) for other in [x, *results[:k]])


def test_scalars_are_numpys() -> None:
    result = pb.jit(lambda x, k: (x.sum(), x[0, 0], k, np.mean(x, axis=()).max(), x[0, 0] > 1))(np.ones((2, 2)), 3)
    assert [type(f) for f in result] == [np.float64, np.float64, int, np.float64, np.bool_]


def test_spread_results_are_writable() -> None:
    """NumPy's are read-only views; ours are arrays of their own."""
    assert pb.jit(lambda x: np.broadcast_to(x, (2, 3)))(np.ones(3)).flags.writeable


CALLS = [
    pytest.param(call, arguments if isinstance(arguments, list) else [arguments], id=f"{name}{k}")
    for name in ("SHAPES", "JOINING", "READS", "PRODUCTS")
    for k, (call, arguments) in enumerate(getattr(numpy_calls, name))
]


@pytest.mark.parametrize("call, arguments", CALLS)
def test_results_share_memory_with_arguments_only_where_numpys_do(call: Call, arguments: list[Any]) -> None:
    """Writing into the result, or into the arguments, leaves in both what NumPy leaves, or is refused."""

    def result_written(*args: Any) -> Any:
        result = call(*args)
        for leaf in result if isinstance(result, list | tuple) else [result]:
            if len(np.shape(leaf)):
                leaf[...] = 7
        return result

    def arguments_written(*args: Any) -> Any:
        result = call(*args)
        for a in args:
            if np.ndim(a):
                a[...] = 7
        return result

    for function in (result_written, arguments_written):
        try:
            pb.jit(function)(*copied(arguments))
        except (pb.TraceError, ValueError):
            continue
        as_numpy(function, *arguments)


KEYS = st.sampled_from(
    [0, -1, 2, slice(None), slice(1, None), slice(None, None, -1), slice(0, 3, 2), ..., [0, 2], [True, False, True]]
)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(KEYS, st.sampled_from(["set", "add", "view", "mul"])), min_size=1, max_size=4), st.sampled_from("CF"))
def test_any_writes(steps: list[tuple[Any, str]], order: Any) -> None:
    def function(x: Any, y: Any) -> Any:
        last = x
        for key, how in steps:
            if how == "set":
                last[key] = y[0, 0]
            elif how == "add":
                last[key] += 1
            elif how == "mul":
                last *= 1.5
            elif np.shape(last) == (3, 3):
                last = last[key]
                if not np.shape(last):
                    return x, y
        return x, last + 0

    try:
        function(np.ones((3, 3)), np.ones((3, 3)))
    except (IndexError, ValueError):
        return
    as_numpy(function, np.arange(9.0).reshape((3, 3), order=order), np.full((3, 3), 4.0))
