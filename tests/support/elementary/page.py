"""docs/math.md: the greatest errors measured for each elementary function, how it is computed, and its special values.

``python -m tests.support.elementary.page`` measures again and writes the page (minutes); with ``derivatives`` after it, it
writes only the section of the derivatives, whose bounds are in ``bounds``. The compiled functions are measured; candidates
are found by comparison with a wider format and settled by mpmath.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from pullback.ir.ops.elementwise import semantics
from tests.support.derivatives.bounds import BOUNDS as DERIVATIVE_BOUNDS
from tests.support.derivatives.bounds import MATRICES, REASONS
from tests.support.derivatives.references import orders
from tests.support.derivatives.rows import ROWS
from tests.support.elementary.arguments import BINARY, NUMPY, RANGES, arguments_of, errors, hard, pairs_of
from tests.support.elementary.recipes import DTYPES, Array, compiled, names
from tests.support.elementary.sources import METHODS, SPECIAL
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "math.md"
RANDOM = 1_500_000
STRIDE = 61
SETTLED = 24
# op: the greatest error allowed; 2 for all others.
GOALS = {
    "exp": 1.0, "log": 1.0, "sin": 1.0, "cos": 1.0, "pow": 4.0, "sech2": 3.5, "tanh_tail": 2.5, "inverse_mills": 3.0,
    "mills_gap": 6.0, "erfcx": 3.0, "ierfcx": 6.0, "digamma_step": 6.0, "trigamma_step": 7.0,
}  # fmt: skip

HEAD = """# Elementary functions

This page lists how `pullback` computes the elementary functions on the CPU, and the greatest errors measured. No call leaves the
kernel. Vectors of any width give the same bits, and so do processors of every level, with and without fused multiply-add.
`tests/support/elementary/page.py` writes this page; `tests/repository/test_math_page.py` checks the functions against it.

*Error* is the distance from the exact value in units in the last place of the exact value (1/2 is the least that rounding
allows). *A sum of two* is an unevaluated sum of two numbers of the format.

Functions are measured at these points:

- *One argument, float32*: every {stride}st of all 2^32 numbers.
- *One argument, float64*: {random:,} numbers: random bits, ranges up to 1, 4, 20, 100, 800 and 100,000, all magnitudes near 1.
- *One argument, both formats*: also numbers near 0, 1, multiples of pi/2 and the limits of overflow and underflow, subnormal
  numbers, and published worst cases.
- *Two arguments*: {random:,} pairs.

Three functions are measured in another way:

- `logaddexp` is measured in units of the greatest of its result, its greater argument and log(2), since digits cancel where the
  result is near 0.
- `gammaln` and `digamma` are measured above 0. Below 0, where they have zeros, the error is at most 2 epsilon (2^-51; float32:
  2^-22) times the greatest of 1, the size of the value, and the size of the value at 1 - x.

| function | float64 | at | float32 | at | method |
| --- | --- | --- | --- | --- | --- |
"""
SPECIALS = """
## Special values

NaN gives NaN unless stated otherwise. Subnormal arguments and results are kept.

