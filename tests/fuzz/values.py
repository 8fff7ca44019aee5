"""Short random programs over every dtype, layout and kind of number, as source text, with several sets of arguments for each.

A program is grown line by line, each run by NumPy as it grows. Values whose last bits may differ are *rough*, with the size of
the numbers that went into them; lines that jump (comparisons, roundings, positions) read exact ones.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg as sl

SPACE = {"np": np, "sl": sl}
"""The names that programs know."""
DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "f8", "c8", "c16")
EXTENTS = (0, 1, 2, 3, 3, 5)
RANKS = (0, 1, 1, 1, 2, 2, 3)
LAYOUTS = ("C", "C", "F", "strided", "reversed", "offset", "broadcast")
MOST_LINES = 5
MOST_ELEMENTS = 200
LARGE_SHARE = 0.25
"""Of the int arguments, how many may be out of the range of the dtypes they meet."""

INTS = (0, 1, -1, 2, 3, 5, -3, 7, 10)
LARGE_INTS = (
    127, 128, -128, -129, 255, 256, 300, -300, 32767, 32768, -32769, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1,
    2**32 - 1, 2**32, 2**53 + 1, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
HUGE_INTS = (2**63, 2**64 - 1, 2**64, -(2**63) - 1, 2**70)
FLOATS = (0.0, -0.0, 1.0, 0.5, -2.5, 3.0, 1e-3, 100.0, float("nan"), float("inf"), -float("inf"), 1e300, 1e-320, 2.0**24 + 1)
COMPLEXES = (0j, 1 + 2j, -0.5j, 2.5 - 1j, complex("nan"), complex("inf"), 3 + 0j)

UNARY_EXACT = (
    "negative", "positive", "absolute", "conjugate", "square", "fabs", "sqrt", "isnan", "isinf", "isfinite",
    "logical_not", "invert", "bitwise_count", "reciprocal", "spacing",
)  # fmt: skip
UNARY_JUMPS = ("sign", "signbit", "floor", "ceil", "trunc", "rint")
UNARY_ROUGH = (
    "sin",
    "cos",
    "exp",
    "log",
    "tanh",
    "arctan",
    "cbrt",
    "log1p",
    "expm1",
    "exp2",
    "arcsinh",
    "deg2rad",
    "log2",
    "log10",
)
BINARY_EXACT = ("add", "subtract", "multiply", "add", "subtract", "multiply", "divide")
BINARY_JUMPS = (
    "floor_divide", "remainder", "fmod", "maximum", "minimum", "fmax", "fmin", "equal", "not_equal", "less", "less_equal",
    "greater", "greater_equal", "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
    "left_shift", "right_shift", "gcd", "lcm", "heaviside", "nextafter",
)  # fmt: skip
BINARY_ROUGH = ("power", "hypot", "logaddexp", "float_power")
BINARY_CUTS = ("arctan2", "copysign")
ALIKE = (
    "add",
    "multiply",
    "maximum",
    "minimum",
    "logical_and",
    "logical_or",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "fmax",
    "gcd",
)
"""Ufuncs whose reductions are the same in any order, but for rounding."""
SUMS = ("add", "multiply", "subtract", "logaddexp")
REDUCIBLE = (*ALIKE, "logaddexp", "fmin", "logical_xor", "subtract")
OTHER_JUMP = (
    "np.asarray({y}, dtype='{d}')", "{x}.astype('{d}')", "np.where({x} > 0, {x}, {y})", "np.where({y}, {x}, {z})",
    "np.clip({x}, {y}, {z})", "np.clip({x}, -1, 2)", "np.full((2,), {y}, dtype='{d}')", "np.full_like({x}, {y})",
    "np.full_like({x}, {y}, dtype='{d}')", "np.sort({x}, axis={a})", "np.argsort({x}, kind='stable')", "np.isclose({x}, {y})",
    "np.array_equal({x}, {y})", "np.count_nonzero({x}, axis={a})", "np.searchsorted(np.sort({x}, axis=None), {y})",
    "np.round({x}, 1)",
    "np.isin({x}, {y})", "np.divmod({x}, {y})[1]", "np.result_type({x}, {y}).type(1)", "np.nan_to_num({x}, nan={y})",
    "np.bitwise_count({x})", "np.square({x}, dtype='{d}')", "np.insert(np.ravel({x}), 0, {y})",
    "np.pad({x}, 1, constant_values={y})", "np.select([{x} > 0], [{x}], {y})",
    "np.maximum.reduce([np.ravel({x}), np.ravel({x})])", "np.bincount(np.ravel({x}) % 3, minlength=3)", "np.unique({x})",
    "np.heaviside({x}, {y})", "np.arange(3, dtype='{d}') + {y}", "np.zeros_like({x}) + {y}", "np.ones(2, '{d}') * {y}",
    "np.fmod({x}, {y})", "np.max({x}[{x} > 0], initial=0)", "np.nanmax({x})",
    "np.take_along_axis(np.ravel({x}), np.argsort(np.ravel({x}), kind='stable'), 0)", "np.full((0,), {y}, dtype='{d}')",
    "np.divmod({x}, {y})[0]",
)  # fmt: skip
OTHER_EXACT = (
    "np.array([{x}, {y}])", "np.full(2, {y})", "np.concatenate([np.ravel({x}), np.ravel({y})])", "np.append({x}, {y})",
    "{x}[::-1]", "{x}.T", "np.diff({x})", "np.repeat({x}, 2)", "{x} ** 2", "np.take({x}, [0, 1], mode='clip')",
    "np.outer({x}, {y})", "np.real({x})", "np.imag({x})", "np.ldexp({x}, 2)", "np.einsum('ii->i', {x})",
    "np.lib.stride_tricks.sliding_window_view({x}, 2)",
)  # fmt: skip
OTHER_ROUGH = (
    "np.dot({x}, {y})", "{x} @ {y}", "np.float_power({x}, {y})", "{x} ** {y}", "{y} ** {x}",
    "np.convolve(np.ravel({x}), np.ravel({y}))", "np.correlate(np.ravel({x}), np.ravel({y}), 'same')",
    "np.linspace(0, {y}, 3, dtype='{d}')", "np.einsum('i,i->i', np.ravel({x}), np.ravel({y}))", "np.cumsum({x}, dtype='{d}')",
    "np.trace(np.atleast_2d({x}))", "np.median({x}, axis={a})", "np.nansum({x}, axis={a})",
)  # fmt: skip
OTHER_CUT = (
    "np.angle({x})",
)  # fmt: skip
OTHER_WIDE = (
    "sl.norm({x})",
)  # fmt: skip
OTHER_SUM = (
    "np.einsum('ii', {x})",
)  # fmt: skip
OTHER = {"jump": OTHER_JUMP, "exact": OTHER_EXACT, "rough": OTHER_ROUGH, "cut": OTHER_CUT, "wide": OTHER_WIDE, "sum": OTHER_SUM}
"""Other calls, by the kind of their results."""
OPERATORS = ("+", "-", "*", "/", "//", "%", "&", "|", "^", "<<", ">>", "<", "<=", ">", ">=", "==", "!=")
CASTINGS = ("no", "equiv", "safe", "same_kind", "unsafe")
LOOSE = ("maximum", "minimum", "fmax", "fmin", "max", "min", "clip", "sort", "median", "ptp", "amax", "amin")
"""What may give either zero where there are both."""

CASTS = r"astype|dtype=|out=|\] .?.?=|copyto|fill|putmask|full|insert"
"""Lines that cast: of floats that no int stands for, the platform decides."""
COMPLEX_CUTS = "sqrt|log|arc|cbrt|power|\\*\\*|angle|sign|/|reciprocal"
"""What is not continuous on the complex plane, or loses digits in other ways than NumPy does."""


@dataclass(frozen=True)
class Sort:
    """What stays the same of an argument when a program is called again. ``kind``: "array", "scalar" (NumPy's) or a Python type's
    name. ``is_small``: its values are small finite numbers of few bits."""

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    layout: str = "C"
    is_small: bool = False

    def value(self, rng: np.random.Generator) -> Any:
        """Another value of this sort."""
        match self.kind:
            case "int":
                options = (
                    INTS if self.is_small or rng.random() >= LARGE_SHARE else HUGE_INTS if rng.random() < 0.08 else LARGE_INTS
                )
                return options[rng.integers(len(options))]
            case "float":
                return FLOATS[rng.integers(8 if self.is_small else len(FLOATS))]
            case "complex":
                return COMPLEXES[rng.integers(4 if self.is_small else len(COMPLEXES))]
            case "bool":
                return bool(rng.integers(2))
            case "scalar":
                return elements(self.dtype, (), rng, self.is_small)[()]
        return laid_out(elements(self.dtype, self.shape, rng, self.is_small), self.layout)


def sort(rng: np.random.Generator, shapes: Sequence[tuple[int, ...]]) -> Sort:
    """What an argument is: mostly an array, of one of the shapes that go together."""
    dtype = DTYPES[rng.integers(len(DTYPES))]
    kind = ("array", "array", "array", "array", "scalar", "int", "int", "float", "bool", "complex")[rng.integers(10)]
    if kind != "array":
        return Sort(kind, dtype if kind == "scalar" else "")
    layout = LAYOUTS[rng.integers(len(LAYOUTS))]
    return Sort(kind, dtype, shapes[rng.integers(len(shapes))], layout)


def elements(dtype: str, shape: tuple[int, ...], rng: np.random.Generator, is_small: bool = False) -> Any:
    """An array of small numbers with few bits; or, unless ``is_small``, of the dtype's special ones, or of both."""
    d = np.dtype(dtype)
    small = np.round(rng.normal(size=shape) * 12) / 4
    with np.errstate(all="ignore"):
        if d.kind == "b":
            return np.asarray(rng.integers(2, size=shape), bool)
        if d.kind == "u":
            small = np.abs(small)
        result = np.asarray(np.trunc(small) if d.kind in "iu" else small).astype(d)
        if d.kind == "c":
            result = np.asarray(result + 1j * np.round(rng.normal(size=shape) * 2), d)
        if not is_small and rng.random() < 0.5:
            special = np.asarray(specials(d)[rng.integers(len(specials(d)), size=shape)], d)
            result = np.where(rng.random(size=shape) < (1.0 if rng.random() < 0.5 else 0.3), special, result)
    return np.asarray(result, d)


def specials(d: Any) -> Any:
    if d.kind in "iu":
        i = np.iinfo(d)
        return np.array([i.min, i.max, i.min + 1, i.max - 1, 0, 1, i.max // 2 + 1], d)
    f = np.finfo(d)
    tiny = f.smallest_subnormal
    parts = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, f.max, f.min, f.tiny, tiny, -tiny, 1 + f.eps, 0.5, 1.5, -2.5], f.dtype)
    if d.kind == "f":
        return parts
    return np.array([0, complex(0, -0.0), complex("nan"), complex(np.inf, 1), complex(1, -np.inf), 2 - 1j, -3j, 1.5], d)


def laid_out(x: Any, layout: str) -> Any:
    """An array with these elements in memory of a layout; "broadcast" repeats the first along the last axis."""
    if not x.ndim:
        return x
    match layout:
        case "F":
            return np.asfortranarray(x)
        case "strided":
            return np.repeat(x, 2, -1)[..., ::2]
        case "reversed":
            return x[::-1].copy()[::-1]
        case "offset":
            return np.concatenate([x[:1], x], 0)[len(x[:1]) :]
        case "broadcast" if x.shape[-1]:
            return np.broadcast_to(x[..., :1].copy(), x.shape)
    return np.ascontiguousarray(x)


@dataclass(frozen=True)
class Line:
    """A statement. ``name`` is what it binds or writes into; ``kind``: "exact", "rough" in its last bits, "sum" (rough if the
    result is of floats), "wide" (rough, whatever the sizes), "jump", or "cut" (rough, and it jumps)."""

    text: str
    name: str
    kind: str
    reads: tuple[str, ...]


class Unfit(Exception):
    """The values of a program say nothing of what is right: rounding decides them, or they are too many."""


@dataclass
class State:
    """The values of a program as it goes, and of rough ones the sizes of the numbers that went into them."""

    values: dict[str, Any]
    rough: dict[str, float] = field(default_factory=dict)
    ended: int = 0
    """The line that was refused: what types decide in later ones is refused before, while a program is traced."""

    def step(self, line: Line) -> None:
        """Run a line. Raises Unfit, and what NumPy raises."""
        read = [self.values[n] for n in line.reads]
        sizes = [self.rough[n] for n in line.reads if n in self.rough]
        if line.kind in ("jump", "cut") and sizes:
            raise Unfit
        if line.kind in ("rough", "exact") and re.search(COMPLEX_CUTS, line.text) and any(np.iscomplexobj(x) for x in read):
            raise Unfit
        if "np.dot(" in line.text and any(not np.isfinite(x).all() for x in read if _is_inexact(x)):
            raise Unfit  # BLAS leaves products with a factor of 0 out
        if "einsum('ii" in line.text and any(np.shape(x) != np.shape(x)[::-1] and 0 in np.shape(x) for x in read):
            raise Unfit  # NumPy's diagonal of (0, n) has n elements, which are not in memory
        before = [_size(x) for x in read]
        with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
            exec(line.text, dict(SPACE), self.values)
        built = self.values[line.name]
        if not isinstance(built, np.ndarray | np.generic | bool | int | float | complex):
            raise Unfit
        result = np.asarray(built)
        if result.size > MOST_ELEMENTS or result.dtype.kind not in "biufc" or result.dtype.char in "gG":
            raise Unfit
        is_inexact = result.dtype.kind in "fc"
        rounds = is_inexact and line.kind in ("rough", "sum", "cut")
        if re.search(r"signbit|copysign|nextafter", line.text) and any(np.isnan(x).any() for x in read if _is_inexact(x)):
            raise Unfit
        if (
            result.dtype.kind in "iu"
            and re.search(CASTS, line.text)
            and any(_size(x) >= 2.0**31 or not np.isfinite(x).all() for x in read if _is_inexact(x))
        ):
            raise Unfit
        if rounds and any(np.iscomplexobj(x) and not np.isfinite(x).all() for x in [result, *read]):
            raise Unfit
        if (sizes and not is_inexact) or (line.kind == "rough" and max(before, default=0.0) > 1e4):
            raise Unfit
        if rounds and (max(before, default=0.0) > 1e4 or _size(result) > (1e3 if result.dtype.itemsize == 2 else 1e30)):
            raise Unfit
        is_rough = rounds or line.kind == "wide" or (is_inexact and (bool(sizes) or any(map(np.iscomplexobj, [result, *read]))))
        if is_rough:
            size = max([_size(result), *before, *sizes])
            for name, x in self.values.items():
                if name == line.name or (isinstance(x, np.ndarray) and np.may_share_memory(x, result)):
                    self.rough[name] = max(size, self.rough.get(name, 0.0))


def _is_inexact(x: Any) -> bool:
    return isinstance(x, float | complex) or (isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "fc")


def _size(x: Any) -> float:
    """The largest finite element."""
    try:
        result = np.abs(np.asarray(x).astype(np.clongdouble))
    except (TypeError, OverflowError):
        return np.inf
    return float(np.max(result, where=np.isfinite(result), initial=0.0))


@dataclass
class Program:
    """A program in the making, by the choices of ``rng``."""

    rng: np.random.Generator
    sorts: list[Sort] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = tuple(int(self.one(EXTENTS)) for _ in range(int(self.one(RANKS))))
        shapes = [shape, shape, shape, shape[1:], shape[-1:], tuple(1 for _ in shape), (), (int(self.one(EXTENTS)),)]
        self.sorts = [sort(self.rng, shapes) for _ in range(int(self.rng.integers(1, 4)))]
        if not any(s.kind in ("array", "scalar") for s in self.sorts):
            self.sorts[0] = Sort("array", str(self.one(DTYPES)), shape)
        self.arguments = self.others()
        self.state = State({f"a{k}": copy.deepcopy(x) for k, x in enumerate(self.arguments)})
        self.ends = False
        for _ in range(40):
            if len(self.lines) < 1 + int(self.rng.integers(MOST_LINES)) and not self.ends:
                self.grow()

    def one(self, options: Sequence[Any]) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def others(self) -> list[Any]:
        """Other arguments of the same types."""
        return [s.value(self.rng) for s in self.sorts]

    @property
    def text(self) -> str:
        return text_of([line.text for line in self.lines], len(self.sorts))

    def grow(self) -> None:
        """One more line, unless it says nothing. A line that NumPy refuses ends the program now and then."""
        line = self.candidate()
        if line is None:
            return
        tried = copy.deepcopy(self.state)
        try:
            tried.step(line)
        except Unfit:
            return
        except Exception:
            if self.rng.random() < 0.15:
                self.lines.append(line)
                self.ends = True
            return
        self.lines.append(line)
        self.state = tried

    def candidate(self) -> Line | None:
        arrays = [n for n, x in self.state.values.items() if isinstance(x, np.ndarray | np.generic)]
        x, y = self.one(arrays[-5:]), self.one(list(self.state.values)[-5:])
        if self.rng.random() < 0.12:
            y = self.one(("2", "-1", "300", "0.5", "True", "1j", "np.uint8(3)", "np.float32(1.5)", "np.int64(-2)"))
        if x == y and self.rng.random() < 0.7:
            y = self.one(list(self.state.values))
        twice = (self.operator, self.binary, self.method, self.other)
        make = self.one((*twice, *twice, self.unary, self.keywords, self.reduction, self.write))
        result: Line | None = make(x, y)
        return result

    def new(self, text: str, kind: str, *reads: str) -> Line:
        name = f"v{len(self.lines)}"
        return Line(f"{name} = {text}", name, kind, tuple(n for n in reads if n in self.state.values))

    def unary(self, x: str, y: str) -> Line:
        kind, names = self.one((("exact", UNARY_EXACT), ("jump", UNARY_JUMPS), ("rough", UNARY_ROUGH)))
        return self.new(f"np.{self.one(names)}({x})", kind, x)

    def operator(self, x: str, y: str) -> Line:
        op = self.one(OPERATORS)
        text = f"{x} {op} {y}" if self.rng.random() < 0.6 else f"{y} {op} {x}"
        return self.new(text, "exact" if op in "+-*/" else "jump", x, y)

    def ufunc(self) -> tuple[str, str]:
        kind = self.one(("exact", "jump", "jump", "rough", "cut"))
        return kind, self.one({"exact": BINARY_EXACT, "jump": BINARY_JUMPS, "rough": BINARY_ROUGH, "cut": BINARY_CUTS}[kind])

    def binary(self, x: str, y: str) -> Line:
        kind, name = self.ufunc()
        if self.rng.random() < 0.4:
            x, y = y, x
        return self.new(f"np.{name}({x}, {y})", kind, x, y)

    def keywords(self, x: str, y: str) -> Line:
        kind, name = self.ufunc()
        out, d = self.one(list(self.state.values)), self.one(DTYPES)
        texts = [f"dtype='{d}'", f"casting='{self.one(CASTINGS)}'", f"dtype='{d}', casting='{self.one(CASTINGS)}'"]
        words = self.one(texts)
        if self.rng.random() < 0.5 and isinstance(self.state.values[out], np.ndarray):
            more = self.one(("", f", where={x} > 0", ", where=True", f", casting='{self.one(CASTINGS)}'"))
            return Line(f"np.{name}({x}, {y}, out={out}{more})", out, kind, self.known(x, y, out))
        return self.new(f"np.{name}({x}, {y}, {words})", kind, x, y)

    def known(self, *names: str) -> tuple[str, ...]:
        return tuple(n for n in names if n in self.state.values)

    def axis(self, x: str) -> str:
        rank = np.ndim(self.state.values[x])
        return str(self.one((0, -1, *range(rank), "None", *(("(0, 1)",) if rank > 1 else ()))))

    def method(self, x: str, y: str) -> Line | None:
        kind, name = self.ufunc()
        form = self.one(("outer", "reduce", "accumulate", "reduceat", "at"))
        value = self.state.values[x]
        if form == "outer":
            x, y = (x, y) if self.rng.random() < 0.7 else (y, x)
            return self.new(f"np.{name}.outer({x}, {y})", kind, x, y)
        if form == "at":
            if not isinstance(value, np.ndarray):
                return None
            index = self.one(("0", "[0, 0, -1]", "[0]", "slice(None)", "slice(0, 2)"))
            name = self.one(ALIKE) if "0, 0" in index else name
            return Line(f"np.{name}.at({x}, {index}, {y})", x, "sum" if name in SUMS else kind, self.known(x, y))
        name = self.one(REDUCIBLE)
        if name == "subtract" and form != "accumulate":
            name = "add"
        kind = "sum" if name in SUMS else "jump"
        if form == "reduceat":
            return self.new(
                f"np.{name}.reduceat({x}, {self.one(('[0]', '[0, 1]', '[1, 0, 1]', '[0, 2, 1]', '[0, 9]'))})", kind, x
            )
        words = [f"axis={self.axis(x)}"] if self.rng.random() < 0.7 else []
        if self.rng.random() < 0.3:
            words.append(f"dtype='{self.one(DTYPES)}'")
        if form == "reduce":
            words += self.reduce_words(x, y)
        return self.new(f"np.{name}.{form}({', '.join([x, *words])})", kind, x, y)

    def reduce_words(self, x: str, y: str) -> list[str]:
        words = []
        if self.rng.random() < 0.3:
            words.append("keepdims=True")
        if self.rng.random() < 0.4:
            words.append(f"initial={self.one(('0', '1', '-1', '2.5', '300', y))}")
        if self.rng.random() < 0.25:
            words.append(f"where={self.one((f'{x} > 0', 'False', f'{x} == {x}'))}")
        return words

    def reduction(self, x: str, y: str) -> Line:
        name = self.one(
            ("sum", "prod", "max", "min", "any", "all", "mean", "argmax", "argmin", "cumsum", "cumprod", "ptp", "std", "var")
        )
        rough = name in ("sum", "prod", "mean", "cumsum", "cumprod", "std", "var")
        words = [f"axis={self.axis(x)}"] if self.rng.random() < 0.7 else []
        if name in ("sum", "prod", "mean", "cumsum", "cumprod") and self.rng.random() < 0.3:
            words.append(f"dtype='{self.one(DTYPES)}'")
        if name in ("sum", "prod", "max", "min"):
            words += self.reduce_words(x, y)
        is_method = self.rng.random() < 0.4
        text = f"{x}.{name}({', '.join(words)})" if is_method else f"np.{name}({', '.join([x, *words])})"
        return self.new(text, "sum" if rough else "jump", x, y)

    def write(self, x: str, y: str) -> Line | None:
        value = self.state.values[x]
        if not isinstance(value, np.ndarray):
            return None
        index = self.one(("0", "-1", "...", "::2", "1:", "[0, -1]", "None", f"{x} > 0", "..., 0"))
        op = self.one(("+", "-", "*", "//", "%", "&", "|", "<<", "/"))
        text, kind = self.one((
            (f"{x}[{index}] = {y}", "jump" if value.dtype.kind in "biu" else "exact"),
            (f"{x}[{index}] {op}= {y}", "exact" if op in "+-*/" and value.dtype.kind in "fc" else "jump"),
            (f"{x} {op}= {y}", "exact" if op in "+-*/" and value.dtype.kind in "fc" else "jump"),
            (f"np.copyto({x}, {y}, casting='{self.one(CASTINGS)}')", "jump" if value.dtype.kind in "biu" else "exact"),
            (f"np.copyto({x}, {y}, where={x} > 0)", "jump"),
            (f"{x}.fill({y})", "jump" if value.dtype.kind in "biu" else "exact"),
            (f"np.putmask({x}, {x} > 0, {y})", "jump"),
            (f"np.clip({x}, {y}, None, out={x})", "jump"),
        ))  # fmt: skip
        return Line(text, x, kind, self.known(x, y))

    def other(self, x: str, y: str) -> Line:
        kind = self.one([kind for kind, lines in OTHER.items() for _ in lines])
        z = self.one(list(self.state.values))
        line = self.one(OTHER[kind])
        text = line.format(x=x, y=y, z=z, d=self.one(DTYPES), a=self.axis(x))
        return self.new(text, kind, *(n for n in (x, y, z) if re.search(rf"\b{re.escape(n)}\b", text)))


def text_of(lines: Sequence[str], count: int) -> str:
    """A function of ``count`` arguments that returns all the names it makes, or else its arguments."""
    arguments = [f"a{k}" for k in range(count)]
    built = [line.split()[0] for line in lines if re.match(r"v\d+ = ", line)]
    returned = ", ".join(f"'{name}': {name}" for name in built)
    body = "\n".join(f"    {line}" for line in (*lines, f"return {{{returned}}}"))
    return f"def f({', '.join(arguments)}):\n{body}\n"


def assess(lines: Sequence[Line], arguments: Sequence[Any]) -> State | None:
    """The values of a run of the lines, up to one that NumPy refuses; None if they say nothing of what is right."""
    state = State({f"a{k}": x for k, x in enumerate(copy.deepcopy(list(arguments)))})
    for state.ended, line in enumerate(lines):
        try:
            state.step(line)
        except Unfit:
            return None
        except Exception:
            break
    return state
