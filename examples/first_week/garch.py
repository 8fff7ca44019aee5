"""GARCH(1,1) by maximum likelihood: a recursion over the days, written as one writes it in Python."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def conditional_variance(returns, omega, alpha, beta):
    h = np.zeros(len(returns))
    h[0] = returns.var()
    for t in range(1, len(returns)):
        h[t] = omega + alpha * returns[t - 1] ** 2 + beta * h[t - 1]
    return h


def negative_log_likelihood(params, returns):
    omega, alpha, beta = params
    h = conditional_variance(returns, omega, alpha, beta)
    return 0.5 * np.sum(np.log(2 * np.pi * h) + returns**2 / h)


def simulate(n=250, omega=0.05, alpha=0.12, beta=0.8, seed=11):
    rng = np.random.default_rng(seed)
    r = np.zeros(n)
    h = omega / (1 - alpha - beta)
    for t in range(n):
        r[t] = np.sqrt(h) * rng.normal()
        h = omega + alpha * r[t] ** 2 + beta * h
    return r


def main():
    returns = simulate()
    fit = minimize(
        pb.value_and_grad(negative_log_likelihood),
        x0=[0.1, 0.1, 0.7],
        args=(returns,),
        jac=True,
        bounds=[(1e-6, None), (0, 1), (0, 0.999)],
        method="L-BFGS-B",
    )
    omega, alpha, beta = fit.x
    print(f"omega {omega:.3f}  alpha {alpha:.3f}  beta {beta:.3f}  (true 0.050 0.120 0.800)")
    print(f"log-likelihood {-fit.fun:.2f}, long-run volatility {np.sqrt(omega / (1 - alpha - beta)):.3f}")


if __name__ == "__main__":
    main()
