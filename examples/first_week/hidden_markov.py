"""A hidden Markov model of a market's two moods: the forward algorithm in logarithms."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm

import pullback as pb


def log_likelihood(logits, means, log_sds, y):
    k = len(means)
    log_A = logits - logsumexp(logits, axis=1, keepdims=True)
    log_emit = norm.logpdf(y[:, None], means, np.exp(log_sds))
    alpha = log_emit[0] - np.log(k)
    for t in range(1, len(y)):
        alpha = logsumexp(alpha[:, None] + log_A, axis=0) + log_emit[t]
    return logsumexp(alpha)


def loss(theta, y, k=2):
    logits, means, log_sds = theta[: k * k].reshape(k, k), theta[k * k : k * k + k], theta[k * k + k :]
    return -log_likelihood(logits, means, log_sds, y) / y.size


def returns(n=120, seed=2):
    rng = np.random.default_rng(seed)
    A = np.array([[0.97, 0.03], [0.08, 0.92]])
    state, y = 0, np.empty(n)
    for t in range(n):
        y[t] = rng.normal([0.1, -0.2][state], [0.5, 1.6][state])
        state = rng.choice(2, p=A[state])
    return y


def main():
    y = returns()
    start = np.array([2.0, 0.0, 0.0, 2.0, 0.2, -0.2, -0.5, 0.5])
    fit = minimize(pb.value_and_grad(loss), start, args=(y,), jac=True, method="BFGS")
    A = np.exp(fit.x[:4].reshape(2, 2))
    A /= A.sum(axis=1, keepdims=True)
    print(f"log-likelihood {-fit.fun * len(y):.3f}, {fit.nfev} evaluations")
    for i, mood in enumerate(["calm", "wild"]):
        print(f"{mood}: mean {fit.x[4 + i]:6.3f}, sd {np.exp(fit.x[6 + i]):.3f}, stays with {A[i, i]:.3f}")


if __name__ == "__main__":
    main()
