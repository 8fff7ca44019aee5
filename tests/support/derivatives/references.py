"""The exact values and derivatives of the sweep, computed by mpmath and stored in tests/derivatives.

``python -m tests.support.derivatives.references [NAME ...]`` computes those of the rows named, or of rows whose points
have changed or that have no file. A file holds the points (float64), the value, first and second partial derivatives at each
(rounded to float64; infinite where they overflow), and by each of these the logarithm of the scale in which errors are counted:
|f| + sum |x_i f_i|, and likewise |f_i| + sum |x_j f_ij| and so on. NaN: mpmath gave no answer there that two precisions agree on.
"""

from __future__ import annotations

import io
import itertools
import lzma
import math
import signal
import sys
from typing import Any

import numpy as np
from mpmath import libmp, mp

from tests.support.derivatives.formulas import EXACT
from tests.support.derivatives.jets import Jet, variables
from tests.support.derivatives.rows import ROWS, points
from tests.support.paths import TABLES

FOLDER = TABLES / "derivatives"
Array = np.ndarray[Any, np.dtype[Any]]
Index = tuple[int, ...]
STEPS = 8
"""Steps of the stored logarithms in a factor of two."""
AGREE = -66
"""Two precisions must agree to this power of two of the scale."""
PRECISIONS = (160, 320, 640, 1280, 2560, 5120, 10240)
PATIENCE = 20.0
"""Seconds for one point."""
FAR = ["ndtri_exp"]
CLOSE = ["j0", "j1", "i0", "i1"]
"""Rows whose formulas subtract terms that are equal to as many digits as their argument is large, or small."""
LEAST = -3000
"""The power of two below which differences are 0."""


def orders(arity: int) -> list[Index]:
    """The multi-indices of the value, the first and the second derivatives, in the order of the stored columns."""
    unit = [tuple(int(i == k) for i in range(arity)) for k in range(arity)]
    pairs = itertools.combinations_with_replacement(range(arity), 2)
    return [(0,) * arity, *unit, *(tuple(map(sum, zip(unit[j], unit[k]))) for j, k in pairs)]


def rounded(x: Any) -> float:
    """The nearest float64."""
    if mp.isnan(x):
        return math.nan
    if mp.isinf(x):
        return math.inf if x > 0 else -math.inf
    exponent = 0 if not x else mp.mag(x)
    if exponent > 1025:
        return math.copysign(math.inf, x)
    if exponent < -1080:
        return math.copysign(0.0, x)
    if exponent < -1021:
        return math.ldexp(float(mp.nint(mp.ldexp(x, 1074))), -1074)
    with mp.workprec(53):
        return float(+x)


def _scales(jet: Jet, point: Any, kept: list[Index]) -> list[Any]:
    count = jet.count
    result = []
    for index in kept:
        scale = abs(jet.derivative(index))
        for k in range(count):
            above = tuple(v + (i == k) for i, v in enumerate(index))
            scale += abs(mp.mpf(point[k]) * jet.derivative(above))
        result.append(scale)
    return result


def _agree(now: Any, before: Any) -> bool:
    """Return whether two precisions give the same value, in units of the same scale."""
    (value, scale), (other, other_scale) = now, before
    least = mp.ldexp(1, LEAST)
    is_same = abs(scale - other_scale) <= mp.ldexp(scale, -8) or max(scale, other_scale) < least
    return is_same and (abs(value - other) <= mp.ldexp(scale, AGREE) or abs(value - other) < least)


class Late(Exception):
    """Raised where a point takes too long."""


def _alarm(*_: Any) -> None:
    raise Late


def reference(name: str, point: Any, patience: float = PATIENCE) -> tuple[list[float], list[int]]:
    """Return the columns of one point, computed in at most ``patience`` seconds."""
    kept = orders(len(point))
    before: list[Any] | None = None
    # Sums of squares of numbers of different sizes must hold the smaller one, or two precisions agree on what neither has.
    sizes = [math.frexp(x)[1] for x in point if x]
    enough = 160 + 2 * (max(sizes) - min(sizes)) if len(sizes) > 1 else 160
    if name in FAR and sizes:
        enough += 4 * max(0, sizes[0])
    if name in CLOSE and sizes:
        enough += 4 * max(0, -sizes[0])
    handler = signal.signal(signal.SIGALRM, _alarm)
    signal.setitimer(signal.ITIMER_REAL, patience)
    try:
        for precision in sorted({p for p in PRECISIONS if p >= enough} or {enough, 2 * enough}):
            with mp.workprec(precision):
                try:
                    jet = EXACT[name](*variables([mp.mpf(x) for x in point]))
                    now = [(jet.derivative(k), s) for k, s in zip(kept, _scales(jet, point, kept), strict=True)]
                except ArithmeticError:  # too few digits tell a point from a pole
                    before = None
                    continue
                if before is not None and all(map(_agree, now, before)):
                    return [rounded(v) for v, _ in now], [_logarithm(s) for _, s in now]
                before = now
    except (Late, libmp.NoConvergence, ValueError, NotImplementedError, TypeError, MemoryError) as error:
        if name not in _told:
            _told[name] = f"{point}: {type(error).__name__} {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    return [math.nan] * len(kept), [0] * len(kept)


_told: dict[str, str] = {}


def _logarithm(scale: Any) -> int:
    if not scale:
        return -32768
    if mp.isnan(scale) or mp.isinf(scale):
        return 32767
    mantissa, exponent = mp.frexp(scale)
    return int(max(-32768, min(32767, exponent * STEPS + round(STEPS * math.log2(float(mantissa))))))


def write(name: str) -> None:
    x = points(name)
    lines = [reference(name, p) for p in x]
    stream = io.BytesIO()
    np.savez(stream, points=x, values=np.array([v for v, _ in lines]), scales=np.array([s for _, s in lines], np.int16))
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.npz.xz").write_bytes(lzma.compress(stream.getvalue(), preset=9))


def read(name: str) -> tuple[Array, Array, Array]:
    """The points of a row, the columns of values, and the scales."""
    stored = np.load(io.BytesIO(lzma.decompress((FOLDER / f"{name}.npz.xz").read_bytes())))
    return stored["points"], stored["values"], stored["scales"] / STEPS


def is_current(name: str) -> bool:
    """Return whether there is a file for the current points of the row."""
    return (FOLDER / f"{name}.npz.xz").exists() and np.array_equal(read(name)[0], points(name))


if __name__ == "__main__":
    for row in sys.argv[1:] or [n for n in ROWS if n in EXACT and not is_current(n)]:
        write(row)
        x, values, _ = read(row)
        print(row, x.shape, "without", int(np.isnan(values).any(axis=1).sum()), _told.get(row, ""), flush=True)
