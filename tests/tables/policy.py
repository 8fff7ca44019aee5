"""The gradient policy: the rows of ``policy.txt``, what we and our peers give for them, and the page that shows it.

In ``policy.txt`` a section begins with ``##``; a formula, ``= name: text``, is followed by its rows: ``function :: at :: order 1
:: order 2 :: remark``. Order 2 is the second derivative, of arrays the Hessian times (1, 2, 3, ...). ``policy_peers.json`` holds
what JAX and HIPS autograd gave.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
import scipy.spatial.distance
import scipy.special
import scipy.stats

import pullback as pb
from tests.support.paths import ROOT, TABLES
from tests.tables.others_defects import ENTRIES

ROWS = TABLES / "policy.txt"
PEERS = TABLES / "policy_peers.json"
PAGE = ROOT / "docs" / "gradient-policy.md"
NONE = "–"


@dataclass(frozen=True)
class Row:
    text: str
    at: str
    first: str = ""
    second: str = ""
    remark: str = ""

    @property
    def key(self) -> str:
        return f"{self.text} at {self.at}"

    def point(self) -> Any:
        """The argument: a number, an array, or the array of x and y."""
        arguments = number(f"({self.at},)")
        return np.asarray(arguments[0] if len(arguments) == 1 else arguments, np.float64)

    def function(self, space: Mapping[str, Any]) -> Callable[[Any], Any]:
        body = "x" if len(number(f"({self.at},)")) == 1 else "v"
        unpacked = "" if body == "x" else "    x, y = v[0], v[1]\n"
        known = dict(space)
        exec(f"def f({body}):\n{unpacked}    return {self.text}\n", known)
        result: Callable[[Any], Any] = known["f"]
        return result


@dataclass
class Formula:
    name: str
    text: str
    rows: list[Row] = field(default_factory=list)


@dataclass
class Section:
    title: str
    formulas: list[Formula] = field(default_factory=list)


def sections() -> list[Section]:
    result: list[Section] = []
    for line in ROWS.read_text().splitlines():
        if line.startswith("## "):
            result.append(Section(line[3:]))
        elif line.startswith("= "):
            name, _, text = line[2:].partition(": ")
            result[-1].formulas.append(Formula(name, text))
        elif line:
            result[-1].formulas[-1].rows.append(Row(*line.split(" :: ")))
    return result


def formulas() -> list[Formula]:
    return [formula for section in sections() for formula in section.formulas]


def number(text: str) -> Any:
    return eval(text, {"inf": np.inf, "nan": np.nan})


def directions(x: Any) -> Any:
    """What Hessians are multiplied by."""
    return np.arange(1.0, x.size + 1).reshape(x.shape)


def ours(rows: list[Row]) -> Callable[..., list[tuple[Any, Any, Any, Any]]]:
    """A function of the points of rows: their derivatives of orders 1 and 2 by reverse mode, and along ``directions`` by forward
    mode."""
    space = {"np": np, "scipy": scipy, "stop_gradient": pb.stop_gradient}
    functions = [row.function(space) for row in rows]

    def derivatives(f: Callable[[Any], Any], x: Any) -> tuple[Any, Any, Any, Any]:
        d = directions(x)
        gradient = pb.grad(f)
        second = pb.grad(lambda x: np.sum(gradient(x) * d))(x)
        return gradient(x), second, pb.jvp(f, (x,), (d,))[1], pb.jvp(gradient, (x,), (d,))[1]

    return lambda *points: [derivatives(f, x) for f, x in zip(functions, points, strict=True)]


def of_peer(name: str, rows: list[Row]) -> dict[str, list[str]]:
    """Orders 1 and 2 of rows by a peer, as text; ``NONE`` where it does not have a function."""
    peer = importlib.import_module(name)
    if name == "jax":
        peer.config.update("jax_enable_x64", True)
    theirs = importlib.import_module("jax.numpy" if name == "jax" else "autograd.numpy")
    for module in ("special", "linalg", "stats"):
        importlib.import_module(f"{name}.scipy.{module}")
    space: dict[str, Any] = {"np": theirs, "scipy": peer.scipy}
    if name == "jax":
        space["stop_gradient"] = peer.lax.stop_gradient
    return {row.key: _of_peer(peer.grad, theirs, row.function(space), row.point()) for row in rows}


def _of_peer(grad: Any, theirs: Any, f: Callable[[Any], Any], x: Any) -> list[str]:
    d = directions(x)
    result = []
    for derivative in (grad(f), grad(lambda x: theirs.sum(grad(f)(x) * d))):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                result.append(shown(derivative(x[()] if x.ndim == 0 else x)))
            except Exception:
                result.append(NONE)
    return result


def shown(value: Any) -> str:
    """An array as text: one number if all elements are equal; rounding errors are zeros."""
    a = np.asarray(value, np.float64)
    finite = np.abs(a[np.isfinite(a)])
    a = np.where(np.abs(a) <= 1e-13 * np.max(finite, initial=0), 0.0, a)
    if a.size and (np.isnan(a).all() or (a == a.flat[0]).all()):
        return f"{a.flat[0]:.6g}"
    return _listed(a)


def _listed(a: Any) -> str:
    return f"[{', '.join(map(_listed, a))}]" if a.ndim else f"{a:.6g}"


def agrees(value: Any, expected: str) -> bool:
    """Whether an array is what a text says, to the digits of the text."""
    a, e = np.broadcast_arrays(np.asarray(value, np.float64), np.asarray(number(expected), np.float64))
    scale = np.max(np.abs(a[np.isfinite(a)]), initial=0)
    return bool(np.allclose(a, e, rtol=1e-5, atol=1e-12 * scale, equal_nan=True))


def stored() -> dict[str, Any]:
    result: dict[str, Any] = json.loads(PEERS.read_text())
    return result


HEAD = """\
# Gradients at singular points

