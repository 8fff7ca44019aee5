"""``warnings.warn`` in a traced function: the warning is issued at each call, at the user's line."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

from pullback.tracer.arrays.frame import current, frame_of
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.effects.emission import emit_effect
from pullback.tracer.user_code.errors import TraceError

INSTEAD = "warn after the call, of what the function returns"


@twin(warnings.warn)
def _warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **options: Any) -> None:
    frame = current()
    if frame is None or frame.root.has_effects_of_trace:
        warnings.warn(message, category, stacklevel + 1, source, **options)
        return
    function: Any = warnings.warn
    if frame.root.catches_warnings:
        function, stacklevel = partial(_filtered, list(warnings.filters)), stacklevel + 1
    emit_effect(function, "warnings.warn", (message, category, stacklevel), options, INSTEAD, levels=stacklevel)


def _filtered(filters: Sequence[Any], *args: Any, **options: Any) -> None:
    """Issue a warning under the filters of a block of the user's."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        here: Any = warnings.filters
        here[:] = filters
        warnings.warn(*args, **options)


@twin(warnings.catch_warnings)
class _Catching(warnings.catch_warnings):
    """``warnings.catch_warnings`` in a traced function: the filters that it sets hold for warnings of the program, too."""

    def __init__(self, *, record: bool = False, **options: Any) -> None:
        if record:
            raise TraceError("warnings.catch_warnings(record=True) in a traced function, which would catch those of the trace; "
                             "catch warnings outside of it")
        super().__init__(**options)

    def __enter__(self) -> Any:
        frame_of().root.catches_warnings += 1
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        frame_of().root.catches_warnings -= 1
        super().__exit__(*error)
