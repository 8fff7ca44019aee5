"""A psychometric function: threshold and slope from counts of right answers, with guesses and lapses."""

import numpy as np
from scipy import stats
from scipy.optimize import minimize

import pullback as pb


def p_correct(level, threshold, slope, lapse, guess=0.5):
    return guess + (1 - guess - lapse) * stats.norm.cdf(slope * (level - threshold))


def negative_log_posterior(theta, level, right, trials):
    threshold, log_slope, lapse = theta
    p = p_correct(level, threshold, np.exp(log_slope), lapse)
    log_likelihood = stats.binom.logpmf(right, trials, p).sum()
    return -log_likelihood - stats.beta.logpdf(lapse, 2, 30) - stats.norm.logpdf(log_slope, 1, 1)


def subject(seed=6):
    rng = np.random.default_rng(seed)
    level = np.linspace(-2, 2, 9)
    trials = np.full(9, 60)
    return level, rng.binomial(trials, p_correct(level, 0.3, 2.2, 0.03)), trials


def main():
    level, right, trials = subject()
    fit = minimize(
        pb.value_and_grad(negative_log_posterior),
        np.array([0.0, 0.5, 0.05]),
        args=(level, right, trials),
        jac=True,
        bounds=[(-2, 2), (-3, 3), (1e-3, 0.3)],
    )
    threshold, slope, lapse = fit.x[0], np.exp(fit.x[1]), fit.x[2]
    print(f"threshold {threshold:.3f} (true 0.3)  slope {slope:.3f} (true 2.2)  lapse {lapse:.3f} (true 0.03)")
    for x, k, n in zip(level, right, trials):
        print(f"{x:5.1f}  {k:2d}/{n}  fitted {p_correct(x, threshold, slope, lapse):.3f}")


if __name__ == "__main__":
    main()
