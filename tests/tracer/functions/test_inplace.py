"""Programs that write into arrays do what NumPy does: results, what the arguments hold afterwards, and gradients."""

import copy
import itertools
import time
import warnings
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.fastcall import describe as fastcall_describe
from tests.tables import inplace_elements, inplace_functions, inplace_loops, inplace_masks, inplace_outside, inplace_views
from tests.tables.inplace import PROGRAMS, Call, Program

assert all((inplace_elements, inplace_functions, inplace_loops, inplace_masks, inplace_outside, inplace_views))

STEP = 1e-5
BY_NAME = [pytest.param(p, id=p.name) for p in PROGRAMS]
SMOOTH = [pytest.param(p, id=p.name) for p in PROGRAMS if p.order]


def plain(call: Call, *args: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return call(*args)


def same(result: Any, expected: Any) -> None:
    """Equal trees of equal leaves, with NumPy's dtypes and shapes."""
    assert pb.tree.structure(result) == pb.tree.structure(expected)
    for f, e in zip(pb.tree.leaves(result), pb.tree.leaves(expected), strict=True):
        f, e = np.asarray(f), np.asarray(e)
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        tolerance = 1e-6 if e.dtype == np.float32 else 1e-12
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance)


def native_from_now_on() -> None:
    """Calls are native, if they can be, once the native call path is compiled."""
    while fastcall_describe.is_underway():
        time.sleep(0.01)


def total(tree: Any) -> Any:
    """A weighted sum of functions of all floats in a tree."""
    result = 0.0
    for n, leaf in enumerate(pb.tree.leaves(tree)):
        if np.asarray(leaf).dtype.kind == "f":
            weights = 1.0 + 0.3 * np.cos(np.arange(np.size(leaf)) + n)
            result = result + np.sum(np.sin(leaf) * weights.reshape(np.shape(leaf)))
    return result


@pytest.mark.parametrize("program", BY_NAME)
def test_values(program: Program) -> None:
    expected = copy.deepcopy(program.arguments)
    result = plain(program.function, *expected)
    compiled = pb.jit(program.function)
    for _ in range(3):
        actual = copy.deepcopy(program.arguments)
        same(compiled(*actual), result)
        same(actual, expected)
        native_from_now_on()


@pytest.mark.parametrize("program", SMOOTH)
def test_gradients(program: Program) -> None:
    leaves = [pb.tree.leaves(a) for a in program.arguments]
    wanted = tuple(k for k, inside in enumerate(leaves) if all(np.asarray(a).dtype == np.float64 for a in inside))
    rng = np.random.default_rng(5)
    along = [pb.tree.map(lambda a: rng.uniform(0.5, 1.5, a.shape), program.arguments[k]) for k in wanted]

    def loss(*args: Any) -> Any:
        return total((program.function(*args), args))

    gradient = pb.grad(loss, argnums=wanted)

    def once(*args: Any) -> Any:
        return dot(gradient(*args), along)

    def both(*args: Any) -> Any:
        first = gradient(*copied(args))
        return (first, pb.grad(once, argnums=wanted)(*copied(args))) if program.order > 1 else (first, first)

    compiled = pb.jit(both)
    moved = []
    for sign in (1, -1):
        args = copy.deepcopy(list(program.arguments))
        for k, direction in zip(wanted, along, strict=True):
            args[k] = pb.tree.map(lambda a, d, by=sign * STEP: np.asarray(a + by * d), args[k], direction)
        moved.append(args)
    first, second = compiled(*copy.deepcopy(program.arguments))
    above, below = (plain(loss, *copy.deepcopy(args)) for args in moved)
    agree(dot(first, along), (above - below) / (2 * STEP))
    if program.order > 1:
        above, below = (dot(compiled(*args)[0], along) for args in moved)
        agree(dot(second, along), (above - below) / (2 * STEP))


def copied(tree: Any) -> Any:
    return pb.tree.map(lambda a: a.copy() if isinstance(a, np.ndarray) else a, tree)


def dot(tree: Any, other: Any) -> Any:
    return sum(np.sum(a * b) for a, b in zip(pb.tree.leaves(tree), pb.tree.leaves(other), strict=True))


