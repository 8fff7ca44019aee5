"""Stand-ins for outside objects that a traced function reads: modules, objects of the user's classes, mappings, refused
objects.

A read goes through the trace's ``Reader``, which records it; a write is a TraceError.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial, partialmethod
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any, NoReturn

from pullback.tracer.arrays.matched_classes import matched
from pullback.tracer.arrays.number_types import MARK, MATCHED
from pullback.tracer.arrays.replacements import MEMBERS, called, foreign_function
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.names.containers import container
from pullback.tracer.names.guards import (
    ABSENT,
    Guard,
    Read,
    attribute_through,
    container_key,
    function_through,
    weakly,
)
from pullback.tracer.names.places import AS_BEFORE, ATTRIBUTE, DELETED, Place
from pullback.tracer.names.reader import Reader
from pullback.tracer.user_code.errors import INSTEAD, TraceError
from pullback.tracer.user_code.ownership import attribute_names, is_users_object, users_bases


class Outside:
    """Base of stand-ins, with the real object and the names of the trace; ``_found`` are the attributes read so far."""

    __slots__ = ("_found", "_names", "_real")
    _found: dict[str, Any]
    _names: Reader
    _real: Any

    def __init__(self, real: Any, names: Reader) -> None:
        for name, value in (("_real", real), ("_names", names), ("_found", {})):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return repr(self._names.fixed(self._real))

    def __dir__(self) -> list[str]:
        return dir(self._real)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, TracedArray) and self._found.get(name) is value:
            return
        raise TraceError(f"the traced function writes the attribute .{name} of {title(self._real)}; return the value instead")

    def __delattr__(self, name: str) -> None:
        raise TraceError(f"the traced function deletes the attribute .{name} of {title(self._real)}; delete it outside")

    def __getattr__(self, name: str) -> Any:
        return self._before(name)

    def _before(self, name: str) -> Any:
        """Return an attribute as it is outside."""
        attributes = self._found
        if name not in attributes:
            try:
                attributes[name] = self._read(name)
            except AttributeError:
                if not name.startswith("__") and not hasattr(self._real, name):
                    self._names.check(self._reader(name, ABSENT), ABSENT, f"{title(self._real)}.{name}", "identity")
                raise
        return attributes[name]

    def _unstored(self, name: str) -> Any:
        """Return what an attribute is where the function stored nothing in it."""
        return self._before(name)

    def _read(self, name: str) -> Any:
        raise NotImplementedError

    def _resolve(self, name: str) -> Any:
        """Return an attribute as an outside value."""
        read = self._reader(name)
        return self._names.resolve(read(), read, f"{title(self._real)}.{name}")

    def _reader(self, name: str, *default: Any) -> Read:
        """Return a function that reads an attribute again."""
        return partial(getattr, self._real, name, *default)

    def _store(self, name: str, value: Any) -> None:
        """Store the value of an attribute, DELETED if it is deleted."""
        real, names, earlier = self._real, self._names, self._found
        describe = f"{title(real)}.{name}"
        if "__dict__" in earlier:
            raise TraceError(f"the traced function stores to {describe}, and uses __dict__ of the object; use its attributes")
        if names.places.get(real, name) is None:
            if earlier.get(name, ABSENT) is value:
                return
            names.read_again(earlier.get(name), describe)
        before = partial(self._unstored, name)
        names.places.store(real, name, value, lambda: Place(ATTRIBUTE, names.owner(real), name, describe, before))


class LibraryModule(Outside):
    """A module of a library: its functions and classes may have twins, its data are outside values."""

    __slots__ = ()

    def _read(self, name: str) -> Any:
        if name.endswith(MARK):
            return called(self._read(name.removesuffix(MARK)))
        if name.endswith(MATCHED):
            return matched(self._read(name.removesuffix(MATCHED)))
        real, names = self._real, self._names
        make = MEMBERS.get((real.__name__, name))
        member = None if make is None else make(names)
        if member is not None:
            return member
        read = partial(vars(real).__getitem__, name) if name in vars(real) else partial(getattr, real, name)
        value = read()
        if value is os.environ or value is sys.modules:
            return OutsideMapping(value, names)
        if isinstance(value, bool | int | float | str | list | dict | tuple) and _top(real) not in _NUMERIC:
            return self._resolve(name)
        names.same(read, f"{real.__name__}.{name}", is_library=True)
        if _top(real) in INSTEAD and isinstance(value, BuiltinFunctionType):
            return foreign_function(value, _top(real))
        return names.replacement(value, f"{real.__name__}.{name}")


class UserModule(Outside):
    """A module of the user's, whose attributes are the globals of its functions."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self._globals().attribute(name, f"{title(self._real)}.{name}")
        except KeyError:
            if self._globals().is_stored(name):
                raise AttributeError(f"module {self._real.__name__!r} has no attribute {name!r}") from None
            return self._before(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if type(self._real) is not ModuleType:
            super().__setattr__(name, value)
        self._globals().store(name, value, f"{title(self._real)}.{name}")

    def __delattr__(self, name: str) -> None:
        getattr(self, name)
        self._globals().store(name, DELETED, f"{title(self._real)}.{name}")

    def _globals(self) -> Any:
        return self._names.namespace(vars(self._real))

    def _read(self, name: str) -> Any:
        return self._resolve(name)


class OutsideObject(Outside):
    """An object of a user's class: its methods are followed, its attributes are outside values.

    Each class has a subclass of this one with the special methods that the class has; see ``stand_in_class``.
    """

    __slots__ = ()
    __class__ = property(lambda self: self._names.shadow(self._names.class_of(self._real)))

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        is_stored = self._names.places.of(self._real)
        if is_stored and not str(sys._getframe(1).f_globals.get("__name__")).startswith("pullback."):
            raise TraceError(f"__dict__ of {title(self._real)}, to which the traced function stores; use its attributes")
        if id(self._real) in self._names.replaced:
            return {name: value for name, value in self.attributes().items() if name in self._real.__dict__}
        if "__dict__" in self._found:
            return self._found["__dict__"]
        read = self._reader("__dict__")
        attributes: dict[str, Any] = container(self._names, read(), read, f"{title(self._real)}.__dict__", is_fixed=True)
        if not str(sys._getframe(1).f_globals.get("__name__")).startswith("pullback."):
            self._found["__dict__"] = attributes
        return attributes

    def __getattr__(self, name: str) -> Any:
        real, names = self._real, self._names
        raw = inspect.getattr_static(type(real), name, None)
        if isinstance(raw, property) and isinstance(raw.fget, FunctionType):
            names.same(partial(getattr, type(real), name), f"{title(real)}.{name}")
            return names.follow(raw.fget)(self)
        reads = getattr(type(raw), "__get__", None)
        if hasattr(type(raw), "__set__") and isinstance(reads, FunctionType) and is_users_object(raw):
            return self._described(name, raw)
        target = names.places.get(real, name)
        if target is None or target.stored is AS_BEFORE:
            is_as_outside = names.places.is_empty and id(real) not in names.replaced
            return self._before(name) if is_as_outside else self._after_stores(name, raw)
        try:
            return target.cell_contents
        except ValueError:
            raise AttributeError(f"{type(real).__name__!r} object has no attribute {name!r}") from None

    def _after_stores(self, name: str, raw: Any) -> Any:
        """Return an attribute that was not stored, of an object whose class, or another place, was stored to, or which has other
        attributes in a region: code of the user's that reads it runs in the trace."""
        real, names = self._real, self._names
        is_replaced = id(real) in names.replaced
        if is_replaced and name in names.replaced[id(real)]:
            return self._before(name)
        when = "in a function that is differentiated with respect to it" if is_replaced else "after a store; read it before"
        is_own = name in getattr(real, "__dict__", ())
        if self._is_of_class(name):
            return getattr(names.shadow(type(real)), name)
        if isinstance(raw, cached_property) and not is_own:
            self._check_own(name)
            value = names.follow(raw.func)(self)
            self._store(name, value)
            return value
        kind = type(raw)
        is_hidden = is_own and not hasattr(kind, "__set__")
        if hasattr(kind, "__get__") and kind.__module__ not in sys.stdlib_module_names and not is_hidden:
            if not is_users_object(raw):
                raise TraceError(f"{title(real)}.{name} is read through a {kind.__name__} {when}")
            if not is_own:
                self._check_own(name)
            return self._described(name, raw)
        if raw is None and not is_own and hasattr(type(real), "__getattr__"):
            fallback = inspect.getattr_static(type(real), "__getattr__")
            if not isinstance(fallback, FunctionType):
                raise TraceError(f"{title(real)}.{name} is read through __getattr__ {when}")
            self._check_own(name)
            names.same(partial(inspect.getattr_static, type(real), "__getattr__"), f"{title(real)}.__getattr__")
            return MethodType(names.follow(fallback), self)(name)
        if is_replaced and isinstance(inspect.getattr_static(type(real), "__getattribute__"), FunctionType):
            raise TraceError(f"{title(real)}.{name} is read through __getattribute__ {when}")
        return self._before(name)

    def _unstored(self, name: str) -> Any:
        return getattr(self._names.shadow(type(self._real)), name) if self._is_of_class(name) else self._before(name)

    def _is_of_class(self, name: str) -> bool:
        """Return whether the object has an attribute, to which the function stored as one of a class, from its class."""
        real, names = self._real, self._names
        if not any(names.places.get(k, name) is not None for k in type(real).__mro__):
            return False
        self._check_own(name)
        return name not in getattr(real, "__dict__", ())

    def _check_own(self, name: str) -> None:
        """Guard whether the object has an attribute of its own with a name."""
        real, names = self._real, self._names
        if id(real) not in names.replaced:  # else its attributes are guarded
            owner, is_own = names.owner(real), name in getattr(real, "__dict__", ())
            names.check(lambda: name in getattr(owner(), "__dict__", ()), is_own, f"{title(real)}.{name}")

    def _described(self, name: str, descriptor: Any) -> Any:
        """Return an attribute that a descriptor of the user's reads, whose code runs in the trace."""
        kind, names = type(self._real), self._names
        names.same(partial(inspect.getattr_static, kind, name), f"{title(self._real)}.{name}")
        return names.instance(descriptor).__get__(self, names.shadow(kind))

    def __setattr__(self, name: str, value: Any) -> None:
        real, names = self._real, self._names
        kind = names.class_of(real)
        setter = inspect.getattr_static(kind, "__setattr__")
        if not isinstance(setter, FunctionType):
            self.assign(name, value)
            return
        names.same(partial(getattr, kind, "__setattr__"), f"{title(real)}.__setattr__")
        if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        if name not in vars(type(self)):
            type.__setattr__(type(self), name, _AssignedDirectly(name))
        MethodType(names.follow(setter), self)(name, value)

    def __delattr__(self, name: str) -> None:
        real, names = self._real, self._names
        kind = names.class_of(real)
        if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        raw = inspect.getattr_static(kind, name, None)
        is_special = hasattr(type(raw), "__delete__") and not isinstance(raw, MemberDescriptorType)
        if is_special or isinstance(inspect.getattr_static(kind, "__delattr__"), FunctionType):
            raise TraceError(f"the traced function deletes .{name} of {title(real)} by code of its class; delete it outside")
        target = names.places.get(real, name)
        try:
            if target is not None:
                target.cell_contents  # noqa: B018
            elif name not in attribute_names(real):
                raise ValueError
        except ValueError:
            raise _deletion_error(kind.__name__, name, isinstance(raw, MemberDescriptorType)) from None
        self._store(name, DELETED)

    def attributes(self) -> dict[str, Any]:
        """Return the object's own attributes, of which there are the same in each call."""
        real, names = self._real, self._names
        guard_attributes(names, real)
        own = dict.fromkeys(attribute_names(real))
        for stored in names.places.on_in_order(real):
            if stored.since % 2:
                own.pop(stored.key, None)
            own[stored.key] = None
        values: dict[str, Any] = {}
        for name in own:
            target = names.places.get(real, name)
            with suppress(ValueError):  # a deleted attribute
                values[name] = self._before(name) if target is None else target.cell_contents
        return values

    def as_outside(self, name: str, value: Any) -> Any:
        """Return an attribute, ``value`` in the trace, as it is outside if the function did not store it."""
        return getattr(self._real, name) if self._names.places.get(self._real, name) is None else value

    def made_class(self) -> Any:
        """Return the class of objects like this one that the traced function makes."""
        return self._names.shadow(type(self._real))

    @contextmanager
    def with_attributes(self, attributes: Mapping[str, Any]) -> Iterator[None]:
        """Make other values those of attributes in this context, in which the function may store to them."""
        real, names, earlier = self._real, self._names, self._found.copy()
        around = names.replaced.get(id(real))
        names.replaced[id(real)] = {**(around or {}), **attributes}
        for name, value in attributes.items():
            target = names.places.get(real, name)
            if target is None:
                self._found[name] = value
            else:
                target.cell_contents = value
        try:
            yield
        finally:
            del names.replaced[id(real)]
            if around is not None:
                names.replaced[id(real)] = around
            for name in attributes:
                self._found.pop(name, None)
                if name in earlier:
                    self._found[name] = earlier[name]

    def assign(self, name: str, value: Any) -> None:
        """Set an attribute as ``object.__setattr__`` does."""
        real, names = self._real, self._names
        kind = names.class_of(real)
        raw = inspect.getattr_static(kind, name, ABSENT)
        describe = f"{title(real)}.{name}"
        if raw is not ABSENT and hasattr(type(raw), "__set__") and not isinstance(raw, MemberDescriptorType):
            names.same(partial(inspect.getattr_static, kind, name), describe)
            if isinstance(raw, property):
                if raw.fset is None:
                    raise AttributeError(f"property {name!r} of {kind.__name__!r} object has no setter")
                names.follow(raw.fset)(self, value)
            elif name in ("__class__", "__dict__") or not is_users_object(raw):
                raise TraceError(f"the traced function writes .{name} of {title(real)}; write it outside")
            else:
                names.instance(raw).__set__(self, value)
            return
        if not hasattr(real, "__dict__") and not isinstance(raw, MemberDescriptorType):
            problem = "has no attribute" if raw is ABSENT else "attribute"
            ending = "" if raw is ABSENT else " is read-only"
            raise AttributeError(f"{kind.__name__!r} object {problem} {name!r}{ending}")
        if raw is ABSENT:
            names.check(partial(getattr, kind, name, ABSENT), ABSENT, describe, "identity")
        self._store(name, value)

    def _read(self, name: str) -> Any:
        real, names = self._real, self._names
        raw = inspect.getattr_static(type(real), name, None)
        if isinstance(raw, partialmethod):
            own = names.owner(real)
            names.same(lambda: inspect.getattr_static(own(), name), f"{title(real)}.{name}")
            return partial(names.follow(raw.func), self, *raw.args, **raw.keywords)
        value = getattr(real, name)
        function = getattr(value, "__func__", None)
        owner = getattr(value, "__self__", None)
        if function is None or not (owner is real or isinstance(owner, type)):
            return self._resolve(name)
        names.same(partial(function_through, names.owner(real), name), f"{title(real)}.{name}")
        if not isinstance(value, MethodType):
            return value
        return MethodType(names.follow(function), self if owner is real else names.shadow(owner))

    def _reader(self, name: str, *default: Any) -> Read:
        return partial(attribute_through, self._names.owner(self._real), name, *default)

    def __copy__(self) -> Any:
        return _copy_of(self, lambda value: value)

    def __deepcopy__(self, memo: Any) -> Any:
        return _copy_of(self, partial(copy.deepcopy, memo=memo))

    def __eq__(self, other: object) -> Any:
        if not issubclass(type(other), Outside) and type(other) is type(self._real):
            self._names.fixed(self._real)
        return self._real is getattr(other, "_real", other)

    def __hash__(self) -> int:
        real = self._names.fixed(self._real)
        if "__hash__" in {n for k in users_bases(type(real)) for n in vars(k)}:
            own = weakly(real)
            self._names.check(lambda: hash(own()), hash(real), f"hash({title(real)})")
        return hash(real)


class OutsideCallable(Outside):
    """A compiled function with attributes of the user's, which are outside values."""

    __slots__ = ()
    __class__ = property(lambda self: type(self._real))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        real, target = self._real, self._names.places.get(self._real, name)
        if target is None:
            is_users_own = name in users_attributes(real) or not (name.startswith("_") or hasattr(type(real), name))
            return self._before(name) if is_users_own else getattr(real, name)
        try:
            return target.cell_contents
        except ValueError:
            raise AttributeError(f"{type(real).__name__!r} object has no attribute {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self._store(name, value)

    def __delattr__(self, name: str) -> None:
        getattr(self, name)
        self._store(name, DELETED)

    def _read(self, name: str) -> Any:
        return self._resolve(name)

    def _reader(self, name: str, *default: Any) -> Read:
        return partial(attribute_through, weakly(self._real), name, *default)

    def __eq__(self, other: object) -> Any:
        return self._real == getattr(other, "_real", other)

    def __hash__(self) -> int:
        return hash(self._real)


def users_attributes(function: Any) -> list[str]:
    """Return the names of the attributes that the user set on a compiled function."""
    return [name for name in vars(function) if not name.startswith("_")]


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "__bool__": bool, "__index__": operator.index, "__int__": int, "__float__": float,
}  # fmt: skip


def converted(name: str, result: Any) -> Any:
    """Return the result of a special method as Python needs it: a traced number's value, which becomes static."""
    return CONVERSIONS[name](result) if name in CONVERSIONS and isinstance(result, TracedArray) else result


class _AssignedDirectly:
    """An attribute of the class of stand-ins by which ``object.__setattr__`` of a stand-in stores to the object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else instance.__getattr__(self._name)

    def __set__(self, instance: Any, value: Any) -> None:
        instance.assign(self._name, value)


def _special(name: str) -> Any:
    """Return a special method for a stand-in's class, where Python looks it up."""

    def call(self: OutsideObject, *args: Any, **kwargs: Any) -> Any:
        names = self._names
        kind = names.class_of(self._real)
        names.same(partial(getattr, kind, name), f"{kind.__name__}.{name}")
        method = getattr(kind, name)
        if isinstance(method, FunctionType):
            return converted(name, MethodType(names.follow(method), self)(*args, **kwargs))
        return MethodType(method, names.fixed(self._real))(*args, **kwargs)

    return call


_NOT_SPECIAL = frozenset((
    "__init__", "__new__", "__del__", "__init_subclass__", "__class_getitem__", "__getattribute__", "__getattr__", "__setattr__",
    "__delattr__", "__hash__", "__class__", "__dict__", "__weakref__", "__slots__", "__doc__", "__module__", "__qualname__",
    "__annotations__", "__annotate__", "__annotate_func__", "__dir__", "__reduce__", "__reduce_ex__", "__getstate__",
    "__setstate__", "__copy__", "__deepcopy__", "__subclasshook__", "__sizeof__", "__post_init__", "__replace__",
))  # fmt: skip


def stand_in_class(kind: type) -> type[OutsideObject]:
    """Return the class of the stand-ins for objects of a class."""
    members: dict[str, Any] = {"__slots__": (), "__module__": kind.__module__, "__hash__": OutsideObject.__hash__}
    members["__pullback_stand_in__"] = True
    for base in reversed(kind.__mro__):
        if base is object:
            continue
        for name, raw in vars(base).items():
            if name.startswith("__") and name.endswith("__") and name not in _NOT_SPECIAL:
                is_method = isinstance(raw, FunctionType) or (callable(raw) and not isinstance(raw, type))
                members[name] = _special(name) if is_method else raw
    return type(kind.__name__, (OutsideObject,), members)


def guard_attributes(names: Reader, real: Any) -> None:
    """Guard the names of an object's attributes, in their order."""
    owner, expected = names.owner(real), attribute_names(real)
    if list(getattr(real, "__dict__", ())) == expected:
        names.guard(Guard(
            read=partial(attribute_through, owner, "__dict__"), expected=container_key(vars(real)), how="container",
            describe=f"the attributes of {title(real)}",
        ))  # fmt: skip
    else:
        names.check(lambda: tuple(attribute_names(owner())), tuple(expected), f"the attributes of {title(real)}")


def _copy_of(stand_in: OutsideObject, copied: Callable[[Any], Any]) -> Any:
    """Return a copy of an outside object, which belongs to the trace; its attributes are copied by ``copied``."""
    real, names = stand_in._real, stand_in._names
    guard_attributes(names, real)
    copy_ = object.__new__(stand_in._names.shadow(type(real)))
    for name in attribute_names(real):
        object.__setattr__(copy_, name, copied(getattr(stand_in, name)))
    return copy_


def _deletion_error(kind: str, name: str, is_slot: bool) -> AttributeError:
    """Return the error of Python for the deletion of an attribute that an object of a class does not have."""
    try:
        delattr(type(kind, (), {"__slots__": (name,)} if is_slot else {})(), name)
    except AttributeError as error:
        return AttributeError(*error.args)
    raise AssertionError


class OutsideMapping(Outside):
    """A mapping, whose items are outside values."""

    __slots__ = ()
    __class__ = property(lambda self: type(self._real))

    def __getitem__(self, key: Any) -> Any:
        read = partial(self._real.__getitem__, key)
        if key not in self._real:
            self._names.check(partial(self._real.__contains__, key), False, self._title(key))
        return self._names.resolve(read(), read, self._title(key))

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the item, or ``default``."""
        return self[key] if self.__contains__(key) else default

    def __contains__(self, key: Any) -> bool:
        is_present: bool = key in self._real
        self._names.check(partial(self._real.__contains__, key), is_present, self._title(key))
        return is_present

    def keys(self) -> tuple[Any, ...]:
        """Return the keys, in order."""
        real = self._real
        self._names.check(lambda: tuple(real), tuple(real), f"the keys of {title(real)}")
        return tuple(real)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def values(self) -> list[Any]:
        """Return the values, in order."""
        return [self[k] for k in self.keys()]

    def items(self) -> list[tuple[Any, Any]]:
        """Return the pairs of keys and values, in order."""
        return [(k, self[k]) for k in self.keys()]

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TraceError(f"the traced function changes {self._title(key)}, which comes from outside; return the value instead")

    def _title(self, key: Any) -> str:
        return f"{title(self._real)}[{key!r}]"

    def _read(self, name: str) -> Any:
        raise TraceError(f".{name} of {title(self._real)}, which comes from outside, cannot be traced; use an ordinary dict")


class OutsideDate(Outside):
    """datetime.date or datetime.datetime, whose reads of the current time are refused in a trace."""

    __slots__ = ()

    def _read(self, name: str) -> Any:
        return Refused(f"the clock (.{name}): {CLOCK}") if name in ("now", "today", "utcnow") else getattr(self._real, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real(*args, **kwargs)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self._real)


class OutsideVariable(Outside):
    """A context variable, whose value is an outside value."""

    __slots__ = ()

    def _read(self, name: str) -> Any:
        real, names = self._real, self._names
        if name != "get":
            raise TraceError(f".{name} of the context variable {real.name} cannot be traced; set it outside")
        return lambda *default: names.resolve(real.get(*default), partial(real.get, *default), real.name)


class Refused:
    """Something that cannot be used while tracing; every use raises TraceError."""

    __slots__ = ("_message",)

    def __init__(self, message: str) -> None:
        self._message = message

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TraceError(self._message)

    __getattr__ = __call__ = __iter__ = __next__ = __getitem__ = __len__ = __bool__ = __float__ = __contains__ = _refuse
    __enter__ = __exit__ = __array__ = __lt__ = __gt__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = _refuse
    __matmul__ = __rmatmul__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __le__ = __ge__ = _refuse
    __neg__ = __pos__ = __abs__ = __invert__ = __index__ = __int__ = __array_ufunc__ = __array_function__ = _refuse


def title(value: Any) -> str:
    return value.__name__ if isinstance(value, ModuleType) else f"<{type(value).__name__}>"


RANDOM = (
    "it would be frozen into the program; draw with pb.random and a key that is an argument, or draw outside and pass the array"
)
CLOCK = "it would be read once, when the function is traced; read it outside the function"

_NUMERIC = ("numpy", "scipy", "math", "cmath")
_CLOCKS = frozenset(("clock_gettime", "localtime", "gmtime", "ctime"))


def _top(module: ModuleType) -> str:
    return module.__name__.partition(".")[0]


def module_stand_in(module: ModuleType, names: Reader, is_library: bool) -> Any:
    """Return the stand-in for a module in a trace."""
    top = _top(module)
    if module.__name__ == "numpy.random" or top in ("random", "secrets", "uuid"):
        return Refused(f"a random draw ({module.__name__}): {RANDOM}")
    if top == "pullback" and not module.__name__.startswith("pullback.numpy"):
        return module
    if is_library or top in ("pullback", *sys.stdlib_module_names):
        return LibraryModule(module, names)
    return UserModule(module, names)


def is_clock(value: Any) -> bool:
    """Return whether a value is a function that reads the clock, and that programs do not call."""
    return isinstance(value, BuiltinFunctionType) and value.__module__ == "time" and value.__name__ in _CLOCKS
