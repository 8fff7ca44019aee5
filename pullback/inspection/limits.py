"""What this machine gives a program at most: measured once in a process, by three programs of this package's own."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pullback.codegen.fuse import fused
from pullback.codegen.lower import lower
from pullback.ir.text import parse_module
from pullback.ir.types import DTYPES
from pullback.pipeline import scheduled
from pullback.runtime.threads import get_num_threads
from pullback.runtime.timing import TimedExecutable, clock

TEXT = """pullback-ir 1

func {name}({parameters}) -> ({result}) {{
  %0: {result} = {text}
  return %0
}}
"""
FOOTPRINTS = tuple(1 << k for k in (15, 17, 19, 21, 23, 25, 27))
"""Bytes, half read and half written, at which the traffic is measured."""
PRODUCT = 512
"""Rows and columns of the matrices that are multiplied."""
FUNCTIONS = 1 << 13
TRIES, LEAST_S = 10, 1e-2


@dataclass(frozen=True, kw_only=True)
class Limits:
    """``traffic``: bytes a second that elementwise kernels read and write, by the bytes that they touch, ascending: what fits a
    cache is faster. ``flops``: a second, of a matrix product, by dtype ("f64", "f32"). ``functions``: ``exp`` of f64 a second.
    All with ``threads`` threads. ``source`` says where they are from."""

    traffic: tuple[tuple[int, float], ...]
    flops: Mapping[str, float]
    functions: float
    threads: int
    source: str = "given"

    def traffic_of(self, footprint: int) -> float:
        """Bytes a second where so many bytes are in use."""
        return next((rate for size, rate in self.traffic if size >= footprint), self.traffic[-1][1])

    def seconds(self, *, bytes: int, flops: int, functions: int, footprint: int, dtype: str = "f64") -> tuple[float, str]:
        """The least time for some work, and which limit sets it: "memory" or "compute"."""
        moving = bytes / self.traffic_of(footprint)
        computing = flops / self.flops.get(dtype, self.flops["f64"]) + functions / self.functions
        return (moving, "memory") if moving >= computing else (computing, "compute")


def limits() -> Limits:
    """The limits of this machine with the present number of threads; measured at the first call, in half a second.

    Each is the best of a few tries of an own program: ``x + x`` for the traffic, a product of square matrices, and ``exp``.
    """
    return _measured(get_num_threads())


@functools.cache
def _measured(threads: int) -> Limits:
    doubled = _program("doubled", "%x: f64[n]", "f64[n]", "add %x, %x")
    rates = [size / _best(doubled, [np.ones(size // 16)], {"n": size // 16}) for size in FOOTPRINTS]
    traffic = [(size, max(rates[k:])) for k, size in enumerate(FOOTPRINTS)]
    flops = {}
    for dtype in ("f64", "f32"):
        square = f"{dtype}[{PRODUCT},{PRODUCT}]"
        product = _program("product", f"%x: {square}", square, 'contract %x, %x {spec="ij,jk->ik"}')
        x = np.full((PRODUCT, PRODUCT), 0.5, DTYPES[dtype].numpy)
        flops[dtype] = 2 * PRODUCT**3 / _best(product, [x], {})
    exp = _program("exponentials", "%x: f64[n]", "f64[n]", "exp %x")
    functions = FUNCTIONS / _best(exp, [np.linspace(-1, 1, FUNCTIONS)], {"n": FUNCTIONS})
    return Limits(traffic=tuple(traffic), flops=flops, functions=functions, threads=threads, source="measured in this process")


def _program(name: str, parameters: str, result: str, text: str) -> TimedExecutable:
    function = parse_module(TEXT.format(name=name, parameters=parameters, result=result, text=text)).functions[0]
    return TimedExecutable(scheduled(lower(fused(function).function, ("c",) * len(function.parameters)), "cpu"))


def _best(program: TimedExecutable, arguments: list[np.ndarray], sizes: Mapping[str, int]) -> float:
    """The seconds that the steps take in the fastest of several calls."""
    instance = program.instance(sizes)
    best, spent, tries = float("inf"), 0.0, 0
    while tries < TRIES or (spent < LEAST_S and tries < 1000):
        stamps = program.timed(instance, arguments).stamps
        taken = float(stamps[-2] - stamps[1]) * clock().seconds
        best, spent, tries = min(best, taken), spent + taken, tries + 1
    return best
