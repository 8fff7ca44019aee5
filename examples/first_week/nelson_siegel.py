"""A Nelson-Siegel-Svensson yield curve fitted to bond prices; parameters in a named tuple."""

from collections import namedtuple

import numpy as np
from scipy.optimize import minimize

import pullback as pb

Curve = namedtuple("Curve", "b0 b1 b2 b3 tau1 tau2")
Bond = namedtuple("Bond", "coupon maturity")

BONDS = [Bond(0.02, 1), Bond(0.0225, 2), Bond(0.025, 3), Bond(0.0275, 5), Bond(0.03, 7), Bond(0.0325, 10), Bond(0.035, 20)]


def zero_rate(c, t):
    x1, x2 = t / c.tau1, t / c.tau2
    f1 = -np.expm1(-x1) / x1
    f2 = -np.expm1(-x2) / x2
    return c.b0 + c.b1 * f1 + c.b2 * (f1 - np.exp(-x1)) + c.b3 * (f2 - np.exp(-x2))


def price(bond, curve):
    t = np.arange(1, bond.maturity + 1)
    flows = np.full(bond.maturity, 100 * bond.coupon)
    flows[-1] += 100
    return flows @ np.exp(-zero_rate(curve, t) * t)


def loss(p, quotes):
    curve = Curve(*p)
    model = np.array([price(b, curve) for b in BONDS])
    return np.sum((model - quotes) ** 2) + 1e-4 * np.sum(np.square(p[:4]))


def quotes(seed=0):
    truth = Curve(0.035, -0.02, 0.01, 0.015, 1.5, 8.0)
    rng = np.random.default_rng(seed)
    return np.array([price(b, truth) for b in BONDS]) + 0.02 * rng.normal(size=len(BONDS))


def main():
    q = quotes()
    start = np.array([0.03, 0.0, 0.0, 0.0, 2.0, 6.0])
    bounds = [(-0.2, 0.2)] * 4 + [(0.1, 10.0), (0.5, 30.0)]
    fit = minimize(pb.value_and_grad(loss), start, args=(q,), jac=True, bounds=bounds, method="L-BFGS-B")
    curve = Curve(*fit.x)
    print("  ".join(f"{name}={value:.4f}" for name, value in curve._asdict().items()))
    for bond, market in zip(BONDS, q):
        print(
            f"{bond.maturity:3d}y at {market:7.3f}: model {price(bond, curve):7.3f}, zero {zero_rate(curve, bond.maturity):.3%}"
        )


if __name__ == "__main__":
    main()
