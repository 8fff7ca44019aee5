"""Random draws: NumPy's Philox to the bit, SciPy's distributions by statistics, gradients by derivatives of quantiles."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
import scipy.stats

import pullback as pb

r = pb.random
stats = scipy.stats
KEY = r.key(7)
N = 4000


def numpys(seed: int = 7) -> Any:
    return np.random.Generator(np.random.Philox(key=seed))


# bits and uniform numbers are NumPy's


@pytest.mark.parametrize("seed", [0, 7, 2**64 - 1, 2**127 + 5])
def test_a_key_is_that_of_numpys_philox(seed: int) -> None:
    key = r.key(seed)
    state = np.random.Philox(key=seed).state["state"]["key"]
    np.testing.assert_array_equal(key, state, strict=True)
    np.testing.assert_array_equal(r.bits(key, (11,)), np.random.Philox(key=seed).random_raw(11), strict=True)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (4,), (9,), (2, 3), (0,), (3, 0), 5, [2, 2], np.int64(6)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=str)
def test_uniform_is_numpys(shape: Any, dtype: Any) -> None:
    result, wanted = r.uniform(KEY, shape, dtype), numpys().random(shape, dtype)
    np.testing.assert_array_equal(result, wanted)
    assert result.dtype == dtype and np.shape(result) == np.shape(wanted)


@pytest.mark.parametrize("dtype", [np.uint64, np.uint32, np.uint16, np.uint8], ids=str)
def test_bits_of_each_width(dtype: Any) -> None:
    raw = np.random.Philox(key=7).random_raw(8)
    wanted = raw if dtype is np.uint64 else (raw.view(np.uint32) >> (32 - 8 * np.dtype(dtype).itemsize)).astype(dtype)
    np.testing.assert_array_equal(r.bits(KEY, wanted.shape, dtype), wanted, strict=True)


def test_half_precision_stays_below_one() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        u = r.uniform(KEY, (N,), dtype)
        assert u.dtype == dtype and float(u.max()) < 1
        assert np.isfinite(r.normal(KEY, (N,), dtype).astype(np.float64)).all()


def test_choice_with_probabilities_is_numpys() -> None:
    p = np.array([0.1, 0.2, 0.0, 0.7])
    np.testing.assert_array_equal(r.choice(KEY, 4, (50,), p=p), numpys().choice(4, 50, p=p))
    names = np.array([1.5, 2.5, 3.5, 4.5])
    np.testing.assert_array_equal(r.choice(KEY, names, (5, 3), p=p), numpys().choice(names, (5, 3), p=p))


def test_normal_is_the_inverse_of_the_distribution_function() -> None:
    u = numpys().random(N) + 2.0**-54
    np.testing.assert_allclose(r.normal(KEY, (N,)), scipy.special.ndtri(u), rtol=1e-13, atol=1e-15)


# the same inside a trace and outside, for every form of key


def test_inside_and_outside_agree() -> None:
    @pb.jit
    def inside(key: Any, seed: int, scale: float) -> Any:
        first, second = pb.random.split(key)
        third = pb.random.fold_in(pb.random.key(seed), 3)
        return scale * pb.random.normal(first, (3,)), pb.random.gamma(second, scale, (2,)), pb.random.bits(third), KEY + 0

    result = inside(KEY, 5, 1.5)
    first, second = r.split(KEY)
    wanted = 1.5 * r.normal(first, (3,)), r.gamma(second, 1.5, (2,)), r.bits(r.fold_in(r.key(5), 3)), KEY
    for a, b in zip(result, wanted, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(pb.jit(lambda: r.uniform(KEY, 3))(), r.uniform(KEY, 3))
    np.testing.assert_array_equal(pb.jit(lambda: r.uniform(r.split(r.key(1))[0], 3))(), r.uniform(r.split(r.key(1))[0], 3))


def test_keys_made_of_a_key_are_words_of_philox() -> None:
    def block(*counter: int) -> Any:
        below = (sum(c << 64 * k for k, c in enumerate(counter)) - 1) % 2**256
        return np.random.Philox(key=7, counter=below).random_raw(2)

    np.testing.assert_array_equal(r.split(KEY, 3), [block(k, 0, 0, 1) for k in range(3)])
    np.testing.assert_array_equal(r.split(KEY, (2, 3)), r.split(KEY, 6).reshape(2, 3, 2))
    np.testing.assert_array_equal(r.fold_in(KEY, 9), block(9, 0, 0, 2))
    np.testing.assert_array_equal(r.wrap_key_data(r.key_data(r.clone(KEY))), KEY)
    assert len({k.tobytes() for k in (KEY, *r.split(KEY, 100), *(r.fold_in(KEY, i) for i in range(20)))}) == 121


OF_SHAPE: dict[str, Callable[..., Any]] = {
    "bits": lambda k, s: r.bits(k, s),
    "narrow": lambda k, s: r.uniform(k, s, np.float32),
    "normal": lambda k, s: r.normal(k, s),
    "gamma": lambda k, s: r.gamma(k, 0.7, s),
    "beta": lambda k, s: r.beta(k, 0.7, 3.0, s),
    "wald": lambda k, s: r.wald(k, 2.0, s),
    "poisson": lambda k, s: r.poisson(k, 20.0, s),
    "binomial": lambda k, s: r.binomial(k, 100, 0.4, s),
    "randint": lambda k, s: r.randint(k, s, 0, 1000),
    "categorical": lambda k, s: r.categorical(k, np.zeros(5), shape=s),
    "split": lambda k, s: r.split(k, s),
}


@pytest.mark.parametrize("name", OF_SHAPE)
def test_a_draw_depends_on_its_place_alone(name: str) -> None:
    draw = OF_SHAPE[name]
    long = draw(KEY, (13,))
    np.testing.assert_array_equal(draw(KEY, (5,)), long[:5])
    np.testing.assert_array_equal(draw(KEY, (2, 3)), long[:6].reshape(2, 3, *long.shape[1:]))
    assert draw(KEY, (0,)).shape[0] == 0


# distributions


CONTINUOUS: dict[str, tuple[Callable[..., Any], Any]] = {
    "uniform": (lambda k, d: r.uniform(k, (N,), d, -1.0, 3.0), stats.uniform(-1, 4)),
    "normal": (lambda k, d: r.normal(k, (N,), d), stats.norm),
    "lognormal": (lambda k, d: r.lognormal(k, 0.6, (N,), d), stats.lognorm(0.6)),
    "truncated_normal": (lambda k, d: r.truncated_normal(k, -1.0, 0.3, (N,), d), stats.truncnorm(-1, 0.3)),
    "truncated_normal tail": (lambda k, d: r.truncated_normal(k, 4.0, 6.0, (N,), d), stats.truncnorm(4, 6)),
    "exponential": (lambda k, d: r.exponential(k, (N,), d), stats.expon),
    "gumbel": (lambda k, d: r.gumbel(k, (N,), d), stats.gumbel_r),
    "laplace": (lambda k, d: r.laplace(k, (N,), d), stats.laplace),
    "logistic": (lambda k, d: r.logistic(k, (N,), d), stats.logistic),
    "cauchy": (lambda k, d: r.cauchy(k, (N,), d), stats.cauchy),
    "pareto": (lambda k, d: r.pareto(k, 2.5, (N,), d), stats.pareto(2.5)),
    "rayleigh": (lambda k, d: r.rayleigh(k, 2.0, (N,), d), stats.rayleigh(scale=2)),
    "weibull_min": (lambda k, d: r.weibull_min(k, 2.0, 1.5, (N,), d), stats.weibull_min(1.5, scale=2)),
    "triangular": (lambda k, d: r.triangular(k, -1.0, 0.0, 3.0, (N,), d), stats.triang(0.25, -1, 4)),
    "maxwell": (lambda k, d: r.maxwell(k, (N,), d), stats.maxwell),
    "wald": (lambda k, d: r.wald(k, 1.7, (N,), d), stats.invgauss(1.7)),
    "gamma": (lambda k, d: r.gamma(k, 2.3, (N,), d), stats.gamma(2.3)),
    "gamma small": (lambda k, d: r.gamma(k, 0.2, (N,), d), stats.gamma(0.2)),
    "gamma large": (lambda k, d: r.gamma(k, 3e4, (N,), d), stats.gamma(3e4)),
    "loggamma": (lambda k, d: r.loggamma(k, 0.01, (N,), d), stats.loggamma(0.01)),
    "beta": (lambda k, d: r.beta(k, 0.7, 2.0, (N,), d), stats.beta(0.7, 2)),
    "chisquare": (lambda k, d: r.chisquare(k, 3.0, (N,), d), stats.chi2(3)),
    "f": (lambda k, d: r.f(k, 3.0, 9.0, (N,), d), stats.f(3, 9)),
    "t": (lambda k, d: r.t(k, 2.5, (N,), d), stats.t(2.5)),
    "generalized_normal": (lambda k, d: r.generalized_normal(k, 1.3, (N,), d), stats.gennorm(1.3)),
    "dirichlet": (lambda k, d: r.dirichlet(k, [0.5, 1.0, 2.0], (N,), d)[:, 1], stats.beta(1.0, 2.5)),
    "multivariate_normal": (
        lambda k, d: r.multivariate_normal(k, [0.0, 1.0], [[1.0, 0.5], [0.5, 2.0]], (N,), d)[:, 1], stats.norm(1, 2**0.5),
    ),
    "ball": (lambda k, d: np.linalg.norm(r.ball(k, 3, 2.0, (N,), d), axis=-1) ** 3, stats.uniform),
    "orthogonal": (lambda k, d: r.orthogonal(k, 2, (N,), d)[:, 0, 0], stats.arcsine(-1, 2)),
    "double_sided_maxwell": (lambda k, d: np.abs(r.double_sided_maxwell(k, 1.0, 2.0, (N,), d) - 1.0), stats.maxwell(0, 2)),
}  # fmt: skip


IN_SINGLE = ("uniform", "normal", "gumbel", "wald", "gamma", "multivariate_normal")
OF_DTYPE = [
    (name, dtype) for name in CONTINUOUS for dtype in (np.float64, np.float32) if dtype is np.float64 or name in IN_SINGLE
]


@pytest.mark.parametrize(("name", "dtype"), OF_DTYPE)
def test_continuous_draws_have_their_distribution(name: str, dtype: Any) -> None:
    draw, law = CONTINUOUS[name]
    result = draw(r.key(1), dtype)
    assert result.dtype == dtype and result.shape == (N,)
    assert stats.kstest(result.astype(np.float64), law.cdf).pvalue > 0.001


DISCRETE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "geometric": (lambda k: r.geometric(k, 0.3, (N,)), stats.geom(0.3)),
    "poisson": (lambda k: r.poisson(k, 3.2, (N,)), stats.poisson(3.2)),
    "poisson large": (lambda k: r.poisson(k, 11.0, (N,)), stats.poisson(11)),
    "poisson very large": (lambda k: r.poisson(k, 4e6, (N,)), stats.poisson(4e6)),
    "binomial": (lambda k: r.binomial(k, 12, 0.4, (N,)), stats.binom(12, 0.4)),
    "binomial flipped": (lambda k: r.binomial(k, 40, 0.93, (N,)), stats.binom(40, 0.93)),
    "binomial large": (lambda k: r.binomial(k, 300, 0.2, (N,)), stats.binom(300, 0.2)),
    "binomial rare": (lambda k: r.binomial(k, 10**9, 3e-9, (N,)), stats.binom(10**9, 3e-9)),
    "multinomial": (lambda k: r.multinomial(k, 30, [0.2, 0.3, 0.5], (N,))[:, 2], stats.binom(30, 0.5)),
    "randint": (lambda k: r.randint(k, (N,), -3, 9), stats.randint(-3, 9)),
    "bernoulli": (lambda k: r.bernoulli(k, 0.3, (N,)), stats.bernoulli(0.3)),
    "rademacher": (lambda k: (r.rademacher(k, (N,)) + 1) // 2, stats.bernoulli(0.5)),
    "choice": (lambda k: r.choice(k, np.arange(5, 11), (N,)), stats.randint(5, 11)),
    "categorical": (lambda k: r.categorical(k, np.log([0.3, 0.7]), shape=(N,)), stats.bernoulli(0.7)),
    "permutation": (lambda k: r.permutation(k, np.tile(np.arange(4), (N, 1)), 1, True)[:, 2], stats.randint(0, 4)),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_draws_have_their_distribution(name: str) -> None:
    draw, law = DISCRETE[name]
    result = draw(r.key(12))
    assert result.shape == (N,) and result.dtype.kind in "ib"
    edges = np.unique(law.ppf(np.linspace(0.0, 1.0, 9)[1:-1]))
    counts = np.bincount(np.searchsorted(edges, result.astype(float)), minlength=len(edges) + 1)
    wanted = np.diff([0.0, *law.cdf(edges), 1.0]) * N
    kept = wanted > 1e-9
    assert not counts[~kept].any()
    assert stats.chisquare(counts[kept], wanted[kept]).pvalue > 0.001


@pytest.mark.parametrize(
    ("bounds", "dtype"),
    [
        ((0, 1), np.int64), ((-128, 128), np.int8), ((0, 256), np.uint8), ((-(2**63), 2**63), np.int64), ((0, 2**64), np.uint64),
        ((2**63, 2**63 + 2**62), np.uint64), ((-(2**62), 2**62 + 7), np.int64), ((np.int8(-3), np.int8(4)), np.int32),
    ],
    ids=str,
)  # fmt: skip
def test_integers_fill_their_range(bounds: Any, dtype: Any) -> None:
    low, high = map(int, bounds)
    result = r.randint(KEY, (N,), *bounds, dtype)
    assert result.dtype == dtype
    share = (result.astype(object) - low) / (high - low)
    assert share.min() >= 0 and share.max() < 1
    if high - low > N:
        assert stats.kstest(share.astype(float), "uniform").pvalue > 0.001


def test_integers_between_arrays() -> None:
    lows, highs = np.array([-3, 0, 250], np.int16), np.array([[5], [256]])
    result = r.randint(KEY, (2, 3), lows, np.maximum(highs, lows + 1), np.int64)
    for (i, j), value in np.ndenumerate(result):
        assert value == r.randint(KEY, (2, 3), int(lows[j]), int(max(highs[i, 0], lows[j] + 1)))[i, j]
    wide = r.randint(KEY, (2,), np.array([0, 2**63], np.uint64), 2**64 - 1, np.uint64)
    assert wide.dtype == np.uint64 and wide[1] >= 2**63
    assert pb.jit(lambda k, n: r.randint(k, (3,), 0, n))(KEY, 10).tolist() == r.randint(KEY, (3,), 0, 10).tolist()


def test_orders_without_replacement() -> None:
    order = r.permutation(KEY, 20)
    np.testing.assert_array_equal(np.sort(order), np.arange(20))
    a = np.arange(24.0).reshape(4, 6)
    np.testing.assert_array_equal(r.permutation(KEY, a, 1), a[:, r.permutation(KEY, 6)])
    np.testing.assert_array_equal(np.sort(r.permutation(KEY, a, 1, True), 1), a)
    np.testing.assert_array_equal(r.choice(KEY, 20, (2, 3), replace=False), order[:6].reshape(2, 3))
    p = np.array([0.0, 0.5, 0.1, 0.4, 0.0])
    assert set(r.choice(KEY, 5, (3,), replace=False, p=p)) == {1, 2, 3}
    firsts = [int(r.choice(r.fold_in(KEY, k), 5, (2,), replace=False, p=p)[0]) for k in range(300)]
    assert stats.chisquare(np.bincount(firsts, minlength=5)[1:4], 300 * p[1:4]).pvalue > 0.001
    assert r.permutation(KEY, 0).shape == (0,) and r.choice(KEY, a, (0,), axis=1).shape == (4, 0)


# gradients


def quantile_slopes(quantile: Callable[..., Any], cdf: Callable[..., Any], x: Any, parameters: list[float]) -> list[Any]:
    """The derivatives of the quantiles at the levels of x by each parameter, by central differences."""
    level = cdf(x, *parameters)
    result = []
    for k, p in enumerate(parameters):
        h = 1e-5 * max(1.0, abs(p))
        above, below = ([*parameters[:k], p + s * h, *parameters[k + 1 :]] for s in (1, -1))
        result.append((quantile(level, *above) - quantile(level, *below)) / (2 * h))
    return result


MOVED: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[float]]] = {
    "gamma small": (lambda k, a: r.gamma(k, a, (40,)), lambda a: stats.gamma(a), [0.3]),
    "gamma": (lambda k, a: r.gamma(k, a, (40,)), lambda a: stats.gamma(a), [2.5]),
    "gamma large": (lambda k, a: r.gamma(k, a, (40,)), lambda a: stats.gamma(a), [150.0]),
    "chisquare": (lambda k, a: r.chisquare(k, a, (40,)), lambda a: stats.chi2(a), [3.5]),
    "wald": (lambda k, m: r.wald(k, m, (40,)), lambda m: stats.invgauss(m), [1.3]),
    "pareto": (lambda k, a: r.pareto(k, a, (40,)), lambda a: stats.pareto(a), [1.8]),
    "truncated_normal": (lambda k, a, b: r.truncated_normal(k, a, b, (40,)), lambda a, b: stats.truncnorm(a, b), [-0.4, 1.1]),
    "truncated_normal right": (
        lambda k, a, b: r.truncated_normal(k, a, b, (40,)), lambda a, b: stats.truncnorm(a, b), [1.4, 2.1],
    ),
    "triangular": (
        lambda k, a, c, b: r.triangular(k, a, c, b, (40,)), lambda a, c, b: stats.triang((c - a) / (b - a), a, b - a),
        [-1.0, 0.2, 2.0],
    ),
    "weibull": (lambda k, s, c: r.weibull_min(k, s, c, (40,)), lambda s, c: stats.weibull_min(c, scale=s), [1.5, 0.8]),
    "lognormal": (lambda k, s: r.lognormal(k, s, (40,)), lambda s: stats.lognorm(s), [0.7]),
    "uniform": (lambda k, a, b: r.uniform(k, (40,), np.float64, a, b), lambda a, b: stats.uniform(a, b - a), [-1.0, 2.5]),
}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_draws_move_with_their_parameters_as_quantiles_do(name: str) -> None:
    draw, law, parameters = MOVED[name]
    x = draw(KEY, *parameters)
    weights = np.random.default_rng(0).uniform(0.3, 1.5, 40)
    result = pb.grad(lambda *p: np.sum(weights * draw(KEY, *p)), argnums=tuple(range(len(parameters))))(*parameters)
    slopes = quantile_slopes(lambda q, *p: law(*p).ppf(q), lambda y, *p: law(*p).cdf(y), x, parameters)
    for a, slope in zip(result, slopes, strict=True):
        np.testing.assert_allclose(a, weights @ slope, rtol=2e-5)


SECOND: dict[str, tuple[Callable[..., Any], list[float]]] = {
    "gamma": (lambda a: np.sum(np.sin(r.gamma(KEY, a, (9,)))), [1.7]),
    "wald": (lambda m: np.sum(np.sin(r.wald(KEY, m, (9,)))), [1.7]),
    "beta": (lambda a, b: np.sum(np.sin(3.0 * r.beta(KEY, a, b, (9,)))), [0.8, 1.7]),
    "t": (lambda a: np.sum(np.sin(r.t(KEY, a, (9,)))), [2.5]),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_are_those_of_the_first(name: str) -> None:
    """Along the path of the first derivatives: the draws at a parameter near by are found by following their quantiles."""
    loss, parameters = SECOND[name]
    second = pb.grad(pb.grad(loss))(*parameters)
    assert np.isfinite(second)
    if name not in ("gamma", "wald"):
        return
    law = {"gamma": stats.gamma, "wald": stats.invgauss}[name]
    draw = {"gamma": r.gamma, "wald": r.wald}[name]
    (p,) = parameters
    level, h = law(p).cdf(draw(KEY, p, (9,))), 1e-3
    losses = [np.sum(np.sin(law(p + s * h).ppf(level))) for s in (-2, -1, 0, 1, 2)]
    np.testing.assert_allclose(second, np.dot([-1, 16, -30, 16, -1], losses) / (12 * h * h), rtol=1e-5)


def test_gradients_of_means_are_means_of_gradients() -> None:
    count = 20_000
    result = pb.grad(lambda a, b: np.mean(r.beta(KEY, a, b, (count,))), argnums=(0, 1))(1.5, 0.6)
    np.testing.assert_allclose(result, (0.6 / 2.1**2, -1.5 / 2.1**2), rtol=0.03)
    alpha = np.array([0.4, 1.0, 2.0])
    result = pb.grad(lambda a: np.mean(r.dirichlet(KEY, a, (count,))[:, 0]))(alpha)
    np.testing.assert_allclose(result, [3.0 / 3.4**2, -0.4 / 3.4**2, -0.4 / 3.4**2], rtol=0.08)


def test_gradients_of_tiny_gammas_are_finite() -> None:
    gradient = pb.grad(lambda a: np.sum(r.gamma(KEY, a, (50,))))(1e-3)
    assert np.isfinite(gradient)
    assert np.isfinite(pb.grad(lambda a: np.sum(r.loggamma(KEY, a, (50,))))(1e-3))


# what is refused

REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: r.key(-1), ValueError, "key must be positive"),
    (lambda: r.key(2**128), ValueError, "key must be positive"),
    (lambda: r.key(1.5), TypeError, "integer"),
    (lambda: r.normal(3), TypeError, "pb.random.key"),
    (lambda: r.normal(np.arange(2)), TypeError, "pb.random.key"),
    (lambda: r.split(r.split(KEY)), TypeError, "pb.random.key"),
    (lambda: r.normal(KEY, (-1,)), ValueError, "negative"),
    (lambda: r.normal(KEY, (2,), np.int64), TypeError, "float64"),
    (lambda: r.bits(KEY, (2,), np.int64), TypeError, "unsigned"),
    (lambda: r.gamma(KEY, np.ones(3), (2,)), ValueError, "broadcast"),
    (lambda: r.randint(KEY, (2,), 3, 3), ValueError, "low >= high"),
    (lambda: r.randint(KEY, (2,), np.array([0, 5]), 3), ValueError, "low >= high"),
    (lambda: r.randint(KEY, (2,), 0, 300, np.uint8), ValueError, "high is out of bounds"),
    (lambda: r.randint(KEY, (2,), 0, np.array([3, 300]), np.uint8), ValueError, "high is out of bounds"),
    (lambda: r.randint(KEY, (2,), 0.5, 3), TypeError, "integer"),
    (lambda: r.poisson(KEY, -1.0), ValueError, "lam < 0"),
    (lambda: r.binomial(KEY, 3, 1.5), ValueError, "p < 0, p > 1"),
    (lambda: r.geometric(KEY, 0.0), ValueError, "p <= 0"),
    (lambda: r.choice(KEY, 3, (5,), replace=False), ValueError, "larger sample"),
    (lambda: r.choice(KEY, 3, (2,), p=[0.5, 0.5]), ValueError, "same size"),
    (lambda: r.choice(KEY, 3, (3,), replace=False, p=[0.0, 0.5, 0.5]), ValueError, "Fewer non-zero"),
    (lambda: r.multivariate_normal(KEY, np.zeros(2), -np.eye(2)), np.linalg.LinAlgError, "positive definite"),
    (lambda: pb.jit(lambda s: r.bits(r.key(s)))(-3), ValueError, "key must be positive"),
]


@pytest.mark.parametrize("k", range(len(REFUSED)))
def test_what_is_refused(k: int) -> None:
    call, kind, text = REFUSED[k]
    with pytest.raises(kind, match=text):
        call()


def test_negative_shapes_of_gamma_give_nan() -> None:
    assert np.isnan(r.gamma(KEY, -1.0)) and r.gamma(KEY, 0.0) == 0.0
