"""C's loops (native/loops.c) as calls: the compiler's vectors, libmvec's functions, OpenMP's threads, outputs made once."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.native import compiled

Array = Any
Call = Callable[[], Any]
PARTS = 64


def function(name: str, dtype: Any) -> Any:
    result = getattr(compiled("loops"), f"{name}_{dtype}")
    result.restype = ctypes.c_double if dtype == np.float64 else ctypes.c_float
    return result


def address(a: Array | None) -> ctypes.c_void_p:
    if a is None:
        return ctypes.c_void_p(None)
    assert a.flags.c_contiguous
    return ctypes.c_void_p(a.ctypes.data)


def bound(name: str, sizes: Any, arrays: Any) -> Call:
    """A call of the function with sizes, then arrays, for its value as a NumPy scalar of the first array's dtype."""
    loop, real = function(name, arrays[0].dtype), arrays[0].dtype.type
    arguments = [*map(ctypes.c_long, sizes), *map(address, arrays)]
    return lambda: real(loop(*arguments))


def valued(name: str, inputs: Any, outs: Any, *sizes: int) -> Call:
    call = bound(name, sizes, (*inputs, *outs))
    return lambda: (call(), outs)


def filled(name: str, inputs: Any, out: Array, *sizes: int) -> Call:
    loop = function(name, out.dtype)
    arguments = [*map(ctypes.c_long, sizes), *map(address, (*inputs, out))]

    def call() -> Array:
        loop(*arguments)
        return out

    return call


def like(*arrays: Array) -> tuple[Array, ...]:
    return tuple(np.empty_like(a) for a in arrays)


def make_layer_norm_grad(x: Array, gain: Array, bias: Array, c: Array) -> Call:
    parts = min(PARTS, len(x))
    dx, sums = np.empty_like(x), np.empty((2, parts, len(gain)), x.dtype)
    call = bound("layer_norm_grad", (*x.shape, parts), (x, gain, bias, c, dx, sums[0], sums[1]))
    return lambda: (call(), (dx, *np.sum(sums, axis=1)))


def make_logreg_fwd(w: Array, x: Array, y: Array) -> Call:
    return bound("logreg", (*x.shape, min(PARTS, len(x))), (w, x, y, None))


def make_logreg_grad(w: Array, x: Array, y: Array) -> Call:
    parts, rows = min(PARTS, len(x)), x.dtype.type(len(x))
    sums = np.empty((parts, len(w)), x.dtype)
    call = bound("logreg", (*x.shape, parts), (w, x, y, sums))
    return lambda: (call(), (np.sum(sums, axis=0) / rows,))


LOOPS: dict[tuple[str, str], Callable[..., Call]] = {
    ("black_scholes", "fwd"): lambda *a: bound("black_scholes_fwd", (len(a[0]),), a),
    ("black_scholes", "grad"): lambda *a: valued("black_scholes_grad", a, like(*a), len(a[0])),
    ("chain", "map"): lambda x, y: filled("chain_map", (x, y), np.empty_like(x), len(x)),
    ("chain", "fwd"): lambda *a: bound("chain_fwd", (len(a[0]),), a),
    ("chain", "grad"): lambda *a: valued("chain_grad", a, like(*a), len(a[0])),
    ("xent", "fwd"): lambda z, y: bound("xent_fwd", z.shape, (z, y)),
    ("xent", "grad"): lambda z, y: valued("xent_grad", (z, y), like(z), *z.shape),
    ("layernorm", "fwd"): lambda x, gain, bias, c: filled("layer_norm_fwd", (x, gain, bias), np.empty_like(x), *x.shape),
    ("layernorm", "grad"): make_layer_norm_grad,
    ("logreg", "fwd"): make_logreg_fwd,
    ("logreg", "grad"): make_logreg_grad,
}
