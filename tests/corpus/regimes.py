"""Formulae with regimes, of one number or applied element by element."""

import math

import numpy as np

from tests.corpus.case import Case


def drag_coefficient(Re):
    """Drag of a sphere by the Reynolds number."""
    if Re <= 0:
        raise ValueError("Reynolds number must be positive")
    if Re < 0.1:
        return 24 / Re
    elif Re < 1000:
        return 24 / Re * (1 + 0.15 * Re**0.687)
    elif Re < 2e5:
        return 0.44
    return 0.1


def terminal_velocity(d, rho_p, mu=1.8e-5, rho=1.2):
    """Fall speed of a particle by fixed-point iteration over the drag law."""
    g = 9.81
    v = (rho_p - rho) * g * d**2 / (18 * mu)
    for _ in range(200):
        cd = drag_coefficient(rho * v * d / mu)
        v_new = math.sqrt(4 * g * d * (rho_p - rho) / (3 * cd * rho))
        if abs(v_new - v) < 1e-13 * v:
            break
        v = 0.5 * (v + v_new)
    return v


def saturation_pressure(T):
    """Over ice below freezing, over water above, in Pa; T in Celsius."""
    out = np.zeros_like(T)
    for i, t in enumerate(T):
        if t < -80 or t > 100:
            raise ValueError("temperature out of range")
        a, b = (22.46, 272.62) if t < 0 else (17.62, 243.12)
        out[i] = 611.2 * math.exp(a * t / (b + t))
    return out


def wind_chill(T, v):
    """Felt temperature where the formula holds, else the air temperature."""
    if T > 10 or v < 4.8:
        return T
    return 13.12 + 0.6215 * T - 11.37 * v**0.16 + 0.3965 * T * v**0.16


def heat_index(T, rh):
    """Steadman's simple formula, or Rothfusz's regression with its two adjustments."""
    hi = 0.5 * (T + 61.0 + (T - 68.0) * 1.2 + rh * 0.094)
    if (hi + T) / 2 < 80:
        return hi
    hi = (-42.379 + 2.04901523 * T + 10.14333127 * rh - 0.22475541 * T * rh - 6.83783e-3 * T**2
          - 5.481717e-2 * rh**2 + 1.22874e-3 * T**2 * rh + 8.5282e-4 * T * rh**2 - 1.99e-6 * T**2 * rh**2)  # fmt: skip
    if rh < 13 and 80 < T < 112:
        hi -= (13 - rh) / 4 * np.sqrt((17 - abs(T - 95)) / 17)
    elif rh > 85 and 80 <= T <= 87:
        hi += (rh - 85) / 10 * (87 - T) / 5
    return hi


def nusselt(Re, Pr, L_D):
    """Laminar, transitional by interpolation, or turbulent pipe flow."""
    lam = 3.66 + 0.0668 * Re * Pr / L_D / (1 + 0.04 * (Re * Pr / L_D) ** (2 / 3))

    def gnielinski(Re):
        f = (0.79 * np.log(Re) - 1.64) ** -2
        return f / 8 * (Re - 1000) * Pr / (1 + 12.7 * (f / 8) ** 0.5 * (Pr ** (2 / 3) - 1))

    if Re < 2300:
        return lam
    if Re > 4000:
        return gnielinski(Re)
    w = (Re - 2300) / 1700
    return (1 - w) * lam + w * gnielinski(4000.0)


def atmosphere(h):
    """Temperature and pressure of the standard atmosphere by layers."""
    T, p = 288.15, 101325.0
    base = 0.0
    for top, lapse in [(11000.0, -0.0065), (20000.0, 0.0), (32000.0, 0.001), (47000.0, 0.0028)]:
        dh = (h if h < top else top) - base
        if lapse == 0:
            p *= np.exp(-9.80665 * dh / (287.053 * T))
        else:
            T_new = T + lapse * dh
            p *= (T_new / T) ** (-9.80665 / (287.053 * lapse))
            T = T_new
        if h < top:
            break
        base = top
    return T, p


def mach_from_area(ratio, supersonic, gamma=1.4):
    """Isentropic Mach number by Newton's method from the side of the throat."""
    M = 2.0 if supersonic else 0.3
    k = (gamma + 1) / (2 * (gamma - 1))
    for i in range(50):
        s = 2 / (gamma + 1) * (1 + (gamma - 1) / 2 * M * M)
        f = s**k / M - ratio
        df = s**k * (2 * k * (gamma - 1) / (gamma + 1) / s - 1 / M**2)
        dM = f / df
        while M - dM <= 0 or (supersonic and M - dM < 1) or (not supersonic and M - dM > 1):
            dM /= 2
        M -= dM
        if abs(dM) < 1e-13:
            break
    return M


def huber(residuals, delta):
    """Sum of Huber losses."""
    total = 0.0
    for r in residuals:
        a = abs(r)
        total += 0.5 * a**2 if a <= delta else delta * (a - 0.5 * delta)
    return total


def triangular_membership(x, a, b, c):
    """Fuzzy membership."""
    if x <= a or x >= c:
        return 0.0
    if a < x <= b:
        return (x - a) / (b - a)
    return (c - x) / (c - b)


def fuzzy_controller(temperatures):
    """Weighted mean of rules, with a default when none fires."""
    powers = []
    for T in temperatures:
        cold = triangular_membership(T, -10.0, 0.0, 15.0)
        mild = triangular_membership(T, 10.0, 18.0, 25.0)
        hot = triangular_membership(T, 22.0, 35.0, 45.0)
        weight = cold + mild + hot
        powers.append((cold * 1.0 + mild * 0.3 - hot * 0.8) / weight if weight > 0 else 0.5)
    return np.array(powers)


