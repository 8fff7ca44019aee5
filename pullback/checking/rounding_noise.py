"""Estimate how much rounding can change the results of a call: interpret its program several times with random last bits.

The spread of the results estimates their uncertainty, as in the CESTAC method (Vignes, A stochastic arithmetic for reliable
scientific computation, 1993). It distinguishes wrong programs from programs that cancel or that branch on a value that
rounding decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.checking.interpreted_run import interpreted_results
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Gather
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.programs.call import Call

RUNS = 8
"""Number of runs with noise."""
NOISE_ULPS = 8.0
"""Noise added to each rounded value, in units in the last place."""
SPREADS = 16.0
"""Allowed difference of results, as a multiple of the spread of the runs: eight runs cover only part of the possible range."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Interpreted:
    """The results of a program's interpreted runs; the first run, ``exact``, has no noise."""

    runs: Sequence[Sequence[Array]]

    @property
    def exact(self) -> Sequence[Array]:
        return self.runs[0]

    def explains(self, index: int, actual: Array, expected: Array) -> Any:
        """Return a mask of the elements whose difference in the result ``index`` is explained by rounding."""
        exact, *noisy = [np.asarray(run[index]) for run in self.runs]
        if exact.shape != actual.shape:
            return np.zeros(actual.shape, bool)
        moved = np.zeros(actual.shape, bool)
        for run in noisy:
            moved |= ~((run == exact) | ((run != run) & (exact != exact)))
        if exact.dtype.kind not in "fc":
            return moved
        with np.errstate(all="ignore"):
            deviations = [np.abs(run - exact) for run in noisy]
            spread = np.max([np.zeros(exact.shape), *(np.where(np.isfinite(x), x, 0.0) for x in deviations)], axis=0)
            is_wild = np.any([np.zeros(exact.shape, bool), *(np.isfinite(run) != np.isfinite(exact) for run in noisy)], axis=0)
            return (np.abs(actual - expected) <= SPREADS * spread) | (moved & is_wild)


def interpreted(call: Call) -> Interpreted:
    """Interpret a call several times with noise. Nothing is printed; Python functions are called back each time."""
    rng = np.random.default_rng(0)

    def disturb(i: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> Sequence[Any] | None:
        if not rounds(i):
            return None
        if not isinstance(i.op, Elementwise) and not i.regions:
            results = i.op.evaluate([_noisy(x, rng) for x in operands], i.params, [v.type for v in i.results])
        return [_noisy(x, rng) for x in results]

    with np.errstate(all="ignore"):
        runs = [interpreted_results(call, None)]
        for _ in range(RUNS):
            with contextlib.suppress(np.linalg.LinAlgError, ValueError, IndexError):
                runs.append(interpreted_results(call, disturb))
        return Interpreted(runs)


def rounds(i: Instruction) -> bool:
    """Return whether the last bits of an instruction's results may differ from NumPy's."""
    if isinstance(i.op, Constant | Reindex | Gather) or i.regions or not any(v.type.dtype.is_inexact for v in i.results):
        return False
    if isinstance(i.op, Reduce) and i.op.name in ("max", "min"):
        return False
    is_complex = any(v.type.dtype.is_complex for v in (*i.operands, *i.results))
    return not (isinstance(i.op, Elementwise) and i.op.cheap and not is_complex)


def _noisy(x: Any, rng: np.random.Generator) -> Any:
    """Return an array of floats with random last bits; other arrays unchanged."""
    array = np.asarray(x)
    if array.dtype.kind not in "fc":
        return x
    scale = NOISE_ULPS * np.finfo(array.dtype).eps
    factors = 1 + scale * rng.uniform(-1, 1, array.shape)
    return np.asarray(array * factors, array.dtype)
