"""An asteroid's orbit from angles on the sky: Kepler's equation by Newton steps inside the model."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb

K = 0.01720209895
DAY = np.linspace(0, 400, 41)


def kepler(M, e, iterations=8):
    E = M + e * np.sin(M)
    for _ in range(iterations):
        E = E - (E - e * np.sin(E) - M) / (1 - e * np.cos(E))
    return E


def position(elements, t):
    """Heliocentric ecliptic coordinates, shape (3, times)."""
    a, e, inc, node, peri, M0 = elements
    E = kepler(M0 + K * a**-1.5 * t, e)
    x, y = a * (np.cos(E) - e), a * np.sqrt(1 - e**2) * np.sin(E)
    cw, sw, cn, sn, ci, si = np.cos(peri), np.sin(peri), np.cos(node), np.sin(node), np.cos(inc), np.sin(inc)
    R = np.array(
        [
            [cn * cw - sn * sw * ci, -cn * sw - sn * cw * ci],
            [sn * cw + cn * sw * ci, -sn * sw + cn * cw * ci],
            [sw * si, cw * si],
        ]
    )
    return R @ np.vstack([x, y])


def sky(elements, t):
    """Ecliptic longitude and latitude as seen from an Earth on a circle."""
    earth = np.array([np.cos(K * t), np.sin(K * t), np.zeros_like(t)])
    x, y, z = position(elements, t) - earth
    return np.arctan2(y, x), np.arctan2(z, np.hypot(x, y))


def misfit(elements, t, longitude, latitude, sigma=1e-4):
    lon, lat = sky(elements, t)
    dlon = (lon - longitude + np.pi) % (2 * np.pi) - np.pi
    return 0.5 * np.sum((np.cos(latitude) * dlon) ** 2 + (lat - latitude) ** 2) / sigma**2 / len(t)


def observed(seed=0):
    truth = np.array([2.77, 0.076, 0.185, 1.40, 1.28, 0.50])
    rng = np.random.default_rng(seed)
    lon, lat = sky(truth, DAY)
    return truth, lon + 1e-4 * rng.normal(size=lon.shape), lat + 1e-4 * rng.normal(size=lat.shape)


def main():
    truth, lon, lat = observed()
    start = truth + [0.05, 0.01, 0.01, -0.02, 0.02, 0.02]
    fit = minimize(pb.value_and_grad(misfit), start, args=(DAY, lon, lat), jac=True, method="BFGS", options={"gtol": 1e-3})
    for name, result, true in zip(["a", "e", "inclination", "node", "perihelion", "M0"], fit.x, truth):
        print(f"{name:12s} {result:9.5f}  (true {true:.3f})")
    print(f"misfit {misfit(start, DAY, lon, lat):.1f} -> {fit.fun:.4f}")


if __name__ == "__main__":
    main()
