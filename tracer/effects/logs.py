"""``logging`` in a traced function: loggers write their records at each call, with the user's lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from pullback.tracer.arrays.frame import current, frame_of
from pullback.tracer.arrays.replacements import kind_twin, twin
from pullback.tracer.effects.emission import emit_effect
from pullback.tracer.names.proxies import Outside, title

INSTEAD = "write the record after the call, of what the function returns"
_METHODS = frozenset(("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"))


class OutsideLogger(Outside):
    """A logger, or an adapter of one: its records are written at each call, if it is enabled then."""

    __slots__ = ()
    __class__ = property(lambda self: type(self._real))

    def _read(self, name: str) -> Any:
        real, names = self._real, self._names
        value = getattr(real, name)
        if name in _METHODS:
            return partial(_logged, value, name)
        if name == "isEnabledFor":
            return self._is_enabled
        if name == "getEffectiveLevel":
            names.check(real.getEffectiveLevel, real.getEffectiveLevel(), f"the level of {title(real)}")
            return value
        if name == "getChild":
            return lambda suffix: names.replacement(value(suffix), suffix)
        return value if callable(value) else self._resolve(name)

    def _is_enabled(self, level: Any) -> bool:
        real = self._real
        is_enabled = bool(real.isEnabledFor(level))
        self._names.check(lambda: bool(real.isEnabledFor(level)), is_enabled, f"whether {title(real)} is enabled for {level}")
        return is_enabled


def _logged(method: Callable[..., Any], name: str, /, *args: Any, **kwargs: Any) -> None:
    """Emit a call of a method of a logger."""
    frame = current()
    if frame is None or frame.root.has_effects_of_trace:
        method(*args, **kwargs)
        return
    handled = sys.exc_info()[1]
    if kwargs.get("exc_info", name == "exception") is True and handled is not None:
        kwargs["exc_info"] = handled
    emit_effect(method, f"a record ({name})", args, kwargs, INSTEAD, levels=kwargs.get("stacklevel", 1))


@kind_twin("logging.Logger", "logging.LoggerAdapter")
def _outside_logger(value: Any, names: Any) -> Any:
    """Return the stand-in for a logger."""
    return OutsideLogger(value, names)


@twin("logging.getLogger")
def _get_logger(name: Any = None) -> Any:
    logger = sys.modules["logging"].getLogger(name)
    return frame_of().root.names.replacement(logger, name or "root")


def _of_module(name: str) -> None:
    @twin(f"logging.{name}")
    def write(*args: Any, **kwargs: Any) -> None:
        _logged(getattr(sys.modules["logging"], name), name, *args, **kwargs)


for _name in _METHODS:
    _of_module(_name)
