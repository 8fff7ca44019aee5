"""Files that a traced function writes: the standard streams, and those from outside. The program writes at each call."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.replacements import kind_twin, member_twin
from pullback.tracer.effects.emission import emit_effect
from pullback.tracer.names.proxies import Outside, Refused, title
from pullback.tracer.user_code.errors import TraceError

INSTEAD = "write pb.print, which prints all rows at once"
_KEPT = frozenset(("closed", "encoding", "errors", "fileno", "isatty", "mode", "name", "newlines", "writable"))
"""What a function may read of a file: a guard compares it at each call."""


class OutsideFile(Outside):
    """A file from outside. ``_now``: a function that returns the file at the call."""

    __slots__ = ("_now",)
    _now: Callable[[], Any]

    def __init__(self, real: Any, names: Any, now: Callable[[], Any]) -> None:
        super().__init__(real, names)
        object.__setattr__(self, "_now", now)

    __class__ = property(lambda self: type(self._real))

    def _read(self, name: str) -> Any:
        real = self._real
        if name in _WRITES:
            return partial(_WRITES[name], self)
        value = getattr(real, name)
        if name in _KEPT:
            if callable(value):
                self._names.check(lambda: getattr(self._now(), name)(), value(), f"{title(real)}.{name}()")
            else:
                self._names.check(lambda: getattr(self._now(), name), value, f"{title(real)}.{name}")
            return value
        raise self._refusal(f".{name}")

    def _refusal(self, use: str) -> TraceError:
        what = f"{use} of an open file, read once, when the function is traced"
        return TraceError(f"{what}; read it outside and pass the data")

    def __iter__(self) -> Any:
        raise self._refusal("the lines")

    def __next__(self) -> Any:
        raise self._refusal("the next line")

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, OutsideFile) and self._real is other._real)

    def __hash__(self) -> int:
        return hash(self._real)


def _write(file: OutsideFile, text: Any, /) -> Any:
    if current() is None or current().root.has_effects_of_trace:  # type: ignore[union-attr]
        return file._real.write(text)
    emit_effect(partial(_call, file._now, "write"), "write", (text,), {}, INSTEAD)
    if type(text) is str:
        return len(text)
    return Refused("the number of characters of a text of traced values; use the values")


def _writelines(file: OutsideFile, lines: Iterable[Any], /) -> None:
    for line in lines:
        _write(file, line)


def _flush(file: OutsideFile) -> None:
    if current() is None or current().root.has_effects_of_trace:  # type: ignore[union-attr]
        file._real.flush()
    else:
        emit_effect(partial(_call, file._now, "flush"), "flush", (), {}, INSTEAD)


_WRITES: dict[str, Callable[..., Any]] = {"write": _write, "writelines": _writelines, "flush": _flush}


def _call(now: Callable[[], Any], name: str, *args: Any) -> None:
    """Call a method of the file that there is now."""
    getattr(now(), name)(*args)


@kind_twin("_io._IOBase")
def _outside_file(value: Any, names: Any) -> Any:
    """Return the stand-in for a file from outside."""
    return OutsideFile(value, names, lambda: value)


def _standard(name: str) -> None:
    @member_twin("sys", name)
    def stand_in(names: Any) -> Any:
        real = getattr(sys, name)
        return None if real is None else OutsideFile(real, names, partial(getattr, sys, name))


for _name in ("stdout", "stderr", "stdin", "__stdout__", "__stderr__"):
    _standard(_name)
