"""Random programs of NumPy calls, as source text.

A program is grown call by call, each run by NumPy. The call that NumPy refuses, if any, is the last. Values whose last bits may
differ are *rough*; calls that jump (comparisons, roundings, positions) read exact ones.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

Pick = Callable[[int], int]

DTYPES = ("f8", "f8", "f8", "f4", "i8", "i4", "u1", "?", "c16", "c8")
EXTENTS = (0, 1, 2, 3, 3, 4)
NUMBERS = ("2", "0.5", "-3", "True", "np.float32(1.5)", "np.int64(3)", "1.5j")
MOST_ELEMENTS = 300
LARGEST = 1e4
SINGLE = 4

EXACT = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "-{x}", "np.abs({x})", "np.conj({x})", "np.real({x})", "np.imag({x})", "{x}.T",
    "np.reshape({x}, -1)", "np.reshape({x}, {s})", "np.transpose({x})", "np.ravel({x}, order='F')", "np.squeeze({x})",
    "{x}[None]", "{x}[{i}]", "{x}[..., {i}]", "{x}[{i}:]", "{x}[::-1]", "{x}[[0, -1, 0]]", "{x}[:, ::2]", "np.flip({x}, {a})",
    "np.roll({x}, 2, {a})", "np.rot90({x})", "np.concatenate([{x}, {y}])", "np.concatenate([{x}, {x}], axis={a})",
    "np.stack([{x}, {y}], axis={a})", "np.vstack([{x}, {y}])", "np.hstack([{x}, {x}])", "np.column_stack([{x}, {y}])",
    "np.split({x}, 2, axis={a})[0]", "np.array_split({x}, 2)[1]", "np.expand_dims({x}, {a})", "np.swapaxes({x}, 0, {a})",
    "np.moveaxis({x}, 0, {a})", "np.tile({x}, (2, 1))", "np.repeat({x}, 2, axis={a})", "np.pad({x}, 1, mode='edge')",
    "np.pad({x}, (1, 0))", "np.triu({x})", "np.tril({x}, -1)", "np.diag({x})", "np.diagonal({x})",
    "np.broadcast_to({x}, (2, *{x}.shape))", "np.broadcast_to({x}, {s})", "np.atleast_2d({x})", "np.atleast_3d({x})",
    "np.take({x}, [0, 1, 0], axis={a})", "np.take({x}, 1)", "np.append({x}, {y})", "np.delete({x}, 0, axis={a})",
    "np.insert({x}, 1, 7, axis={a})", "np.diff({x}, axis={a})", "np.ediff1d({x})", "np.meshgrid({x}, {y})[0]",
    "np.zeros_like({x})", "np.full_like({x}, 3)", "np.zeros({s})", "np.eye(3) * {x}", "np.arange(4) + {x}",
    "np.array([{x}, {x}])", "np.asarray({x})", "{x}.copy()", "{x}.astype('f8')", "np.square({x})", "np.positive({x})",
    "np.kron({x}, np.ones(2))", "np.r_[{x}, 1.0]", "np.sum({x}, axis={a}, dtype='i8')", "np.identity(2) * {x}",
    "np.flipud({x})", "np.fliplr({x})", "np.trace({x}, dtype='i8')", "np.block([[{x}, {x}]])", "np.unstack({x})[0]",
)  # fmt: skip
ROUGH = (
    "{x} / {y}", "np.sqrt({x})", "np.exp({x} * 0.1)", "np.sin({x})", "np.cos({x})", "np.tanh({x})", "np.arctan({x})",
    "np.log1p(np.abs({x}))", "np.hypot({x}, {y})", "np.arctan2({x}, {y})", "np.sum({x})", "np.sum({x}, axis={a})",
    "np.mean({x})", "np.mean({x}, axis={a}, keepdims=True)", "np.prod({x}, axis={a})", "np.var({x}, axis={a})", "np.std({x})",
    "np.cumsum({x})", "np.cumsum({x}, axis={a})", "np.cumprod({x}, axis={a})", "{x} @ {y}", "np.dot({x}, {y})",
    "np.inner({x}, {y})", "np.outer({x}, {y})", "np.matmul({x}, {x})", "np.tensordot({x}, {y}, 1)",
    "np.einsum('ij,kj->ik', {x}, {x})", "np.einsum('i,i', {x}, {y})", "np.vdot({x}, {x})", "np.trace({x})",
    "np.average({x}, axis={a})", "np.cross({x}, {y})", "np.linalg.norm({x})", "np.trapezoid({x})", "np.gradient({x})",
    "np.convolve({x}, {y})", "np.cov({x})", "np.logaddexp({x}, {y})", "np.sinc({x})", "np.float_power(np.abs({x}) + 1, 1.5)",
    "np.cbrt({x})", "np.deg2rad({x})", "np.linspace(0, {x}, 3)", "np.polyval([1, 2, 3], {x})", "np.reciprocal({x} + 9)",
    "np.logaddexp.reduce({x})", "np.fft.fft({x})", "np.fft.rfft({x}, axis={a})", "np.angle({x})",
    "np.interp({x}, [0, 1, 2], [1, 3, 2])",
)  # fmt: skip
JUMPS = (
    "{x} < {y}", "{x} >= {y}", "{x} == {y}", "{x} != {y}", "{x} // {y}", "{x} % {y}", "{x} & {y}", "{x} | {y}", "{x} ^ {y}",
    "~{x}", "{x} << 1", "{x} ** 2", "{x} ** {y}", "np.floor({x})", "np.ceil({x})", "np.trunc({x})", "np.rint({x})",
    "np.round({x}, 1)", "np.sign({x})", "np.isnan({x})", "np.isfinite({x})", "np.signbit({x})", "np.maximum({x}, {y})",
    "np.minimum({x}, {y})", "np.fmax({x}, {y})", "np.max({x})", "np.max({x}, axis={a})",
    "np.min({x}, axis={a}, keepdims=True)", "np.ptp({x}, axis={a})", "np.argmax({x})", "np.argmax({x}, axis={a})",
    "np.argmin({x}, axis={a})", "np.any({x})", "np.all({x}, axis={a})", "np.count_nonzero({x})", "np.logical_not({x})",
    "np.logical_and({x}, {y})", "np.where({x} > 0, {x}, {y})", "np.where({x}, 1, {y})", "np.clip({x}, -1, 2)",
    "np.clip({x}, {y}, 2.5)", "np.sort({x})", "np.sort({x}, axis={a})", "np.argsort({x}, axis={a}, kind='stable')",
    "np.median({x}, axis={a})", "np.quantile({x}, 0.3, axis={a})", "np.nanmax({x})", "np.nansum({x}, axis={a})",
    "np.nan_to_num({x})", "np.searchsorted([0.5, 1, 2], {x})", "np.digitize({x}, [0, 1, 2])", "np.isclose({x}, {y})",
    "np.allclose({x}, {y})", "np.array_equal({x}, {y})", "{x}.astype('i8')", "{x}.astype('f4')", "{x}.astype('u1')",
    "{x}.astype('?')", "{x}.astype('c16')", "np.mod({x}, {y})", "np.fmod({x}, {y})", "np.floor_divide({x}, {y})",
    "np.copysign({x}, {y})", "np.heaviside({x}, 0.5)", "np.divmod({x}, {y})[1]", "np.modf({x})[0]", "np.left_shift({x}, 1)",
    "np.invert({x})", "np.gcd({x}, {y})", "np.lcm({x}, 6)", "np.select([{x} > 0, {x} < 0], [{x}, {x}], 7)",
    "np.choose({x} % 2, [1, {y}])", "np.take_along_axis({x}, {x} % 2, 0)", "np.bincount({x}, minlength=64)",
    "np.isin({x}, [1, 2])", "np.logical_xor({x}, {y})", "np.maximum.accumulate({x})", "np.minimum.reduce({x}, axis={a})",
    "np.nextafter({x}, {y})", "np.ldexp({x}, 2)", "np.frexp({x})[1]", "np.partition({x}, 1)[..., 1]",
)  # fmt: skip
WRITES = (
    "{x}[{i}] = {y}", "{x}[:1] += {y}", "{x}[...] = {y}", "{x} += {y}", "{x} *= 2", "{x}[::2] = {x}[::-2]",
    "np.add({x}, {y}, out={x})", "{x}.fill(2)", "np.copyto({x}, {y})", "np.add.at({x}, [0, 0], 1)",
    "np.fill_diagonal({x}, 5)", "{x} -= {x}[::-1]",
)  # fmt: skip


@dataclass
class Program:
    """A program in the making: its arguments, and for each name its value, and whether that is rough."""

    pick: Pick
    rng: np.random.Generator
    dtypes: Sequence[str] = DTYPES
    arguments: list[Any] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    rough: set[str] = field(default_factory=set)
    refused: bool = False

    def __post_init__(self) -> None:
        for k in range(1 + self.pick(3)):
            self.values[f"a{k}"] = self.argument()
        self.arguments = copy.deepcopy(list(self.values.values()))

    def one(self, options: Sequence[Any]) -> Any:
        return options[self.pick(len(options))]

    def argument(self) -> Any:
        return argument(self.one(self.dtypes), self.shape(), self.rng)

    @property
    def numbers(self) -> Sequence[str]:
        """The numbers, as text, that a call may read in addition to arrays."""
        return NUMBERS

    def shape(self) -> tuple[int, ...]:
        return tuple(self.one(EXTENTS) for _ in range(self.one((0, 1, 1, 2, 2, 3))))

    def is_fit(self, value: Any) -> bool:
        return is_fit(value)

    def text(self, lines: Sequence[str] | None = None) -> str:
        return text_of(self.lines if lines is None else lines, len(self.arguments))

    def step(self) -> None:
        """One more call, unless its value is out of bounds. A refused one ends the program now and then."""
        kind = self.one((EXACT, EXACT, ROUGH, JUMPS, JUMPS, WRITES))
        names = [n for n, v in self.values.items() if isinstance(v, np.ndarray | np.generic)]
        exact = [n for n in names if n not in self.rough]
        from_these = exact if kind is JUMPS and exact else names
        x, y = self.one(from_these[-6:]), self.one([*from_these[-6:], *self.numbers])
        value = self.values[x]
        line = self.one(kind).format(x=x, y=y, i=self.pick(3), a=self.pick(3) - 1, s=self.shape())
        new = x if kind is WRITES else f"v{len(self.lines)}"
        whole = line if kind is WRITES else f"{new} = {line}"
        if kind is WRITES and (not isinstance(value, np.ndarray) or x == y or not value.flags.writeable):
            return
        if kind is WRITES and new in exact and y in self.rough:
            return
        try:
            result = quiet(defined(self.text([*self.lines, whole])), *copy.deepcopy(self.arguments))
        except Exception:
            if self.pick(12) == 0:
                self.lines.append(whole)
                self.refused = True
            return
        is_rough = kind is ROUGH or bool({x, y} & self.rough)
        if not all(map(self.is_fit, result.values())) or (is_rough and not np.isfinite(result[new]).all()):
            return
        self.lines.append(whole)
        self.values = result
        if is_rough:
            self.rough.add(new)


def text_of(lines: Sequence[str], count: int) -> str:
    """A function of ``count`` arguments that returns all its names."""
    arguments = [f"a{k}" for k in range(count)]
    names = [*arguments, *(line.split()[0] for line in lines if line.startswith("v"))]
    returned = ", ".join(f"'{name}': {name}" for name in dict.fromkeys(n for n in names if n.isalnum()))
    body = "\n".join(f"    {line}" for line in (*lines, f"return {{{returned}}}"))
    return f"def f({', '.join(arguments)}):\n{body}\n"


def is_fit(value: Any, chars: str = "?bBhHiIlLqQfdFD") -> bool:
    """Whether a value is small and of one of the dtypes."""
    if not isinstance(value, np.ndarray | np.generic | bool | int | float | complex):
        return False
    result = np.asarray(value)
    if result.size > MOST_ELEMENTS or result.dtype.char not in chars:
        return False
    with np.errstate(all="ignore"):
        sizes = np.abs(result.astype(complex))
    return bool(np.all((sizes < LARGEST) | ~np.isfinite(sizes)))


def argument(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """An array in one of several memory orders, of small numbers with few bits."""
    values = np.round(3 * rng.normal(size=shape) * 4) / 4
    if dtype.startswith("c"):
        values = values + 1j * np.round(3 * rng.normal(size=shape))
    return rearranged(np.asarray(np.abs(values) if dtype == "u1" else values).astype(dtype), rng)


def rearranged(built: Any, rng: np.random.Generator) -> Any:
    """The same array in a memory order of chance."""
    order = rng.integers(4) if built.ndim else 0
    if order == 1:
        return np.asfortranarray(built)
    return np.repeat(built, 2, axis=0)[::2] if order == 2 else built[::-1].copy()[::-1] if order == 3 else built


def defined(text: str, known: Mapping[str, Any] = MappingProxyType({"np": np})) -> Callable[..., Any]:
    """The function of a text, in which some names are known."""
    space: dict[str, Any] = dict(known)
    exec(text, space)
    result: Callable[..., Any] = space["f"]
    return result


def quiet(function: Callable[..., Any], *arguments: Any) -> Any:
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        return function(*arguments)
