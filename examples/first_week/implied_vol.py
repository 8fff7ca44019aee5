"""Implied volatilities by Newton's method, in scalar code with the math module."""

import math
from functools import partial

import pullback as pb


def cdf(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def call(sigma, S, K, T, r):
    total = sigma * math.sqrt(T)
    d1 = (math.log(S / K) + r * T) / total + total / 2
    return S * cdf(d1) - K * math.exp(-r * T) * cdf(d1 - total)


def implied(price_and_vega, target, guess=0.3, tol=1e-10, maxiter=50):
    sigma = guess
    for i in range(maxiter):
        price, vega = price_and_vega(sigma)
        if abs(price - target) < tol:
            return sigma, i
        sigma = max(sigma - (price - target) / vega, 1e-4)
    raise RuntimeError(f"no convergence for {target}")


def main():
    S, T, r = 100.0, 0.75, 0.015
    price_and_vega = pb.value_and_grad(call)
    print("strike   price    implied  steps")
    for K in range(70, 140, 10):
        smile = 0.2 + 0.3 * math.log(K / S) ** 2
        market = call(smile, S, K, T, r)
        sigma, steps = implied(partial(price_and_vega, S=S, K=float(K), T=T, r=r), market)
        assert abs(sigma - smile) < 1e-6
        print(f"{K:6d} {market:8.4f} {sigma:8.4%} {steps:6d}")


if __name__ == "__main__":
    main()
