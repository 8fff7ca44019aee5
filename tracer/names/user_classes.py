"""The user's classes in a trace: a class is read through its shadow, a subclass whose attributes resolve through the trace.

Objects that the traced function creates are objects of shadows: their methods are followed, attributes read from their class
are outside values, and they are instances of the real class too for ``isinstance``. ``real_class`` returns the real class.
"""

from __future__ import annotations

import builtins
import dis
import enum
import functools
import inspect
import sys
from functools import partial
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any

import numpy as np

from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import real_class
from pullback.tracer.names.guards import ABSENT, weakly
from pullback.tracer.names.places import CLASS_ATTRIBUTE, Place
from pullback.tracer.names.proxies import CONVERSIONS, Outside, converted
from pullback.tracer.names.reader import Reader
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users_class, users_bases

_KEPT = frozenset(("__class_getitem__", "__subclasshook__", "__getattribute__", "__class__", "__dict__", "__weakref__"))


class LazyAttribute:
    """An attribute of a shadow, resolved when it is read."""

    def __init__(self, real: type, name: str, names: Reader) -> None:
        self.real = real
        self.name = name
        self.names = names

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        target = _place(self.names, self.real, self.name)
        if target is not None:
            return target.cell_contents
        value = attribute(self.names, self.real, self.name, instance, owner)
        if self.name in CONVERSIONS and callable(value):
            return lambda *args: converted(self.name, value(*args))
        return value


class LazyDescriptor(LazyAttribute):
    """A property with a setter, or another writable descriptor of the user's."""

    def __set__(self, instance: Any, value: Any) -> None:
        raw = inspect.getattr_static(self.real, self.name)
        if isinstance(raw, property):
            if raw.fset is None:
                raise AttributeError(f"property {self.name!r} of {self.real.__name__!r} object has no setter")
            self.names.follow(raw.fset)(instance, value)
        else:
            self.names.instance(raw).__set__(instance, value)


class _MetaLazy:
    """An attribute of the metaclass of a shadow."""

    def __init__(self, name: str, names: Reader) -> None:
        self.name = name
        self.names = names

    def __get__(self, cls: Any, meta: Any = None) -> Any:
        return _missing(self.names, cls, self.name)


class _NoHook:
    """A base that prevents the user's ``__init_subclass__`` from running when a shadow is created."""

    __slots__ = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


def has_shadow(kind: type) -> bool:
    """Return whether a user's class is read through a shadow: all but exceptions, enumerations and metaclasses."""
    return not issubclass(kind, BaseException | enum.Enum | type) and not hasattr(kind, "__total__")


def make_shadow(real: type, names: Reader) -> type:
    """Return the shadow of a class."""
    members: dict[str, Any] = {"__slots__": (), "__pullback_real__": real}
    for base in reversed(users_bases(real)):
        for name, raw in vars(base).items():
            if _is_lazy(name, raw):
                lazy = LazyDescriptor if hasattr(type(raw), "__set__") else LazyAttribute
                members[name] = lazy(real, name, names)
    if "__eq__" in members:
        members.setdefault("__hash__", real.__hash__)
    members |= {"__qualname__": real.__qualname__, "__module__": real.__module__, "__doc__": real.__doc__}
    shadow: type = type.__new__(_metaclass(real, names), real.__name__, (_NoHook, real), members)
    if getattr(real, "__abstractmethods__", None):
        shadow.__abstractmethods__ = real.__abstractmethods__  # type: ignore[attr-defined]
    return shadow


def of_real_class(value: Any) -> Any:
    """Return a copy of an object of a shadow that has the real class and the same attributes."""
    make, (_, *args), state, *_ = value.__reduce_ex__(4)
    copy = make(real_class(type(value)), *args)
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    for name, attribute in {**(attributes or {}), **(slots or {})}.items():
        object.__setattr__(copy, name, attribute)
    return copy


