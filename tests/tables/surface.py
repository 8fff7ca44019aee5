"""What the tracer accepts of NumPy and SciPy: calls of each public function, what becomes of them, and the page that says so.

The calls are in ``tests/surface/*.txt``. A call that is traced must give what NumPy gives, interpreted and compiled, and its
derivative must be the difference of its values; any other must end in a TraceError, whose message is the reason on the page.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy
import scipy.fft
import scipy.linalg
import scipy.signal
import scipy.special
import scipy.stats
from scipy.stats import rv_continuous, rv_discrete

import pullback as pb
from pullback.tracer import TraceError, flatten, trace
from tests.support.agreement import plain
from tests.support.numpy_calls import leaves
from tests.support.paths import ROOT, TESTS
from tests.support.tracing import evaluate
from tests.support.versions import IS_OLDER

FOLDER = TESTS / "surface"
PAGE = ROOT / "docs" / "numpy.md"
SECTIONS = {
    "numpy": "np", "linalg": "np.linalg", "fft": "np.fft", "ndarray": "ndarray", "special": "scipy.special",
    "scipy_linalg": "scipy.linalg", "stats": "scipy.stats", "signal": "scipy.signal", "scipy_fft": "scipy.fft",
}  # fmt: skip
OF_SCIPY = ("special", "scipy_linalg", "stats", "signal", "scipy_fft")
NUMBERS = ("u", "u + 1", "u + 1.5", "u + 0.5", "u + 2")
"""What a ufunc of SciPy is called with, by position."""


def _arguments() -> dict[str, Any]:
    rng = np.random.default_rng(12)
    x, y = rng.uniform(0.3, 1.4, (2, 3, 4)) * rng.choice([-1, 1], (2, 3, 4))
    with_nan = rng.normal(size=(3, 4))
    with_nan[0, 1] = with_nan[2, 3] = np.nan
    return {
        "x": x,
        "y": y,
        "u": rng.uniform(0.1, 0.9, (3, 4)),
        "t": rng.normal(size=(2, 3, 4)),
        "m": rng.normal(size=(3, 3)) + 3 * np.eye(3),
        "v": rng.normal(size=5),
        "w": rng.normal(size=5),
        "o": np.sort(rng.normal(size=5)),
        "s": np.float64(0.7),
        "e": np.ones((3, 0)),
        "n": with_nan,
        "h": rng.normal(size=(3, 4)).astype(np.float32),
        "z": rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)),
        "i": rng.integers(-9, 10, (3, 4)),
        "j": rng.integers(1, 10, (3, 4)),
        "q": rng.integers(0, 256, (3, 4)).astype(np.uint8),
        "k": np.array([3, 0, 2, 0, 1]),
        "b": np.array([[True, False, True, True], [False, True, True, False], [True, True, False, True]]),
        "c": np.array([True, False, True, True, False]),
    }


ARGUMENTS = _arguments()
LEGEND = (
    "float64 `x`, `y`, `u` (in 0 to 1), `n` (with NaN) of shape (3, 4), `t` of (2, 3, 4), `m` of (3, 3), `v`, `w`, "
    "`o` (sorted) of 5, `e` of (3, 0), `s` a scalar; `h` float32, `z` complex128, `i`, `j` int64, `q` uint8, `b` bool "
    "of (3, 4); `k` int64, `c` bool of 5"
)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A name of a section, with calls, or the reason why there are none."""

    section: str
    name: str
    calls: tuple[str, ...] = ()
    reason: str = ""

    @property
    def path(self) -> str:
        return f"{SECTIONS[self.section]}.{self.name}"

    def written(self, call: str) -> str:
        """A call with the function's own name."""
        return re.sub(r"(?<!\")\bf\b(?!\")", self.name if self.section == "ndarray" else self.path, call)

    def texts(self) -> list[str]:
        return [self.written(call) for call in self.calls]


@functools.cache
def read(section: str) -> dict[str, Tried]:
    """The names of a section that this version of the library has, with their calls."""
    groups: dict[str, list[str]] = {}
    result: dict[str, Tried] = {}
    there = set(public(section))
    for line in (FOLDER / f"{section}.txt").read_text().splitlines():
        group = re.fullmatch(r"([A-Z]+) = (.*)", line)
        if group is not None:
            groups[group[1]] = list(_expanded(group[2], groups))
        elif line.strip() and not line.startswith("#"):
            names, _, text = line.partition(": ")
            for name in names.split():
                if name in result:
                    raise ValueError(f"{section}.txt has {name} twice")
                if name in there:
                    no = text.removeprefix("no: ")
                    arguments = {"reason": no} if no != text else {"calls": tuple(_expanded(text, groups))}
                    result[name] = Tried(section=section, name=name, **arguments)  # type: ignore[arg-type]
    for name in there - set(result) if section in OF_SCIPY else ():
        calls = tuple(_usual(getattr(importlib.import_module(SECTIONS[section]), name)))
        result[name] = Tried(section=section, name=name, calls=calls, reason="" if calls else UNTRIED)
    return result


UNTRIED = "no call was tested"


