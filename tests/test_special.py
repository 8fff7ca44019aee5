"""Functions of scipy.special: values at ordinary and at special places, and gradients."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from agreement import agrees, gradients_agree

import pullback as pb

Call = Callable[..., Any]
special = scipy.special
V = np.array([0.2, 0.45, 0.7, 1.6, 2.9])
W = np.array([1.3, 0.6, 2.2, 0.9, 0.4])
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, 30.0, np.inf, -np.inf, np.nan])

POSITIVE = np.array([1e-300, 0.5, 1.0, 2.0, 30.0])

ONE = """entr logit log_expit loggamma rgamma exp10 cosm1 gamma erfinv erfcinv ndtr log_ndtr ndtri erfcx j0 j1 y0 y1 i0 i1 i0e i1e
log1p expm1 exp2 cbrt erf erfc expit gammaln digamma psi"""
TWO = """xlogy xlog1py rel_entr kl_div huber pseudo_huber boxcox boxcox1p inv_boxcox inv_boxcox1p beta betaln binom powm1 gammainc
gammaincc owens_t stdtr"""
# operands by which there is no derivative
FIXED = {"gammainc", "gammaincc", "stdtr"}
HALF = {"logit", "erfinv", "ndtri"}

ARRAYS: list[Call] = [
    lambda x, y: special.softmax(x),
    lambda x, y: special.softmax(np.outer(x, y), axis=1),
    lambda x, y: special.log_softmax(np.outer(x, y), axis=0),
    lambda x, y: special.logsumexp(np.outer(x, y), axis=(0, 1)),
    lambda x, y: special.logsumexp(x, b=y),
    lambda x, y: special.logsumexp(x, b=-y, return_sign=True),
    lambda x, y: special.logsumexp(np.outer(x, y), axis=1, keepdims=True, return_sign=True),
    lambda x, y: special.polygamma(2, x + 0.5),
    lambda x, y: special.polygamma(0, x),
    lambda x, y: special.multigammaln(x + 2.0, 3),
    lambda x, y: special.comb(y + 3.0, x),
    lambda x, y: special.comb(5, x, repetition=True),
    lambda x, y: special.factorial(x),
    lambda x, y: special.betainc(2.0, y[0], x / 4),
    lambda x, y: special.betaincinv(2.0, 3.0, x / 4),
    lambda x, y: special.betaln(x[:, None], y),
]


@pytest.mark.parametrize("name", ONE.split())
def test_of_one(name: str) -> None:
    function = getattr(special, name)
    call = lambda x: function(x)  # noqa: E731
    places = SPECIAL[~np.isneginf(SPECIAL)] if name == "rgamma" else SPECIAL  # 0 or NaN, by scipy's version
    agrees(call, places, rtol=2e-12)
    agrees(call, places.astype("f4"), rtol=2e-5)
    x = V / 3 if name in HALF else V
    agrees(call, x, rtol=1e-12, atol=1e-15)
    gradients_agree(call, x)


@pytest.mark.parametrize("name", TWO.split())
def test_of_two(name: str) -> None:
    function = getattr(special, name)
    call = lambda x, y: function(x, y)  # noqa: E731
    places = {"inv_boxcox1p": SPECIAL[SPECIAL != 1e-300], "powm1": POSITIVE}.get(name, SPECIAL)  # where scipy has values
    agrees(call, places[:, None], places, rtol=1e-11, atol=1e-15)
    agrees(call, V, W, rtol=1e-12)
    gradients_agree(functools.partial(call, V) if name in FIXED else call, *([W] if name in FIXED else [V, W]))


@pytest.mark.parametrize("call", [pytest.param(c, id=str(k)) for k, c in enumerate(ARRAYS)])
def test_of_arrays(call: Call) -> None:
    agrees(call, V, W, rtol=1e-12)
    keep = (lambda x: call(x, W)) if "betainc(" in __import__("inspect").getsource(call) else None
    gradients_agree(keep, V) if keep else gradients_agree(call, V, W)


def test_slopes_of_products_with_logarithms_at_zero() -> None:
    slope = pb.grad(lambda a: np.sum(special.xlogy(a, V) + special.xlog1py(a, V)))(0.0)
    np.testing.assert_allclose(slope, np.sum(np.log(V) + np.log1p(V)), rtol=1e-13)
    assert pb.grad(lambda x: special.xlogy(x, 0.0))(0.0) == 0.0


def test_refused() -> None:
    refused: list[tuple[Call, str]] = [
        (lambda x: special.comb(x, 2, exact=True), "exact=True"),
        (lambda x: special.polygamma([1, 2], x[0]), "one integer"),
        (lambda x: special.jv(1, x), r"scipy.special.jv of traced arrays is not supported"),
        (lambda x: special.lambertw(x), r"scipy.special.lambertw of traced arrays is not supported"),
    ]
    for call, words in refused:
        with pytest.raises(pb.TraceError, match=words):
            pb.jit(call)(V)