def agree(result: Any, difference: Any) -> None:
    np.testing.assert_allclose(result, difference, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("make", inplace_outside.OUTSIDE)
def test_arrays_from_outside(make: Call) -> None:
    call, held = make()
    plain_call, expected = make()
    compiled = pb.jit(call)
    for k in range(4):
        x = np.sin(np.arange(6.0) + k)
        same(compiled(x), plain(plain_call, x))
        same(held, expected)
        native_from_now_on()


def test_an_array_from_outside_is_written_or_the_call_raises() -> None:
    buffer, index = np.zeros(3), np.zeros(1, int)

    @pb.jit
    def call(x: Any, i: Any) -> Any:
        buffer[0] += 1
        buffer[i] = x
        return x

    with pytest.raises(IndexError, match="index 7 is out of bounds for axis 0 with size 3"):
        call(1.0, index + 7)
    np.testing.assert_array_equal(buffer, [0, 0, 0])
    with pytest.raises(pb.TraceError, match="buffer, which shares memory with x"):
        call(buffer[:1], index)
    call(2.0, index + 1)
    np.testing.assert_array_equal(buffer, [1, 2, 0])
    buffer.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        call(2.0, index + 1)
    gradient = pb.grad(lambda x: np.sum(call(x, index) ** 2))
    with pytest.raises(ValueError, match="read-only"):
        gradient(2.0)


def written_in_a_loop(x: Any) -> Any:
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = 0.5 * y[i - 1] + x[i]
    return np.sum(y**2)


def updated_in_a_loop(x: Any) -> Any:
    for i in range(1, len(x)):
        x[i] += 0.5 * x[i - 1]
    return np.sum(x**2)


def scattered_in_a_loop(x: Any) -> Any:
    y, order = np.zeros(len(x)), np.argsort(x)
    for i in range(len(x)):
        y[order[i]] += x[i]
    return np.sum(y**2)


@pytest.mark.parametrize("call", [written_in_a_loop, updated_in_a_loop, scattered_in_a_loop])
def test_writes_and_their_gradients_copy_nothing(call: Call) -> None:
    """Four times the elements move about four times the bytes, not sixteen times. Fewer elements than these are split into
    components, which are in no memory."""
    for function in (call, pb.grad(call)):
        few, many = (pb.jit(function).cost(np.ones(n)).total.bytes for n in (80, 320))
        assert many < 6 * few


@pytest.mark.long
def test_functions_of_one_argument_are_applied_at_indices() -> None:
    x, i = np.sin(np.arange(6.0)) + 2, np.array([3, 1, 1, 5, 0, 1])
    for function in (np.negative, np.square, np.sqrt, np.logical_not):
        for array in (x, x.astype(np.float32), x + 1j) if function is not np.logical_not else (x > 2, np.arange(6)):
            for index in (i, [0, 2, 2], slice(1, 3)):

                def call(x: Any, j: Any, function: Any = function, index: Any = index) -> None:
                    function.at(x, j if index is i else index)

                actual, expected = array.copy(), array.copy()
                pb.jit(call)(actual, i)
                call(expected, i)
                np.testing.assert_allclose(actual, expected, rtol=1e-6)


FLAT_VIEWS: list[Call] = [
    lambda x: x[0], lambda x: x[::-1, 0], lambda x: x[::-1], lambda x: x[:, ::-1], lambda x: x.T, lambda x: x[1:, 1:],
    lambda x: x.reshape(-1)[3:7], lambda x: x[None, 1:], lambda x: np.broadcast_to(x[:, 1:2], (3, 2)), lambda x: np.flip(x, 0),
    lambda x: x, lambda x: x[:0], lambda x: np.swapaxes(x, 0, 1)[1:], lambda x: x[1:2, 1:2],
]  # fmt: skip
FLAT_KEYS: list[Any] = [None, slice(None), slice(None, None, -1), slice(1, None, 2), [0, 2, 1], [0, 0, 1, 0, 5, 1]]


@pytest.mark.parametrize("order", ["C", "F"])
def test_flat_elements_of_views_of_the_same_array_are_read_and_written_in_turns(order: Any) -> None:
    for taken, target in itertools.product(FLAT_VIEWS, (lambda x: x, lambda x: x[:, 1:], lambda x: x.T)):

        def call(*arrays: Any, taken: Call = taken, target: Call = target) -> None:
            for k, key in enumerate(FLAT_KEYS):
                if key is None:
                    target(arrays[k]).flat = taken(arrays[k])
                else:
                    target(arrays[k]).flat[key] = taken(arrays[k])

        results, expected = ([np.arange(12.0).reshape(3, 4).copy(order) for _ in FLAT_KEYS] for _ in range(2))
        pb.jit(call)(*results)
        call(*expected)
        np.testing.assert_array_equal(results, expected)


def frozen(x: Any) -> Any:
    x.flags.writeable = False
    return x


INTS, FLOATS = np.arange(6), np.linspace(-1, 1, 6)
FAILING: list[tuple[Call, Any]] = [
    (lambda n: n.__iadd__(0.5), INTS),
    (lambda n: n.__itruediv__(2), INTS),
    (lambda n: np.add(n, 0.5, out=n), INTS),
    (lambda n: np.sqrt(n, out=n), INTS),
    (lambda n: np.copyto(n, np.ones(6)), INTS),
    (lambda n: np.std(np.ones(3), out=n[:1].reshape(())), INTS),
    (lambda x: x.__setitem__(slice(0, 2), np.ones(3)), FLOATS),
    (lambda x: x.__setitem__([0, 1], np.ones(3)), FLOATS),
    (lambda x: x.__setitem__(9, 1.0), FLOATS),
    (lambda x: x.__setitem__(-7, 1.0), FLOATS),
    (lambda x: x.__setitem__((0, 0), 1.0), FLOATS),
    (lambda x: x.__setitem__(1.5, 1.0), FLOATS),
    (lambda x: x.__setitem__(x[:3] > 0, 1.0), FLOATS),
    (lambda x: x.__setitem__(np.array([0, 8]), 1.0), FLOATS),
    (lambda x: x.__iadd__(np.ones((2, 6))), FLOATS),
    (lambda x: np.add(x, np.ones((2, 6)), out=x), FLOATS),
    (lambda x: np.sum(x, out=x), FLOATS),
    (lambda x: np.dot(x, x, out=x[:1]), FLOATS),
    (lambda x: np.broadcast_to(x, (2, 6)).__setitem__(0, 1.0), FLOATS),
    (lambda x: np.diagonal(x.reshape(2, 3)).__setitem__(0, 1.0), FLOATS),
    (lambda x: np.lib.stride_tricks.sliding_window_view(x, 2).__setitem__(0, 1.0), FLOATS),
    (lambda x: x.__setitem__(0, 1.0), frozen(FLOATS.copy())),
    (lambda x: x[1:].__iadd__(1.0), frozen(FLOATS.copy())),
    (lambda x: x.reshape(2, 3).T.fill(0.0), frozen(FLOATS.copy())),
    (lambda x: np.put(x, [7], 1.0), FLOATS),
    (lambda x: np.place(x, x > -2, []), FLOATS),
    (lambda x: np.place(x, x[:2] > 0, [1.0]), FLOATS),
    (lambda x: np.putmask(x, x[:2] > 0, [1.0]), FLOATS),
    (lambda x: np.fill_diagonal(x, 1.0), FLOATS),
    (lambda x: np.add.at(x, [7], 1.0), FLOATS),
    (lambda x: np.add.at(x, [0, 1], np.ones(3)), FLOATS),
    (lambda x: np.maximum.at(x, np.argsort(x) + 5, 1.0), FLOATS),
    (lambda x: np.negative.at(x, [0], 1.0), FLOATS),
    (lambda x: x.sort(axis=2), FLOATS),
    (lambda x: x[x > 5].max(), FLOATS),
    (lambda x: np.argmin(x[x > 5]), FLOATS),
    (lambda x: x[x > 5][0], FLOATS),
    (lambda x: np.sum(x[x > 0] + x[x > 0.5]), FLOATS),
    (lambda x: x.__setitem__(x > 0, np.ones(4)), FLOATS),
    (lambda x: x.__setitem__(x > 0, x[x > 0.5]), FLOATS),
    (lambda x: x.flat.__setitem__(0, [1.0, 2.0]), FLOATS),
    (lambda x: np.take(x[:0], np.argsort(x), mode="wrap"), FLOATS),
    (lambda x: np.einsum("i->i", x, out=np.zeros(6, int)), FLOATS),
    (lambda x: np.copyto(x[0], 2.0), FLOATS),
    (lambda x: np.putmask(x.sum(), x[0] > -5, 2.0), FLOATS),
    (lambda x: np.place(x[0], x[0] > -5, [2.0]), FLOATS),
    (lambda x: np.add.accumulate(x[0]), FLOATS),
    (lambda x: np.add(x, 1.0, out=x[:2], where=x > 0), FLOATS),
]


@pytest.mark.parametrize(("call", "x"), FAILING)
def test_what_numpy_refuses(call: Call, x: Any) -> None:
    with pytest.raises(Exception) as expected:
        call(x if not x.flags.writeable else x.copy())
    arguments = x if not x.flags.writeable else x.copy()
    with pytest.raises(type(expected.value)):
        pb.jit(call)(arguments)
    np.testing.assert_array_equal(arguments, x)


def test_spectra_do_not_go_into_real_arrays() -> None:
    for function in (lambda x: np.fft.fft(x, out=x), pb.jit(lambda x: np.fft.fft(x, out=x))):
        with pytest.raises(TypeError, match="complex128"):
            function(FLOATS.copy())


def test_setflags() -> None:
    def program(x: Any) -> Any:
        y = x * 2
        y.setflags(write=False)
        z = y[:2]
        try:
            y[0] = 1.0
        except ValueError:
            total = np.sum(y)
        y.setflags(write=True)
        y[1] = total
        return y, z * 1

    def written(x: Any) -> Any:
        y = x * 2
        y.setflags(write=False)
        y[0] = 1.0
        return y

    def in_a_branch(x: Any) -> Any:
        y = x * 2
        if x[0] > 0:
            y.setflags(write=False)
        return y

    x = np.arange(1.0, 4.0)
    for result, expected in zip(pb.jit(program)(x), program(x), strict=True):
        np.testing.assert_array_equal(result, expected)
    with pytest.raises(ValueError, match="read-only"):
        pb.jit(written)(x)
    with pytest.raises(pb.TraceError, match="made in the same branch"):
        pb.jit(in_a_branch, guards=False)(x)
