"""NumPy functions on traced arrays: what a trace computes, interpreted, is what NumPy computes: value, dtype and shape."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.tracer import trace
from tests.support.numpy_calls import (
    JOINING,
    NOT_FOR_BOOL,
    PRODUCTS,
    READS,
    REDUCTIONS,
    SHAPES,
    STATISTICS,
    X,
    array,
    check,
    numbered,
    run,
)
from tests.support.versions import since

Call = Callable[..., Any]
DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint64", "float16", "float32", "float64"]

ELEMENTWISE: list[Call] = [
    lambda x: np.square(x),
    lambda x: np.reciprocal(x),
    lambda x: +x,
    lambda x: abs(x),
    lambda x: np.fabs(x),
    lambda x: np.floor(x),
    lambda x: np.ceil(x),
    lambda x: np.trunc(x),
    lambda x: np.rint(x),
    lambda x: np.fix(x),
    lambda x: np.logaddexp2(x, 1),
    lambda x: np.isnan(x),
    lambda x: np.isinf(x),
    lambda x: np.isfinite(x),
    lambda x: np.signbit(x),
    lambda x: np.logical_and(x, x > 1),
    lambda x: np.logical_or(x, 0),
    lambda x: np.logical_xor(x, True),
    lambda x: np.logical_not(x),
    lambda x: np.deg2rad(x),
    lambda x: np.radians(x),
    lambda x: np.rad2deg(x),
    lambda x: np.degrees(x),
    lambda x: np.heaviside(x, 0.5),
    lambda x: np.divmod(x, 3),
    lambda x: divmod(x, x.dtype.type(2)),
    lambda x: np.modf(x),
    lambda x: np.ldexp(x, 3),
    lambda x: np.ldexp(x, np.array([1, -2, 0, 5])),
    lambda x: np.float_power(x, 2),
    lambda x: np.conjugate(x),
    lambda x: x.conj(),
    lambda x: np.round(x),
    lambda x: np.round(x, 1),
    lambda x: x.round(-1),
    lambda x: np.around(x, 2),
    *since(np, "2.3.0", lambda x: np.sinc(x)),
    lambda x: np.nan_to_num(x),
    lambda x: np.nan_to_num(x, nan=1, posinf=2, neginf=-3),
    lambda x: np.real(x),
    lambda x: np.imag(x),
    lambda x: np.angle(x),
    lambda x: np.isreal(x),
    lambda x: np.iscomplex(x),
    lambda x: np.isposinf(x),
    lambda x: np.isneginf(x),
    lambda x: np.isclose(x, x + 1e-9),
    lambda x: np.isclose(x, 1.0, equal_nan=True),
    lambda x: np.allclose(x, x),
    lambda x: np.array_equal(x, x),
    lambda x: np.array_equal(x, x[0]),
    lambda x: np.array_equiv(x, x[:1]),
    lambda x: (np.shape(x), np.ndim(x), np.size(x), np.size(x, 1), len(x)),
    lambda x: np.result_type(x, 1.0).num,
    lambda x: np.can_cast(x.dtype, np.float32),
    lambda x: (np.iscomplexobj(x), np.isrealobj(x)),
    lambda x: np.zeros_like(x),
    lambda x: np.ones_like(x, dtype=np.int8),
    lambda x: np.full_like(x, 3),
    lambda x: np.full_like(x, x[0]),
    lambda x: np.zeros_like(x, shape=(2, 2)),
]
CREATION: list[Call] = [
    lambda x: np.zeros(3) + x[0, 0],
    lambda x: np.zeros((2, 3), np.float32) + x[0, 0].astype(np.float32),
    lambda x: np.ones(4, int) * x,
    lambda x: np.zeros(3, like=x),
    lambda x: np.full((2, 2), x[0, 0]),
    lambda x: np.full(4, x[0]),
    lambda x: np.full((2, 4), x[0], np.float32),
    lambda x: np.eye(3, 4) * x,
    lambda x: np.eye(3, k=-1, dtype=np.float32),
    lambda x: np.identity(4) * x[0],
    lambda x: np.tri(3, 4, 1) * x,
    lambda x: [np.concatenate([[1.0, 2.0], [x[0, 0], x[0, 1]]]), np.concatenate(((x[0, 0], 3.0), (1.0,)))],
    lambda x: [f([[1.0, 2.0], [x[0, 0], x[0, 1]]]) for f in (np.stack, np.hstack, np.vstack, np.dstack, np.column_stack)],
    lambda x: np.arange(4) * x,
    lambda x: np.arange(1, 9, 2.0) * x,
    lambda x: np.linspace(0, 1, 4) * x,
    lambda x: np.linspace(x[0, 0], 2, 5),
    lambda x: np.linspace(x[0], x[1], 5, axis=-1),
    lambda x: np.linspace(0, x[0, 0], 4, endpoint=False, retstep=True),
    lambda x: np.linspace(x[0, 0], 2, 1),
    lambda x: np.linspace(x[0], 3, 0),
    lambda x: np.linspace(x[0, 0], 2, 5, dtype=np.float32),
    lambda x: np.logspace(0, x[0, 0], 4),
    lambda x: np.array([x[0, 0], 1, 2.5]),
    lambda x: np.array([[x[0, 0], 1], [x[1, 1], x[2, 2]]]),
    lambda x: np.array([x[0], [1, 2, 3, 4]]),
    lambda x: np.array([x[0, 0], x[0, 1]], dtype=np.float32),
    lambda x: np.array(x, ndmin=3),
    lambda x: np.array(x[0, 0]),
    lambda x: np.array([1.0, 2.0, 3.0, 4.0]) * x,
    lambda x: np.asarray(x),
    lambda x: np.asarray(x, np.float32),
    lambda x: np.ascontiguousarray(x.T),
    lambda x: np.asarray([x[0], x[1]]),
    lambda x: np.meshgrid(x[0], x[:, 0]),
    lambda x: np.meshgrid(x[0], x[:, 0], np.arange(2.0), indexing="ij"),
    lambda x: np.meshgrid(x[0], x[:, 0], sparse=True),
    lambda x: np.vander(x[0]),
    lambda x: np.vander(x[0], 3, increasing=True),
    lambda x: np.empty((2, 0)) + x[0, 0],
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", numbered(REDUCTIONS))
def test_reductions(call: Call, dtype: str) -> None:
    check(call, array(dtype=dtype))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "float16"])
@pytest.mark.parametrize("call", numbered(STATISTICS))
def test_statistics(call: Call, dtype: str) -> None:
    check(call, array(dtype=dtype))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
@pytest.mark.parametrize("call", numbered(NOT_FOR_BOOL))
def test_numbers(call: Call, dtype: str) -> None:
    check(call, array(dtype=dtype))


@pytest.mark.parametrize(("call", "x"), SHAPES)
def test_shapes(call: Call, x: Any) -> None:
    check(call, x, exact=True)
    check(call, x.astype(np.int32), exact=True)


@pytest.mark.parametrize(("call", "x"), JOINING)
def test_joining(call: Call, x: Any) -> None:
    check(call, x, exact=True)
    check(call, x.astype(np.float32), exact=True)


@pytest.mark.parametrize(("call", "x"), READS)
def test_reads(call: Call, x: Any) -> None:
    check(call, x, exact=True)
    check(call, (x > 0), exact=True)


@pytest.mark.parametrize(("call", "xs"), PRODUCTS)
def test_products(call: Call, xs: list[Any]) -> None:
    check(call, *xs)
    check(call, *(x.astype(np.float32) for x in xs))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint64"])
@pytest.mark.parametrize(("call", "xs"), [p for k, p in enumerate(PRODUCTS) if k < 61])
def test_products_of_integers(call: Call, xs: list[Any], dtype: str) -> None:
    integers = [array(x.shape, dtype, seed=k) for k, x in enumerate(xs)]
    try:
        call(*integers)
    except TypeError:
        with pytest.raises(TypeError):
            run(call, *integers)
        return
    check(call, *integers, exact=True)


def special(dtype: str) -> Any:
    """Numbers of every kind, for elementwise functions."""
    d = np.dtype(dtype)
    if d.kind != "f":
        return array((3, 4), dtype)
    return np.array([[0.0, -0.0, 1.5, -2.5], [np.inf, -np.inf, np.nan, 0.25], [1e-3, -1.0, 7.5, 0.5]], d)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", numbered(ELEMENTWISE))
def test_elementwise(call: Call, dtype: str) -> None:
    x = special(dtype)
    try:
        with np.errstate(all="ignore"):
            call(x)
    except TypeError:
        with pytest.raises(TypeError):
            run(call, x)
        return
    check(call, x)


@pytest.mark.parametrize("call", numbered(CREATION))
def test_creation(call: Call) -> None:
    check(call, X)


def test_logsumexp() -> None:
    from scipy.special import logsumexp

    x = np.array([[1e3, -1e3, 0.5], [-np.inf, -np.inf, -np.inf], [np.inf, 1.0, 2.0]])
    for keywords in ({}, {"axis": 1}, {"axis": 0, "keepdims": True}, {"axis": -1, "b": np.array([1.0, 2.0, 0.5])}):
        check(lambda x, k=keywords: logsumexp(x, **k), x)


MASK = np.array([True, False, True, True])
COUNTS = np.array([1, 0, 2])


def test_captured_masks_and_counts_are_static() -> None:
    def call(x: Any) -> Any:
        a = x.copy()
        a[0, MASK] = 1.0
        a[1][MASK] = x[0, :3]
        return a, x[:, MASK], x[:, ~MASK], np.repeat(x, COUNTS, axis=0), np.compress(MASK, x, axis=1), x[:, COUNTS]

    check(call, X, exact=True)
    traced = trace(call, (X,))
    assert traced.holds()
    MASK[1] = True
    assert not traced.holds()
    MASK[1] = False
    assert traced.holds()


SCALARS: list[Call] = [
    *[lambda x, f=f, k=k: f(x, axis=k) for f in (np.sum, np.prod, np.max, np.any, np.all, np.argmax, np.cumsum) for k in (0, -1)],
    lambda x: np.count_nonzero(x, axis=-1),
    lambda x: np.ptp(x, axis=0),
    *[lambda x, f=f: f(x, axis=0) for f in (np.nanmean, np.nanvar, np.nanstd, scipy.special.logsumexp, np.logaddexp.reduce)],
    lambda x: np.squeeze(x, axis=0),
    lambda x: np.repeat(x, 2, axis=0),
    lambda x: np.take(x, [0, 0], axis=-1),
]


@pytest.mark.parametrize("call", SCALARS)
def test_reductions_of_a_scalar_take_an_axis(call: Call) -> None:
    check(call, np.array(2.5))


def test_where_takes_python_ints_as_this_numpy_does() -> None:
    x = np.array([0, 2], np.uint8)
    for call in (lambda x: np.where(x > 1, x, -3), lambda x: np.where(x > 1, 300, x)):
        try:
            call(x)
        except OverflowError as error:
            with pytest.raises(OverflowError, match=str(error)):
                pb.jit(call)(x)
        else:
            check(call, x)
