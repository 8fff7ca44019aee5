"""Functions of scipy.special: values at ordinary and at special places, and gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from tests.support.agreement import agrees, gradients_agree

Call = Callable[..., Any]
special = scipy.special
V = np.array([0.2, 0.45, 0.7, 1.6, 2.9])
W = np.array([1.3, 0.6, 2.2, 0.9, 0.4])
SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, 30.0, np.inf, -np.inf, np.nan])

POSITIVE = np.array([1e-300, 0.5, 1.0, 2.0, 30.0])

ONE = """entr logit log_expit loggamma rgamma exp10 cosm1 gamma erfinv erfcinv ndtr log_ndtr ndtri erfcx j0 j1 y0 y1 i0 i1 i0e i1e
log1p expm1 exp2 cbrt erf erfc expit gammaln digamma psi k0 k1 k0e k1e ber bei berp beip exp1 expi dawsn erfi spence exprel
ndtri_exp wrightomega gammasgn zetac ellipk ellipkm1 ellipe"""
TWO = """xlogy xlog1py rel_entr kl_div huber pseudo_huber boxcox boxcox1p inv_boxcox inv_boxcox1p beta betaln binom powm1 gammainc
gammaincc owens_t stdtr jv yv iv ive kv kve struve modstruve hyp0f1 poch ellipkinc ellipeinc agm stdtrit gammaincinv
gammainccinv"""
HALF = {"logit", "erfinv", "ndtri", "ellipk", "ellipkm1", "ellipe", "erfi"}

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
    x = -V if name == "ndtri_exp" else V / 3 if name in HALF else V
    agrees(call, x, rtol=1e-12, atol=1e-15)
    gradients_agree(call, x)


@pytest.mark.parametrize("name", TWO.split())
def test_of_two(name: str) -> None:
    function = getattr(special, name)
    call = lambda x, y: function(x, y)  # noqa: E731
    places = {"inv_boxcox1p": SPECIAL[SPECIAL != 1e-300], "powm1": POSITIVE}.get(name, SPECIAL)  # where scipy has values
    agrees(call, places[:, None], places, rtol=1e-11, atol=1e-15)
    second = W / 3 if name in ("ellipkinc", "ellipeinc", "stdtrit", "gammaincinv", "gammainccinv") else W
    agrees(call, V, second, rtol=1e-12)
    gradients_agree(call, V, second)


# of orders, of three and four arguments, of several results
MANY: list[Call] = [
    lambda x, v: (special.jn(2, x), special.yn(1, x + 1.0), special.kn(2, x + 1.0), special.expn(3, x)),
    lambda x, v: (special.expn(0, x + 0.5), special.expn(np.arange(3)[:, None], x + 0.5)),
    lambda x, v: special.polygamma(np.array([[1], [3]]), x + 1),
    lambda x, v: (special.spherical_jn(2, x), special.spherical_in(1, x), special.spherical_jn(1, x, True)),
    lambda x, v: (special.spherical_yn(1, x + 1.0), special.spherical_kn(0, x), special.spherical_in(2, x, derivative=True)),
    lambda x, v: (special.sici(x), special.fresnel(x), special.shichi(x), special.airy(x)),
    lambda x, v: special.ellipj(x, v / 4),
    lambda x, v: [special.eval_legendre(5, x / 3), special.eval_legendre(v, x / 3), special.eval_sh_legendre(3, x / 3)],
    lambda x, v: [special.eval_jacobi(3, v, x, x / 3), special.eval_gegenbauer(3, v, x / 3), special.eval_genlaguerre(3, v, x)],
    lambda x, v: [special.eval_chebyt(np.arange(5)[:, None], x / 3), special.eval_chebyu(3, x), special.eval_laguerre(4, x)],
    lambda x, v: [special.eval_hermite(3, x), special.eval_hermitenorm(4, x), special.eval_chebyc(3, x)],
    lambda x, v: [special.hermite(3)(x) * v, special.legendre(4)(x / 3), special.jacobi(3, 0.2, 0.4)(x / 3)],
    lambda x, v: [special.genlaguerre(3, 0.5)(x) * v, special.chebyt(4)(x / 3), special.gegenbauer(3, 0.7)(x / 3)],
    lambda x, v: [special.jvp(v, x), special.jvp(1, x, 2), special.yvp(v, x + 1.0), special.kvp(v, x + 1.0, 2)],
    lambda x, v: [special.zeta(x + 1.2), special.zeta(x + 1.2, v), special.perm(4 + x, v)],
    lambda x, v: special.softplus(x) * v,
    lambda x, v: [special.hyp1f1(v, x, x), special.hyp2f1(v, 1.2, x, x / 4), special.hyperu(1.2, v / 2, x),]
    + [special.lpmv(1, v + 1, x / 4)],
    lambda x, v: [special.betainc(v, x, x / 4), special.betaincc(x, v, x / 4)],
    lambda x, v: [special.betaincinv(v, x, x / 4), special.betainccinv(v, x, x / 4)],
    lambda x, v: [special.boxcox(x, 0 * v), special.boxcox1p(x, v - 0.6), special.inv_boxcox(x, 0 * v)],
    lambda x, v: special.inv_boxcox1p(x, v / 9),
]  # fmt: skip


@pytest.mark.parametrize("call", [pytest.param(c, id=str(k)) for k, c in enumerate(MANY)])
def test_of_many(call: Call) -> None:
    agrees(call, V, W, rtol=1e-11, atol=1e-15)
    gradients_agree(call, V, W, tolerance=3e-6)


# derivatives by parameters that mpmath gives to 18 digits
@pytest.mark.parametrize(
    ("call", "position", "slope"),
    [
        (lambda a: special.gammainc(a, 2.0), 1.5, -0.277433564208710408),
        (lambda a: special.gammainc(a, 0.3), 0.01, -0.908745802268545858),
        (lambda a: special.gammainc(a, 900.0), 1000.0, -0.0000624570903584156516),
        (lambda a: special.betainc(a, 2.0, 0.3), 0.5, -0.506842345541676327),
        (lambda b: special.betainc(2.0, b, 0.3), 0.5, 0.0921800103085700305),
        (lambda v: special.jv(v, 3.0), 1.0, 0.423313408899894178),
        (lambda x: special.zeta(x), 2.0, -0.937548254315843754),
        (lambda a: special.hyp1f1(a, 2.0, 3.0), 1.5, 13.3983789477566944),
    ],
)
def test_slopes_by_shape(call: Call, position: float, slope: float) -> None:
    np.testing.assert_allclose(pb.grad(call)(position), slope, rtol=1e-11)


@pytest.mark.parametrize("call", [pytest.param(c, id=str(k)) for k, c in enumerate(ARRAYS)])
def test_of_arrays(call: Call) -> None:
    agrees(call, V, W, rtol=1e-12)
    gradients_agree(call, V, W)


def test_slopes_of_products_with_logarithms_at_zero() -> None:
    slope = pb.grad(lambda a: np.sum(special.xlogy(a, V) + special.xlog1py(a, V)))(0.0)
    np.testing.assert_allclose(slope, np.sum(np.log(V) + np.log1p(V)), rtol=1e-13)
    assert pb.grad(lambda x: special.xlogy(x, 0.0))(0.0) == 0.0


def test_refused() -> None:
    refused: list[tuple[Call, str]] = [
        (lambda x: special.comb(x, 2, exact=True), "exact=True"),
        (lambda x: special.expn(x, x), "of a traced order"),
        (lambda x: special.eval_hermite(x, x), "of a traced degree"),
        (lambda x: special.lambertw(x), r"scipy.special.lambertw of traced arrays is not supported"),
    ]
    for call, words in refused:
        with pytest.raises(pb.TraceError, match=words):
            pb.jit(call)(V)
