"""Kernels of matrix products of many forms, as text, and what each computes, by NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
MOST = 40
"""Rows that a gather chooses from."""


@dataclass(frozen=True)
class Form:
    """An operand: the type of its references, T that of elements; the lines that give %y at %i, %p (left) or %p, %j (right);
    and the same by NumPy: the matrix of the arrays."""

    refs: Mapping[str, str]
    lines: str
    matrix: Callable[..., Any]


LEFT = {
    "plain": Form({"x": "&T[s0,s1]"}, "%y: T[] = load %x, %i, %p", lambda x: x),
    "turned": Form({"x": "&T[s1,s0]"}, "%y: T[] = load %x, %p, %i", lambda x: x.T),
    "strided": Form({"x": "&T[s0,s1;strided]"}, "%y: T[] = load %x, %i, %p", lambda x: x),
    "scaled": Form(
        {"x": "&T[s0,s1]", "s": "&T[s1]"},
        "%y0: T[] = load %x, %i, %p\n%y1: T[] = load %s, %p\n%y: T[] = mul %y0, %y1",
        lambda x, s: (x * s).astype(x.dtype),
    ),
    "masked": Form(
        {"x": "&T[s1,s0]"}, "%c: bool[] = le %i, %p\n%y: T[] = load_if %x, %c, %p, %i", lambda x: np.triu(x.T.astype(float))
    ),
    "gathered": Form(
        {"x": f"&T[{MOST},s1]", "at": "&i64[s0]"}, "%r: i64[] = load %at, %i\n%y: T[] = load %x, %r, %p", lambda x, at: x[at]
    ),
}  # fmt: skip
RIGHT = {
    "plain": Form({"w": "&T[s1,s2]"}, "%y: T[] = load %w, %p, %j", lambda w: w),
    "turned": Form({"w": "&T[s2,s1]"}, "%y: T[] = load %w, %j, %p", lambda w: w.T),
    "both": Form(
        {"w": "&T[s2,s1]", "v": "&T[s1,s2]"},
        "%y0: T[] = load %w, %j, %p\n%y1: T[] = load %v, %p, %j\n%y: T[] = add %y0, %y1",
        lambda w, v: (w.T + v).astype(w.dtype),
    ),
}
EACH = """\
    %r0: S[] = load %row, %i0
    %c0: S[] = load %column, %j0
    %t0: S[] = mul %sum, %r0
    %t1: S[] = add %t0, %c0
    %zero: S[] = const {value=0.0}
    %is: bool[] = gt %t1, %zero
    %t2: S[] = select %is, %t1, %zero
    store %t2, %out, %i0, %j0
    %old: S[] = load %d, %i0, %j0
    store_if %old, %e, %is, %i0, %j0
    yield"""


def text(dtype: str, left: str, right: str, params: str = "") -> str:
    """A kernel with its program: out = max(product * row + column, 0), and e, where that is positive, d."""
    a, b = LEFT[left], RIGHT[right]
    total = "f64" if dtype == "f64" else "f32"
    own = {**a.refs, **b.refs}
    refs = {**own, "row": "&S[s0]", "column": "&S[s2]", "d": "&S[s0,s2]", "out": "&S[s0,s2]", "e": "&S[s0,s2]"}

    def element(form: Form) -> str:
        lines = form.lines.split("\n")
        if total != dtype:
            lines.append("%z: f32[] = cast %y {dtype=f32}")
        return "\n".join(f"    {line}" for line in lines) + f"\n    yield %{'y' if total == dtype else 'z'}"

    parameters = ", ".join(f"%{name}: {t}" for name, t in refs.items())
    arguments = parameters.replace("s0", "m").replace("s1", "k").replace("s2", "n").replace(";strided", "")
    body = f"""pullback-ir 2

program f({arguments}) -> () {{
  launch {", ".join(f"%{name}" for name in refs)} {{kernel=k0, sizes=[m,k,n]}}
  return
}}

kernel k0({parameters}) -> () {{
  %m: i64[] = extent {{size=s0}}
  %n: i64[] = extent {{size=s2}}
  %k: i64[] = extent {{size=s1}}
  product %m, %n, %k{params} (%i: i64[], %p: i64[]) {{
{element(a)}
  }} (%p: i64[], %j: i64[]) {{
{element(b)}
  }} (%i0: i64[], %j0: i64[], %sum: S[]) {{
{EACH}
  }}
  return
}}
"""
    return _distinct(body).replace("S[", f"{total}[").replace("T[", f"{dtype}[")


def _distinct(body: str) -> str:
    """Rename the values of the second region so that they differ from the first's."""
    head, first, second, rest = body.split("(%i: i64[], %p: i64[])")[0], *_regions(body)
    for name in ("p", "y0", "y1", "y", "z"):
        second = second.replace(f"%{name}:", f"%{name}_:").replace(f"%{name},", f"%{name}_,").replace(f"%{name} ", f"%{name}_ ")
        second = second.replace(f"%{name}\n", f"%{name}_\n")
    return head + first + second + rest


def _regions(body: str) -> tuple[str, str, str]:
    start, middle = body.index("(%i: i64[], %p: i64[])"), body.index("(%p: i64[], %j: i64[])")
    end = body.index("(%i0: i64[]")
    return body[start:middle], body[middle:end], body[end:]


def arguments(dtype: str, left: str, right: str, m: int, k: int, n: int) -> dict[str, Any]:
    """Random arguments of a form's kernel, the last two of which it writes."""
    rng, sizes = np.random.default_rng(m + k + n), {"s0": m, "s1": k, "s2": n, str(MOST): MOST}
    result = {}
    for name, t in {**LEFT[left].refs, **RIGHT[right].refs}.items():
        shape = [sizes[e] for e in t.split("[")[1].split("]")[0].split(";")[0].split(",")]
        if t.startswith("&i64"):
            result[name] = rng.integers(0, MOST, shape)
        else:
            result[name] = rng.normal(size=[*shape[:-1], 2 * shape[-1]] if "strided" in t else shape).astype(NUMPY[dtype])
            result[name] = result[name][..., ::2] if "strided" in t else result[name]
    total = np.float64 if dtype == "f64" else np.float32
    shapes = {"row": (m,), "column": (n,), "d": (m, n)}
    result.update({name: rng.normal(size=shape).astype(total) for name, shape in shapes.items()})
    return {**result, "out": np.full((m, n), np.nan, total), "e": np.zeros((m, n), total)}


def check(dtype: str, left: str, right: str, arguments: Mapping[str, Any], bits: int) -> None:
    """Check that the kernel's results are within the error bound of products with ``bits`` bits of precision."""
    a = LEFT[left].matrix(*(arguments[name] for name in LEFT[left].refs)).astype(np.float64)
    b = RIGHT[right].matrix(*(arguments[name] for name in RIGHT[right].refs)).astype(np.float64)
    row, column = arguments["row"].astype(np.float64)[:, None], arguments["column"].astype(np.float64)
    wanted = np.maximum((a @ b) * row + column, 0)
    size = (np.abs(a) @ np.abs(b)) * np.abs(row) + np.abs(column)
    unit = np.finfo(arguments["out"].dtype).eps
    error = (2.0**-bits * 2 + (a.shape[1] + 4) * unit) * size
    wrong = ~(np.abs(arguments["out"] - wanted) <= error)
    assert not wrong.any(), (a.shape, b.shape, np.argwhere(wrong)[:5], arguments["out"][wrong][:5], wanted[wrong][:5])
    np.testing.assert_array_equal(arguments["e"], np.where(arguments["out"] > 0, arguments["d"], 0))
