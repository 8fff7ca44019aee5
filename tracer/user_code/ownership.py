"""Ownership of code and objects: the user's own are followed and read through, objects of libraries are used unchanged."""

from __future__ import annotations

import builtins
import enum
import functools
import os
import sys
import sysconfig
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from pullback import ir


def _folder(path: str | None) -> str:
    return os.path.dirname(os.path.abspath(path or "")) + os.sep


_ROOT = os.path.dirname(_folder(ir.__file__)[:-1])
_OUR_FOLDERS = (
    *(os.path.join(_ROOT, name) + os.sep for name in ("codegen", "ir", "runtime", "tracer")),
    _folder(sys.modules["pullback"].__file__),
)
_NUMERIC = (_folder(np.__file__), os.path.join(os.path.dirname(_folder(np.__file__)[:-1]), "scipy") + os.sep)
"""The folders of NumPy and SciPy, which ``pip install --target`` puts anywhere."""
_HIDDEN = (*_OUR_FOLDERS, *_NUMERIC)
_LIBRARY = (*{sysconfig.get_paths()[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}, *_NUMERIC)
_OURS = ("pullback", "numpy", "scipy")
_NO_OBJECTS = (type, ModuleType, FunctionType, BaseException, enum.Enum)
_VALUES = (dict, list, tuple, set, frozenset, int, float, complex, str, bytes)


OWNED = "__pullback__"
"""The attribute of a user's function in which ``pullback`` stores what it compiled for it; not one of the user's attributes."""

GENERATED = "<frozen pullback>"
"""The file name of code generated at run time, which is never the user's."""

_adopted: set[str] = set()


def adopt(function: Any) -> None:
    """Treat the package of a function that the user transforms as the user's own, wherever it is installed."""
    while isinstance(function, functools.partial | MethodType):
        function = function.func if isinstance(function, functools.partial) else function.__func__
    top = (getattr(function, "__module__", None) or "").partition(".")[0]
    file = getattr(sys.modules.get(top), "__file__", None)
    if file is None or top in sys.stdlib_module_names or top in _OURS or not is_library_file(file):
        return
    is_package = os.path.basename(file).startswith("__init__.")
    _adopted.add(os.path.dirname(file) + os.sep if is_package else file)
    is_library_file.cache_clear()
    _is_users_file.cache_clear()
    has_users_attributes.cache_clear()


@functools.lru_cache(maxsize=4096)
def is_library_file(name: str | None) -> bool:
    """Return whether a source file belongs to Python or to an installed package that was not adopted."""
    if name is None or name.startswith(tuple(_adopted)):
        return False
    return name.startswith(_LIBRARY) or "site-packages" in name or "dist-packages" in name


@functools.lru_cache(maxsize=4096)
def is_hidden_file(name: str) -> bool:
    """Return whether a file belongs to this package, NumPy or SciPy, or is no file."""
    return name.startswith(("<frozen", "<__array_function__")) or os.path.abspath(name).startswith(_HIDDEN)


@functools.lru_cache(maxsize=4096)
def is_own_file(name: str) -> bool:
    """Return whether a file belongs to this package."""
    return os.path.abspath(name).startswith(_OUR_FOLDERS)


@functools.lru_cache(maxsize=4096)
def _is_users_file(name: str) -> bool:
    return not is_hidden_file(name) and not is_library_file(name)


def is_users(code: CodeType) -> bool:
    """Return whether code is the user's own: not Python's, an installed package's, or this package's."""
    return _is_users_file(code.co_filename)


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of the user's own code, from ``frame`` outwards; else the innermost that is not hidden."""
    other: FrameType | None = None
    while frame is not None:
        name = frame.f_code.co_filename
        if _is_users_file(name):
            return frame
        if other is None and not is_hidden_file(name):
            other = frame
        frame = frame.f_back
    return other


def is_foreign(value: Any) -> bool:
    """Return whether a value is of a library other than Python, NumPy and SciPy, whose code may have any effect."""
    module = value.__module__ if isinstance(value, type | FunctionType | BuiltinFunctionType) else type(value).__module__
    top = module.partition(".")[0] if isinstance(module, str) else "builtins"
    if top in sys.stdlib_module_names or top in _OURS:
        return False
    return is_library_file(getattr(sys.modules.get(str(module)), "__file__", None))


def is_users_class(kind: type) -> bool:
    """Return whether the user wrote a class."""
    module = str(kind.__module__)  # None if the namespace of its code has no name
    if module != "__main__" and (module in sys.stdlib_module_names or module.partition(".")[0] in _OURS):
        return False
    return not is_library_file(getattr(sys.modules.get(module), "__file__", None))


def users_bases(kind: type) -> list[type]:
    """Return the classes that the user wrote among a class and its bases, in method resolution order."""
    return [k for k in kind.__mro__ if k is not object and is_users_class(k)]


def is_users_object(value: Any) -> bool:
    """Return whether a value is an object with attributes, of a class that the user wrote."""
    kind = type(value)
    if isinstance(value, (*_NO_OBJECTS, *_VALUES)) or not is_users_class(kind):
        return False
    return hasattr(value, "__dict__") or any("__slots__" in vars(k) for k in users_bases(kind))


@functools.lru_cache(maxsize=1024)
def has_users_attributes(kind: type) -> bool:
    """Return whether objects of a class are the user's, with attributes (see ``is_users_object``)."""
    if issubclass(kind, (*_NO_OBJECTS, *_VALUES)) or not is_users_class(kind):
        return False
    return kind.__dictoffset__ != 0 or any("__slots__" in vars(k) for k in users_bases(kind))


def attribute_names(value: Any) -> list[str]:
    """Return the names of an object's own attributes, in its dict and its slots."""
    slots = [vars(k).get("__slots__", ()) for k in type(value).__mro__]
    names = [name for s in slots for name in ((s,) if isinstance(s, str) else s)]
    return [*getattr(value, "__dict__", ()), *(n for n in names if n != "__dict__" and hasattr(value, n))]


def function_attributes(function: FunctionType) -> dict[str, Any]:
    """Return the attributes that the user set on a function."""
    return {k: v for k, v in function.__dict__.items() if k != OWNED}


def is_users_value(value: Any) -> bool:
    """Return whether a value is a container, number or string of a class that the user derived from Python's."""
    kind = type(value)
    if not isinstance(value, _VALUES) or isinstance(value, enum.Enum) or hasattr(value, "_fields"):
        return False
    return kind not in _VALUES and is_users_class(kind)


@functools.lru_cache(maxsize=1)
def has_dict_globals() -> bool:
    """Return whether this Python looks up globals through a subclass of dict, in nested functions too."""

    class Probe(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return {"probe": 7, "range": range}[name]

    namespace: dict[str, Any] = {}
    exec("def f():\n  g = lambda: [probe for _ in range(1)]\n  return g()[0] + probe", namespace)
    try:
        probe = FunctionType(namespace["f"].__code__, Probe(__builtins__=vars(builtins)))
        return bool(probe() == 14)
    except (KeyError, NameError):
        return False
