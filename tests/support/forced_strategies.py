"""Schedules forced on groups, so that the rare ones are met: a rule to put in place of ``schedules.pick``."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pullback.codegen.kernels.cost import Schedule
from pullback.codegen.kernels.groups.registry import Pick
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.structure import Function
from pullback.ir.text import canonical


def at_random(seed: int) -> Pick:
    """A rule that gives a group one of the schedules that fit; always the same for a group and a seed."""

    def pick(space: Space, choices: Sequence[Schedule]) -> Schedule:
        text = canonical(Function("region", space.region))
        return random.Random(f"{seed} {space.extents} {space.rows} {text}").choice(list(choices))

    return pick


def always(name: str) -> Pick:
    """A rule that gives a schedule to every group that it fits, and to others the first that does."""
    return lambda space, choices: next((s for s in choices if s.name == name), choices[0])
