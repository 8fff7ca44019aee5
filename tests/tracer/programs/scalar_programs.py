"""Functions of Python's numbers, tuples and objects, as engineers write them.

Each is in ``PROGRAMS`` with the arguments of calls, which are of several kinds and outcomes, and the arguments by which it is
differentiated.
"""

import cmath
import math
from collections import namedtuple
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

PROGRAMS: list[Any] = []
pairs = [
    (48, 18), (17, 5), (0, 5), (1071, 462), (12, 8), (100, 75), (7, 7), (9, 6), (10, 4), (14, 21), (33, 11), (8, 12), (-4, 6)
]  # fmt: skip


def program(*calls, grad=()):
    """Add the decorated function with the arguments of calls."""

    def add(function):
        PROGRAMS.append((function, calls, grad))
        return function

    return add


@program((0.5, 0.3), (1.5, 0.9), (3.0, 0.0), grad=(0, 1))
def kepler_step(E, e):
    return E - (E - e * math.sin(E) - 0.5) / (1 - e * math.cos(E))


@program((0.5, 0.3), (1.5, 0.9), (6.0, 0.1), grad=(0, 1))
def kepler(M, e):
    E = M if e < 0.8 else math.pi
    while True:
        d = (E - e * math.sin(E) - M) / (1 - e * math.cos(E))
        E -= d
        if abs(d) < 1e-12:
            return E


@program((52.5, 13.4, 48.8, 2.35), (0.0, 0.0, 0.0, 0.0), (10, 20, 30, 40), grad=(0, 1, 2, 3))
def haversine(lat1, lon1, lat2, lon2):
    p1, p2 = math.radians(lat1), math.radians(lat2)
    dp, dl = math.radians(lat2 - lat1), math.radians(lon2 - lon1)
    a = math.sin(dp / 2) ** 2 + math.cos(p1) * math.cos(p2) * math.sin(dl / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(a))


@program(
    (100.0, 95.0, 0.5, 0.02, 0.2),
    (100.0, 120.0, 2.0, 0.02, 0.3),
    (100.0, 95.0, 0.0, 0.02, 0.2),
    (-1.0, 95.0, 0.5, 0.02, 0.2),
    grad=(0, 2, 4),
)
def black_scholes(s, k, t, r, v):
    d1 = (math.log(s / k) + (r + v * v / 2) * t) / (v * math.sqrt(t))
    d2 = d1 - v * math.sqrt(t)
    n1 = 0.5 * (1 + math.erf(d1 / math.sqrt(2.0)))
    n2 = 0.5 * (1 + math.erf(d2 / math.sqrt(2.0)))
    return s * n1 - k * math.exp(-r * t) * n2


@program((1e5, 1e-4), (1000.0, 1e-4), (3000.0, 1e-3), (0.0, 1e-3), grad=(0, 1))
def friction_factor(re, rough):
    if re <= 0:
        raise ValueError(f"Reynolds number must be positive, got {re}")
    if re < 2300:
        return 64 / re
    f = 0.25 / math.log10(rough / 3.7 + 5.74 / re**0.9) ** 2
    for _ in range(20):
        g = -2 * math.log10(rough / 3.7 + 2.51 / (re * math.sqrt(f)))
        new = 1 / g**2
        if abs(new - f) < 1e-12:
            break
        f = new
    return f


@program((300.0, 1e5, 0.364, 4.27e-5), (250.0, 2e6, 0.364, 4.27e-5), grad=(0, 1))
def van_der_waals(T, p, a, b):
    R = 8.314462618
    v = R * T / p
    for k in range(50):
        f = (p + a / v**2) * (v - b) - R * T
        df = p - a / v**2 + 2 * a * b / v**3
        dv = f / df
        v = v - dv
        if abs(dv) < 1e-12 * v:
            return v
    raise RuntimeError("no convergence")


