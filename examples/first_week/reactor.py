"""A stirred tank reactor run away: sensitivities of the peak temperature to every operating parameter."""

import numpy as np

import pullback as pb

R_GAS = 8.314


@np.vectorize
def arrhenius(k0, E, T):
    return k0 * np.exp(-E / (R_GAS * T))


def rates(state, p):
    c, T = state
    k = arrhenius(p["k0"], p["E"], T)
    dc = (p["c_in"] - c) / p["tau"] - k * c
    dT = (p["T_in"] - T) / p["tau"] + p["heat"] * k * c - p["cooling"] * (T - p["T_jacket"])
    return np.array([dc, dT])


def simulate(p, minutes=4.0, steps=40):
    """Heun's method; concentrations and temperatures, shape (steps + 1, 2)."""
    dt = minutes / steps
    path = np.empty((steps + 1, 2))
    path[0] = 0.5, 350.0
    for n in range(steps):
        a = rates(path[n], p)
        b = rates(path[n] + dt * a, p)
        path[n + 1] = path[n] + dt / 2 * (a + b)
    return path


def smooth_peak(p, sharpness=2.0):
    T = simulate(p)[:, 1]
    return T.max() + np.log(np.mean(np.exp(sharpness * (T - T.max())))) / sharpness


def operating_point():
    return {
        "k0": 7.2e10, "E": 72750.0, "c_in": 1.0, "T_in": 350.0, "tau": 1.0,
        "heat": 209.0, "cooling": 2.09, "T_jacket": 300.0,
    }  # fmt: skip


def main():
    p = operating_point()
    value, g = pb.value_and_grad(smooth_peak)(p)
    print(f"peak temperature about {value:.2f} K; change for 1 % more of")
    for name in sorted(p, key=lambda k: -abs(g[k] * p[k])):
        print(f"  {name:9s} {0.01 * g[name] * p[name]:+8.3f} K")


if __name__ == "__main__":
    main()
