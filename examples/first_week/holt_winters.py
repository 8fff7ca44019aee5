"""Triple exponential smoothing: a forecaster class with its state in attributes and lists."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import pullback as pb


class HoltWinters:
    def __init__(self, period=12, damping=0.98):
        self.period = period
        self.damping = damping

    def errors(self, theta, y):
        alpha, beta, gamma = expit(theta)
        m = self.period
        level = np.mean(y[:m])
        trend = (np.mean(y[m : 2 * m]) - np.mean(y[:m])) / m
        season = [y[i] - level for i in range(m)]
        errors = []
        for t in range(m, len(y)):
            s = season[t % m]
            forecast = level + self.damping * trend + s
            errors.append(y[t] - forecast)
            new_level = alpha * (y[t] - s) + (1 - alpha) * (level + self.damping * trend)
            trend = beta * (new_level - level) + (1 - beta) * self.damping * trend
            season[t % m] = gamma * (y[t] - new_level) + (1 - gamma) * s
            level = new_level
        return np.array(errors)

    def sse(self, theta, y):
        return sum(e**2 for e in self.errors(theta, y))


def passengers(years=5, seed=0):
    rng = np.random.default_rng(seed)
    t = np.arange(12 * years)
    return 100 + 1.2 * t + 15 * np.sin(2 * np.pi * t / 12) + 6 * np.cos(4 * np.pi * t / 12) + 3 * rng.normal(size=len(t))


def main():
    y = passengers()
    for damping in 1.0, 0.95:
        model = HoltWinters(damping=damping)
        fit = minimize(pb.value_and_grad(model.sse), np.array([-1.0, -2.0, -1.0]), args=(y,), jac=True, method="BFGS")
        rmse = np.sqrt(fit.fun / (len(y) - model.period))
        print(f"damping {damping:.2f}: alpha, beta, gamma = {expit(fit.x).round(3)}, one-step rmse {rmse:.3f}")


if __name__ == "__main__":
    main()
