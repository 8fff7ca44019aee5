"""Elementary functions in two ways: a recipe's instructions run on arrays by the reference of each op, so that what is measured
is the recipe and not a compiler; and compiled, for a processor and a width of vectors."""

from __future__ import annotations

import ctypes
import fractions
import functools
import math
from typing import Any

import numpy as np

import pullback.ir.ops  # noqa: F401
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.math.basis import Recipe
from pullback.codegen.math.table import MATH
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block
from pullback.ir.core.types import scalar
from pullback.ir.core.value import Value
from pullback.ir.text import parse_function
from pullback.runtime.compile.engine import Engine

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = {"f64": np.float64, "f32": np.float32}


def two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def two_product(x: Array, y: Array) -> tuple[Array, Array]:
    def split(v: Array) -> tuple[Array, Array]:
        scaled = v * 134217729.0
        high = scaled - (scaled - v)
        return high, v - high

    (a, b), (c, d) = split(x), split(y)
    product = x * y
    return product, b * d - (((product - a * c) - b * c) - a * d)


def fma(x: Array, y: Array, z: Array) -> Array:
    """x * y + z rounded once (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008)."""
    x, y, z = np.broadcast_arrays(x, y, z)
    if x.dtype == np.float32:
        product, rest = x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64)
        return odd_sum(product, rest).astype(np.float32)
    high, low = two_product(x, y)
    first, second = two_sum(z, low)
    total, third = two_sum(high, first)
    result = total + odd_sum(second, third)
    size, zero = np.abs(x * y), (x == 0) | (y == 0)
    usual = (size > 1e-270) & (size < 1e290) & (np.abs(x) < 1e290) & (np.abs(y) < 1e290) & (np.abs(z) < 1e300)
    result = np.where(usual, result, x * y + z)
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    for i in np.argwhere(~usual & ~zero & finite):
        result[tuple(i)] = fma_of_fractions(*(float(v[tuple(i)]) for v in (x, y, z)))
    return result


def odd_sum(x: Array, y: Array) -> Array:
    """x + y rounded to odd: if inexact, to the neighbour whose last bit is set."""
    total, error = two_sum(x, y)
    bits = total.view(np.int64)
    away = (error > 0) == (total > 0)
    fixed = np.where((error != 0) & (bits & 1 == 0), bits + np.where(away, 1, -1), bits).view(np.float64)
    return np.where(np.isfinite(total) & np.isfinite(error), fixed, total)


def fma_of_fractions(x: float, y: float, z: float) -> float:
    exact = fractions.Fraction(x) * fractions.Fraction(y) + fractions.Fraction(z)
    if not exact:
        return x * y + z
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@functools.cache
def built(recipe: Recipe, dtype: str, arity: int) -> Block:
    b = Builder()
    parameters = [Value(scalar(dtype)) for _ in range(arity)]
    return b.block(parameters, [recipe(b, *parameters)])


def run(recipe: Recipe, *arguments: Array) -> Array:
    """The recipe at every element of ``arguments``."""
    dtype = {v: k for k, v in DTYPES.items()}[arguments[0].dtype.type]
    block = built(recipe, dtype, len(arguments))
    values: dict[Value, Array] = dict(zip(block.parameters, arguments, strict=True))
    with np.errstate(all="ignore"):
        run_block(block, values)
    return np.broadcast_to(values[block.results[0]], arguments[0].shape)


def run_block(block: Block, values: dict[Value, Array]) -> None:
    cold: dict[str, Block] = {}
    for i in block.instructions:
        operands = [values[v] for v in i.operands]
        result: list[Array] = []
        if i.op.name == "cold_function":
            (cold[i.params["function"]],) = i.regions
        elif i.op.name == "cold_call":
            region, count = cold[i.params["function"]], i.params["defaults"]
            values.update(zip(region.parameters, operands[1 + count :], strict=True))
            run_block(region, values)
            usual = operands[1 : 1 + count]
            result = [np.where(operands[0], values[v], o) for v, o in zip(region.results, usual, strict=True)]
        elif i.op.name == "fma":
            result = [fma(*operands)]
        else:
            result = list(i.op.evaluate(operands, i.params, [v.type for v in i.results]))
        values.update(zip(i.results, result, strict=True))


@functools.cache
def engine(level: str) -> Engine:
    return Engine(level=level)


KERNEL = """pullback-ir 2

kernel {name}(%x: &{dtype}[s0], %y: &{dtype}[s0], %out: &{dtype}[s0]) -> () {{
  %0: i64[] = extent {{size=s0}}
  %once: i64[] = const {{value=1}}
  for %once {{ordered=true}} (%turn: i64[]) {{
    for %0 {{ordered={ordered}}} (%i: i64[]) {{
      %1: {dtype}[] = load %x, %i
      %2: {dtype}[] = load %y, %i
      %3: {dtype}[] = {name} {operands}
      store %3, %out, %i
      yield
    }}
    yield
  }}
  return
}}
"""


@functools.cache
def _loaded(name: str, dtype: str, arity: int, level: str, vector_bytes: int) -> tuple[Any, tuple[Any, ...]]:
    ordered = "true" if vector_bytes == DTYPES[dtype]().itemsize else "false"
    text = KERNEL.format(name=name, dtype=dtype, ordered=ordered, operands="%1, %2" if arity == 2 else "%1")
    built = engine(level)
    emitted = emit(schedule(parse_function(text)), "f", Target(vector_bytes or built.host().vector_bytes, built.host().has_fma))
    address = built.load(emitted.text, symbols=["f"])["f"]
    slots = tuple(("address", built.load(str(s[2]), symbols=[s[1]])[s[1]]) if s[0] == "shared" else s for s in emitted.slots)
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address), slots


def compiled(name: str, *arguments: Array, level: str = "native", vector_bytes: int = 0) -> Array:
    """The function of this name at every element of contiguous arguments, by code for a level of processors.

    ``vector_bytes``: of the vectors, 0 for as many as the level has; of one element, for a loop without vectors.
    """
    x, y, out = arguments[0], arguments[-1], np.empty_like(arguments[0])
    dtype = {v: k for k, v in DTYPES.items()}[x.dtype.type]
    function, slots = _loaded(name, dtype, len(arguments), level, vector_bytes)
    arrays = x, y, out
    inputs = [arrays[s[1]].ctypes.data if s[0] == "pointer" else s[1] if s[0] == "address" else x.size for s in slots]
    assert all(s[0] in ("pointer", "size", "address") for s in slots), "the code calls nothing outside"
    block = np.array(inputs, np.int64)
    assert function(block.ctypes.data) == 0
    return out


def names() -> list[str]:
    """The functions that are recipes."""
    return sorted(MATH)