@program((1.0, 4.0, 2.0, 10.0), (3.0, 4.0, 2.0, 10.0), (5.0, 4.0, 2.0, 10.0), grad=(0, 2, 3))
def deflection(x, L, a, load):
    EI = 2e5
    if not 0 <= x <= L:
        raise ValueError("x outside of the beam")
    b = L - a
    if x < a:
        return load * b * x * (L**2 - b**2 - x**2) / (6 * L * EI)
    else:
        return load * a * (L - x) * (2 * L * x - x**2 - a**2) / (6 * L * EI)


@program((50000.0,), (5000.0,), (200000.0,), (9000,), grad=(0,))
def tax(income):
    brackets = [(0, 0.1), (9950, 0.12), (40525, 0.22), (86375, 0.24), (164925, 0.32)]
    total = 0.0
    for i in range(len(brackets)):
        low, rate = brackets[i]
        high = brackets[i + 1][0] if i + 1 < len(brackets) else float("inf")
        if income > low:
            total += (min(income, high) - low) * rate
    return total


@program((48, 18), (17, 5), (0, 5), (1071, 462), (-4, 6))
def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


@program((2024, 2, 29), (2000, 1, 1), (1999, 12, 31))
def julian_day(year, month, day):
    a = (14 - month) // 12
    y = year + 4800 - a
    m = month + 12 * a - 3
    return day + (153 * m + 2) // 5 + 365 * y + y // 4 - y // 100 + y // 400 - 32045


@program((172.0, 12.0, 52.5), (355.0, 9.5, -30.0), grad=(0, 1, 2))
def sun_elevation(day, hour, lat):
    decl = -23.44 * math.cos(math.radians(360 / 365 * (day + 10)))
    ha = 15 * (hour - 12)
    s = math.sin(math.radians(lat)) * math.sin(math.radians(decl)) + math.cos(math.radians(lat)) * math.cos(
        math.radians(decl)
    ) * math.cos(math.radians(ha))
    return math.degrees(math.asin(max(-1.0, min(1.0, s))))


@program((373.15,), (300.0,), (700.0,), grad=(0,))
def p_sat(T):
    Tc, pc = 647.096, 22.064e6
    if T > Tc:
        raise ValueError("T above critical: %.2f" % T)
    tau = 1 - T / Tc
    a = (-7.85951783, 1.84408259, -11.7866497, 22.6807411, -15.9618719, 1.80122502)
    e = (1.0, 1.5, 3.0, 3.5, 4.0, 7.5)
    s = 0.0
    for ai, ei in zip(a, e):
        s += ai * tau**ei
    return pc * math.exp(Tc / T * s)


@program((1.0, 0.8, (0.0, 0.0), 0.01), (0.5, 0.9, (0.1, -0.2), 0.01), grad=(0, 1))
def pid(target, y, state, dt):
    integral, last = state
    e = target - y
    integral += e * dt
    d = (e - last) / dt
    u = 2.0 * e + 0.5 * integral + 0.1 * d
    if u > 10.0:
        u = 10.0
    elif u < -10.0:
        u = -10.0
    return u, (integral, e)


@program(((1.0, 2.0, 3.0, 4.0), (0.5, -1.0, 0.25, 2.0)), ((1, 0, 0, 0), (0, 1, 0, 0)))
def quat_mul(p, q):
    a, b, c, d = p
    e, f, g, h = q
    return (
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    )


Quat = namedtuple("Quat", "w x y z")


@program((Quat(1.0, 2.0, 3.0, 4.0), Quat(0.5, -1.0, 0.25, 2.0)), (Quat(0.0, 2.0, 3.0, 4.0), Quat(0.5, -1.0, 0.25, 2.0)))
def quat_nt(p, q):
    return Quat(
        p.w * q.w - p.x * q.x - p.y * q.y - p.z * q.z,
        p.w * q.x + p.x * q.w + p.y * q.z - p.z * q.y,
        p.w * q.y - p.x * q.z + p.y * q.w + p.z * q.x,
        p.w * q.z + p.x * q.y - p.y * q.x + p.z * q.w,
    )


