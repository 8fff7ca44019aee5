"""A call of a user's function agrees with plain Python: value, dtype and shape of each result, and gradients.

A result without axes comes back as a scalar of NumPy.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.tracer import flatten
from tests.support.versions import known

Call = Callable[..., Any]


def plain(call: Call, *args: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return call(*args)


def agrees(call: Call, *args: Any, rtol: float = 1e-13, atol: float = 0.0) -> None:
    """Compiled and plain results are equal trees of equal dtypes and shapes."""
    expected, tree = flatten(known(plain, call, *args))
    result, found_tree = flatten(pb.jit(call)(*args))
    assert found_tree == tree
    for e, f in zip(expected, result):
        assert isinstance(f, np.ndarray) == (np.ndim(e) > 0), (type(f), type(e))
        e, f = np.asarray(e), np.asarray(f)
        assert (f.dtype, f.shape) == (e.dtype, e.shape)
        np.testing.assert_allclose(f, e, rtol=rtol, atol=atol)


def gradients_agree(call: Call, *args: Any, tolerance: float = 1e-6, step: float = 1e-6) -> None:
    """Gradients of a weighted sum of the results, by each float argument, are central differences."""
    wanted = [k for k, a in enumerate(args) if np.asarray(a).dtype == np.float64]

    def loss(*xs: Any) -> Any:
        leaves = flatten(call(*xs))[0]
        return sum(
            np.sum(np.sin(leaf) * (1.0 + 0.3 * np.cos(np.arange(np.size(leaf)))).reshape(np.shape(leaf))) for leaf in leaves
        )

    gradients = pb.grad(loss, argnums=tuple(wanted))(*args)
    rng = np.random.default_rng(5)
    for k, gradient in zip(wanted, gradients):
        direction = rng.uniform(0.5, 1.5, np.shape(args[k]))
        above, below = (
            plain(loss, *(a + sign * step * direction if j == k else a for j, a in enumerate(args))) for sign in (1, -1)
        )
        difference = (above - below) / (2 * step)
        np.testing.assert_allclose(
            np.sum(gradient * direction), difference, rtol=tolerance, atol=tolerance, err_msg=f"argument {k}"
        )
