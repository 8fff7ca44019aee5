"""The workloads: plain NumPy functions, their gradients by hand, and the arguments that they are measured on.

Each objective reads its library through the global names `np`, `erf` and `pb` alone, so that
`systems.retarget` can run the very same code on another library. Gradients by hand are what a careful NumPy
user writes: shared terms are computed once, nothing is blocked or written in place. Both return (value,
gradients in the order of `wanted`).
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loops
import numpy as np
from scipy.special import erf
from workload import Workload

Array = Any
Arguments = tuple[Any, ...]


def black_scholes(spot: Array, strike: Array, years: Array, rate: Array, sigma: Array) -> Array:
    root = sigma * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * sigma * sigma) * years) / root
    d2 = d1 - root
    phi1 = 0.5 * (1.0 + erf(d1 / np.sqrt(2.0)))
    phi2 = 0.5 * (1.0 + erf(d2 / np.sqrt(2.0)))
    return np.sum(spot * phi1 - strike * np.exp(-rate * years) * phi2)


def black_scholes_by_hand(spot: Array, strike: Array, years: Array, rate: Array, sigma: Array) -> Any:
    root_years = np.sqrt(years)
    root = sigma * root_years
    d1 = (np.log(spot / strike) + (rate + 0.5 * sigma * sigma) * years) / root
    phi1 = 0.5 * (1.0 + erf(d1 / np.sqrt(2.0)))
    phi2 = 0.5 * (1.0 + erf((d1 - root) / np.sqrt(2.0)))
    discounted = np.exp(-rate * years) * phi2
    owed = strike * discounted
    vega = spot * np.exp(-0.5 * d1 * d1) * root_years / np.sqrt(2.0 * np.pi)
    value = np.sum(spot * phi1 - owed)
    return value, (phi1, -discounted, 0.5 * vega * sigma / years + rate * owed, years * owed, vega)


def black_scholes_arguments() -> Arguments:
    rng, n = np.random.default_rng(0), 1_000_000
    bounds = [(50.0, 150.0), (50.0, 150.0), (0.2, 3.0), (0.0, 0.08), (0.1, 0.6)]
    return tuple(rng.uniform(low, high, n) for low, high in bounds)


def chain(x: Array, y: Array) -> Array:
    return np.sum(x * y + 0.5 * x * x * y - y * y * x)


def chain_by_hand(x: Array, y: Array) -> Any:
    xy = x * y
    value = np.sum(xy + 0.5 * x * xy - y * xy)
    return value, (y + xy - y * y, x + 0.5 * x * x - 2.0 * xy)


def fit(x: Array, y: Array, t: Array) -> Array:
    z = np.tanh(x * y)
    return np.mean(np.logaddexp(0.0, z * y) - t * x * np.exp(-z))


def fit_by_hand(x: Array, y: Array, t: Array) -> Any:
    n = len(x)
    z = np.tanh(x * y)
    zy = z * y
    decay = t * np.exp(-z)
    value = np.mean(np.logaddexp(0.0, zy) - decay * x)
    share = 1.0 / (1.0 + np.exp(-zy))
    dz = (share * y + decay * x) * (1.0 - z * z)
    return value, ((dz * y - decay) / n, (dz * x + share * z) / n)


def vectors(count: int, n: int = 1_000_000) -> Callable[[], Arguments]:
    def make() -> Arguments:
        rng = np.random.default_rng(1)
        return tuple(rng.normal(size=n) for _ in range(count))

    return make


def softmax(z: Array, y: Array) -> Array:
    z = z - np.max(z, axis=1, keepdims=True)
    log_p = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return -np.mean(np.sum(y * log_p, axis=1))


def softmax_by_hand(z: Array, y: Array) -> Any:
    z = z - np.max(z, axis=1, keepdims=True)
    e = np.exp(z)
    total = np.sum(e, axis=1, keepdims=True)
    value = -np.mean(np.sum(y * (z - np.log(total)), axis=1))
    return value, ((e * (np.sum(y, axis=1, keepdims=True) / total) - y) / len(z),)


def softmax_arguments() -> Arguments:
    rng = np.random.default_rng(2)
    return rng.normal(size=(4096, 1000)), np.eye(1000)[rng.integers(0, 1000, 4096)]


def layer_norm(x: Array, gain: Array, bias: Array, c: Array) -> Array:
    centred = x - np.mean(x, axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + 1e-5)
    return np.sum((centred * scale * gain + bias) * c)


def layer_norm_by_hand(x: Array, gain: Array, bias: Array, c: Array) -> Any:
    centred = x - np.mean(x, axis=1, keepdims=True)
    scale = 1.0 / np.sqrt(np.mean(centred * centred, axis=1, keepdims=True) + 1e-5)
    normal = centred * scale
    value = np.sum((normal * gain + bias) * c)
    d = c * gain
    dx = scale * (d - np.mean(d, axis=1, keepdims=True) - normal * np.mean(d * normal, axis=1, keepdims=True))
    return value, (dx, np.sum(normal * c, axis=0), np.sum(c, axis=0))


def layer_norm_arguments() -> Arguments:
    rng, rows, columns = np.random.default_rng(3), 8192, 768
    x, c = rng.normal(size=(rows, columns)), rng.normal(size=(rows, columns))
    return x, rng.normal(size=columns), rng.normal(size=columns), c


def logreg(w: Array, x: Array, y: Array) -> Array:
    z = x @ w
    return np.mean(np.logaddexp(0.0, z) - y * z)


def logreg_by_hand(w: Array, x: Array, y: Array) -> Any:
    z = x @ w
    value = np.mean(np.logaddexp(0.0, z) - y * z)
    return value, (x.T @ (1.0 / (1.0 + np.exp(-z)) - y) / len(y),)


def logreg_arguments() -> Arguments:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(100_000, 100))
    return 0.1 * rng.normal(size=100), x, (rng.random(100_000) < 0.5).astype(float)


def rosenbrock(x: Array) -> Array:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def rosenbrock_by_hand(x: Array) -> Any:
    head = x[:-1]
    miss, rest = x[1:] - head * head, 1.0 - head
    gradient = np.zeros_like(x)
    gradient[:-1] = -400.0 * head * miss - 2.0 * rest
    gradient[1:] += 200.0 * miss
    return np.sum(100.0 * miss * miss + rest * rest), (gradient,)


def digits() -> Any:
    """The module of the demo program."""
    path = Path(__file__).parent.parent / "examples" / "digits.py"
    spec = importlib.util.spec_from_file_location("digits", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def workloads() -> list[Workload]:
    demo = digits()

    def step_arguments() -> Arguments:
        *network, x, y = demo.example()
        return demo.Network(*network), demo.Network(*[np.zeros_like(w) for w in network]), x, y, 0.1

    million = 8 * 1_000_000
    return [
        Workload(
            name="black_scholes",
            title="1e6 options, five sensitivities",
            function=black_scholes,
            by_hand=black_scholes_by_hand,
            arguments=black_scholes_arguments,
            wanted=(0, 1, 2, 3, 4),
            traffic=10 * million,
        ),
        Workload(
            name="chain",
            title="polynomial of two vectors of 1e6",
            function=chain,
            by_hand=chain_by_hand,
            arguments=vectors(2),
            wanted=(0, 1),
            traffic=4 * million,
        ),
        Workload(
            name="fit",
            title="tanh, exp, logaddexp over 1e6",
            function=fit,
            by_hand=fit_by_hand,
            arguments=vectors(3),
            wanted=(0, 1),
            traffic=5 * million,
        ),
        Workload(
            name="softmax",
            title="cross entropy, 4096 x 1000",
            function=softmax,
            by_hand=softmax_by_hand,
            arguments=softmax_arguments,
            wanted=(0,),
            traffic=3 * 8 * 4096 * 1000,
        ),
        Workload(
            name="layer_norm",
            title="layer norm, 8192 x 768",
            function=layer_norm,
            by_hand=layer_norm_by_hand,
            arguments=layer_norm_arguments,
            wanted=(0, 1, 2),
            traffic=3 * 8 * 8192 * 768,
        ),
        Workload(
            name="logreg",
            title="logistic regression, 1e5 x 100",
            function=logreg,
            by_hand=logreg_by_hand,
            arguments=logreg_arguments,
            wanted=(0,),
            traffic=8 * 100_000 * 100,
        ),
        Workload(
            name="mlp_step",
            title="one step of the demo, batch 64",
            function=demo.step.__wrapped__,
            by_hand=demo.step_by_hand,
            arguments=step_arguments,
        ),
        Workload(
            name="rosenbrock",
            title="rosenbrock of 10 numbers",
            function=rosenbrock,
            by_hand=rosenbrock_by_hand,
            arguments=lambda: (np.linspace(-1.0, 1.0, 10),),
            wanted=(0,),
        ),
        *loops.workloads(),
    ]
