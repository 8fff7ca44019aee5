"""Distributions of scipy.stats: values as SciPy's, everywhere and for bad parameters, and gradients in x and the parameters."""

from typing import Any

import numpy as np
import pytest
import scipy.stats

import pullback as pb
from tests.support.agreement import agrees, gradients_agree

CONTINUOUS: dict[str, tuple[float, ...]] = {
    "norm": (), "t": (3.3,), "gamma": (2.2,), "beta": (2.0, 3.5), "expon": (), "lognorm": (0.7,), "uniform": (), "laplace": (),
    "cauchy": (), "logistic": (), "halfnorm": (), "halfcauchy": (), "chi2": (3.0,), "invgamma": (3.1,), "weibull_min": (1.7,),
    "gumbel_r": (), "gumbel_l": (), "pareto": (2.6,), "rayleigh": (), "f": (3.0, 5.5), "truncnorm": (-1.0, 2.5),
    "skewnorm": (2.0,), "invgauss": (0.8,), "vonmises": (1.3,),
    # without a law of ours
    "gennorm": (1.5,), "loggamma": (1.2,), "fisk": (2.5,), "maxwell": (), "powerlaw": (1.7,), "lomax": (2.5,),
}  # fmt: skip
DISCRETE: dict[str, tuple[float, ...]] = {
    "poisson": (2.3,), "binom": (7, 0.3), "bernoulli": (0.3,), "nbinom": (3.2, 0.4), "geom": (0.3,), "randint": (-2, 5),
    "betabinom": (7, 2.0, 1.5), "logser": (0.6,),
}  # fmt: skip
# what SciPy computes by methods that cannot be traced, or not by a formula
MISSING = {
    "skewnorm": ("ppf", "isf", "median"), "invgauss": ("ppf", "isf", "median"),
    "vonmises": ("cdf", "logcdf", "sf", "logsf", "ppf", "isf", "median", "mean", "var", "std"),
    "betabinom": ("cdf", "logcdf", "sf", "logsf"), "logser": ("cdf", "logcdf", "sf", "logsf"),
    "gennorm": ("mean", "var", "std"), "fisk": ("mean", "var", "std"), "powerlaw": ("mean", "var", "std"),
    "lomax": ("mean", "var", "std"),
}  # fmt: skip

X = np.concatenate([np.linspace(-4, 6, 41), [np.nan, np.inf, -np.inf, 1e-300, 50.0]])
K = np.array([-3, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 20, 2.5, np.nan, np.inf, -np.inf])
Q = np.array([0, 1, 0.5, 1e-10, 1 - 1e-10, 0.1, 0.9, -0.1, 1.1, np.nan])
DENSITIES = ("pdf", "logpdf")
PROBABILITIES = ("cdf", "logcdf", "sf", "logsf")
MOMENTS = ("mean", "var", "std", "median")


def offered(name: str, methods: tuple[str, ...]) -> list[str]:
    return [m for m in methods if m not in MISSING.get(name, ())]


def several(law: Any, methods: list[str]) -> Any:
    """The results of several methods for the same arguments."""
    return lambda *args: [getattr(law, m)(*args) for m in methods]


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_values(name: str) -> None:
    law, shapes = getattr(scipy.stats, name), CONTINUOUS[name]
    position = (*shapes, 0.3, 1.4)
    loose = {"rtol": 1e-6 if name in ("skewnorm", "cauchy") else 2e-12, "atol": 1e-15}
    agrees(several(law, list(DENSITIES)), X, *position, rtol=2e-12, atol=1e-15)
    if result := offered(name, PROBABILITIES):
        agrees(several(law, result), X, *position, **loose)
    if result := offered(name, ("ppf", "isf")):
        agrees(several(law, result), Q, *position, **loose)
    agrees(several(law, [*offered(name, MOMENTS), "support"]), *position, rtol=1e-11)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_bad_parameters_and_other_types(name: str) -> None:
    law, shapes = getattr(scipy.stats, name), CONTINUOUS[name]
    x = X[:, None] if name != "invgauss" else X[:, None] + 0.05  # scipy gives NaN at 0, where the density is 0
    for k in range(len(shapes)):
        bad = [np.array([-1.0, s]) if j == k else s for j, s in enumerate(shapes)]
        agrees(lambda x, *s: law.logpdf(x, *s), x, *bad, rtol=2e-12, atol=1e-15)
    agrees(lambda x, scale: law.pdf(x, *shapes, scale=scale), x, np.array([-1.0, 0.0, 2.0]), rtol=2e-12, atol=1e-15)
    agrees(lambda x, loc: law.logpdf(x, *shapes, loc), 0.7, np.array([[0.1], [0.2]]), rtol=2e-12)
    agrees(
        lambda x, y, z: [law.logpdf(v, *shapes) for v in (x, y, z)],
        np.float32(0.4),
        np.arange(1, 4),
        np.zeros((0, 2)),
        rtol=2e-12,
    )


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_values(name: str) -> None:
    law, shapes = getattr(scipy.stats, name), DISCRETE[name]
    agrees(several(law, offered(name, ("pmf", "logpmf", *PROBABILITIES))), K, *shapes, 1, rtol=1e-11, atol=1e-15)
    agrees(lambda *s: law.logpmf(np.arange(-1, 9), *s), *shapes, rtol=2e-12)
    agrees(several(law, offered(name, ("mean", "var", "std"))), *shapes, 2, rtol=1e-11)
    for k in range(len(shapes)):
        bad = [-1.0 if j == k and name != "randint" else s for j, s in enumerate(shapes)]
        agrees(lambda k, *s: law.logpmf(k, *s), K, *bad, rtol=2e-12)