def _is_lazy(name: str, raw: Any) -> bool:
    """Return whether an attribute resolves through the trace. Slots, and attributes that Python and NumPy keep in a class, do
    not."""
    methods = (FunctionType, classmethod, staticmethod, property)
    if isinstance(raw, methods):
        return name not in _KEPT
    if name.startswith(("__", "_abc_")) or name in ("_fields", "_field_defaults"):
        return False
    return not inspect.isdatadescriptor(raw) or type(raw).__module__ not in sys.stdlib_module_names


def _metaclass(real: type, names: Reader) -> type:
    meta: Any = type(real)
    members: dict[str, Any] = {
        "__setattr__": lambda cls, name, value: _set(names, cls, name, value),
        "__delattr__": _delete, "__getattr__": lambda cls, name: _missing(names, cls, name),
        "__instancecheck__": lambda cls, x: (
            type.__instancecheck__(cls, x) or meta.__instancecheck__(real_class(cls), x)
        ),
        "__subclasscheck__": lambda cls, kind: meta.__subclasscheck__(real_class(cls), real_class(kind)),
    }  # fmt: skip
    for base in users_bases(meta):
        members |= {name: _MetaLazy(name, names) for name in vars(base) if not name.startswith("__")}
    return type.__new__(type, meta.__name__, (meta,), members)


def _set(names: Reader, cls: type, name: str, value: Any) -> None:
    real = real_class(cls)
    if real is cls or name in ("__abstractmethods__", "__slotnames__"):
        type.__setattr__(cls, name, value)
        return
    before = inspect.getattr_static(real, name, None)
    is_bound = hasattr(type(value), "__get__") or hasattr(type(before), "__get__")
    if type(real).__setattr__ is not type.__setattr__ or name.startswith("__") or is_bound:
        raise TraceError(f"the traced function writes the attribute .{name} of {cls.__name__}; return the value instead")
    describe = f"{real.__qualname__}.{name}"
    names.places.refuse_undecided(real, name)
    if names.places.get(real, name) is None:
        names.read_again(before, describe)
        names.read_again(before, f"<{real.__name__}>.{name}")
    read = partial(_before, names, real, name)
    names.places.store(real, name, value, lambda: Place(CLASS_ATTRIBUTE, weakly(real), name, describe, read))


def _before(names: Reader, real: type, name: str) -> Any:
    """Return an attribute of a class as it is outside. Raises AttributeError, with a guard, if there is none."""
    if inspect.getattr_static(real, name, ABSENT) is ABSENT:
        names.check(partial(getattr, real, name, ABSENT), ABSENT, f"{real.__qualname__}.{name}", "identity")
        raise AttributeError(name)
    return attribute(names, real, name, None, real)


def _place(names: Reader, real: type, name: str) -> Place | None:
    """Return the place of an attribute of a class, or of its base that has it, to which the function stored."""
    for kind in real.__mro__:
        target = names.places.get(kind, name)
        if target is not None or name in vars(kind):
            return target
    return None


def _delete(cls: type, name: str) -> None:
    raise TraceError(f"the traced function deletes the attribute .{name} of {cls.__name__}; delete it outside")


def _missing(names: Reader, cls: type, name: str) -> Any:
    """Return an attribute that the class has from its metaclass; raises AttributeError, with a guard, if there is none."""
    real = next(real_class(k) for k in cls.__mro__ if real_class(k) is not k)
    target = _place(names, real, name)
    if target is not None:
        return target.cell_contents
    try:
        value = getattr(real, name)
    except AttributeError:
        if not name.startswith("__"):
            names.check(partial(getattr, real, name, ABSENT), ABSENT, f"{real.__qualname__}.{name}", "identity")
        raise
    if name.startswith("__"):
        return value
    if isinstance(value, MethodType) and value.__self__ is real:
        names.same(lambda: getattr(real, name).__func__, f"{real.__qualname__}.{name}")
        return MethodType(names.follow(value.__func__), cls)
    return names.resolve(value, partial(getattr, real, name), f"{real.__qualname__}.{name}")