def stress(strain, E, sy, H):
    """Elastic-plastic return mapping over a strain history, with isotropic hardening."""
    ep, alpha = 0.0, 0.0
    sigma = np.zeros(len(strain))
    for n in range(len(strain)):
        trial = E * (strain[n] - ep)
        f = abs(trial) - (sy + H * alpha)
        if f <= 0:
            sigma[n] = trial
        else:
            dgamma = f / (E + H)
            sigma[n] = trial - dgamma * E * np.sign(trial)
            ep += dgamma * np.sign(trial)
            alpha += dgamma
    return sigma, alpha


def cubic_roots(a, b, c):
    """Real roots of x**3 + a x**2 + b x + c by Cardano or Viete."""
    q = (a * a - 3 * b) / 9
    r = (2 * a**3 - 9 * a * b + 27 * c) / 54
    if r * r < q**3:
        theta = np.arccos(r / np.sqrt(q**3))
        return np.sort(np.array([-2 * np.sqrt(q) * np.cos((theta + k * 2 * np.pi) / 3) - a / 3 for k in (0, 1, 2)]))
    A = -np.sign(r) * (abs(r) + np.sqrt(r * r - q**3)) ** (1 / 3)
    B = q / A if A != 0 else 0.0
    return np.array([A + B - a / 3, np.nan, np.nan])


def largest_cubic_root(a, b, c):
    roots = cubic_roots(a, b, c)
    best = None
    for x in roots:
        if np.isnan(x):
            continue
        if best is None or x > best:
            best = x
    return best


def quadratic_roots(a, b, c):
    """Stable roots of a quadratic, or its vertex when they are complex."""
    disc = b * b - 4 * a * c
    if disc < 0:
        return -b / (2 * a), -b / (2 * a), False
    if b >= 0:
        q = -0.5 * (b + math.sqrt(disc))
    else:
        q = -0.5 * (b - math.sqrt(disc))
    return q / a, c / q, True


def ray_sphere(origin, direction, centres, radii):
    """Distance to the nearest sphere along a ray and its index; -1 for a miss."""
    nearest, hit = None, -1
    for i, (c, R) in enumerate(zip(centres, radii)):
        oc = origin - c
        b = np.dot(oc, direction)
        disc = b * b - np.dot(oc, oc) + R * R
        if disc <= 0:
            continue
        t = -b - np.sqrt(disc)
        if t < 1e-6:
            t = -b + np.sqrt(disc)
        if t > 1e-6 and (nearest is None or t < nearest):
            nearest, hit = t, i
    return (nearest if nearest is not None else -1.0), hit


def pick(rng, *values):
    return float(rng.choice(values) * rng.uniform(0.95, 1.05))


def spheres(rng, n):
    d = np.array([1.0, 0.2, -0.1])
    return np.zeros(3), d / np.linalg.norm(d), rng.uniform(-1, 1, (n, 3)) + np.array([4.0, 0, 0]), rng.uniform(0.3, 1.2, n)


CASES = [
    Case(function=drag_coefficient, seeds=6, argnums=(0,),
         arguments=lambda rng, n: (10 ** rng.uniform(-2, 2.8),), failing=lambda rng: (-1.0,)),
    Case(function=terminal_velocity, seeds=6, argnums=(0, 1), arguments=lambda rng, n: (pick(rng, 2e-5, 3e-4), 1000.0)),
    Case(function=saturation_pressure, argnums=(0,), size=6, arguments=lambda rng, n: (rng.uniform(-30, 40, n),),
         failing=lambda rng: (np.array([3.0, 120.0]),)),
    Case(function=wind_chill, seeds=6, argnums=(0, 1), arguments=lambda rng, n: (rng.uniform(-10, 16), rng.uniform(2, 30))),
    Case(function=heat_index, seeds=6, argnums=(0, 1),
         arguments=lambda rng, n: (rng.uniform(70, 87), pick(rng, 10.0, 50.0, 90.0))),
    Case(function=nusselt, seeds=6, argnums=(0, 1, 2), arguments=lambda rng, n: (pick(rng, 1500.0, 3000.0, 2e4), 4.0, 60.0)),
    Case(function=atmosphere, seeds=6, argnums=(0,), arguments=lambda rng, n: (rng.uniform(2000, 40000),)),
    Case(function=mach_from_area, seeds=6, argnums=(0,), arguments=lambda rng, n: (rng.uniform(1.2, 3), bool(rng.integers(2)))),
    Case(function=huber, argnums=(0, 1), arguments=lambda rng, n: (rng.normal(size=n), 0.7)),
    Case(function=fuzzy_controller, argnums=(0,), size=8, arguments=lambda rng, n: (rng.uniform(-15, 50, n),)),
    Case(function=stress, argnums=(0, 1, 2, 3),
         arguments=lambda rng, n: (np.cumsum(0.004 * rng.normal(size=n)), 200.0, 0.5, 20.0)),
    Case(function=largest_cubic_root, seeds=6, argnums=(0, 1, 2), arguments=lambda rng, n: tuple(rng.uniform(-3, 3, 3).tolist())),
    Case(function=quadratic_roots, seeds=6, argnums=(0, 1, 2),
         arguments=lambda rng, n: (1.5, rng.normal(), rng.uniform(-1, 0.5))),
    Case(function=ray_sphere, seeds=6, argnums=(0, 2, 3), size=5, arguments=spheres),
]  # fmt: skip