@program((50.0, 10.0, 1e-3, 1e-6), (1e4, 10.0, 1e-3, 1e-6))
def impedance(freq, r, l, c):
    w = 2 * math.pi * freq
    z = r + 1j * w * l + 1 / (1j * w * c)
    return z


@program((50.0, 10.0, 1e-3, 1e-6), (1e4, 10.0, 1e-3, 1e-6), grad=(0, 1))
def imp_abs(freq, r, l, c):
    w = 2 * math.pi * freq
    z = complex(r, w * l - 1 / (w * c))
    return abs(z), cmath.phase(z), z.real


@program(
    ((0.0, 0.0, -5.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0), 1.0),
    ((0.0, 3.0, -5.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0), 1.0),
    ((0.0, 0.0, 5.0), (0.0, 0.0, 1.0), (0.0, 0.0, 0.0), 1.0),
)
def ray_sphere(o, d, c, r):
    ox, oy, oz = o[0] - c[0], o[1] - c[1], o[2] - c[2]
    b = ox * d[0] + oy * d[1] + oz * d[2]
    q = ox * ox + oy * oy + oz * oz - r * r
    disc = b * b - q
    if disc < 0:
        return None
    s = math.sqrt(disc)
    t = -b - s
    if t < 0:
        t = -b + s
    return t if t > 0 else None


@program((2.0,), (10.0,), (0.5,), grad=(0,))
def bisect_nested(a):
    def f(x):
        return x * x * x - a

    lo, hi = 0.0, max(1.0, a)
    while hi - lo > 1e-10:
        mid = (lo + hi) / 2
        if f(mid) > 0:
            hi = mid
        else:
            lo = mid
    return lo - f(lo) / (3 * lo * lo)


UNITS = {"m": 1.0, "km": 1000.0, "mi": 1609.344, "ft": 0.3048}


@program((3.0, "km", "mi"), (5, "ft", "m"), (1.0, "km", "xx"), grad=(0,))
def convert(value, src, dst):
    return value * UNITS[src] / UNITS[dst]


@program((0.5, (1.0, 2.0, 3.0, 4.0)), (2, (1, 2, 3, 4)), grad=(0,))
def horner(x, coeffs):
    r = 0.0
    for c in coeffs:
        r = r * x + c
    return r


@program((0.0, 1.0, 10), (0.0, 2.0, 100), grad=(0, 1))
def simpson(a, b, n):
    f = lambda x: math.exp(-x * x)
    h = (b - a) / n
    s = f(a) + f(b)
    for i in range(1, n):
        s += (4 if i % 2 else 2) * f(a + i * h)
    return s * h / 3


def _g(x):
    return x * math.sin(x)


@program((_g, 0.0, 1.0), (_g, 0.0, 3.0), grad=(1, 2))
def simpson3(f, a, b):
    m = (a + b) / 2
    return (b - a) / 6 * (f(a) + 4 * f(m) + f(b))


@program((25.0, 0.6), (-10.0, 0.9), (25.0, 0.0), grad=(0, 1))
def dew_point(T, rh):
    g = math.log(rh) + 17.62 * T / (243.12 + T)
    return 243.12 * g / (17.62 - g)


@program((1.0, -3.0, 2.0), (1.0, 2.0, 5.0), (0.0, 2.0, 5.0), (1, 2, 1))
def quadratic(a, b, c):
    d = b * b - 4 * a * c
    if d < 0:
        return ()
    s = math.sqrt(d)
    if d == 0:
        return (-b / (2 * a),)
    return (-b - s) / (2 * a), (-b + s) / (2 * a)


