"""What is measured: one record for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One thing to measure; `traffic` is the least number of bytes to move, 0 where memory is not the limit.

    With `wanted` the function is an objective, measured as value and gradient with respect to those
    arguments; without, it is measured as it stands and holds its own call of `pb.value_and_grad`.
    """

    name: str
    title: str
    function: Callable[..., Any]
    by_hand: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    wanted: tuple[int, ...] = ()
    traffic: int = 0
    tolerance: float = 1e-9
