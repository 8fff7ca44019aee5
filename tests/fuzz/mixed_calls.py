"""Random programs of NumPy calls whose arguments are of every dtype, in every layout, and numbers: Python's and NumPy's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz import calls as fuzz_calls
from tests.fuzz.values import DTYPES, LAYOUTS, Sort

CHARS = "?bBhHiIlLqQefdFD"
KINDS = ("array", "array", "array", "scalar", "scalar", "int", "float", "bool", "complex")


@dataclass
class Mixed(fuzz_calls.Program):
    """``sorts``: what the arguments are, of which ``others`` gives further ones. ``kinds``: what arguments after the first may
    be; that has the dtype ``first`` if there is one."""

    sorts: list[Sort] = field(default_factory=list)
    kinds: Sequence[str] = KINDS
    first: str = ""

    def argument(self) -> Any:
        kind = self.one(self.kinds) if self.sorts else "array"
        dtype = self.one(self.dtypes) if self.sorts or not self.first else self.first
        built = Sort(kind, dtype, self.shape() if kind == "array" else (), self.one(LAYOUTS), is_small=True)
        self.sorts.append(built)
        return built.value(self.rng)

    @property
    def numbers(self) -> Sequence[str]:
        result = [f"a{k}" for k, s in enumerate(self.sorts) if s.kind not in ("array", "scalar")]
        return (*fuzz_calls.NUMBERS, *result * 4)

    def is_fit(self, value: Any) -> bool:
        return fuzz_calls.is_fit(value, CHARS)

    def others(self) -> list[Any]:
        """Other arguments of the same types."""
        return [s.value(self.rng) for s in self.sorts]


def grown(seed: int, most: int, dtypes: Sequence[str] = DTYPES, kinds: Sequence[str] = KINDS, first: str = "") -> Mixed:
    """Return a random program of at most ``most`` calls."""
    rng = np.random.default_rng([seed, 34])
    program = Mixed(lambda n: int(rng.integers(n)), rng, dtypes=dtypes, kinds=kinds, first=first)
    calls = 1 + int(rng.integers(most))
    for _ in range(3 * calls):
        if len(program.lines) < calls and not program.refused:
            program.step()
    return program
