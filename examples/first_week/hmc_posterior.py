"""A log-posterior written with scipy.stats, sampled by Hamiltonian Monte Carlo."""

import numpy as np
from scipy import stats

import pullback as pb


def log_posterior(theta, x, y):
    """A straight line with outliers: Student t noise, weak priors; the scale is sampled by its logarithm."""
    intercept, slope, log_scale = theta
    scale = np.exp(log_scale)
    lp = stats.norm.logpdf(intercept, loc=0, scale=10)
    lp += stats.norm.logpdf(slope, loc=0, scale=5)
    lp += stats.halfnorm.logpdf(scale, scale=2) + log_scale
    lp += np.sum(stats.t.logpdf(y, df=4, loc=intercept + slope * x, scale=scale))
    return lp


def hmc(logp_and_grad, theta, steps=400, leaps=12, eps=0.03, seed=0):
    rng = np.random.default_rng(seed)
    samples, accepted = [], 0
    logp, g = logp_and_grad(theta)
    for _ in range(steps):
        p = rng.normal(size=theta.shape)
        q, lq, gq, k0 = theta, logp, g, 0.5 * p @ p
        for _ in range(leaps):
            p = p + 0.5 * eps * gq
            q = q + eps * p
            lq, gq = logp_and_grad(q)
            p = p + 0.5 * eps * gq
        if np.log(rng.uniform()) < lq - logp - 0.5 * p @ p + k0:
            theta, logp, g = q, lq, gq
            accepted += 1
        samples.append(theta)
    return np.array(samples), accepted / steps


def line(n=60, seed=3):
    rng = np.random.default_rng(seed)
    x = np.linspace(-2, 2, n)
    return x, 1.0 + 2.5 * x + 0.3 * rng.standard_t(4, n)


def main():
    x, y = line()
    target = pb.value_and_grad(log_posterior)
    samples, rate = hmc(lambda theta: target(theta, x, y), np.array([0.0, 0.0, 0.0]))
    kept = samples[100:]
    print(f"accepted {rate:.0%} of {len(samples)}")
    for name, column in zip(["intercept", "slope", "log scale"], kept.T):
        low, mid, high = np.percentile(column, [5, 50, 95])
        print(f"{name:10s} {mid:6.3f}   90% in [{low:.3f}, {high:.3f}]")


if __name__ == "__main__":
    main()
