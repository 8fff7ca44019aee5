"""What is measured: one record for each row of the table, for any dtype."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Arguments = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Work:
    """The least that a case must do: bytes read and written once, flops, and calls of elementary functions by name."""

    reads: int = 0
    writes: int = 0
    flops: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The ratios to reach: to the best system that differentiates, to the best loop written by hand, to the limit."""

    ad: float | None = None
    hand: float | None = None
    limit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One thing to measure.

    `function` is plain NumPy that reads its library through the global names `np`, `erf` and `pb` alone, so that
    `peers.retarget` can run the very same code on another library. With `wanted` it is an objective, measured as value and
    gradient by those arguments; without, it is measured as it stands. `by_hand` is the same in NumPy, its gradient derived
    by hand: in float64 it is the reference that every result is compared with. `make(dtype, **sizes)` gives the arguments,
    `small` are sizes for tests. `sets` are those that the case is in: the table of figures, or the regression set. `kind`
    names the loops written by hand that belong to it.
    """

    workload: str
    name: str
    function: Callable[..., Any]
    by_hand: Callable[..., Any]
    make: Callable[..., Arguments]
    sizes: Mapping[str, int]
    small: Mapping[str, int]
    wanted: tuple[int, ...] = ()
    work: Callable[..., Work] | None = None
    dtypes: tuple[str, ...] = ("float64", "float32")
    targets: Mapping[str, Target] = field(default_factory=dict)
    sets: tuple[str, ...] = ("table",)
    large: bool = False

    @property
    def kind(self) -> str:
        return self.name.split("-")[0]

    @property
    def argnums(self) -> int | tuple[int, ...]:
        """What is wanted, as a user says it: a number if it is one argument."""
        return self.wanted[0] if len(self.wanted) == 1 else self.wanted

    def label(self, dtype: str) -> str:
        return f"{self.workload}/{self.name}-{dtype}"


def both(ad: float, hand: float, limit: float | None = None) -> Mapping[str, Target]:
    """One target for both dtypes."""
    return dict.fromkeys(("float64", "float32"), Target(ad=ad, hand=hand, limit=limit))
