"""Three overlapping Gaussian peaks on a sloping background, fitted to counts."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def gaussian(x, height, centre, width):
    return height * np.exp(-0.5 * ((x - centre) / width) ** 2)


def spectrum(p, x):
    level, slope, *peaks = p
    y = level + slope * x
    for k in range(0, len(peaks), 3):
        y = y + gaussian(x, *peaks[k : k + 3])
    return y


def chi2(p, x, y, sigma):
    r = (spectrum(p, x) - y) / sigma
    return 0.5 * np.sum(r * r)


def measured(seed=1):
    rng = np.random.default_rng(seed)
    x = np.linspace(0, 10, 300)
    truth = np.array([20.0, -0.8, 90.0, 2.5, 0.35, 60.0, 4.1, 0.5, 120.0, 7.2, 0.4])
    y = rng.poisson(spectrum(truth, x)).astype(float)
    return x, y, np.sqrt(np.maximum(y, 1)), truth


def main():
    x, y, sigma, truth = measured()
    start = np.array([15, 0, 80, 2.4, 0.5, 80, 4.3, 0.5, 80, 7.0, 0.5], dtype=float)
    bounds = [(0, None), (None, None)] + 3 * [(0, None), (0, 10), (0.05, 2)]
    fit = minimize(pb.value_and_grad(chi2), start, args=(x, y, sigma), jac=True, bounds=bounds, method="L-BFGS-B")
    print(f"reduced chi2 {2 * fit.fun / (len(x) - len(start)):.3f} after {fit.nfev} evaluations")
    for k in range(3):
        height, centre, width = fit.x[2 + 3 * k : 5 + 3 * k]
        area = height * width * np.sqrt(2 * np.pi)
        print(f"peak at {centre:6.3f} (true {truth[3 + 3 * k]:.3f})  width {width:.3f}  area {area:7.2f}")


if __name__ == "__main__":
    main()
