"""numpy.linalg and scipy.linalg: compiled values, dtypes, gradients and errors beside those of NumPy and SciPy."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from calls import check, leaves, run
from linalg_calls import NUMPY, ONE_TRIANGLE, SCIPY, A, M, P, V, positive
from test_function_gradients import check_gradient

import pullback as pb

Call = Callable[..., Any]
DTYPES = ["bool", "int8", "uint8", "int16", "int64", "float32", "float64"]


def same(call: Call, *arguments: Any, rtol: float = 1e-9) -> None:
    """A compiled call gives what the plain call gives: structure, dtypes, shapes and values."""
    with warnings.catch_warnings(action="ignore"):
        expected = leaves(call(*arguments))
    found = leaves(pb.jit(call)(*arguments))
    assert len(found) == len(expected)
    for f, e in zip(found, expected, strict=True):
        f, e = np.asarray(f), np.asarray(e)
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        np.testing.assert_allclose(f, e, rtol=rtol, atol=rtol * (1 + np.max(np.abs(e), initial=0)))


@pytest.mark.parametrize(("call", "arguments"), NUMPY + SCIPY + ONE_TRIANGLE)
def test_values(call: Call, arguments: list[Any]) -> None:
    same(call, *arguments)


@pytest.mark.parametrize(("call", "arguments"), [c for c in NUMPY + SCIPY if all(x.size for x in c[1])])
def test_gradients(call: Call, arguments: list[Any]) -> None:
    check_gradient(call, *arguments)