| function | values |
| --- | --- |
"""
ROW = re.compile(r"\| `(\w+)` \| ([\d.]+) \| `([^`]*)` \| ([\d.]+) \| `([^`]*)` \|")

WIDE: dict[str, Any] = {"expit": lambda x: 1 / (1 + np.exp(-x)), **{k: v for k, v in NUMPY.items() if isinstance(v, np.ufunc)}}


def within(name: str, x: Array) -> Array:
    """The finite arguments of ``x`` in the range of a function."""
    low, high = RANGES.get(name, (-np.inf, np.inf) * 2)[slice(0, 2) if x.dtype == np.float64 else slice(2, 4)]
    result: Array = x[(x > low) & (x < high) & np.isfinite(x)]
    return result


def samples(name: str, dtype: str) -> Iterator[tuple[Array, ...]]:
    """The arguments of the page, the small sample of ``small`` first."""
    yield small(name, dtype)
    rng = np.random.default_rng(sum(map(ord, name + dtype)) + 1)
    kind = DTYPES[dtype]
    if name in BINARY:
        for seed in range(RANDOM // 2000):
            yield pairs_of(name, dtype, seed + 1)
    elif dtype == "f32":
        for start in range(0, 2**32, 2**28):
            yield (within(name, np.arange(start + -start % STRIDE, start + 2**28, STRIDE, np.uint32).view(kind)),)
    else:
        part = RANDOM // 12
        yield (within(name, rng.integers(0, 2**64, 4 * part, np.uint64).view(kind)),)
        for size in (1.0, 4.0, 20.0, 100.0, 800.0, 1e5):
            yield (within(name, rng.uniform(-size, size, part)),)
        yield (within(name, 1 + rng.normal(0, 1, 2 * part) * np.exp2(rng.uniform(-45, 0, 2 * part))),)


def small(name: str, dtype: str) -> tuple[Array, ...]:
    """Some thousand arguments, special neighbourhoods included."""
    if name in BINARY:
        return pairs_of(name, dtype)
    return (within(name, np.concatenate([arguments_of(name, dtype), hard(dtype)])),)


def suspects(name: str, result: Array, arguments: tuple[Array, ...]) -> Array:
    """The places of the greatest errors by a wider format; all places where that has no such function."""
    wide = WIDE.get(name) or getattr(np, name, None)
    if wide is None or (result.dtype == np.float64 and name not in LONG):
        return np.random.default_rng(0).permutation(result.size)[: 40 if name in BINARY else 2000]
    with np.errstate(all="ignore"):
        exact = wide(*(a.astype(np.float64 if a.dtype == np.float32 else np.longdouble) for a in arguments))
        distance = np.abs(result - exact) / np.spacing(np.abs(exact.astype(result.dtype)))
    distance = np.where(np.isfinite(distance), distance, -1)
    return np.argpartition(distance, -min(SETTLED, distance.size))[-SETTLED:]


# What NumPy computes in long double.
LONG = {
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh",
    "tanh", "asinh", "acosh", "atanh", "pow", "cbrt", "hypot", "logaddexp", "expit",
}  # fmt: skip
SLOPES = "sech2", "tanh_tail", "logistic_pdf", "logistic_logpdf", "gauss", "normal_pdf"
WIDE |= {name: getattr(semantics, name) for name in SLOPES}
WIDE |= {"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh}


def greatest(name: str, result: Array, arguments: tuple[Array, ...]) -> tuple[float, str]:
    places = suspects(name, result, arguments)
    kept = [a[places] for a in arguments]
    actual = errors(name, result[places], *kept)
    worst = int(np.argmax(actual))
    return float(actual[worst]), ", ".join(repr(float(a[worst])) if a.dtype == np.float64 else str(a[worst]) for a in kept)


def measured(name: str, dtype: str) -> tuple[float, str]:
    """The greatest error over the sample of the page, and where it is."""
    return max(greatest(name, compiled(name, *a), a) for a in samples(name, dtype) if a[0].size)


def up(error: float) -> str:
    """An error to three digits, rounded up."""
    return f"{np.ceil(error * 1000) / 1000:.3f}"


def page() -> str:
    rows = []
    for name in names():
        (wide, where), (narrow, there) = (measured(name, dtype) for dtype in ("f64", "f32"))
        rows.append(f"| `{name}` | {up(wide)} | `{where}` | {up(narrow)} | `{there}` | {METHODS[name]} |\n")
        print(rows[-1], end="", file=sys.stderr, flush=True)
    head = HEAD.format(stride=STRIDE, random=RANDOM)
    return with_derivatives(head + "".join(rows) + SPECIALS + "".join(f"| `{name}` | {SPECIAL[name]} |\n" for name in names()))


DERIVATIVES = """
## Derivatives

The table lists the errors allowed for values, first and second derivatives. `tests/ir/test_derivatives.py` checks them against
mpmath, in float64 and float32, in reverse and in forward mode.

- *Points.* Powers of two over the whole domain in both signs; points near poles, zeros, branch points and where results overflow
  or underflow; ordinary numbers. For two arguments, pairs of powers of two.
- *Unit.* u (|f| + sum |x f'|) for values, u (|f'| + sum |x f''|) for first derivatives and so on, with the unit roundoff u
  (2^-53; float32: 2^-24). This is the change that one rounding of the arguments causes.
- *Extremes.* In addition, results may be off by 256 times the smallest subnormal number. From a quarter of the largest number on
  they may be infinite. Derivatives at points with a non-finite value do not count.
- *Several arguments.* Derivatives with respect to each argument, then with respect to each pair in the order xx, xy, yy.

| function | value | first | second | reason for larger errors |
| --- | --- | --- | --- | --- |
"""
MATRIX_DERIVATIVES = """
Derivatives of matrix functions, along a direction. The matrices are 4 x 4 and 5 x 3, well conditioned and with condition numbers
up to 10^5. The unit is u times the derivative and its greatest change along matrices as large as the largest element.

| operation | value | first | second |
| --- | --- | --- | --- |
"""


def derivatives() -> str:
    """The section of the bounds of derivatives."""
    rows = []
    for name in sorted(DERIVATIVE_BOUNDS):
        columns = dict(zip(orders(ROWS[name].arity), DERIVATIVE_BOUNDS[name], strict=True))
        parts = [", ".join(str(c) for index, c in columns.items() if sum(index) == order) for order in range(3)]
        rows.append(f"| `{name}` | {' | '.join(parts)} | {REASONS.get(name, '')} |\n")
    matrices = [f"| `{name}` | {' | '.join(map(str, bounds))} |\n" for name, bounds in sorted(MATRICES.items())]
    return DERIVATIVES + "".join(rows) + MATRIX_DERIVATIVES + "".join(matrices)


def with_derivatives(text: str) -> str:
    """The page with its section of derivatives as it should be."""
    return text.split("\n## Derivatives\n")[0] + derivatives()


def shown() -> dict[str, tuple[float, float]]:
    """The errors that the page shows."""
    return {m[1]: (float(m[2]), float(m[4])) for m in map(ROW.match, PAGE.read_text().splitlines()) if m}


if __name__ == "__main__":
    PAGE.write_text(with_derivatives(PAGE.read_text()) if sys.argv[1:] == ["derivatives"] else page())
