"""Ints and bools among the arguments: traced like any number, and static from where their value is asked for."""

import dataclasses
import math
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from face import traces

import pullback as pb
from pullback.tracer import trace

X = np.arange(1.0, 6.0)
Call = Callable[..., Any]


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e)
        return
    if isinstance(expected, str):
        assert found == expected
        return
    assert np.shape(found) == np.shape(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-13)


@dataclasses.dataclass
class Options:
    count: int
    is_short: bool


def branches(n: int) -> Any:
    if n > 3:
        return "many"
    return "two" if n == 2 else "few"


# The value is asked for: a program each.
STATIC: list[Call] = [
    lambda x, n: sum((x * k for k in range(n)), 0.0),
    lambda x, n: x[: n + 1].reshape(1, n + 1),
    lambda x, n: np.zeros(n) + x[0],
    lambda x, n: np.ones((n, 2)) * x[0],
    lambda x, n: x[:n],
    lambda x, n: x[n:][::-1],
    lambda x, n: x**n,
    lambda x, n: np.power(x, n),
    lambda x, n: (x.sum(), branches(n)),
    lambda x, n: x if n else -x,
    lambda x, n: [x[0]] * n,
    lambda x, n: (x, f"{n}", str(n + 1)),
    lambda x, n: x * {1: 0.5, 2: 1.5, 3: 2.5}[n],
    lambda x, n: x * [5.0, 6.0, 7.0, 8.0][n],
    lambda x, n: x * (n if n in (1, 2) else 7),
    lambda x, n: x * math.factorial(n),
    lambda x, n: np.repeat(x, n),
    lambda x, n: np.sum(x.reshape(5, 1), axis=n - 1 if n < 3 else 0),
    lambda x, n: x * n.bit_length(),
    lambda x, n: 2**n * x + n**-1,
    lambda x, n: x * (n if n % 2 else n // 2),
    lambda x, n: pb.grad(lambda v: np.sum(v**n))(x),
]

# Only arithmetic: one program.
TRACED: list[Call] = [
    lambda x, n: x * n,
    lambda x, n: x[n],
    lambda x, n: (x + n // 2, n * 3, n % 2 == 0),
    lambda x, n: np.where(n > 2, x, -x),
    lambda x, n: np.roll(x, n),
    lambda x, n: np.arange(1, 6) ** n,
    lambda x, n: x.sum() * np.sqrt(n),
    lambda x, n: np.full(3, n),
    lambda x, n: x * max(n, 2),
]


@pytest.mark.parametrize("function", STATIC)
def test_a_value_that_is_asked_for_is_static(function: Call) -> None:
    compiled = pb.jit(function)
    expected = {n: function(X, n) for n in (1, 2, 3)}
    before = traces()
    for n in (1, 2, 3, 2, 1):
        same(compiled(X, n), expected[n])
    assert traces() - before == 3


@pytest.mark.parametrize("function", TRACED)
def test_a_value_that_is_not_asked_for_is_traced(function: Call) -> None:
    compiled = pb.jit(function)
    before = traces()
    for n in (1, 2, 3, 4):
        same(compiled(X, n), function(X, n))
    assert traces() - before == 1


def test_bools_branch() -> None:
    def function(x: Any, flag: bool, *, options: Options) -> Any:
        if not flag:
            x = -x
        return x[: options.count] if options.is_short else x * options.count

    compiled = pb.jit(function)
    for flag in (True, False, np.True_):
        for options in (Options(2, True), Options(3, True), Options(3, False)):
            same(compiled(X, flag, options=options), function(X, flag, options=options))  # type: ignore[arg-type]


def test_containers_and_numpy_scalars() -> None:
    def function(x: Any, options: Any) -> Any:
        return x[: options["sizes"][1]] * options["scale"]

    compiled = pb.jit(function)
    before = traces()
    for size in (2, 3, np.int64(3), np.int64(4), 2):
        for scale in (1, 5):
            options = {"sizes": [0, size], "scale": scale}
            same(compiled(X, options), function(X, options))
    assert traces() - before == 4
    (pinned,) = trace(function, (X, {"sizes": [0, 2], "scale": 1})).pinned
    assert (pinned.index, pinned.describe, pinned.value) == (2, "options['sizes'][1]", 2)
    assert (pinned.loc.file, pinned.loc.line) == (__file__, function.__code__.co_firstlineno + 1)


def test_the_static_argument_depends_on_the_path() -> None:
    def function(x: Any, n: int, m: int) -> Any:
        return x[:m] if n == 1 else x * m

    compiled = pb.jit(function)
    before = traces()
    for n, m in ((1, 2), (1, 3), (2, 4), (2, 5), (1, 2), (2, 9)):
        same(compiled(X, n, m), function(X, n, m))
    assert traces() - before == 3


def test_gradients_and_methods() -> None:
    class Model:
        @pb.value_and_grad
        def loss(self, w: Any, steps: int) -> Any:
            for _ in range(steps):
                w = w * 2
            return np.sum(w)

    for steps in (1, 3):
        value, slope = Model().loss(X, steps)
        same((value, slope), (X.sum() * 2**steps, np.full(5, 2.0**steps)))


def test_floats_are_never_static() -> None:
    with pytest.raises(pb.TraceError, match="a Python branch"):
        pb.jit(lambda x, lam: x if lam > 0 else -x)(X, 2.0)


def test_python_numbers_and_sequences() -> None:
    """What Python gives for an int and a list, not what NumPy gives."""

    def concatenated(n: int) -> Any:
        return n + [1, 2]  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        pb.jit(concatenated)(3)
    with pytest.raises(TypeError, match="integer"):
        pb.jit(lambda lam: lam * [1, 2])(0.5)


def test_ints_that_leave_int64_are_static() -> None:
    def function(x: Any, n: int) -> Any:
        return x * (n * 2**62 % 97) + x[: n**70 % 3 + 4].sum()

    compiled = pb.jit(function)
    for n in (4, 5, 1, 4):
        same(compiled(X, n), function(X, n))


def test_what_python_raises_for_numbers_is_raised() -> None:
    for function in (lambda n: 3 // n, lambda n: 3 % n, lambda n: 1.5 / n, lambda n: n**-1):
        with pytest.raises(ZeroDivisionError):
            pb.jit(function)(0)
        same(pb.jit(function)(2), function(2))


def test_many_values_warn_once() -> None:
    @pb.jit
    def function(x: Any, n: int) -> Any:
        return sum((x for _ in range(n)), 0.0)  # asks

    def calls(count: int) -> list[Any]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for n in range(count):
                function(X, n)
        return caught

    assert not calls(16)
    (warning,) = calls(40)
    line = function.__wrapped__.__code__.co_firstlineno + 2
    assert warning.category is pb.RetraceWarning and warning.filename == __file__
    assert re.search(rf"each value of n \(asked for at \S*test_static_ints.py:{line}\)", str(warning.message))


class Window:
    def __init__(self, n: Any) -> None:
        self.n = n

    def __len__(self) -> Any:
        return self.n

    def __bool__(self) -> Any:
        return self.n > 2

    def __index__(self) -> Any:
        return self.n


def test_special_methods_give_python_numbers() -> None:
    def function(x: Any, n: int) -> Any:
        window = Window(n)
        return x[:window] if window else x * len(window)

    compiled = pb.jit(function)
    for n in (1, 3, 4, 1):
        same(compiled(X, n), function(X, n))
