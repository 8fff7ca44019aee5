"""Programs that write into arrays, as their users write them: a table that ``test_inplace`` runs.

Each program registers itself with its arguments, of which every run gets new copies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Call = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Program:
    """A function with its arguments. ``order``: up to which its gradient is checked."""

    function: Call
    arguments: tuple[Any, ...]
    order: int

    @property
    def name(self) -> str:
        return f"{self.function.__module__.rpartition('inplace_')[2]}.{self.function.__name__}"


PROGRAMS: list[Program] = []


def of(*arguments: Any, order: int = 2) -> Callable[[Call], Call]:
    """Decorator: the function is a program of the table."""

    def register(function: Call) -> Call:
        PROGRAMS.append(Program(function=function, arguments=arguments, order=order))
        return function

    return register


_rng = np.random.default_rng(7)
V = _rng.normal(size=6)
V[0] = 0.64
W = _rng.normal(size=6)
X = _rng.normal(size=(3, 4))
Y = _rng.normal(size=(3, 4))
A = _rng.normal(size=(4, 4)) + 4 * np.eye(4)
T = _rng.normal(size=(2, 3, 4))
P = _rng.uniform(0.5, 1.5, 6)
I = np.array([3, 1, 1, 5, 0, 1])  # noqa: E741
N = np.arange(12).reshape(3, 4)
