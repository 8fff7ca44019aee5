"""Numbers from outside are inputs: a sweep over their values is traced, and compiles, at most twice."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import traces

X = np.linspace(0.5, 2.0, 4)
LAM: Any = 0.0
TABLE: dict[str, Any] = {"a": 1, "n": 2}
SCALES: list[Any] = [0.5, 1.0]
COUNTS: list[Any] = [1, 2, 3]


class Model:
    rate: Any = 0.0

    def __init__(self) -> None:
        self.lam: Any = 0.0
        self.part = SimpleNamespace(inner=SimpleNamespace(lam=0.0))

    def value(self, x: Any) -> Any:
        return x * self.lam + self.rate

    def deep(self, x: Any) -> Any:
        return x * self.part.inner.lam


MODEL = Model()


def set_global(v: Any) -> None:
    globals()["LAM"] = v


CELL: Any = SimpleNamespace()


def closure() -> Any:
    lam: Any = 0.0

    def function(x: Any) -> Any:
        return x * lam

    def put(v: Any) -> None:
        nonlocal lam
        lam = v

    return function, put


FUNCTION, PUT = closure()

SWEEPS: list[tuple[str, Any, Any]] = [
    ("global", lambda x: x * LAM + LAM, set_global),
    ("attribute", MODEL.value, lambda v: setattr(MODEL, "lam", v)),
    ("class attribute", MODEL.value, lambda v: setattr(Model, "rate", v)),
    ("nested attribute", MODEL.deep, lambda v: setattr(MODEL.part.inner, "lam", v)),
    ("dict item", lambda x: x * TABLE["a"], lambda v: TABLE.__setitem__("a", v)),
    ("list item", lambda x: x * SCALES[0], lambda v: SCALES.__setitem__(0, v)),
    ("item of ints", lambda x: x * COUNTS[1], lambda v: COUNTS.__setitem__(1, v)),
    ("closure", FUNCTION, PUT),
]
VALUES = {
    "floats": np.linspace(0.0, 1.0, 101).tolist(),
    "from 2.0 on": [2.0, 0.3, 4.0, 1.0, 0.5, -1.0, 0.0, 7.5],
    "ints": list(range(-3, 40)),
    "large ints": [10**k for k in range(18)],
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("function, put", [pytest.param(f, p, id=name) for name, f, p in SWEEPS])
def test_a_sweep_compiles_at_most_twice(function: Any, put: Any, values: str) -> None:
    put(VALUES[values][0])
    compiled = pb.jit(lambda x: function(x))
    before, infos = traces(), pb.cache_info()
    for v in VALUES[values]:
        put(v)
        np.testing.assert_allclose(compiled(X), function(X), rtol=1e-14)
    assert traces() - before <= 2
    after = pb.cache_info()
    assert after.templates_built - infos.templates_built <= 2


def test_values_that_are_asked_for_stay_static() -> None:
    compiled = pb.jit(lambda x: x[: TABLE["n"]] * (1 if LAM == 0 else 2))
    for n in (1, 2, 3, 1):
        for lam in (0, 1, 0.0, 2.5):
            TABLE["n"] = n
            set_global(lam)
            np.testing.assert_array_equal(compiled(X), X[:n] * (2 if lam else 1))


def test_gradients_of_a_sweep() -> None:
    slope = pb.grad(lambda x: np.sum(x**2 * LAM))
    before = traces()
    for v in (0.0, 1.0, 2.0, 0.25, 3, 4):
        set_global(v)
        np.testing.assert_allclose(slope(X), 2 * X * v)
    assert traces() - before <= 4
