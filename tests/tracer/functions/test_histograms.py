"""Histograms, integers and their bits, inserted and removed elements, polynomials: edges and errors as NumPy has them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.agreement import agrees, plain

Call = Callable[..., Any]
RNG = np.random.default_rng(8)
X = RNG.normal(size=40).round(1)
INTS = np.array([0, 1, -1, 6, -4, 12, 127, -128], np.int8)
EDGES = np.array([-1.0, -0.5, 0.0, 0.0, 1.0])


def bordered(vector: Any, width: Any, axis: int, kwargs: Any) -> None:
    vector[: width[0]] = kwargs["padder"] + axis
    vector[-width[1] :] = vector[width[0]]


CALLS: list[tuple[Call, Any]] = [
    (lambda x: np.histogram(x, EDGES), X),
    (lambda x: np.histogram(x, 7, range=(-0.5, 0.5)), X),
    (lambda x: np.histogram(x, 3), np.full(4, 2.0)),
    (lambda x: np.histogram(x, 3), X[:0]),
    (lambda x: np.histogram(x, 5, range=(1.0, 1.0)), X),
    (lambda x: np.histogram(x, 4), X.astype("f4")),
    (lambda x: np.histogram(x, [0.0, np.inf]), np.array([1.0, np.nan, -1.0, np.inf])),
    (lambda x: np.histogram(x, 3, weights=np.arange(40)), X),
    (lambda x: np.histogram(x, 3), X > 0),
    (lambda x: np.histogram2d(x, x**2, [EDGES[:3], 3]), X),
    (lambda x: np.histogramdd(x.reshape(10, 4), 2, density=True), X),
    (lambda x: np.bincount(x, minlength=9), np.array([3, 8, 3], np.uint8)),
    (lambda x: np.bincount(np.array([2, 0, 2]), x[:3]), X),
    (lambda x: (np.gcd(x, x[::-1]), np.lcm(x[:6], x[1:7]), np.bitwise_count(x)), INTS),
    (lambda x: (np.nextafter(x, 0), np.nextafter(x, np.inf), np.spacing(x)), np.array([0.0, -0.0, 1.0, -1e308, np.inf, np.nan])),
    (lambda x: (np.nextafter(x, 0), np.spacing(x)), np.array([0.0, 1.0, 6e4], np.float16)),
    (lambda x: np.packbits(x, axis=1), RNG.integers(0, 2, (3, 17))),
    (lambda x: np.unpackbits(x, count=30), np.arange(3, dtype=np.uint8)),
    (lambda x: np.insert(x, [3, 1, 1], [1, 2, 3]), X),
    (lambda x: np.insert(x.reshape(8, 5), [0, 8], np.ones((1, 5)), axis=0), X),
    (lambda x: np.insert(x, np.array([True, False] * 20), 5.0), X),
    (lambda x: np.insert(x.reshape(8, 5), [1], np.ones((8, 2)), axis=1), X),
    (lambda x: np.isin(x, []), X),
    (lambda x: np.polydiv(x[:6], x[1:2]), X),
    (lambda x: np.poly(x[:0]), X),
    (lambda x: np.digitize(x, [1.0]), X),
    (lambda x: np.cumulative_sum(x[:0], include_initial=True), X),
    (lambda x: np.einsum("i,i", x, x, dtype=np.float32, casting="unsafe"), X),
    (lambda x: np.geomspace(-1.0, -(x[0] ** 2) - 1, 5), X),
    (lambda x: (np.maximum.accumulate(x), np.logaddexp.accumulate(x), np.subtract.accumulate(x)), X),
    (lambda x: (np.bitwise_xor.reduce(x[:0]), np.gcd.reduce(x), np.bitwise_or.accumulate(x), np.add.reduceat(x, [0, 5])), INTS),
    (lambda x: np.r_["0,3,1", x, x], X),
    (
        lambda x: [
            np.pad(x[:n], w, mode=m, reflect_type="odd") for m in ("reflect", "symmetric") for n in (1, 2, 5) for w in (1, 7)
        ],
        X,
    ),
    (lambda x: [np.pad(x[:5], (3, 9), mode=m) for m in ("linear_ramp", "mean", "median", "maximum", "wrap")], X),
    (lambda x: [np.pad(x.reshape(2, 4), 2, mode=m, stat_length=((1, 2), (3, 3))) for m in ("mean", "median", "minimum")], INTS),
    (lambda x: np.pad(x.reshape(2, 4), (1, 2), mode="reflect", reflect_type="odd"), INTS.astype("i4")),
    (lambda x: np.pad(x[:0].reshape(0, 3), ((0, 0), (1, 2)), mode="mean"), X),
    (lambda x: np.pad(x.reshape(8, 5), 2, bordered, padder=7.0), X),
    (lambda x: np.c_[x.astype("f4"), 1:41, x], X),
    (lambda x: np.ravel_multi_index((x, x), (9, 9), mode="wrap"), np.array([-1, 3, 12])),
]


@pytest.mark.parametrize(("call", "x"), [pytest.param(*c, id=str(k)) for k, c in enumerate(CALLS)])
def test_values(call: Call, x: Any) -> None:
    agrees(call, x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("position", [0, 2, 4, -1, -5])
def test_one_traced_position(position: int) -> None:
    x = np.arange(5.0)
    agrees(lambda x, k: np.insert(x, k[0], [7.0, 8.0]), x, np.array([position]))
    agrees(lambda x, k: np.delete(x, k[0]), x, np.array([position]))
    agrees(lambda x, k: np.insert(x.reshape(1, 5), k[0], 9.0, axis=1), x, np.array([position]))


ERRORS: list[tuple[type[Exception], Call, tuple[Any, ...]]] = [
    (ValueError, lambda x: np.histogram(x, 0), (X,)),
    (ValueError, lambda x: np.histogram(x, [2.0, 1.0]), (X,)),
    (ValueError, lambda x: np.histogram(x, 3, range=(1, 0)), (X,)),
    (ValueError, lambda x: np.histogram(x, 3), (np.array([np.nan, 1.0]),)),
    (TypeError, lambda x: np.histogram(x, 2.5), (X,)),
    (ValueError, lambda x: np.histogram(x, 3, weights=x[1:]), (X,)),
    (ValueError, lambda x, e: np.digitize(x, e), (X, np.array([0.0, 2.0, 1.0]))),
    (ValueError, lambda x: np.bincount(x, minlength=9), (np.array([1, -1]),)),
    (TypeError, lambda x: np.bincount(x, minlength=9), (X,)),
    (TypeError, lambda x: np.packbits(x), (X,)),
    (TypeError, lambda x: np.unpackbits(x), (X,)),
    (TypeError, lambda x: np.gcd(x, 2), (X,)),
    (IndexError, lambda x: np.insert(x, 41, 1.0), (X,)),
    (IndexError, lambda x, k: np.delete(x, k[0]), (X, np.array([40]))),
    (ValueError, lambda k: np.ravel_multi_index((k, k), (3, 3)), (np.array([3]),)),
    (ValueError, lambda k: np.unravel_index(k, (3, 3)), (np.array([9]),)),
    (ValueError, lambda x: np.cumulative_sum(x.reshape(8, 5)), (X,)),
    (ValueError, lambda x: np.geomspace(x[0] * 0, 1, 3), (X,)),
    (ValueError, lambda x: np.isin(x, x, kind="table"), (X,)),
    (ValueError, lambda x: np.matvec(x, x), (X,)),
    (ValueError, lambda x: x.item(), (X,)),
    (ValueError, lambda x: x.item(1, 2), (X,)),
    (IndexError, lambda x: x.item(40), (X,)),
    (ValueError, lambda x: np.pad(x, 1, mode="mirror"), (X,)),
    (ValueError, lambda x: np.pad(x, 1, mode="edge", stat_length=1), (X,)),
    (ValueError, lambda x: np.pad(x[:0], 1, mode="mean"), (X,)),
    (ValueError, lambda x: np.pad(x, 1, mode="minimum", stat_length=0), (X,)),
    (ValueError, lambda x: np.subtract.reduce(x.reshape(8, 5), axis=(0, 1)), (X,)),
    (ValueError, lambda x: np.fmin.reduce(x[:0]), (X,)),
    (ValueError, lambda x: np.fmax.reduce(x, where=x > 0), (X,)),
    (ValueError, lambda x: np.sin.reduce(x), (X,)),
    (IndexError, lambda x: np.logaddexp.reduceat(x, [0, 40]), (X,)),
    (TypeError, lambda x: np.polyfit(x, x[1:], 1), (X,)),
    (TypeError, lambda x: np.einsum("i,i", x, x, dtype=np.float32), (X,)),
]


@pytest.mark.parametrize(("kind", "call", "args"), [pytest.param(*c, id=str(k)) for k, c in enumerate(ERRORS)])
def test_errors_are_numpys(kind: type[Exception], call: Call, args: Any) -> None:
    with pytest.raises(kind):
        plain(call, *args)
    with pytest.raises(kind):
        pb.jit(call)(*args)


def test_what_depends_on_values_fails_and_says_so() -> None:
    with pytest.raises(ValueError, match="below minlength"):
        pb.jit(lambda k: np.bincount(k, minlength=3))(np.array([1, 3]))
    with pytest.raises(ValueError, match="remainder begins with 0"):
        pb.jit(np.polydiv)(np.array([1.0, 0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0]))
