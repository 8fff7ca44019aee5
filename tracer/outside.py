"""Stand-ins for what a traced function reads from outside: modules, objects of the user's classes, things to refuse.

Reading an attribute goes through the trace's ``Names``; writing one is a TraceError.
"""

from __future__ import annotations

import sys
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from pullback.tracer.errors import TraceError

if TYPE_CHECKING:
    from pullback.tracer.names import Names


class Outside:
    """Holds the real object and the names of the trace; ``found`` are the attributes read so far."""

    __slots__ = ("_found", "_names", "_real")
    _found: dict[str, Any]
    _names: Names
    _real: Any

    def __init__(self, real: Any, names: Names) -> None:
        for name, value in (("_real", real), ("_names", names), ("_found", {})):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return repr(self._real)

    def __dir__(self) -> list[str]:
        return dir(self._real)

    def __setattr__(self, name: str, value: Any) -> None:
        raise TraceError(f"the traced function writes the attribute .{name} of {_title(self._real)}; return the value instead")

    def __delattr__(self, name: str) -> None:
        raise TraceError(f"the traced function deletes the attribute .{name} of {_title(self._real)}")


class LibraryModule(Outside):
    """NumPy, SciPy, math and their submodules."""

    def __getattr__(self, name: str) -> Any:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._names.replacement(getattr(self._real, name), f"{self._real.__name__}.{name}")
        return found


class UserModule(Outside):
    """A module of the user's, whose attributes are outside values like globals."""

    def __getattr__(self, name: str) -> Any:
        if name not in self._found:
            self._found[name] = self._names.resolve(
                getattr(self._real, name), partial(getattr, self._real, name), f"{self._real.__name__}.{name}"
            )
        return self._found[name]


class OutsideObject(Outside):
    """An object of a user's class: its methods are followed, its attributes are outside values."""

    __class__ = property(lambda self: type(self._real))

    def __getattr__(self, name: str) -> Any:
        if name in self._found:
            return self._found[name]
        value = getattr(self._real, name)
        if getattr(value, "__self__", None) is self._real:
            found = self._names.follow(value)
        else:
            found = self._names.resolve(value, partial(getattr, self._real, name), f"{_title(self._real)}.{name}")
        self._found[name] = found
        return found

    def __eq__(self, other: object) -> Any:
        return self is other or self._real.__eq__(getattr(other, "_real", other))

    def __hash__(self) -> int:
        return hash(self._real)


def _special(name: str) -> Any:
    """A special method, which Python looks up on the class."""

    def call(self: OutsideObject, *args: Any, **kwargs: Any) -> Any:
        method = getattr(type(self._real), name, None)
        if method is None:
            raise TypeError(f"{type(self._real).__name__!r} object does not support {name}")
        bound = MethodType(method, self._real)
        return (self._names.follow(bound) if isinstance(method, FunctionType) else bound)(*args, **kwargs)

    return call


for _name in (
    "__call__", "__getitem__", "__len__", "__iter__", "__contains__", "__enter__", "__exit__", "__matmul__", "__add__",
    "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__", "__neg__", "__float__", "__index__",
):  # fmt: skip
    setattr(OutsideObject, _name, _special(_name))


def _bool(self: OutsideObject) -> bool:
    return bool(self._real)


OutsideObject.__bool__ = _bool  # type: ignore[attr-defined]


class Refused:
    """Something that cannot be used while tracing; every use raises TraceError."""

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def __getattr__(self, name: str) -> NoReturn:
        raise TraceError(self._message)

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TraceError(self._message)


def _title(value: Any) -> str:
    return value.__name__ if isinstance(value, ModuleType) else f"<{type(value).__name__}>"


RANDOM = "it would be frozen into the program; draw outside and pass the array as an argument"


def module_stand_in(module: ModuleType, names: Names, is_library: bool) -> Any:
    """What stands for a module in a trace: itself, if it is a library that has no traced twins."""
    top = module.__name__.partition(".")[0]
    if module.__name__ == "numpy.random" or top in ("random", "secrets"):
        return Refused(f"a random draw ({module.__name__}): {RANDOM}")
    if top in ("numpy", "scipy", "math"):
        return LibraryModule(module, names)
    if top == "pullback" or is_library or getattr(module, "__file__", None) is None:
        return module
    return UserModule(module, names)


def module_file(kind: type) -> str | None:
    """The file of the module that defines a class; None if it has none."""
    return getattr(sys.modules.get(kind.__module__), "__file__", None)
