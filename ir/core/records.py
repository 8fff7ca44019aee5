"""Define dataclasses without compiling their methods.

``dataclasses.dataclass`` writes the source of up to seven methods of each class and compiles each of them when the class is
defined, half a millisecond a class, and a process uses few of them. The decorator of this module has the same meaning, but
``__init__``, ``__eq__`` and ``__hash__`` are compiled when they are first looked up on the class, and the other methods are
closures. A test forbids the standard library's decorator in the modules that ``import pullback`` loads.
"""

from __future__ import annotations

import dataclasses
import reprlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls=None, /, *, repr=True, eq=True, frozen=False, kw_only=False, slots=False, weakref_slot=False
    ):  # fmt: skip
        """Return a class with the methods of a dataclass, or, without a class, the decorator with these options.

        The options are those of ``dataclasses.dataclass``; ``InitVar`` fields are not supported. ``dataclasses.fields``,
        ``replace`` and ``is_dataclass`` hold for the class, but ``__dataclass_params__`` does not say that it is frozen.
        """

        def process(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__  # the standard library would format the signature instead
            options = {"init": False, "repr": False, "eq": False, "kw_only": kw_only}
            if slots:
                options |= {"slots": True, "weakref_slot": weakref_slot}
            has_hash = "__hash__" in cls.__dict__ and not (cls.__hash__ is None and "__eq__" in cls.__dict__)
            cls = dataclasses.dataclass(**options)(cls)
            methods = _methods(cls, text=repr, eq=eq, frozen=frozen, slots=slots, has_hash=has_hash)
            for name, method in methods.items():
                if name not in cls.__dict__ or name == "__hash__":
                    setattr(cls, name, method)
            return cls

        return process if cls is None else process(cls)


class _Factory:
    """Stands for the default of a parameter whose value a factory returns."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


class _CompiledAtFirstUse:
    """A method of a class, which is compiled and stored in place of this descriptor when it is first looked up."""

    def __init__(self, cls: type, name: str, build: Callable[[type, dict[str, Any]], Callable[..., Any]]) -> None:
        self.cls, self.name, self.build = cls, name, build
        self.names = sys.modules[cls.__module__].__dict__  # read now: a process that ends may have emptied sys.modules

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        method = self.cls.__dict__[self.name]
        if method is self:
            method = self.build(self.cls, self.names)
            method.__qualname__ = f"{self.cls.__qualname__}.{self.name}"
            setattr(self.cls, self.name, method)
        return method.__get__(instance, owner)


def _methods(cls: type, *, text: bool, eq: bool, frozen: bool, slots: bool, has_hash: bool) -> dict[str, Any]:
    """Return the methods of a dataclass by name. A class's own method of a name is kept."""
    fields: Sequence[Any] = dataclasses.fields(cls)
    methods: dict[str, Any] = {"__init__": _CompiledAtFirstUse(cls, "__init__", _init_frozen if frozen else _init)}
    if text:
        methods["__repr__"] = _repr([field.name for field in fields if field.repr])
    if eq:
        methods["__eq__"] = _CompiledAtFirstUse(cls, "__eq__", _eq)
        if not has_hash:
            methods["__hash__"] = _CompiledAtFirstUse(cls, "__hash__", _hash) if frozen else None
    if frozen:
        names = frozenset(field.name for field in fields)
        methods |= {"__setattr__": _refuse_set(cls, names), "__delattr__": _refuse_delete(cls, names)}
        if slots:
            methods["__setstate__"] = _set_state
    return methods


def _compile(names: dict[str, Any], lines: Sequence[str], values: dict[str, Any]) -> Callable[..., Any]:
    """Return a function of a module. ``names``: those of the module; ``lines``: its source; ``values``: other names it reads."""
    text = "\n ".join([f"def create({', '.join(values)}):", *lines[:1], *(f" {line}" for line in lines[1:])])
    name = lines[0].removeprefix("def ").partition("(")[0]
    scope: dict[str, Any] = {}
    exec(f"{text}\n return {name}", names, scope)
    return scope["create"](**values)


def _init(cls: type, names: dict[str, Any], assign: str = "self.{name} = {value}") -> Callable[..., Any]:
    """Return the ``__init__`` of a class whose attributes are set by ``assign``."""
    fields: Sequence[Any] = dataclasses.fields(cls)
    values: dict[str, Any] = {"set_": object.__setattr__, "factory_": _FACTORY}
    positional: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for k, field in enumerate(fields):
        value, parameter = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            values[f"factory{k}_"] = field.default_factory
            parameter = f"{field.name}=factory_"
            value = f"factory{k}_() if {field.name} is factory_ else {field.name}" if field.init else f"factory{k}_()"
        elif field.default is not dataclasses.MISSING:
            values[f"default{k}_"] = field.default
            parameter = f"{field.name}=default{k}_"
            value = field.name if field.init else f"default{k}_"
        elif not field.init:
            continue
        if field.init:
            (keywords if field.kw_only else positional).append(parameter)
        body.append(assign.format(name=field.name, value=value))
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ["self", *positional, *(["*", *keywords] if keywords else [])]
    init = _compile(names, [f"def __init__({', '.join(parameters)}):", *(body or ["pass"])], values)
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return init


def _init_frozen(cls: type, names: dict[str, Any]) -> Callable[..., Any]:
    return _init(cls, names, "set_(self, {name!r}, {value})")


def _attributes(name: str, names: Sequence[str]) -> str:
    """Return the source of the tuple of an object's attributes."""
    return f"({''.join(f'{name}.{each}, ' for each in names)})"


def _eq(cls: type, names: dict[str, Any]) -> Callable[..., Any]:
    compared = [field.name for field in dataclasses.fields(cls) if field.compare]
    equal = f"{_attributes('self', compared)} == {_attributes('other', compared)}"
    test = f"return {equal} if other.__class__ is self.__class__ else NotImplemented"
    return _compile(names, ["def __eq__(self, other):", test], {})


def _hash(cls: type, names: dict[str, Any]) -> Callable[..., Any]:
    fields: Sequence[Any] = dataclasses.fields(cls)
    hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
    return _compile(names, ["def __hash__(self):", f"return hash_({_attributes('self', hashed)})"], {"hash_": hash})


def _repr(names: Sequence[str]) -> Callable[[Any], str]:
    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _refuse_set(cls: Any, names: frozenset[str]) -> Callable[[Any, str, Any], None]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _refuse_delete(cls: Any, names: frozenset[str]) -> Callable[[Any, str], None]:
    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __delattr__


def _set_state(self: Any, state: Any) -> None:
    """Set the attributes of an unpickled or copied object with slots. ``state`` is that of ``object.__getstate__``."""
    for attributes in filter(None, state if isinstance(state, tuple) else (state,)):
        for name, value in attributes.items():
            object.__setattr__(self, name, value)
