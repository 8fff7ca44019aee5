"""What is remembered of the making of a compiled program, for ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from pullback.programs.argument_types import ArgumentType
from pullback.programs.cache_info import CacheInfo
from pullback.runtime.process import counters
from pullback.runtime.program import launcher


@dataclass(frozen=True, kw_only=True)
class Record:
    """``arguments`` of the call that was traced; ``made``: the kernels and templates that its program took, ``seconds`` what each
    stage took."""

    arguments: tuple[ArgumentType, ...]
    made: CacheInfo
    seconds: Mapping[str, float]


class Recorder:
    """Counts what this thread does in a ``with`` block, for a record and for the tally of the function. The launcher is
    compiled meanwhile."""

    def __init__(self, function: counters.Recorder | None = None) -> None:
        launcher.begin()
        self._function = function
        self._taken = counters.Recorder()
        self._within = ExitStack()

    def __enter__(self) -> Recorder:
        self._within.enter_context(counters.within(self._taken))
        return self

    def __exit__(self, *error: object) -> None:
        self._within.close()
        if self._function is not None:
            self._function.add(self._taken.snapshot())

    def record(self, arguments: tuple[ArgumentType, ...]) -> Record:
        """What happened in the block."""
        made = CacheInfo.of(self._taken.snapshot())
        return Record(arguments=arguments, made=made, seconds=made.seconds)
