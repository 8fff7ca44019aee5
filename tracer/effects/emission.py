"""Effects as instructions: host calls that a program makes each time that it runs, in program order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.effects.arguments import argument
from pullback.tracer.effects.user_frames import Caller, called_below, callers
from pullback.tracer.transforms.callback import call_outside
from pullback.tracer.user_code.errors import TraceError


@dataclass(frozen=True, kw_only=True, eq=False)
class Effect:
    """A function that a program calls below ``frames`` of the user's, and whose result is dropped."""

    function: Callable[..., Any]
    frames: Sequence[Caller]
    name: str

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Call the function."""
        called_below(self.frames, lambda: self.function(*args, **kwargs))


def emit_effect(function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], instead: str) -> None:
    """Emit a call of a Python function for its effect. Raises TraceError in the rows of ``pb.vmap``, where a Python loop would
    have another order; ``instead``: what to write there."""
    _refuse_rows(frame_of(), name, instead)
    effect = Effect(function=function, frames=callers(), name=name)
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