def inside(law: Any, shapes: Any) -> Any:
    return law.ppf(np.array([0.1, 0.35, 0.6, 0.85]), *shapes)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients(name: str) -> None:
    law, shapes = getattr(scipy.stats, name), CONTINUOUS[name]
    x, position = 0.3 + 1.4 * inside(law, shapes), (*shapes, 0.3, 1.4)
    gradients_agree(several(law, list(DENSITIES)), x, *position)
    if result := offered(name, PROBABILITIES):
        gradients_agree(several(law, result), x, *position)
    if result := offered(name, ("ppf", "isf")):
        inverse = several(law, result)
        gradients_agree(inverse, np.array([0.2, 0.7]), *position)
    if result := [m for m in offered(name, ("mean", "std")) if np.isfinite(getattr(law, m)(*shapes))]:
        gradients_agree(several(law, result), *position)


@pytest.mark.parametrize("name", DISCRETE)
def test_gradients_of_masses(name: str) -> None:
    law = getattr(scipy.stats, name)
    shapes = [(k, s) for k, s in enumerate(DISCRETE[name]) if isinstance(s, float)]
    places = [k for k, _ in shapes]
    for method in ("pmf", "logpmf", *(() if name in MISSING else ("cdf", "sf"))):

        def call(*arguments: Any, method: str = method) -> Any:
            parameters = list(DISCRETE[name])
            for k, value in zip(places, arguments):
                parameters[k] = value
            return getattr(law, method)(np.arange(1, 2 if name == "bernoulli" else 5), *parameters)

        if shapes:
            gradients_agree(call, *(s for _, s in shapes))


def test_gradients_outside_the_support_and_at_its_edge_are_finite() -> None:
    x = np.array([-1.0, 0.0, 0.5, 2.0])
    for name, shapes in (("gamma", (1.0,)), ("expon", ()), ("beta", (1.0, 1.0)), ("lognorm", (0.5,)), ("weibull_min", (1.0,))):
        law = getattr(scipy.stats, name)

        def loss(scale: Any, *s: Any, law: Any = law) -> Any:
            return np.sum(law.pdf(x, *s, scale=scale) + law.cdf(x, *CONTINUOUS.get(law.name, s), scale=scale))

        for gradient in pb.grad(loss, argnums=tuple(range(1 + len(shapes))))(1.5, *shapes):
            assert np.isfinite(gradient), name
    slope = pb.grad(lambda a: np.sum(scipy.stats.gamma.logpdf(x[2:], a)))(1.0)
    np.testing.assert_allclose(slope, np.sum(np.log(x[2:])) + 2 * 0.5772156649015329, rtol=1e-12)


FROZEN = scipy.stats.norm(0.3, scale=1.2)
FROZEN_GAMMA = scipy.stats.gamma(2.0, scale=np.array([1.0, 2.0]))
logpdf = scipy.stats.norm.logpdf
Y = np.array([0.4, 1.7])