def attribute(names: Reader, real: type, name: str, instance: Any, owner: Any) -> Any:
    """Return an attribute of a class, read from it or, if ``instance`` is not None, from an object of its shadow."""
    raw = inspect.getattr_static(real, name)
    describe = f"{real.__qualname__}.{name}"
    read = partial(getattr, real, name)
    if isinstance(raw, staticmethod) or not hasattr(type(raw), "__get__"):
        return names.resolve(read(), read, describe)
    if isinstance(raw, classmethod):
        names.same(lambda: read().__func__, describe)
        return MethodType(names.follow(read().__func__), owner)
    home = next(k for k in real.__mro__ if name in vars(k))
    names.same(read if read() is raw else partial(vars(home).__getitem__, name), describe)
    return bind(names, raw, instance, owner)


def bind(names: Reader, raw: Any, instance: Any, owner: Any) -> Any:
    """Return the result of binding a class's descriptor, with its code followed."""
    match raw:
        case FunctionType():
            followed = names.follow(raw)
            return followed if instance is None else MethodType(followed, instance)
        case staticmethod():
            return names.follow(raw.__func__)
        case classmethod():
            return MethodType(names.follow(raw.__func__), owner)
        case property() if instance is not None and raw.fget is not None:
            return names.follow(raw.fget)(instance)
        case functools.cached_property() if instance is not None:
            value = vars(instance)[raw.attrname] = names.follow(raw.func)(instance)
            return value
        case functools.partialmethod() if instance is not None:
            return partial(names.follow(raw.func), instance, *raw.args, **raw.keywords)
    followed = names.follow(raw)
    return followed.__get__(instance, owner) if hasattr(followed, "__get__") else followed


class Super:
    """The result of ``super()`` in a trace: attributes of the classes after one in an object's method resolution order.

    Like Python's own, it looks up every name in those classes, ``__init__`` too.
    """

    __slots__ = ("_bound", "_names", "_owner", "_rest")

    def __init__(self, names: Reader, bases: list[type], bound: Any, owner: type) -> None:
        for name, value in (("_names", names), ("_rest", bases), ("_bound", bound), ("_owner", owner)):
            object.__setattr__(self, name, value)

    def __getattribute__(self, name: str) -> Any:
        names, bases, bound, owner = map(partial(object.__getattribute__, self), ("_names", "_rest", "_bound", "_owner"))
        if name in _OF_SUPER:
            return {"__class__": names.builtins["super"], "__self__": bound, "__self_class__": owner}[name]
        for kind in bases:
            if name in vars(kind):
                break
        else:
            raise AttributeError(f"'super' object has no attribute {name!r}")
        raw, is_class = vars(kind)[name], bound is owner
        if names.is_made(kind):
            return raw.__get__(None if is_class else bound, owner) if hasattr(raw, "__get__") else raw
        if kind not in users_bases(kind):
            return _of_library(raw, name, bound, owner)
        read = partial(vars(kind).__getitem__, name)
        if not hasattr(type(raw), "__get__"):
            return names.resolve(raw, read, f"{kind.__qualname__}.{name}")
        names.same(read, f"{kind.__qualname__}.{name}")
        return bind(names, raw, None if is_class else bound, bound if is_class else names.type_of(bound))

    def __setattr__(self, name: str, value: Any) -> None:
        raise TraceError(f"the traced function writes super().{name}; write the attribute of self")


def _of_library(raw: Any, name: str, bound: Any, owner: type) -> Any:
    """Return a bound attribute of a library's class."""
    if not hasattr(raw, "__get__"):
        return raw
    if bound is owner:
        return raw.__get__(None, owner)
    if _is_outside(bound) and name == "__setattr__":
        return object.__getattribute__(bound, "assign")
    if _is_outside(bound) and name in ("__setattr__", "__delattr__"):
        raise TraceError(f"the traced function writes an attribute of <{owner.__name__}>; return the value instead")
    is_native = _is_outside(bound) and not isinstance(raw, FunctionType)
    return raw.__get__(bound._names.fixed(object.__getattribute__(bound, "_real")) if is_native else bound, owner)


