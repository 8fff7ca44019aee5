"""Functions that are smooth where their formula has a hole or a tie: values, and derivatives of both orders in both modes."""

from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb

CASES: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("sinc", np.sinc, (np.array([0.0, 1.0, -0.3]),)),
    ("logaddexp", np.logaddexp, (np.array([0.4, -1.0]), np.array([0.4, 1.0]))),
    ("logaddexp2", np.logaddexp2, (0.4, 0.4)),
    ("logsumexp", scipy.special.logsumexp, (np.array([1.0, 1.0, 0.0]),)),
    ("power", np.power, (1.5, 0.0)),
    ("float_power", np.float_power, (np.array([1.0, 0.5]), np.array([0.0, 1.0]))),
    ("pseudo_huber", lambda r: scipy.special.pseudo_huber(1.5, r), (np.array([0.0, 0.7]),)),
    ("boxcox", lambda k: scipy.special.boxcox(2.0, k), (0.0,)),
    ("boxcox1p", lambda k: scipy.special.boxcox1p(2.0, k), (0.0,)),
    ("inv_boxcox", lambda k: scipy.special.inv_boxcox(0.5, k), (0.0,)),
    ("prod", np.prod, (np.array([0.0, 0.0, 3.0]),)),
    ("cumprod", np.cumprod, (np.array([2.0, 0.0, 3.0]),)),
    ("xlog1py", scipy.special.xlog1py, (0.0, 0.5)),
    ("hypot", np.hypot, (0.0, 1.0)),
    ("arctan2", np.arctan2, (0.0, 1.0)),
]


@pytest.mark.parametrize(("f", "args"), [pytest.param(f, args, id=name) for name, f, args in CASES])
def test_derivatives(f: Any, args: Any) -> None:
    assert pb.check_grads(f, tuple(range(len(args))))(*args).is_right


def test_equal_infinities_and_undefined_powers() -> None:
    """What the conditions are for that make the holes."""
    inf = np.inf
    for x in (inf, -inf):
        assert pb.jit(np.logaddexp)(x, x) == x
        assert pb.grad(np.logaddexp, argnums=(0, 1))(x, x) == (0.5, 0.5)
    assert pb.grad(np.logaddexp, argnums=(0, 1))(inf, 1.0) == (1.0, 0.0)
    assert pb.grad(np.power)(0.0, 0.0) == 0.0
    assert pb.grad(np.power)(np.nan, 0.0) == 0.0
    assert pb.jit(scipy.special.pseudo_huber)(inf, 0.0) == scipy.special.pseudo_huber(inf, 0.0) == 0.0
