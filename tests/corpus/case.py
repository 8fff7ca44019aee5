"""The record of one program of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, kw_only=True)
class Case:
    """A program, and what it is called with.

    ``arguments(rng, n)`` returns the arguments for the size ``n``, which is ``size`` in tests and ``turns`` in the long table.
    It is about the trip count of the longest loop; a program of nested loops has a smaller one. ``argnums`` are the arguments
    by which the float results are differentiable at these arguments. ``writes``: whether the program writes into its
    arguments. ``seeds`` is the count of the data sets: more than two where one run takes few of the branches. ``kinks`` says
    where results jump or have a corner. ``failing(rng)`` returns arguments for which the program raises. ``step`` is the
    relative step of the differences.
    """

    function: Callable[..., Any]
    arguments: Callable[[np.random.Generator, int], tuple[Any, ...]]
    size: int = 12
    turns: int = 2000
    argnums: tuple[int, ...] = ()
    writes: bool = False
    seeds: int = 2
    kinks: str = ""
    failing: Callable[[np.random.Generator], tuple[Any, ...]] | None = None
    step: float = 1e-4

    @property
    def name(self) -> str:
        return self.function.__name__
