"""Random numbers that depend only on a key, inside transformed functions and outside.

Every function takes a key first and returns the same numbers for the same key. Bits are those of ``numpy.random.Philox``:
``pb.random.uniform(pb.random.key(3), 5)`` is ``np.random.Generator(np.random.Philox(key=3)).random(5)``. Each element of the
result depends only on the key and its position. Draws have gradients by their parameters.
"""

from pullback.random.bits import bits, uniform
from pullback.random.choice import bernoulli, categorical, choice, integers, permutation, rademacher, randint
from pullback.random.continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    gumbel,
    laplace,
    logistic,
    lognormal,
    maxwell,
    normal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from pullback.random.discrete import binomial, geometric, multinomial, poisson
from pullback.random.gamma import beta, chisquare, dirichlet, f, gamma, generalized_normal, loggamma, t
from pullback.random.key import clone, fold_in, key, key_data, key_impl, split, wrap_key_data
from pullback.random.multivariate import ball, multivariate_normal, orthogonal

__all__ = [
    "ball", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "chisquare", "choice", "clone", "dirichlet",
    "double_sided_maxwell", "exponential", "f", "fold_in", "gamma", "generalized_normal", "geometric", "gumbel", "integers",
    "key", "key_data", "key_impl", "laplace", "loggamma", "logistic", "lognormal", "maxwell", "multinomial",
    "multivariate_normal", "normal", "orthogonal", "pareto", "permutation", "poisson", "rademacher", "randint", "rayleigh",
    "split", "t", "triangular", "truncated_normal", "uniform", "wald", "weibull_min", "wrap_key_data",
]  # fmt: skip