@program((2000,), (1900,), (2023,), (2024,))
def is_leap(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


@program((10, 3), (5, 0), (5, 7))
def binom(n, k):
    if k < 0 or k > n:
        return 0
    r = 1
    for i in range(k):
        r = r * (n - i) // (i + 1)
    return r


@program((1.0, 2.0), (1.0, 0.0), (1, 0), (3, 2))
def ratio(a, b):
    return a / b


@program((1000.0,), (2.0,))
def expo(x):
    return math.exp(x)


@program((-1.0,), (4.0,), (4,))
def root(x):
    return math.sqrt(x)


@program((0.1, 0.0, True), (0.1, 2.0, False), grad=(0,))
def flagged(x, y, flag):
    if flag:
        return x + y
    return x * y


@dataclass
class Fluid:
    rho: float
    mu: float


@program((Fluid(1000.0, 1e-3), 1.0, 0.05), (Fluid(1.2, 1.8e-5), 3.0, 0.1), grad=(1, 2))
def reynolds(fluid, v, d):
    return fluid.rho * v * d / fluid.mu


class Spring:
    def __init__(self, k, c):
        self.k = k
        self.c = c

    def force(self, x, v):
        return -self.k * x - self.c * v


@program((Spring(10.0, 0.5), 0.1, 0.2), (Spring(1.0, 0.1), 0.3, -0.2), grad=(1, 2))
def spring_step(s, x, v):
    a = s.force(x, v)
    v = v + 0.01 * a
    return x + 0.01 * v, v


@program((123456789,), (7,), (0,))
def digit_sum(n):
    s = 0
    while n > 0:
        s += n % 10
        n //= 10
    return s


@program((97,), (91,), (2,), (1,))
def is_prime(n):
    if n < 2:
        return False
    i = 2
    while i * i <= n:
        if n % i == 0:
            return False
        i += 1
    return True


@program((5.0, 2.0, 1.5), (0.5, 2.0, 1.5), grad=(0, 1, 2))
def clamp_lerp(x, a, b):
    t = max(0.0, min(1.0, x / 10))
    return a + (b - a) * t


@program((3661,), (59,), (86400,))
def hms(seconds):
    h, rest = divmod(seconds, 3600)
    m, s = divmod(rest, 60)
    return h, m, s


@program((1500.0,), (20000.0,), (-5.0,), grad=(0,))
def isa_temperature(h):
    if h < 0:
        raise ValueError("below sea level")
    elif h <= 11000:
        T = 288.15 - 0.0065 * h
        p = 101325 * (T / 288.15) ** 5.2559
    else:
        T = 216.65
        p = 22632.06 * math.exp(-0.000157 * (h - 11000))
    return p / (287.05 * T)


@program((200000.0, 0.04, 360), (100000.0, 0.0, 12), (1e5, 0.05, 0), grad=(0, 1))
def mortgage(principal, rate, months):
    if rate == 0:
        return principal / months
    m = rate / 12
    return principal * m / (1 - (1 + m) ** -months)


@program((3.7,), (-2.5,), (float("nan"),), (float("inf"),))
def to_int(x):
    return int(x), math.floor(x), round(x)


@program(*pairs)
def mgcd(a, b):
    return math.gcd(a, b)


@program(*pairs)
def mlcm(a, b):
    return math.lcm(a, b)


@program(*[(k,) for k in (0, 1, 2, 3, 4, 5, 10, 15, 16, 17, 99, 100, 101, 10**12, -1, 2**62)])
def misqrt(n):
    return math.isqrt(n)


@program(*[(k,) for k in range(12)], (20,), (21,), (-1,))
def mfact(n):
    return math.factorial(n)


@program(*[(k, 3) for k in range(12)])
def mcomb(n, k):
    return math.comb(n, k)


@program(*[(y, 3, 1) for y in range(2000, 2014)])
def jd(year, month, day):
    a = (14 - month) // 12
    y = year + 4800 - a
    return day + (153 * (month + 12 * a - 3) + 2) // 5 + 365 * y + y // 4 - y // 100 + y // 400 - 32045


@program(*[(k,) for k in range(1, 14)])
def collatz(n):
    c = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        c += 1
    return c


@program(*[(y,) for y in range(1996, 2010)])
def leap(y):
    return y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)


