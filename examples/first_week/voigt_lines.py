"""Absorption lines of a star: pseudo-Voigt profiles, a continuum by polynomial, robust residuals."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def pseudo_voigt(x, sigma, gamma):
    """A Lorentzian and a Gaussian mixed as Thompson, Cox and Hastings (1987) have it."""
    fg, fl = 2 * sigma * np.sqrt(2 * np.log(2)), 2 * gamma
    f = (fg**5 + 2.69269 * fg**4 * fl + 2.42843 * fg**3 * fl**2 + 4.47163 * fg**2 * fl**3 + 0.07842 * fg * fl**4 + fl**5) ** 0.2
    eta = 1.36603 * (fl / f) - 0.47719 * (fl / f) ** 2 + 0.11116 * (fl / f) ** 3
    lorentz = f / (2 * np.pi) / (x**2 + f**2 / 4)
    gauss = np.exp(-4 * np.log(2) * x**2 / f**2) * 2 / f * np.sqrt(np.log(2) / np.pi)
    return eta * lorentz + (1 - eta) * gauss


def flux(params, wavelength):
    x = wavelength - wavelength.mean()
    continuum = sum(c * x**k for k, c in enumerate(params["continuum"]))
    depth = sum(
        area * pseudo_voigt(wavelength - centre, params["sigma"], params["gamma"])
        for area, centre in zip(params["areas"], params["centres"])
    )
    return continuum * np.exp(-depth)


def huber(r, delta=1.5):
    return np.where(np.abs(r) <= delta, 0.5 * r**2, delta * (np.abs(r) - 0.5 * delta))


def loss(params, wavelength, measured, sigma):
    return huber((flux(params, wavelength) - measured) / sigma).sum()


def observation(seed=0):
    rng = np.random.default_rng(seed)
    wavelength = np.linspace(656.0, 657.2, 200)
    truth = {
        "continuum": np.array([1.0, 0.05]),
        "areas": np.array([0.06, 0.03]),
        "centres": np.array([656.45, 656.8]),
        "sigma": 0.03,
        "gamma": 0.015,
    }
    y = flux(truth, wavelength) + 0.01 * rng.normal(size=200)
    y[rng.choice(200, 5)] += 0.3
    return wavelength, y, truth


def main():
    wavelength, y, truth = observation()
    start = {k: np.multiply(v, 1.05) if k not in ("centres", "continuum") else v + 0.01 for k, v in truth.items()}
    x0, unravel = pb.tree.ravel(start)
    objective = pb.value_and_grad(lambda x: loss(unravel(x), wavelength, y, 0.01))
    fit = minimize(objective, x0, jac=True, method="L-BFGS-B")
    for name, value in unravel(fit.x).items():
        print(f"{name:10s} {np.round(value, 4)}  (true {truth[name]})")
    print(f"loss {fit.fun:.2f} after {fit.nfev} evaluations")


if __name__ == "__main__":
    main()
