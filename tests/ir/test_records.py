"""Dataclasses whose methods are compiled at their first use: each property is compared with the standard library's decorator."""

from __future__ import annotations

import copy
import dataclasses
import gc
import inspect
import pickle
import threading
import weakref
from collections.abc import Callable, Hashable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from pullback.ir.core import records

Decorator = Callable[..., Any]
OPTIONS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"frozen": True, "kw_only": True},
    {"eq": False},
    {"frozen": True, "eq": False, "repr": False},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "weakref_slot": True, "kw_only": True},
]


def point(decorator: Decorator, options: dict[str, bool]) -> Any:
    @decorator(**options)
    class Point:
        """A point with attributes of each sort."""

        dimension: ClassVar[int] = 3
        x: float
        y: float = field(default=2.0, repr=False)
        label: str = field(default="p", compare=False)
        links: list[int] = field(default_factory=list, hash=False)
        kind: int = field(default=7, init=False)
        trail: tuple[int, ...] = field(default_factory=tuple, init=False)

    return Point


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def observed(cls: Any) -> dict[str, Any]:
    """Return what a program can see of a class and its objects."""
    a, b, c = cls(x=1.0), cls(x=1.0, label="q"), cls(x=1.0, y=5.0, links=[1])
    replaced = dataclasses.replace(a, y=3.0)
    cyclic = cls(x=1.0)
    cyclic.links.append(cyclic)
    values = {
        "signature": inspect.signature(cls),
        "fields": [(f.name, f.type, f.kw_only, f.init) for f in dataclasses.fields(cls)],
        "match": cls.__match_args__,
        "annotations": cls.__init__.__annotations__,
        "name": cls.__init__.__qualname__,
        "equal": (a == a, a == b, a == c, a == 1, a != b),
        "hash": outcome(lambda: hash(a)) if cls.__eq__ is not object.__eq__ else "identity",
        "hashable": isinstance(a, Hashable),
        "text": repr(c).partition(" object at ")[0],
        "cyclic": repr(cyclic).partition(" object at ")[0],
        "values": [(each.x, each.y, each.label, each.links, each.kind, each.trail) for each in (a, b, c, replaced)],
        "own lists": a.links is not b.links,
        "set": outcome(lambda: setattr(a, "x", 4.0)),
        "delete": outcome(lambda: delattr(b, "y")),
        "other": outcome(lambda: setattr(a, "z", 4.0)) if hasattr(a, "__dict__") else "slots",
        "positional": outcome(lambda: cls(1.0, 2.0).y),
        "missing": outcome(cls),
        "unknown": outcome(lambda: cls(x=1.0, w=2.0)),
        "copied": (copy.copy(c).links is c.links, copy.deepcopy(c).links, copy.deepcopy(c).y),
        "weak": outcome(lambda: weakref.ref(a)() is a),
        "document": cls.__doc__,
    }
    return {name: value if isinstance(value, tuple | list | bool | str) else str(value) for name, value in values.items()}


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "plain")
def test_objects_are_those_of_the_standard_library(options: dict[str, bool]) -> None:
    expected, result = observed(point(dataclasses.dataclass, options)), observed(point(records.dataclass, options))
    assert result == expected


def test_without_parentheses() -> None:
    @records.dataclass
    class Pair:
        a: int
        b: int

    assert Pair(1, 2) == Pair(1, 2) and repr(Pair(1, 2)).endswith("Pair(a=1, b=2)") and Pair.__doc__ == "Pair"


def family(decorator: Decorator) -> list[Any]:
    @decorator(frozen=True)
    class Base:
        a: int
        b: int = 2

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("negative")

    @decorator(frozen=True, kw_only=True)
    class Derived(Base):
        c: int
        b: int = 5

        def __repr__(self) -> str:
            return "own text"

    @decorator(frozen=True, eq=False)
    class Identity(Base):
        pass

    @decorator(frozen=True)
    class OwnHash(Base):
        def __hash__(self) -> int:
            return 11

    @decorator
    class OwnEquality:
        a: int = 1

        def __eq__(self, other: object) -> bool:
            return True

    class Plain(Base):  # not decorated: it may have further attributes
        def __init__(self) -> None:
            super().__init__(4)
            self.extra = 1

    return [Base, Derived, Identity, OwnHash, OwnEquality, Plain]


def test_inheritance_and_own_methods() -> None:
    def seen(classes: list[Any]) -> list[Any]:
        base, derived, identity, own_hash, own_equality, plain = classes
        objects = [plain(), derived(1, c=3), base(1), identity(1), own_hash(1), own_equality()]
        return [
            [(repr(x).partition(".<locals>.")[2], vars(x)) for x in objects],
            [outcome(lambda cls=cls: cls(-1, c=1) if cls is derived else cls(-1)) for cls in (base, derived, identity)],
            [hash(base(1)), hash(derived(1, c=3)), hash(own_hash(1)), outcome(lambda: hash(own_equality()))],
            [base(1) == derived(1, c=3), base(1) == base(1), identity(1) == identity(1), own_equality() == 5],
            [outcome(lambda: setattr(plain(), "a", 2)), outcome(lambda: setattr(plain(), "extra", 2))],
            [cls.__match_args__ for cls in classes],
        ]

    assert seen(family(records.dataclass)) == seen(family(dataclasses.dataclass))


@records.dataclass(frozen=True, slots=True)
class Stored:
    """An object that is pickled: its class has a name in a module."""

    a: int
    b: str = "b"


@records.dataclass(frozen=True)
class StoredWithDict:
    """The same with a ``__dict__``."""

    a: int
    b: str = "b"


@pytest.mark.parametrize("cls", [Stored, StoredWithDict])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_objects_are_pickled(cls: Any, protocol: int) -> None:
    assert pickle.loads(pickle.dumps(cls(3), protocol)) == cls(3)


def test_methods_are_compiled_at_their_first_use_and_once() -> None:
    cls = point(records.dataclass, {"frozen": True})
    lazy = records._CompiledAtFirstUse
    assert all(isinstance(cls.__dict__[name], lazy) for name in ("__init__", "__eq__", "__hash__"))
    cls(x=1.0)
    assert inspect.isfunction(cls.__dict__["__init__"]) and isinstance(cls.__dict__["__hash__"], lazy)
    before = cls.__dict__["__init__"]
    cls(x=1.0)
    assert cls.__dict__["__init__"] is before


def test_threads_may_use_a_class_first_together() -> None:
    for _ in range(20):
        cls, results, gate = point(records.dataclass, {"frozen": True}), [], threading.Barrier(4)

        def create(cls: Any = cls, results: list[Any] = results, gate: threading.Barrier = gate) -> None:
            gate.wait()
            results.append(cls(x=1.0))

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4 and len(set(results)) == 1


def test_a_class_is_freed() -> None:
    cls = point(records.dataclass, {"frozen": True})
    reference = weakref.ref(cls)
    del cls
    gc.collect()
    assert reference() is None
