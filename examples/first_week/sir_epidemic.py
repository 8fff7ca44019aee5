"""An epidemic: an SEIR model fitted to daily cases, with a lockdown that starts on a given day."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

import pullback as pb

POPULATION = 1e6


def daily_cases(params, days, lockdown=30):
    S, E, I, R = POPULATION - params["seed"], 0.0, params["seed"], 0.0
    cases = []
    for day in range(days):
        beta = params["beta"] if day < lockdown else params["beta"] * params["effect"]
        infected = beta * S * I / POPULATION
        onset = E / params["latent"]
        recovered = I / params["infectious"]
        S, E, I, R = S - infected, E + infected - onset, I + onset - recovered, R + recovered
        cases.append(onset)
    assert len(cases) == days
    return np.array(cases)


def negative_binomial_nll(theta, observed, lockdown=30, dispersion=20.0):
    names = ["beta", "effect", "seed", "latent", "infectious"]
    params = {k: np.exp(v) for k, v in zip(names, theta)}
    mu = np.maximum(daily_cases(params, len(observed), lockdown), 1e-8)
    k = dispersion
    ll = gammaln(observed + k) - gammaln(k) - gammaln(observed + 1)
    ll = ll + k * np.log(k / (k + mu)) + observed * np.log(mu / (k + mu))
    prior = 0.5 * ((theta[3] - np.log(4)) ** 2 + (theta[4] - np.log(6)) ** 2) / 0.05**2
    return -ll.sum() + prior


def reported(days=70, seed=0):
    rng = np.random.default_rng(seed)
    mu = daily_cases({"beta": 0.6, "effect": 0.25, "seed": 40.0, "latent": 4.0, "infectious": 6.0}, days)
    return rng.poisson(mu * rng.gamma(20, 1 / 20, days))


def main():
    cases = reported()
    start = np.log([0.5, 0.5, 20.0, 4.0, 6.0])
    fit = minimize(pb.value_and_grad(negative_binomial_nll), start, args=(cases,), jac=True, method="BFGS")
    beta, effect, seed, latent, infectious = np.exp(fit.x)
    print(f"R0 {beta * infectious:.2f} (true 3.60), under lockdown {effect * beta * infectious:.2f} (true 0.90)")
    print(f"first infected {seed:.1f}, latent {latent:.2f} d, infectious {infectious:.2f} d, nll {fit.fun:.3f}")


if __name__ == "__main__":
    main()
