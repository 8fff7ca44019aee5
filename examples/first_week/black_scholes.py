"""A pricer class: Black-Scholes with dividends, whose market data are attributes, and its Greeks."""

import numpy as np
from scipy.stats import norm

import pullback as pb


class BlackScholes:
    def __init__(self, r, q=0.0):
        self.r = r
        self.q = q

    def d1(self, S, K, sigma, T):
        return (np.log(S / K) + (self.r - self.q + sigma**2 / 2) * T) / (sigma * np.sqrt(T))

    def price(self, S, K, sigma, T, kind="call"):
        d1 = self.d1(S, K, sigma, T)
        d2 = d1 - sigma * np.sqrt(T)
        S, K = S * np.exp(-self.q * T), K * np.exp(-self.r * T)
        if kind == "call":
            return S * norm.cdf(d1) - K * norm.cdf(d2)
        elif kind == "put":
            return K * norm.cdf(-d2) - S * norm.cdf(-d1)
        raise ValueError(f"unknown option kind {kind!r}")

    def book_value(self, S, strikes, sigma, T, quantities, kind="call"):
        return np.sum(quantities * self.price(S, strikes, sigma, T, kind))


def main():
    model = BlackScholes(r=0.03)
    delta = pb.grad(model.price)
    vega = pb.grad(model.price, argnums=2)
    gamma = pb.grad(pb.grad(model.price))
    for kind in "call", "put":
        args = (100.0, 105.0, 0.2, 0.5)
        print(f"{kind:4s} price {model.price(*args, kind):7.4f}  delta {delta(*args, kind=kind):7.4f}", end="  ")
        print(f"gamma {gamma(*args, kind=kind):.4f}  vega {vega(*args, kind=kind):.3f}")

    strikes = np.arange(80.0, 121.0, 10.0)
    quantities = np.array([10, -20, 15, -20, 10])
    book = pb.value_and_grad(model.book_value, argnums=(0, 2))
    for r in 0.0, 0.03, 0.06:
        model.r = r
        value, (d, v) = book(100.0, strikes, 0.2, 0.5, quantities)
        print(f"r={r:.2f}: the book is worth {value:8.4f}, delta {d:8.4f}, vega {v:9.4f}")


if __name__ == "__main__":
    main()