def _usual(value: Any) -> list[str]:
    """Calls of a ufunc, or of a distribution, of SciPy."""
    if isinstance(value, np.ufunc):
        return [f"f({', '.join(NUMBERS[: value.nin])})"] if value.nin <= len(NUMBERS) else []
    shapes = "".join(f", {1.5 + k}" for k in range(getattr(value, "numargs", 0)))
    if isinstance(value, rv_continuous):
        return [f"f.{method}(u{shapes})" for method in ("pdf", "logpdf", "cdf", "sf")]
    if isinstance(value, rv_discrete):
        return [f"f.{method}(j{shapes})" for method in ("pmf", "cdf")]
    return []


def _expanded(text: str, groups: dict[str, list[str]]) -> Iterator[str]:
    for call in text.split(" | "):
        yield from groups.get(call.strip(), [call.strip()])


def public(section: str) -> list[str]:
    """The names that a page of a section must have: functions, ufuncs, and classes that are called for what they compute."""
    if section == "ndarray":
        return [name for name in dir(np.ndarray) if not name.startswith("_")]
    if section in OF_SCIPY:
        module = importlib.import_module(SECTIONS[section])
        with warnings.catch_warnings(action="ignore"):
            values = {name: getattr(module, name) for name in sorted(module.__all__)}
        return [name for name, value in values.items() if callable(value) and _counts(value)]
    module = importlib.import_module("numpy" if section == "numpy" else f"numpy.{section}")
    with warnings.catch_warnings(action="ignore"):
        result = {name: getattr(module, name) for name in sorted({*dir(module), *getattr(module, "__all__", ())})}
    return [name for name, value in result.items() if not name.startswith("_") and _counts(value)]


def _counts(value: Any) -> bool:
    if isinstance(value, type):
        return not issubclass(value, np.generic | Exception | Warning | np.flexible) or value in (np.record,)
    return not isinstance(value, types.ModuleType | int | float | str | bool | np.bool_ | dict | tuple | None)


def function_of(text: str) -> tuple[Callable[..., Any], list[Any]]:
    """A function that makes a call, and its arguments: those that the text names."""
    lines = text.replace("\\n", "\n").replace("; ", "\n").split("\n")
    tree = ast.parse("\n".join(lines))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    arguments = [name for name in ARGUMENTS if name in names]
    body = "".join(f"    {line}\n" for line in lines[:-1])
    built: dict[str, Any] = {"np": np, "scipy": scipy}
    exec(f"def call({', '.join(arguments)}):\n{body}    return {lines[-1]}\n", built)
    return built["call"], [ARGUMENTS[name] for name in arguments]


def tells_arrays_apart(text: str) -> bool:
    """Return whether a traced call returns an array exactly where NumPy does, of rank 0 or not: a number cannot be written
    into, and ``isinstance`` distinguishes the two. True of calls that are refused."""
    *lines, last = text.replace("\\n", "\n").replace("; ", "\n").split("\n")
    function, arguments = function_of("; ".join([*lines, f"isinstance({last}, np.ndarray)"]))
    try:
        expected = plain(function, *_copies(arguments))
    except Exception:
        return IS_OLDER
    try:
        return bool(evaluate(trace(function, tuple(arguments)), _copies(arguments))) == expected
    except TraceError:
        return True


def refused(text: str, compiled: bool) -> str:
    """Why a call is not traced; empty for one that gives what NumPy gives. ``compiled``: compiled and differentiated, too."""
    try:
        return _refused(text, compiled)
    except Exception as error:
        error.add_note(f"of {text}")
        raise


def _refused(text: str, compiled: bool) -> str:
    function, arguments = function_of(text)
    try:
        expected = leaves(plain(function, *_copies(arguments)))
    except Exception:
        if not IS_OLDER:
            raise
        return ""
    try:
        traced = trace(function, tuple(arguments))
    except TraceError as error:
        return re.sub(r" at 0x[0-9a-f]+", "", error.message)
    exact = "scipy" not in text
    _same(leaves(evaluate(traced, _copies(arguments))), expected, exact)
    if compiled:
        _same(leaves(pb.jit(function)(*_copies(arguments))), expected, exact)
        _check_gradient(function, arguments)
    return ""


def _copies(arguments: Sequence[Any]) -> list[Any]:
    return [a.copy() for a in arguments]


