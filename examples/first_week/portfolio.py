"""Mean-variance portfolios with a shrunk covariance, transaction costs and SLSQP's constraints."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


class Portfolio:
    def __init__(self, returns, risk_aversion=5.0, cost=5e-3):
        self.returns = returns
        self.risk_aversion = risk_aversion
        self.cost = cost
        self.mean = 252 * returns.mean(axis=0)
        sample = 252 * np.cov(returns, rowvar=False)
        self.cov = 0.8 * sample + 0.2 * np.trace(sample) / len(sample) * np.eye(len(sample))
        self.held = np.full(len(self.mean), 1 / len(self.mean))

    def utility(self, w):
        risk = np.einsum("i,ij,j->", w, self.cov, w)
        trades = np.sqrt((w - self.held) ** 2 + 1e-8)
        return w @ self.mean - 0.5 * self.risk_aversion * risk - self.cost * trades.sum()

    def objective(self, z):
        return -self.utility(z[:-1])

    def shortfall(self, z, alpha=0.1):
        """Mean loss of the worst days, as Rockafellar and Uryasev put it; z ends with the value at risk."""
        *w, var = z
        losses = -self.returns @ np.array(w)
        return var + np.maximum(losses - var, 0).mean() / alpha


def market(days=500, assets=6, seed=5):
    rng = np.random.default_rng(seed)
    factor = rng.normal(0, 0.01, (days, 1))
    return rng.uniform(0, 8e-4, assets) + factor * rng.uniform(0.3, 1.5, assets) + rng.normal(0, 0.008, (days, assets))


def main():
    portfolio = Portfolio(market())
    objective = pb.value_and_grad(portfolio.objective)
    shortfall, d_shortfall = pb.jit(portfolio.shortfall), pb.grad(portfolio.shortfall)
    constraints = [
        {"type": "eq", "fun": lambda z: z[:-1].sum() - 1, "jac": lambda z: np.append(np.ones(6), 0.0)},
        {"type": "ineq", "fun": lambda z: 0.018 - shortfall(z), "jac": lambda z: -d_shortfall(z)},
    ]
    start = np.append(portfolio.held, 0.01)
    bounds = [(0, 1)] * 6 + [(None, None)]
    for portfolio.risk_aversion in 2.0, 10.0, 50.0:
        fit = minimize(objective, start, jac=True, bounds=bounds, constraints=constraints, method="SLSQP")
        print(f"aversion {portfolio.risk_aversion:4.0f}: {np.round(fit.x[:-1], 3)}  shortfall {shortfall(fit.x):.4f}")


if __name__ == "__main__":
    main()