@program((5.0,), (-5.0,), (0.0,), (5,), (-3,))
def zero_or(x):
    return 0 if x < 0 else x


@program((5.0,), (-5.0,), (float("nan"),))
def none_or(x):
    if x > 0:
        return math.sqrt(x)


@program((5.0,), (-5.0,))
def word(x):
    return "pos" if x > 0 else "neg"


@program((5.0,), (-5.0,))
def status(x):
    if x < 0:
        return False, "negative", None
    return True, "", math.sqrt(x)


@program((5.0,), (-5.0,))
def result_dict(x):
    return {"x": x, "sq": x * x, "neg": x < 0}


@program(
    (50.0, 10.0, 1e-3, 1e-6),
)
def polar_z(f, r, l, c):
    w = 2 * math.pi * f
    z = complex(r, w * l - 1 / (w * c))
    m, p = cmath.polar(z)
    return m, math.degrees(p), cmath.sqrt(z), cmath.exp(1j * p), z.conjugate()


@program((1 + 2j,), (0.5 - 1j,), (0j,))
def cm(z):
    return cmath.exp(z), cmath.sin(z), cmath.sqrt(z), cmath.phase(z), abs(z), cmath.isfinite(z)


@program((1 + 2j,), (0.5 - 1j,), (0j,))
def clog(z):
    return cmath.log(z)


@program((1.0, 2.0), (1.0, 1j))
def cm2(a, b):
    return cmath.rect(2.0, 0.5) * a + b


@program((3.0, 1), (3.0, 0), (2, -1), (2, 3), (0.0, -1), (-8.0, 3))
def power(x, n):
    return x**n


@program((2.0, 0.5), (0.0, -0.5), (10.0, 400.0))
def powerf(x, n):
    return x**n


@program((7.5, 2.0), (-7.5, 2.0), (7.5, 0.0), (7, 2), (7, -2), (7, 0))
def modm(a, b):
    return a % b, a // b, divmod(a, b)


@program((1e308, 10.0), (1.0, 2.0))
def big(a, b):
    return a * b


@program((2.5,), (3.5,), (-2.5,), (2.675,))
def rnd(x):
    return round(x), round(x, 1), round(x, 2), math.ceil(x), math.trunc(x)


@program((True, 3), (False, 2.0))
def bools(b, x):
    return b + x, not b, b and x, x if b else -x


@program(("a", 2.0), ("b", 2.0), ("c", 1.0))
def by_name(kind, x):
    if kind == "a":
        return x * 2
    if kind == "b":
        return x**2
    raise KeyError(kind)


@program((1.0,), (1,), (True,))
def types(x):
    return isinstance(x, float), isinstance(x, int), x + 1


@program(
    (1.5, (1.0, 2.0, 3.0), (4.0, 5.0, 9.0)),
    (0.5, (1.0, 2.0, 3.0), (4.0, 5.0, 9.0)),
    (5.0, (1.0, 2.0, 3.0), (4.0, 5.0, 9.0)),
    grad=(0,),
)
def interp(x, xs, ys):
    if x <= xs[0]:
        return ys[0]
    for i in range(1, len(xs)):
        if x <= xs[i]:
            t = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
            return ys[i - 1] + t * (ys[i] - ys[i - 1])
    return ys[-1]


Point = namedtuple("Point", "x y")


@program((Point(0.0, 0.0), Point(3.0, 4.0)), (Point(1, 2), Point(3, 4)))
def dist(a, b):
    return math.hypot(b.x - a.x, b.y - a.y), Point((a.x + b.x) / 2, (a.y + b.y) / 2)


@dataclass
class State:
    t: float
    y: float
    n: int = 0