def _same(result: Sequence[Any], expected: Sequence[Any], exact: bool) -> None:
    assert len(result) == len(expected)
    for a, b in zip(map(np.asarray, result), map(np.asarray, expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b)
            continue
        tolerance = (256 if exact else 2**16) * float(np.finfo(b.dtype).eps)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def _check_gradient(function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """The derivative of a weighted sum of the float64 results along a direction is the difference of its values."""
    wanted = [k for k, a in enumerate(arguments) if a.dtype == np.float64 and a.size]

    def loss(*xs: Any) -> Any:
        total = 0.0
        for position, leaf in enumerate(flatten(function(*xs))[0]):
            if getattr(leaf, "dtype", None) == np.float64:
                weights = 1.0 + 0.3 * np.cos(np.arange(leaf.size) + position).reshape(leaf.shape)
                total = total + np.sum(np.where(np.isfinite(leaf), weights * np.sin(leaf), 0.0))
        return total

    if not wanted or type(plain(loss, *_copies(arguments))) is float:
        return
    try:
        gradients = pb.grad(loss, argnums=tuple(wanted))(*_copies(arguments))
    except TraceError as error:
        if "there is no derivative" not in error.message:
            raise
        return
    rng, step = np.random.default_rng(3), 1e-6
    directions = [rng.uniform(0.5, 1.5, a.shape) for a in arguments]
    moved: list[Any] = []
    for sign in (1, -1):
        there = [a + sign * step * directions[k] if k in wanted else a.copy() for k, a in enumerate(arguments)]
        moved.append(plain(loss, *there))
    difference = (moved[0] - moved[1]) / (2 * step)
    result = sum(np.nansum(g * directions[k]) for g, k in zip(gradients, wanted, strict=True))
    scale = 1.0 + sum(np.nansum(np.abs(g)) for g in gradients)
    np.testing.assert_allclose(result, difference, rtol=0, atol=1e-5 * scale)


# the page

HEAD = """# Coverage of NumPy and SciPy

This page lists each public function of the sections below, with the result of test calls. Each call was traced, compiled and
compared with NumPy's results and dtypes; calls of float64 were differentiated too. The calls are in `tests/surface/*.txt`.
`python -m pytest tests/repository/test_surface.py --bless` writes this page from their results, and the tests compare the page
with them (with `-m long` each call is compiled). The page is for NumPy 2.4 and SciPy 1.17.

- **yes**: every test call is accepted; the number of calls follows.
- **partly**: the listed calls are not accepted; all others are.
- **no**: the function raises a `TraceError` at your line. In the sections of SciPy it may also mean that no call was tested.

These differences from NumPy apply everywhere:

- Compiled code gives no RuntimeWarning. `np.errstate` and `np.seterr` have no effect on it.
- Sums and products of floats are computed in another order than NumPy's, no less accurately. Matrix products are computed by
  BLAS or by kernels of our own. So reductions agree to rounding (relative to the sum of magnitudes, about log2(n) units), not bit
  by bit. Elementwise functions agree to the number of units in the last place that `tests/codegen/cpu/test_math.py` allows.
- A result is a new C-contiguous array, where NumPy may give a view or another memory order.
- Eigenvalues and roots are complex, also where all are real.
- Sorts are stable, whatever `kind` is; a partition is a full sort.
- Masked arrays, matrices, records, strings, dates and objects are not traced.
- `order=`, `subok=` and `like=` are accepted where they change nothing in a new C-contiguous array.

[Semantics](semantics.md) and [sharp edges](sharp-edges.md) have further differences. The arguments of the calls are {legend}.
"""
TITLES = {"numpy": "numpy", "linalg": "numpy.linalg", "fft": "numpy.fft", "ndarray": "Methods and attributes of arrays",
          **{section: SECTIONS[section] for section in OF_SCIPY}}  # fmt: skip


def head() -> str:
    """The page before its sections."""
    return HEAD.format(legend=LEGEND)


def part(section: str, compiled: bool) -> str:
    """The text of a section of the page, from what becomes of every call."""
    rows = [(tried, [refused(text, compiled) for text in tried.texts()]) for _, tried in sorted(read(section).items())]
    kinds = [_kind(tried, reasons) for tried, reasons in rows]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in ("yes", "partly", "no"))
    lines = [_row(tried, reasons, kind) for (tried, reasons), kind in zip(rows, kinds, strict=True)]
    return f"\n## {TITLES[section]}\n\n{counts}.\n\n| | | |\n| --- | --- | --- |\n" + "".join(lines)


def parts_of_page() -> dict[str, str]:
    """The texts of the sections as they are on the page, after its head under an empty name."""
    names = {f"\n## {TITLES[section]}\n": section for section in SECTIONS}
    pieces = re.split(f"({'|'.join(map(re.escape, names))})", PAGE.read_text())
    return {"": pieces[0]} | {names[title]: title + body for title, body in zip(pieces[1::2], pieces[2::2], strict=True)}


def _kind(tried: Tried, reasons: Sequence[str]) -> str:
    if tried.reason or all(reasons):
        return "no"
    return "partly" if any(reasons) else "yes"


def _row(tried: Tried, reasons: Sequence[str], kind: str) -> str:
    if kind == "yes":
        return f"| `{tried.name}` | yes | {len(reasons)} |\n"
    why = [tried.reason] if tried.reason else []
    for reason in dict.fromkeys(r for r in reasons if r):
        calls = [f"`{text}`" for text, r in zip(tried.texts(), reasons, strict=True) if r == reason]
        why.append(reason if kind == "no" and len(set(reasons)) == 1 else f"{', '.join(calls)}: {reason}")
    count = f" of {len(reasons)}" if kind == "partly" else ""
    accepted = f" {len(reasons) - sum(map(bool, reasons))}{count}" if kind == "partly" else ""
    text = "<br>".join(why).replace("|", "\\|").replace("\\n", "; ")
    return f"| `{tried.name}` | {kind}{accepted} | {text} |\n"
