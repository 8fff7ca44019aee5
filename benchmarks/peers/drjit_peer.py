"""Dr.Jit on its LLVM backend: its own arrays of one dimension, so the functions are written anew."""

import importlib
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Arguments, Case

Array = Any
Call = Callable[[], Any]
ROOT_HALF = 0.7071067811865476


def black_scholes(dr: Any, spot: Array, strike: Array, years: Array, rate: Array, sigma: Array) -> Array:
    root = sigma * dr.sqrt(years)
    d1 = (dr.log(spot / strike) + (rate + 0.5 * sigma * sigma) * years) / root
    d2 = d1 - root
    phi1, phi2 = 0.5 * (1.0 + dr.erf(d1 * ROOT_HALF)), 0.5 * (1.0 + dr.erf(d2 * ROOT_HALF))
    return dr.sum(spot * phi1 - strike * dr.exp(-rate * years) * phi2)


def polynomial(dr: Any, x: Array, y: Array) -> Array:
    return x * y + 0.5 * x * x * y - y * y * x


def chain(dr: Any, x: Array, y: Array) -> Array:
    return dr.sum(polynomial(dr, x, y))


def nbody(dr: Any, x: Array, m: Array) -> Array:
    """x holds n x 3 numbers; all pairs are one long array."""
    n = dr.width(m)
    i, j = dr.meshgrid(dr.arange(dr.llvm.UInt32, n), dr.arange(dr.llvm.UInt32, n))
    kind = type(m)
    square = kind(1e-2)
    for axis in range(3):
        d = dr.gather(kind, x, 3 * i + axis) - dr.gather(kind, x, 3 * j + axis)
        square += d * d
    return -0.5 * dr.sum(dr.gather(kind, m, i) * dr.gather(kind, m, j) / dr.sqrt(square))


def identity(dr: Any, x: Array) -> Array:
    return x + 0.0


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "black_scholes": black_scholes,
    "polynomial": polynomial,
    "chain": chain,
    "nbody": nbody,
    "identity": identity,
}


def prepare_drjit(case: Case, arguments: Arguments) -> Call:
    function = FUNCTIONS.get(case.function.__name__)
    if function is None:
        raise NotImplementedError("not written for arrays of one dimension")
    dr = importlib.import_module("drjit")
    module = importlib.import_module("drjit.llvm.ad")
    threads = int(os.environ["OMP_NUM_THREADS"])
    dr.set_thread_count(threads if threads > 1 else 0)
    kind = module.Float64 if arguments[0].dtype == np.float64 else module.Float32
    placed = [kind(a.ravel()) for a in arguments]
    dr.eval(*placed)

    def forward() -> Any:
        result = function(dr, *placed)
        dr.eval(result)
        return given(result, arguments[0].shape if dr.width(result) > 1 or not case.name.startswith(("fwd", "grad")) else ())

    def gradient() -> Any:
        wanted = [placed[i] for i in case.wanted]
        for a in wanted:
            dr.enable_grad(a)
            dr.clear_grad(a)
        value = function(dr, *placed)
        dr.backward(value)
        gradients = [dr.grad(a) for a in wanted]
        dr.eval(value, *gradients)
        shapes = [arguments[i].shape for i in case.wanted]
        return given(dr.detach(value), ()), tuple(given(g, shape) for g, shape in zip(gradients, shapes))

    return gradient if case.wanted else forward


def given(a: Array, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return a.numpy().reshape(shape)
