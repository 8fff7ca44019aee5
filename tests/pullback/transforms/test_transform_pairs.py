"""Each transform, and each nested pair of transforms, against finite differences of plain Python and against JAX."""

from functools import cache

import numpy as np
import pytest

from tests.tables.transform_pairs import TRANSFORMS, WITHOUT_PEER, Plain, X, base, compiled, makes_sense, peer

PB, PLAIN = compiled(), Plain()
NAMES = list(TRANSFORMS)
PAIRS = [(outer, inner) for outer in NAMES for inner in NAMES if makes_sense(outer, inner)]
ALWAYS = [
    ("grad", "vmap"),
    ("vmap", "grad"),
    ("hessian", "while_loop"),
    ("jvp", "scan"),
    ("vjp", "while_loop"),
    ("vmap", "while_loop"),
]
STRIDE = 7


def is_default(outer: str, inner: str) -> bool:
    """Each transform is met in some pairs, outside and inside; all pairs are in the long run."""
    return f"{outer} {inner}" in ALWAYS or (NAMES.index(outer) + 3 * NAMES.index(inner)) % STRIDE == 0


def marked(pairs):
    return [pytest.param(*p, marks=() if is_default(*p) else pytest.mark.long) for p in pairs]


@cache
def made(name: str):
    """A transform of the base function, and what differences are taken of for it: itself, where it is what it looks like."""
    result = TRANSFORMS[name](PB, base(PB))
    return result, TRANSFORMS[name](PLAIN, base(PLAIN)) if name == "stop_gradient" else result


def close(result, expected, tolerance):
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("name", NAMES)
def test_transform(name):
    close(PB.jit(made(name)[0])(X), TRANSFORMS[name](PLAIN, base(PLAIN))(X), 1e-8)


@pytest.mark.parametrize("outer, inner", marked(PAIRS))
def test_pair(outer, inner):
    function, plain = made(inner)
    close(PB.jit(TRANSFORMS[outer](PB, function))(X), TRANSFORMS[outer](PLAIN, plain)(X), 1e-8)


@pytest.mark.long
@pytest.mark.parametrize("outer, inner", [p for p in PAIRS if "stop_gradient" not in p])
def test_gradient_of_a_pair(outer, inner):
    pair = PB.jit(TRANSFORMS[outer](PB, made(inner)[0]))
    close(TRANSFORMS["grad"](PB, pair)(X), TRANSFORMS["grad"](PLAIN, pair)(X), 1e-7)


@pytest.mark.long
@pytest.mark.parametrize("outer, inner", [p for p in PAIRS if not WITHOUT_PEER & {*p}])
def test_pair_beside_jax(outer, inner):
    pytest.importorskip("jax")
    m = peer()
    try:
        expected = TRANSFORMS[outer](m, TRANSFORMS[inner](m, base(m)))(m.np.asarray(X))
    except Exception as error:
        assert {outer, inner} & {"while_loop", "fori_loop", "custom_vjp"}, error
        return
    close(PB.jit(TRANSFORMS[outer](PB, made(inner)[0]))(X), expected, 1e-12)
