"""Effects as instructions: host calls that a program makes each time that it runs, in program order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.effects.arguments import argument
from pullback.tracer.effects.user_frames import Caller, called_below, callers, callers_outside
from pullback.tracer.transforms.callback import call_outside
from pullback.tracer.user_code.clauses import is_in_end
from pullback.tracer.user_code.errors import Restart, TraceError


@dataclass(frozen=True, kw_only=True, eq=False)
class Effect:
    """A function that a program calls below ``frames`` of the user's, and whose result is dropped. It looks at as many callers as
    ``levels`` says; ``printed``: NumPy's options for texts of arrays that the user's code has changed there."""

    function: Callable[..., Any]
    frames: Sequence[Caller]
    name: str
    levels: int
    printed: Mapping[str, Any]

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call the function."""
        frames = self.frames
        if self.levels > len(frames):
            frames = (*frames, *callers_outside(self.levels - len(frames)))
        with np.printoptions(**self.printed) if self.printed else nullcontext():
            called_below(frames, partial(self.function, *args, **kwargs))


def emit_effect(
    function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], instead: str, levels: int = 0
) -> None:
    """Emit a call of a Python function for its effect. Raises TraceError in the rows of ``pb.vmap``, where a Python loop would
    have another order; ``instead``: what to write there. ``levels``: see ``Effect``."""
    frame = frame_of()
    if not frame.root.ends_act and is_in_end():
        frame.root.wants_ends = True
        raise Restart(f"{name} at the end of a statement")
    if any(outcomes.undecided is not None for outcomes in frame.root.try_statements):
        raise Restart(f"{name} at the end of a statement that is traced again")
    _refuse_rows(frame, name, instead)
    effect = Effect(function=function, frames=callers(), name=name, levels=levels, printed=dict(frame.root.print_options))
    passed = [argument(x, name) for x in args]
    call_outside(effect, None, passed, {k: argument(x, name) for k, x in kwargs.items()}, constant=True)


def _refuse_rows(frame: Frame, name: str, instead: str) -> None:
    """Raise TraceError if a row of ``pb.vmap`` has another effect, or if this one is in a block of it."""
    is_inside = False
    for around in frame.outward:
        if around.is_row:
            if is_inside or around.has_effect:
                what = f"{name} in a row of pb.vmap, in a branch or loop or beside another effect"
                raise TraceError(f"{what}: all rows run at once, so the order would not be that of a loop; {instead}")
            around.has_effect = True
        is_inside |= not around.is_straight
