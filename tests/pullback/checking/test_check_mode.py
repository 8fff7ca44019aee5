"""``pb.jit(check=True)``: what changed outside unseen is an error that names the first difference."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback import TraceError
from tests.support.api import traces

SCALE = 2.0


@pytest.fixture(autouse=True)
def limit() -> Iterator[int]:
    """State that no guard sees; restored afterwards."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    yield before
    sys.setrecursionlimit(before)


def unseen() -> int:
    return sys.getrecursionlimit()


def constant(x: Any) -> Any:
    y = np.sin(x)
    return np.sum(y * unseen())  # here


def branch(x: Any) -> Any:
    y = np.cos(x)
    if unseen() % 2:
        y = np.exp(y)  # here
    return y.sum()


def inner(x: Any) -> Any:
    return pb.grad(lambda x: np.sum(x**2 * unseen()))(x)  # here


def returned(x: Any) -> Any:
    return (x, x + 1.0)[unseen() % 2]


def static(x: Any) -> Any:
    return x + 1.0, f"limit {unseen()}"


def captured(x: Any) -> Any:
    y = x + 1.0
    return y * (SCALES.first if unseen() % 2 else SCALES.second)  # here


class SCALES:
    first = 7.5
    second = 8.5


def swapped(x: Any) -> Any:
    a, b = x + 1.0, x * 2.0
    return (a, b) if unseen() % 2 else (b, a)


def weak(x: Any) -> Any:
    return x * 2.0, np.arange(unseen() % 2 + 3)


CASES = [
    (constant, "instruction 2 was .*const.*, and is .*const"),
    (branch, "instruction 2 was .*, and is"),
    (inner, "instruction . was .*const"),
    (returned, "other types, or are other arguments"),
    (static, "it returned .*limit 3000.*limit 3001"),
    (captured, r"it read SCALES.second from outside, and reads SCALES.first"),
    (swapped, "other values"),
    (weak, "other contents|it returned|instruction"),
]


@pytest.mark.parametrize("transform", [lambda f: f, pb.jit], ids=["plain", "jitted"])
@pytest.mark.parametrize("f, message", CASES, ids=lambda v: getattr(v, "__name__", ""))
def test_a_difference_is_named(f: Any, message: str, transform: Any) -> None:
    checked, plain = pb.jit(transform(f), check=True), pb.jit(f)
    x = np.ones(3)
    for _ in range(3):
        checked(x), plain(x)
    sys.setrecursionlimit(3001)
    plain(x)
    with pytest.raises(TraceError, match=message) as caught:
        checked(x)
    assert "does something else now than when it was compiled" in str(caught.value)
    assert caught.value.file == __file__
    lines = Path(__file__).read_text().splitlines()
    if any(line.endswith("# here") for line in lines[f.__code__.co_firstlineno - 1 : f.__code__.co_firstlineno + 5]):
        assert lines[caught.value.line - 1].endswith("# here")
    sys.setrecursionlimit(3000)
    checked(x)


def test_what_is_guarded_is_no_error() -> None:
    global SCALE

    @pb.jit(check=True)
    def f(x: Any, n: int, w: Any) -> Any:
        w[0] = 1.0
        return {"a": SCALE * x * np.arange(n), "b": w.sum()}

    for SCALE in (2.0, 3.5, 1.0, 2.0):
        for n in (2, 3, 2):
            w = np.zeros(2)
            result = f(np.ones(n), n, w)
            np.testing.assert_array_equal(result["a"], SCALE * np.arange(n))
            assert (result["b"], w[0]) == (1.0, 1.0)


def test_methods_gradients_and_traces_inside() -> None:
    class Model:
        rate = 0.5

        @pb.jit(check=True)
        @pb.grad
        def slope(self, x: Any) -> Any:
            return np.sum(x * x) * self.rate * unseen()

    model, x = Model(), np.ones(2)
    np.testing.assert_allclose(model.slope(x), 3000 * x)
    model.rate = 1.0
    np.testing.assert_allclose(model.slope(x), 6000 * x)
    sys.setrecursionlimit(3001)
    with pytest.raises(TraceError, match="grad"):
        model.slope(x)
    checked = pb.jit(constant, check=True)
    sys.setrecursionlimit(3000)
    np.testing.assert_allclose(pb.grad(checked)(x), 3000 * np.cos(x))


def test_only_checked_functions_trace_again() -> None:
    checked, plain = pb.jit(constant, check=True), pb.jit(constant)
    x = np.ones(3)
    checked(x), plain(x)
    before = traces()
    plain(x)
    assert traces() == before
    checked(x)
    assert traces() == before + 1
