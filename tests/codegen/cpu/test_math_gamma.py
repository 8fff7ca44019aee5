"""gammaln, digamma and trigamma at negative arguments and close to the poles, against mpmath."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

from pullback.codegen.math import gamma as math_gamma
from tests.support.elementary.arguments import EXACT as MEASURED
from tests.support.elementary.arguments import errors
from tests.support.elementary.recipes import DTYPES, run

EXACT: dict[str, Any] = {
    "gammaln": lambda x: mpmath.log(abs(mpmath.gamma(x))),
    "digamma": mpmath.digamma,
    "trigamma": lambda x: mpmath.polygamma(1, x),
}
MEASURED["trigamma"] = EXACT["trigamma"]
# Greatest errors at negative arguments: of a result beyond what the reflection adds up, in units in the last place of the larger.
BOUNDS = {"gammaln": 2.0, "digamma": 2.0, "trigamma": 2.0}


def negative(dtype: str) -> Any:
    """Return negative arguments of all sizes, close to integers, and close to the zeros of gammaln."""
    rng = np.random.default_rng(7)
    near = rng.integers(0, 30, 200) + rng.normal(size=200) * np.exp2(rng.uniform(-40, -2, 200))
    zeros = np.array([2.4570247382208006, 2.747682646727413, 3.1435808883499799, 3.9552942848585980, 0.504083008264455409])
    around = (zeros + rng.normal(size=(40, 5)) * np.exp2(rng.uniform(-30, -4, (40, 5)))).ravel()
    x = -np.concatenate([rng.uniform(0, 13, 300), rng.uniform(13, 150, 100), near, around, np.exp2(rng.uniform(-100, -1, 100))])
    x = x.astype(DTYPES[dtype])
    return x[(x < 0) & (x != np.rint(x))]


def scale(name: str, x: float, value: Any) -> Any:
    """Return the scale of errors: close to a zero, the size of the terms that cancel there."""
    if name == "trigamma":
        return abs(value)
    term = mpmath.loggamma(1 - mpmath.mpf(x)) if name == "gammaln" else mpmath.digamma(1 - mpmath.mpf(x))
    return max(abs(value), abs(term), 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EXACT)
def test_negative_arguments(name: str, dtype: str) -> None:
    x = negative(dtype)
    result = run(getattr(math_gamma, name), x)
    eps = float(np.finfo(result.dtype).eps)
    with mpmath.workdps(40):
        for a, y in zip(x.tolist(), result.tolist(), strict=True):
            value = EXACT[name](mpmath.mpf(a))
            if abs(value) < float(np.finfo(result.dtype).max):
                assert abs(mpmath.mpf(y) - value) <= BOUNDS[name] * eps * scale(name, a, value), (a, y, float(value))


@pytest.mark.parametrize("dtype", DTYPES)
def test_trigamma_of_positive_arguments(dtype: str) -> None:
    rng = np.random.default_rng(8)
    most = 60 if dtype == "f32" else 500
    x = np.concatenate([rng.uniform(0, 13, 600), rng.uniform(0.7, 0.8, 100), np.exp2(rng.uniform(-most, most, 300))])
    x = x.astype(DTYPES[dtype])
    assert errors("trigamma", run(math_gamma.trigamma, x), x).max() <= 1.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_poles_and_ends(dtype: str) -> None:
    least = np.finfo(DTYPES[dtype]).smallest_subnormal
    x = np.array([0.0, -0.0, -1.0, -2.0, -1e30, np.inf, -np.inf, np.nan, least, -least], DTYPES[dtype])
    with np.errstate(all="ignore"):
        for name, reference in (("digamma", scipy.special.digamma), ("trigamma", lambda v: scipy.special.polygamma(1, v))):
            assert np.array_equal(run(getattr(math_gamma, name), x), reference(x).astype(x.dtype), equal_nan=True), name
        result = run(math_gamma.gammaln, x)
    assert np.array_equal(result[:8], scipy.special.gammaln(x[:8]), equal_nan=True)
    assert np.allclose(result[8:], -np.log(float(least)), rtol=2e-7 if dtype == "f32" else 1e-15)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_of_gammaln_at_1_and_2_are_exact(dtype: str) -> None:
    x = np.array([1.0, 2.0], DTYPES[dtype])
    assert np.array_equal(run(math_gamma.gammaln, x), [0.0, 0.0])
