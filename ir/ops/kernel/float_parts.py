"""Kernel-only ops for elementary functions: decomposition of floats by powers of two, and cold code for unusual arguments.

``scalb``, ``significand`` and ``exponent`` are single instructions on some processors; elsewhere they are expanded
(``pullback.codegen.math.legalize``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.types import BOOL, Type, scalar
from pullback.ir.ops.elementwise.elementwise import Elementwise, each, no

KERNEL = frozenset({"kernel"})
Array = Any


def scalb(x: Array, k: Array) -> Array:
    """Return x * 2**k, rounded once, for an integral k."""
    kept = np.where(np.isfinite(k), np.clip(k, -5000, 5000), 0).astype(np.int32)
    return np.where(np.isfinite(k), np.ldexp(x, kept), np.where(k > 0, x * np.inf, x * k))


def significand(x: Array) -> Array:
    """Return x / 2**exponent(x), in [3/4, 3/2): 1 for infinity and zeros, NaN for NaN and negative x."""
    m, _ = np.frexp(x)
    m = np.where(m < 0.75, m * 2, m)
    m = np.where((x == 0) | (x == np.inf), 1.0, m)
    return np.where(x < 0, np.nan, m).astype(np.asarray(x).dtype)


def exponent(x: Array) -> Array:
    """Return the integral k with x = significand * 2**k: -inf for zeros, inf for infinity, NaN for NaN; unspecified for
    negative x."""
    m, k = np.frexp(x)
    k = np.where(m < 0.75, k - 1, k).astype(np.asarray(x).dtype)
    k = np.where(x == 0, -np.inf, k)
    return np.where(np.isfinite(x), k, x).astype(np.asarray(x).dtype)


class ColdFunction(Op):
    """Defines ``function``, which later ``cold_call`` instructions name, as its region, which reads nothing from outside. It
    stands at the top of a kernel, so that passes process it once, and emitted code duplicates it only if it is short."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types or len(regions) != 1:
            raise TypeError("takes no operands and has one region")
        return ()


class ColdCall(Op):
    """Calls ``function`` if a condition holds. Operands: the condition, ``defaults`` default values, and the arguments of the
    function, which returns as many values. The results are these values where the condition holds, the defaults elsewhere.
    In a vector loop the function runs for all lanes if the condition holds in any lane, so it must be safe to run in all."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types[0] != scalar(BOOL):
            raise TypeError("the first operand must be bool")
        return tuple(types[1 : 1 + params["defaults"]])


def _part(name: str, reference: Any, arity: int, cuda: str) -> Elementwise:
    return Elementwise(
        name=name, reference=reference, arity=arity, pullback=each(*[no] * arity), cheap=True, llvm="parts", cuda=cuda,
        vocabularies=KERNEL,
    )  # fmt: skip


scalb_ = _part("scalb", scalb, 2, "scalbn({0}, (int){1})")
significand_ = _part("significand", significand, 1, "pb_significand({0})")
exponent_ = _part("exponent", exponent, 1, "pb_exponent({0})")
cold_function = ColdFunction(name="cold_function", vocabularies=KERNEL)
cold_call = ColdCall(name="cold_call", vocabularies=KERNEL)
