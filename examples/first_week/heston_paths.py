"""A call under Heston's stochastic volatility, by Monte Carlo on fixed normals, with its Greeks."""

from dataclasses import dataclass

import numpy as np

import pullback as pb


@dataclass
class Heston:
    spot: float = 100.0
    variance: float = 0.04
    kappa: float = 1.5
    theta: float = 0.05
    xi: float = 0.4
    rho: float = -0.6
    rate: float = 0.02


def simulate(model, z1, z2, T):
    """Terminal prices; full truncation of the variance. z1, z2: normals of shape (steps, paths)."""
    steps = len(z1)
    dt = T / steps
    log_s = np.full(z1.shape[1], np.log(model.spot))
    v = np.full(z1.shape[1], model.variance)
    for dw1, e in zip(z1, z2):
        dw2 = model.rho * dw1 + np.sqrt(1 - model.rho**2) * e
        vp = np.maximum(v, 0)
        log_s += (model.rate - 0.5 * vp) * dt + np.sqrt(vp * dt) * dw1
        v += model.kappa * (model.theta - vp) * dt + model.xi * np.sqrt(vp * dt) * dw2
    return np.exp(log_s)


def call_price(model, strike, z1, z2, T=1.0):
    payoff = np.maximum(simulate(model, z1, z2, T) - strike, 0)
    return np.exp(-model.rate * T) * payoff.mean()


def main():
    rng = np.random.default_rng(7)
    z1, z2 = rng.standard_normal((2, 50, 20_000))
    greeks = pb.value_and_grad(call_price)
    for strike in [90.0, 100.0, 110.0]:
        price, g = greeks(Heston(), strike, z1, z2)
        print(f"K={strike:5.1f}  price {price:6.3f}  delta {g.spot:.3f}  dV/dv0 {g.variance:6.2f}  ", end="")
        print(f"d/drho {g.rho:6.3f}  rho {g.rate:6.2f}")


if __name__ == "__main__":
    main()