@program((State(0.0, 1.0), 0.1), (State(0.0, 1.0, 5), 0.2))
def step(s, h):
    return State(s.t + h, s.y - h * s.y, s.n + 1)


def nest_helper(m, e):
    E = m
    while True:
        d = (E - e * math.sin(E) - m) / (1 - e * math.cos(E))
        E -= d
        if abs(d) < 1e-12:
            return E


@program((0.5, 0.3), (1.5, 0.9), grad=(0, 1))
def true_anomaly(m, e):
    E = nest_helper(m, e)
    return 2 * math.atan2(math.sqrt(1 + e) * math.sin(E / 2), math.sqrt(1 - e) * math.cos(E / 2))


@program((2.0,), (10.0,), (-1.0,), grad=(0,))
def newton_sqrt(a):
    if a < 0:
        raise ValueError("negative: " + str(a))
    x = a
    n = 0
    while True:
        nx = 0.5 * (x + a / x)
        n += 1
        if abs(nx - x) < 1e-14 * nx:
            break
        if n > 100:
            raise RuntimeError(f"no convergence after {n}")
        x = nx
    return nx


@program((2.0, 3.0), (0.0, 3.0), (-1.0, 1.0))
def trycatch(a, b):
    try:
        return math.log(a) / b
    except ValueError:
        return float("-inf")


@program((2.0, 0.0), (2.0, 4.0))
def trydiv(a, b):
    try:
        r = a / b
    except ZeroDivisionError as e:
        return str(e)
    return r


@program(([1.0, 2.0, 4.0],), ([3.0],), ([],))
def stats(xs):
    n = len(xs)
    if n < 2:
        raise ValueError("need two")
    m = sum(xs) / n
    return m, math.sqrt(sum((x - m) ** 2 for x in xs) / (n - 1)), max(xs), min(xs), sorted(xs)[n // 2]


@program((1.0, 10), (0.5, 20), grad=(0,))
def series(x, n):
    term, s = 1.0, 0.0
    for k in range(1, n + 1):
        s += term
        term *= x / k
    return s


@program(({"a": 1.0, "b": 2.0}, 3.0), ({"a": 2.0, "b": 1.0}, 1.0))
def dict_arg(p, x):
    return p["a"] * x + p.get("b", 0.0) + p.get("c", 7.0)


@program((12, 30), (0, 5), (23, 59))
def clock(h, m):
    return f"{h:02d}:{m:02d}", h * 60 + m


@program((5,), (255,), (0,))
def bits(n):
    return bin(n), hex(n), n.bit_length(), n & 3, n << 2, ~n


@program(
    (Fraction(1, 3), 2.0),
)
def frac(f, x):
    return float(f) * x


@program((3.0, 4.0), (0.0, 0.0))
def normalise(x, y):
    n = math.hypot(x, y)
    return (x / n, y / n) if n else (0.0, 0.0)


@program((0.5,), (1.5,), (-0.5,), grad=(0,))
def asin_safe(x):
    if abs(x) > 1:
        raise ValueError("math domain error")
    return math.asin(x)


def euler(f, y, h, n):
    for _ in range(n):
        y = y + h * f(y)
    return y


@program((1.0, 2.0), (2.0, 0.5), grad=(0, 1))
def decay(y0, k):
    return euler(lambda y: -k * y, y0, 0.01, 100)


@program((3, 4), (5, 0))
def ack_like(m, n):
    def f(a, b):
        return b + 1 if a == 0 else f(a - 1, b) + 1

    return f(m, n)


@program((2**62, 4), (2**62, 1), (3, 5))
def overflow(a, b):
    return a * b


@program(
    (10**20, 3),
)
def bigint(a, b):
    return a // b


@program((1.0, None), (1.0, 2.0))
def optional(x, y=None):
    if y is None:
        y = 5.0
    return x * y


@program((1.0,), (1.0, 3.0))
def kw(x, *rest, scale=2.0):
    return x * scale + sum(rest)
