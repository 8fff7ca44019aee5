"""Results in arrays of the caller's: the same numbers, in these arrays, whatever they share; errors for what does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.memory import result_arrays


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


def f(x: Any, y: Any) -> Any:
    return {"sum": np.sum(x * y), "parts": (x + y, np.sort(x - y)), "same": x}


F = pb.jit(f)


def arrays(n: int = 9) -> dict[str, Any]:
    return {"sum": np.empty(()), "parts": (np.empty(n), np.empty(n)), "same": np.empty(n)}


def check(result: Any, expected: Any) -> None:
    for a, b in zip(pb.tree.leaves(result), pb.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)


def test_results_are_in_the_arrays() -> None:
    x, y, out = normal(0, 9), normal(1, 9), arrays()
    result = F.into(out, x, y)
    check(result, f(x, y))
    assert all(a is b for a, b in zip(pb.tree.leaves(result), pb.tree.leaves(out), strict=True))
    assert type(result) is dict and type(result["parts"]) is tuple


def test_none_is_an_array_of_its_own() -> None:
    x, y, one = normal(0, 9), normal(1, 9), np.empty(9)
    result = F.into({"sum": None, "parts": (None, one), "same": None}, x, y)
    check(result, f(x, y))
    assert result["parts"][1] is one and result["same"] is x and isinstance(result["sum"], np.float64)
    check(F.into(None, x, y), f(x, y))
    check(F.into({"sum": None, "parts": None, "same": one}, x, y), f(x, y))


def test_gradients_and_methods() -> None:
    g = pb.jit(pb.value_and_grad(lambda x: np.sum(np.sin(x))))
    x, dx = normal(0, 9), np.empty(9)
    _, result = g.into((None, dx), x)
    assert result is dx
    np.testing.assert_allclose(dx, np.cos(x), rtol=1e-13)
    assert pb.grad(lambda x: np.sum(np.sin(x))).into(dx, x) is dx

    @dataclass
    class Scaled:
        factor: float

        @pb.jit
        def times(self, x: Any) -> Any:
            return x * self.factor

    assert Scaled(2.0).times.into(dx, x) is dx
    np.testing.assert_array_equal(dx, x * 2)
    h = pb.jit(lambda x, out: x + out)
    assert h.into(dx, x, out=x) is dx
    np.testing.assert_array_equal(dx, x + x)


def test_nothing_is_allocated() -> None:
    g = pb.jit(lambda x: (x * 2, x - 1))
    x = np.ones(1 << 18)
    out = np.empty_like(x), np.empty_like(x)
    g.into(out, x)
    before = result_arrays.info()
    for _ in range(5):
        g.into(out, x)
    after = result_arrays.info()
    assert (after["hits"], after["misses"]) == (before["hits"], before["misses"])


def test_arrays_that_lie_apart() -> None:
    big = np.zeros((9, 3))
    x, y = normal(0, 9), normal(1, 9)
    F.into({"sum": None, "parts": (big[:, 0], big[::-1, 2]), "same": big[:, 1]}, x, y)
    check((big[:, 0], big[::-1, 2], big[:, 1]), (*f(x, y)["parts"], x))


# shared memory


def test_arrays_that_are_arguments() -> None:
    g = pb.jit(lambda a, b: (b * 2 + a[::-1], a - b, b, a))
    a, b = normal(0, 9), normal(1, 9)
    expected = b * 2 + a[::-1], a - b, b.copy(), a.copy()
    result = g.into((a, b, None, None), a, b)
    assert result[0] is a and result[1] is b
    check(result, expected)
    a, b = normal(0, 9), normal(1, 9)
    check(g.into((None, None, a, b), a, b), expected)


def test_random_sharing() -> None:
    """Arguments and arrays for results are parts of one block: as with copies."""
    g = pb.jit(lambda a, b: (a + np.sort(b), a[::-1] * b, a))
    for seed in range(60):
        rng = np.random.default_rng(seed)
        base = rng.normal(size=40)
        starts = rng.permutation(5)[:3] * 8
        out = tuple(base[k : k + 8] if rng.random() < 0.8 else None for k in starts)
        a, b = (base[k : k + 8] for k in rng.integers(0, 33, 2))
        expected = a + np.sort(b), a[::-1] * b, a.copy()
        result = g.into(out, a, b)
        check(result, expected)
        assert all(o is None or r is o for o, r in zip(out, result, strict=True))


def test_donated_and_given() -> None:
    g = pb.jit(lambda p, q: (p * 2 + q, q - p), donate=(0, 1))
    for pick in range(8):
        p, q, other = normal(0, 9), normal(1, 9), np.empty(9)
        out = [(p, q), (q, p), (other, p), (None, p), (q, None), (p, other), (other, None), (None, None)][pick]
        expected = p * 2 + q, q - p
        check(g.into(out, p, q), expected)


def test_written_and_given() -> None:
    def g(x: Any, y: Any) -> Any:
        x += 1
        return x * y

    compiled = pb.jit(g)
    x, y, out = normal(0, 9), normal(1, 9), np.empty(9)
    before = x.copy()
    assert compiled.into(out, x, y) is out
    np.testing.assert_array_equal(x, before + 1)
    np.testing.assert_array_equal(out, x * y)
    with pytest.raises(pb.TraceError, match="shares memory with an array of out"):
        compiled.into(x, x, y)
    np.testing.assert_array_equal(x, before + 1)


# failures


def test_a_call_that_fails_leaves_its_arguments() -> None:
    g = pb.jit(lambda x, i: (x * 2, x[i]))
    x = normal(0, 9)
    with pytest.raises(IndexError):
        g.into((x, None), x, np.array([3, 10]))
    np.testing.assert_array_equal(x, normal(0, 9))


def test_guards() -> None:
    @pb.jit(guards=True)
    def g(x: Any) -> Any:
        return x + 1 if x[0] > 0 else x * 3

    out = np.empty(3)
    for first in (1.0, -1.0, 2.0, -2.0):
        x = np.array([first, 2.0, 3.0])
        assert g.into(out, x) is out
        np.testing.assert_array_equal(out, x + 1 if first > 0 else x * 3)


def readonly(x: Any) -> Any:
    x.flags.writeable = False
    return x


ONE = np.empty(9)
WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "a list for a tuple": ({**arrays(), "parts": list(arrays()["parts"])}, TypeError, r"out\['parts'\] is tuple\("),
    "a missing key": ({"sum": None, "parts": None}, TypeError, r"out is dict\("),
    "an array for a tuple": ({**arrays(), "parts": np.empty(9)}, TypeError, r"out\['parts'\] is"),
    "a tuple for an array": ({**arrays(), "same": (np.empty(9),)}, TypeError, r"out\['same'\] is an array"),
    "a number": ({**arrays(), "same": 1.0}, TypeError, r"out\['same'\] is an array of f64\[9\], or None; found a float"),
    "dtype": ({**arrays(), "same": np.empty(9, "f4")}, ValueError, r"out\['same'\] is an array of <f8, f64\[9\]; found <f4\[9\]"),
    "byte order": ({**arrays(), "same": np.empty(9, ">f8")}, ValueError, "found >f8"),
    "shape": ({**arrays(), "sum": np.empty(1)}, ValueError, r"out\['sum'\] is an array of <f8, f64\[\]; found <f8\[1\]"),
    "read-only": ({**arrays(), "same": readonly(np.empty(9))}, ValueError, r"out\['same'\] is read-only"),
    "broadcast": ({**arrays(), "same": np.lib.stride_tricks.as_strided(np.empty(1), (9,), (0,))}, ValueError, "with each other"),
    "twice": ({"sum": None, "parts": (ONE, ONE), "same": None}, ValueError, r"out\['parts'\]\[0\] shares memory with out"),
    "windows": ({**arrays(), "same": np.lib.stride_tricks.as_strided(np.empty(20), (9,), (4,))}, ValueError, "with each other"),
    "masked": ({**arrays(), "same": np.ma.masked_array(np.empty(9))}, TypeError, "found a MaskedArray"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_does_not_fit(name: str, is_first: bool) -> None:
    out, error, text = WRONG[name]
    function = pb.jit(lambda x, y: f(x, y)) if is_first else F
    with pytest.raises(error, match=text):
        function.into(out, normal(0, 9), normal(1, 9))


def test_within_a_trace() -> None:
    with pytest.raises(pb.TraceError, match="into is for calls from outside"):
        pb.jit(lambda x: F.into(None, x, x))(normal(0, 9))