def _is_outside(value: Any) -> bool:
    return issubclass(type(value), Outside)


_OF_SUPER = ("__class__", "__self__", "__self_class__")


class SuperTwin:
    """The replacement of ``super`` in a trace."""

    def __init__(self, names: Reader) -> None:
        self._names = names

    def __call__(self, *args: Any) -> Any:
        after, bound = args if len(args) == 2 else _of_method(args, sys._getframe(1))
        real = object.__getattribute__(bound, "_real") if _is_outside(bound) else bound
        if not isinstance(after, type):
            raise TypeError(f"super() argument 1 must be a type, not {type(after).__name__}")
        after = real_class(after)
        owner = real if issubclass(type(real), type) and issubclass(real_class(real), after) else type(real)
        order = list(dict.fromkeys(real_class(k) for k in owner.__mro__ if k is not _NoHook))
        if after not in order:
            raise TypeError("super(type, obj): obj must be an instance or subtype of type")
        bases = order[order.index(after) + 1 :]
        if real is bound and not any(not self._names.is_made(k) and is_users_class(k) for k in bases):
            return super(after, bound)
        return Super(self._names, bases, bound, owner)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, super) or type(value) is Super

    def __eq__(self, other: object) -> bool:
        return other is self or other is super

    def __hash__(self) -> int:
        return hash(super)


def _of_method(args: tuple[Any, ...], frame: FrameType) -> tuple[type, Any]:
    """Return the arguments of ``super()`` in the method that calls it; raises as Python does outside of one."""
    if args:
        raise TraceError("super(type) without an object; use super() or super(type, self)")
    if not frame.f_code.co_argcount:
        raise RuntimeError("super(): no arguments")
    if "__class__" not in frame.f_locals:
        raise RuntimeError("super(): __class__ cell not found")
    first = frame.f_code.co_varnames[0]
    if first not in frame.f_locals:
        raise RuntimeError("super(): arg[0] deleted")
    return frame.f_locals["__class__"], frame.f_locals[first]


class TypeTwin:
    """The replacement of ``type`` in a trace: of a traced array or stand-in it returns the type of the value for which it
    stands."""

    def __init__(self, names: Reader) -> None:
        self._names = names

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._names.type_of(args[0]) if len(args) == 1 and not kwargs else type(*args, **kwargs)

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type,)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, type)

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, type)

    def __eq__(self, other: object) -> bool:
        return other is self or other is type

    def __hash__(self) -> int:
        return hash(type)

    def __getattr__(self, name: str) -> Any:
        return getattr(type, name)


def kind_of_traced(value: TracedArray) -> type:
    """Return the type of the value for which a traced array stands. Raises TraceError if values decide it."""
    if value.type_tag is not None:
        raise TraceError("the type of a number, which values decide; test it by isinstance")
    if value.weak:
        return {"bool": bool, "int": int, "float": float, "complex": complex}[value.weak]
    return np.ndarray if value.ndim or value.is_cell else value.dtype.type


def names_of_class_body(code: CodeType) -> list[str]:
    """Return the names that the body of a class statement looks up beyond its own."""
    lookups = ("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    return [i.argval for i in dis.get_instructions(code) if i.opname in lookups]


def build_class(function: FunctionType, name: str, *bases: Any, **kwargs: Any) -> Any:
    """Implement ``__build_class__``: class bodies look up globals without the namespace's ``__getitem__``."""
    namespace: Any = function.__globals__
    for name_ in names_of_class_body(function.__code__):
        namespace.store_directly(name_)
    built = builtins.__build_class__(function, name, *bases, **kwargs)
    namespace.names.built.add(built)
    return built
