"""Functions of Python's numbers, as engineers write them, and what they are called with."""

import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNITS = {"m": 1.0, "km": 1000.0, "mi": 1609.344, "ft": 0.3048}
BRACKETS = [(0, 0.1), (9950, 0.12), (40525, 0.22), (86375, 0.24), (164925, 0.32)]
Quaternion = namedtuple("Quaternion", "w x y z")


@dataclass(frozen=True, kw_only=True)
class Program:
    """A function with its arguments; it is differentiated by the arguments ``argnums``, none for a function that is not.
    ``other``: other arguments of the same types, which another branch may serve."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    other: tuple[Any, ...]
    argnums: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.function.__name__


def increment(x):
    return x + 1.0


def kepler_step(anomaly, e):
    return anomaly - (anomaly - e * math.sin(anomaly) - 0.5) / (1 - e * math.cos(anomaly))


def kepler(mean, e):
    x = mean if e < 0.8 else math.pi
    while True:
        step = (x - e * math.sin(x) - mean) / (1 - e * math.cos(x))
        x -= step
        if abs(step) < 1e-12:
            return x


def haversine(latitude, longitude, latitude_2, longitude_2):
    p, q = math.radians(latitude), math.radians(latitude_2)
    dp, dl = math.radians(latitude_2 - latitude), math.radians(longitude_2 - longitude)
    a = math.sin(dp / 2) ** 2 + math.cos(p) * math.cos(q) * math.sin(dl / 2) ** 2
    return 2 * 6371.0 * math.asin(math.sqrt(a))


def black_scholes(s, k, t, r, v):
    d1 = (math.log(s / k) + (r + v * v / 2) * t) / (v * math.sqrt(t))
    d2 = d1 - v * math.sqrt(t)
    n1 = 0.5 * (1 + math.erf(d1 / math.sqrt(2.0)))
    n2 = 0.5 * (1 + math.erf(d2 / math.sqrt(2.0)))
    return s * n1 - k * math.exp(-r * t) * n2


def friction_factor(reynolds, roughness):
    if reynolds <= 0:
        raise ValueError("the Reynolds number must be positive")
    if reynolds < 2300:
        return 64 / reynolds
    f = 0.25 / math.log10(roughness / 3.7 + 5.74 / reynolds**0.9) ** 2
    for _ in range(20):
        new = 1 / (-2 * math.log10(roughness / 3.7 + 2.51 / (reynolds * math.sqrt(f)))) ** 2
        if abs(new - f) < 1e-12:
            break
        f = new
    return f


def van_der_waals(temperature, pressure, a, b):
    rt = 8.314462618 * temperature
    v = rt / pressure
    for _ in range(50):
        step = ((pressure + a / v**2) * (v - b) - rt) / (pressure - a / v**2 + 2 * a * b / v**3)
        v = v - step
        if abs(step) < 1e-12 * v:
            return v
    raise RuntimeError("no convergence")


def deflection(x, length, a, load):
    if not 0 <= x <= length:
        raise ValueError("x is outside of the beam")
    b = length - a
    if x < a:
        return load * b * x * (length**2 - b**2 - x**2) / (6 * length * 2e5)
    return load * a * (length - x) * (2 * length * x - x**2 - a**2) / (6 * length * 2e5)


def sun_elevation(day, hour, latitude):
    declination = math.radians(-23.44 * math.cos(math.radians(360 / 365 * (day + 10))))
    angle = math.radians(15 * (hour - 12))
    p = math.radians(latitude)
    s = math.sin(p) * math.sin(declination) + math.cos(p) * math.cos(declination) * math.cos(angle)
    return math.degrees(math.asin(max(-1.0, min(1.0, s))))


def bisection(a):
    def f(x):
        return x * x * x - a

    low, high = 0.0, max(1.0, a)
    while high - low > 1e-10:
        middle = (low + high) / 2
        if f(middle) > 0:
            high = middle
        else:
            low = middle
    return low - f(low) / (3 * low * low)


def horner(x, coefficients):
    result = 0.0
    for c in coefficients:
        result = result * x + c
    return result


def simpson(a, b, n):
    f = lambda x: math.exp(-x * x)  # noqa: E731
    h = (b - a) / n
    s = f(a) + f(b)
    for i in range(1, n):
        s += (4 if i % 2 else 2) * f(a + i * h)
    return s * h / 3


def controller(target, y, state, dt):
    integral, last = state
    error = target - y
    integral += error * dt
    u = 2.0 * error + 0.5 * integral + 0.1 * (error - last) / dt
    if u > 10.0:
        u = 10.0
    elif u < -10.0:
        u = -10.0
    return u, (integral, error)


def quaternion_product(p, q):
    return Quaternion(
        p.w * q.w - p.x * q.x - p.y * q.y - p.z * q.z, p.w * q.x + p.x * q.w + p.y * q.z - p.z * q.y,
        p.w * q.y - p.x * q.z + p.y * q.w + p.z * q.x, p.w * q.z + p.x * q.y - p.y * q.x + p.z * q.w,
    )  # fmt: skip


def ray_sphere(origin, direction, radius):
    b = origin[0] * direction[0] + origin[1] * direction[1] + origin[2] * direction[2]
    q = origin[0] * origin[0] + origin[1] * origin[1] + origin[2] * origin[2] - radius * radius
    discriminant = b * b - q
    if discriminant < 0:
        return None
    t = -b - math.sqrt(discriminant)
    if t < 0:
        t = -b + math.sqrt(discriminant)
    return t if t > 0 else None


def impedance(frequency, r, inductance, c):
    w = 2 * math.pi * frequency
    return r + 1j * w * inductance + 1 / (1j * w * c)


def julian_day(year, month, day):
    a = (14 - month) // 12
    y = year + 4800 - a
    return day + (153 * (month + 12 * a - 3) + 2) // 5 + 365 * y + y // 4 - y // 100 + y // 400 - 32045


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def tax(income):
    total = 0.0
    for i in range(len(BRACKETS)):
        low, rate = BRACKETS[i]
        high = BRACKETS[i + 1][0] if i + 1 < len(BRACKETS) else 1e30
        if income > low:
            total += (min(income, high) - low) * rate
    return total


def convert(value, source, target):
    return value * UNITS[source] / UNITS[target]


PROGRAMS = (
    Program(function=increment, arguments=(1.5,), other=(-2.0,), argnums=(0,)),
    Program(function=kepler_step, arguments=(0.5, 0.3), other=(1.5, 0.9), argnums=(0, 1)),
    Program(function=kepler, arguments=(0.5, 0.3), other=(1.5, 0.9), argnums=(0, 1)),
    Program(function=haversine, arguments=(52.5, 13.4, 48.8, 2.35), other=(0.0, 10.0, 5.0, -3.0), argnums=(0, 1, 2, 3)),
    Program(
        function=black_scholes, arguments=(100.0, 95.0, 0.5, 0.02, 0.2), other=(100.0, 120.0, 2.0, 0.0, 0.3), argnums=(0, 2, 4)
    ),
    Program(function=friction_factor, arguments=(1e5, 1e-4), other=(1000.0, 1e-4), argnums=(0, 1)),
    Program(function=van_der_waals, arguments=(300.0, 1e5, 0.364, 4.27e-5), other=(250.0, 2e6, 0.364, 4.27e-5), argnums=(0, 1)),
    Program(function=deflection, arguments=(1.0, 4.0, 2.0, 10.0), other=(3.0, 4.0, 2.0, 10.0), argnums=(0, 2, 3)),
    Program(function=sun_elevation, arguments=(172.0, 12.0, 52.5), other=(355.0, 9.5, -30.0), argnums=(0, 1, 2)),
    Program(function=bisection, arguments=(2.0,), other=(0.5,), argnums=(0,)),
    Program(function=horner, arguments=(0.5, (1.0, 2.0, 3.0, 4.0)), other=(-1.0, (2.0, 0.0, 1.0, -4.0)), argnums=(0,)),
    Program(function=simpson, arguments=(0.0, 1.0, 10), other=(0.0, 2.0, 10), argnums=(0, 1)),
    Program(function=controller, arguments=(1.0, 0.8, (0.0, 0.0), 0.01), other=(90.0, 0.8, (0.5, 0.1), 0.01)),
    Program(
        function=quaternion_product, arguments=(Quaternion(1.0, 2.0, 3.0, 4.0), Quaternion(0.5, -1.0, 0.25, 2.0)),
        other=(Quaternion(0.0, 1.0, 0.0, 0.0), Quaternion(0.5, -1.0, 0.25, 2.0)),
    ),
    Program(
        function=ray_sphere, arguments=((0.0, 0.0, -5.0), (0.0, 0.0, 1.0), 1.0), other=((0.0, 3.0, -5.0), (0.0, 0.0, 1.0), 1.0)
    ),
    Program(function=impedance, arguments=(50.0, 10.0, 1e-3, 1e-6), other=(1e4, 10.0, 1e-3, 1e-6)),
    Program(function=julian_day, arguments=(2024, 2, 29), other=(1999, 12, 31)),
    Program(function=gcd, arguments=(48, 18), other=(1071, 462)),
    Program(function=tax, arguments=(50000.0,), other=(5000.0,), argnums=(0,)),
    Program(function=convert, arguments=(3.0, "km", "mi"), other=(5.0, "km", "mi"), argnums=(0,)),
)  # fmt: skip