def test_frozen_distributions(monkeypatch: pytest.MonkeyPatch) -> None:
    agrees(lambda x: FROZEN.logpdf(x) + FROZEN.cdf(x) + FROZEN.mean() * FROZEN.std(), Y, rtol=2e-12)
    agrees(lambda x: FROZEN_GAMMA.logpdf(x), Y, rtol=2e-12)
    agrees(lambda x: logpdf(x, loc=0.1), Y, rtol=2e-12)
    agrees(lambda m, s: scipy.stats.norm(m, s).logpdf(Y) + scipy.stats.norm(loc=m).entropy(), 0.2, 1.1, rtol=2e-12)
    agrees(lambda m: (scipy.stats.norm(m).interval(0.9), scipy.stats.norm(m, 2.0).stats(moments="mvsk")), 0.2, rtol=2e-12)
    agrees(lambda x: x * scipy.stats.norm.ppf(0.975) + scipy.stats.gennorm(1.5).ppf(0.3), Y)
    gradients_agree(lambda m, s: scipy.stats.norm(m, s).logpdf(Y) + scipy.stats.t(5, m, s).cdf(Y), 0.2, 1.1)
    compiled = pb.jit(lambda x: FROZEN.logpdf(x))
    compiled(Y)
    monkeypatch.setitem(FROZEN.kwds, "scale", 3.0)
    np.testing.assert_allclose(compiled(Y), scipy.stats.norm.logpdf(Y, 0.3, 3.0), rtol=1e-13)


class Triangle(scipy.stats.rv_continuous):
    """A user's own distribution."""

    def _pdf(self, x: Any, height: Any) -> Any:
        return self._slope(height) * x

    def _slope(self, height: Any) -> Any:
        return np.maximum(height, 2.0)

    def _cdf(self, x: Any, height: Any) -> Any:
        return 0.5 * height * x**2


OWN = Triangle(a=0.0, b=1.0, name="triangle", shapes="height")


def test_a_distribution_of_the_users() -> None:
    x = np.array([-0.5, 0.2, 0.7, 1.5])
    agrees(lambda x: [OWN.pdf(x, 2.0), OWN.logpdf(x, 2.0, scale=2.0), OWN.cdf(x, height=2.0), OWN.sf(x, 2.0)], x)
    gradients_agree(lambda x, h: OWN.logpdf(x, h), x[1:3], 2.5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: scipy.stats.norm.rvs(loc=x[0]), "random draw"),
        (lambda x: FROZEN.rvs(3) + x, "random draw"),
        (lambda x: scipy.stats.norm.fit(x), r"scipy.stats.norm.fit of traced values is not supported"),
        (lambda x: scipy.stats.norm.expect(args=(x[0],)), r"scipy.stats.norm.expect of traced"),
        (lambda x: scipy.stats.vonmises.cdf(x, 1.0), r"scipy.stats.vonmises.cdf of traced values is not supported"),
        (lambda x: scipy.stats.poisson.ppf(x, 1.0), r"scipy.stats.poisson.ppf of traced"),
        (lambda x: scipy.stats.gaussian_kde(x).resample(3), r"scipy.stats.gaussian_kde.resample"),
        (lambda x: scipy.stats.pearsonr(x, x), r"np.corrcoef"),
    ],
)
def test_refused(call: Any, words: str) -> None:
    with pytest.raises(pb.TraceError, match=words) as caught:
        pb.jit(call)(Y)
    assert caught.value.file == __file__


def test_wrong_calls_raise_type_errors() -> None:
    for call in (
        lambda x: scipy.stats.gamma.logpdf(x),
        lambda x: scipy.stats.norm.logpdf(x, 0.0, 1.0, 2.0),
        lambda x: scipy.stats.norm.logpdf(x, sigma=2.0),
        lambda x: scipy.stats.norm.logpdf(x, 0.0, loc=2.0),
    ):
        with pytest.raises(TypeError):
            call(Y)
        with pytest.raises(TypeError):
            pb.jit(call)(Y)


def test_methods_of_distributions_are_transformed_as_they_are() -> None:
    agrees(scipy.stats.norm.logpdf, Y, 0.3, np.array(1.5))
    agrees(scipy.stats.gamma(2.5).sf, np.abs(Y))
    slope = pb.grad(scipy.stats.norm.logpdf, argnums=(0, 1))(0.7, 0.2)
    np.testing.assert_allclose(slope, (-0.5, 0.5), rtol=1e-14)