This page defines the derivative of each function where it does not exist, or where the usual formula gives `0 * inf`. There
is one convention for each function, at first and second order, in reverse and forward mode. Every row is a test, compiled
and interpreted (`tests/repository/test_policy.py`). If a gradient is NaN, look for the name of the function on this page;
[pb.find_nan](debugging.md) reports the line at which the NaN appears.

- Order 1 is the gradient with respect to x, or to x and y.
- Order 2 is the second derivative; for arrays, the Hessian times (1, 2, 3, …) in the order of the elements.
- One number stands for an array whose elements all equal that number.
- The columns JAX and autograd have the results of JAX {jax} and HIPS autograd {autograd}, computed by the same script in
  float64. `same` means equal to ours; {none} means that the system does not have this function.

[Semantics](semantics.md#gradients) has the conventions in short. [The last section](#what-others-got-wrong) lists wrong
gradients of other systems.
"""


OTHERS = """\
## What others got wrong

This table lists hand-written gradients of other systems that are or were wrong. `tests/peers/test_others_defects.py` has the
program of each in plain NumPy, on data for which the right and the wrong formula differ. The gradient that pullback computes
agrees with differences (orders 1 and 2) and with the right formula, and not with the wrong one. Nearly all of these errors
have one of four causes: tests with a cotangent of ones, tests with a single shape, tests that use each value once, and
gradients written into a buffer.

| system | where | what is wrong | test |
| --- | --- | --- | --- |"""


def page(peers: Mapping[str, Any]) -> str:
    """The text of docs/gradient-policy.md."""
    out = [HEAD.format(**peers["versions"], none=NONE)]
    for section in sections():
        out.append(f"## {section.title}\n")
        for formula in section.formulas:
            out.append(f"### {formula.name}\n\n{formula.text}\n")
            out.append("| function | at | order 1 | order 2 | JAX | autograd | |")
            out.append("| --- | --- | --- | --- | --- | --- | --- |")
            out += [_line(row, formula.name, peers["rows"].get(row.key, {})) for row in formula.rows]
            out.append("")
    out.append(OTHERS)
    out += [f"| {e.system} | {e.where} | {e.what} | `{e.system}-{e.name}` |" for e in ENTRIES]
    return "\n".join(out) + "\n"


def _line(row: Row, formula: str, peers: Mapping[str, list[str]]) -> str:
    cells = [f"`{row.text}`", row.at, row.first, row.second]
    for name in ("jax", "autograd"):
        result = peers.get(name, [NONE, NONE])
        is_same = all(f != NONE and agrees(number(f), e) for f, e in zip(result, (row.first, row.second)))
        cells.append("same" if is_same else NONE if set(result) == {NONE} else "; ".join(result))
    cells.append(f"[{formula}](#{formula})" + f": {row.remark}" * bool(row.remark))
    return f"| {' | '.join(cells)} |"
