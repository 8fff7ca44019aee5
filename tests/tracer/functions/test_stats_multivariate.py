"""Distributions of scipy.stats for vectors: values, gradients and errors."""

from typing import Any

import numpy as np
import pytest
import scipy.stats

import pullback as pb
from tests.support.agreement import agrees, gradients_agree

normal, dirichlet, multinomial = scipy.stats.multivariate_normal, scipy.stats.dirichlet, scipy.stats.multinomial
RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(3, 3)) + 2 * np.eye(3)
COV = ROOT @ ROOT.T
MEAN = np.array([0.1, 0.2, -0.3])
X = RNG.normal(size=(5, 3))
ALPHA = np.array([1.0, 2.0, 3.0])
SHARES = np.array([0.2, 0.3, 0.5])
FROZEN = normal(MEAN, COV)
FROZEN_ALPHA = dirichlet(ALPHA)


def test_normal() -> None:
    agrees(lambda x, m, c: normal.logpdf(x, m, c), X, MEAN, COV, rtol=1e-12)
    agrees(lambda x, m, c: normal(m, c).pdf(x), X, MEAN, COV, rtol=1e-12)
    agrees(lambda x, m, c: normal(mean=m, cov=c).logpdf(x), X[0], MEAN, COV, rtol=1e-12)
    agrees(lambda x: (normal.logpdf(x, cov=COV), FROZEN.logpdf(x), FROZEN.entropy()), X, rtol=1e-12)
    agrees(lambda x, v: (normal.logpdf(x, 0.3, v), normal.logpdf(x[0], 0.0, v)), X[:, 0], 1.3, rtol=1e-12)
    agrees(lambda x, v: normal.logpdf(x, MEAN, v), X, 1.3, rtol=1e-12)
    agrees(lambda x, v: normal.logpdf(x, MEAN, v), X.reshape(5, 1, 3), np.array([1.0, 2.0, 3.0]), rtol=1e-12)
    agrees(lambda c: normal(cov=c).entropy(), COV, rtol=1e-12)
    gradients_agree(lambda x, m: normal.logpdf(x, m, COV), X, MEAN)
    gradients_agree(lambda r: normal.logpdf(X, MEAN, r @ r.T), ROOT)
    gradients_agree(lambda v: normal.logpdf(X, MEAN, v), np.array([1.0, 2.0, 3.0]))


def test_dirichlet() -> None:
    def several(x: Any, a: Any) -> Any:
        return [dirichlet.logpdf(x, a), dirichlet.pdf(x, a), dirichlet.mean(a), dirichlet.var(a), dirichlet.entropy(a)]

    agrees(several, SHARES, ALPHA, rtol=1e-12)
    agrees(lambda x, a: (dirichlet(a).logpdf(x), FROZEN_ALPHA.logpdf(x)), SHARES, ALPHA, rtol=1e-12)
    agrees(lambda x, a: dirichlet.logpdf(x, a), np.array([[0.2, 0.1], [0.3, 0.6]]), ALPHA, rtol=1e-11)
    gradients_agree(lambda a: dirichlet.logpdf(SHARES, a), ALPHA)
    for bad in (SHARES * 1.1, -SHARES):
        with pytest.raises(ValueError, match="must"):
            pb.jit(lambda x: dirichlet.logpdf(x, ALPHA))(bad)


def test_multinomial() -> None:
    agrees(
        lambda p: [multinomial.logpmf([1, 2, 3], 6, p), multinomial.pmf([[1, 2, 3], [1, 1, 1]], [6, 3], p)], SHARES, rtol=1e-12
    )
    agrees(lambda p: multinomial(6, p).logpmf([1, 2, 4]), SHARES)
    agrees(lambda p: multinomial.logpmf([1, 2, 3], 6, p), np.array([-0.1, 0.6, 0.5]))
    gradients_agree(lambda p: multinomial.logpmf([1, 2, 3], 6, p / p.sum()), SHARES)


def test_errors() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        pb.jit(lambda c: normal.logpdf(X, MEAN, c))(-COV)
    for call in (lambda c: normal.logpdf(X, MEAN[:2], c), lambda c: normal.logpdf(X, np.ones((3, 1)), c)):
        with pytest.raises(ValueError):
            call(COV)
        with pytest.raises(ValueError):
            pb.jit(call)(COV)
    refused: list[tuple[Any, str]] = [
        (lambda x: normal.rvs(x), "random draw"),
        (lambda x: normal.cdf(x), r"scipy.stats.multivariate_normal.cdf of traced values is not supported"),
        (lambda x: scipy.stats.wishart.logpdf(np.diag(x), 3, np.eye(3)), r"scipy.stats.wishart.logpdf of traced"),
    ]
    for call, words in refused:
        with pytest.raises(pb.TraceError, match=words):
            pb.jit(call)(MEAN)
