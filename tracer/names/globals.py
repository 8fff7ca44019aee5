"""The globals of a followed function: a dict whose lookups resolve through the trace.

Python looks globals up in a subclass of dict by its ``__getitem__``, but stores them without a call: an entry that
``store_directly`` did not add is a store by the traced function, and is what it reads from then on.
"""

from __future__ import annotations

import builtins
import dis
import functools
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from pullback.tracer.arrays.matched_classes import matched
from pullback.tracer.arrays.number_types import MARK, MATCHED
from pullback.tracer.arrays.replacements import called
from pullback.tracer.names.guards import ABSENT, are_absent
from pullback.tracer.names.places import AS_BEFORE, DELETED, GLOBAL, Place, VariablePlace
from pullback.tracer.names.reader import Reader
from pullback.tracer.syntax.table import operator_called


@functools.cache
def deleted_globals(code: CodeType) -> frozenset[str]:
    """Return the globals that code, or a function in it, deletes, which Python does without a call."""
    inside = [deleted_globals(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset(i.argval for i in dis.get_instructions(code) if i.opname == "DELETE_GLOBAL").union(*inside)


class Namespace(dict[str, Any]):
    """The globals of a followed function. The dict holds ``__builtins__``, ``store_directly``'s globals, and the function's
    stores."""

    def __init__(self, real: dict[str, Any], names: Reader) -> None:
        super().__init__(__builtins__=names.builtins, __name__=real.get("__name__"))
        self.real = real
        self.names = names
        self.resolved: dict[str, Any] = {}
        self.missed: set[str] = set()
        self._titles: dict[str, str] = {}
        self._stored_directly = dict(self)

    def __getitem__(self, name: str) -> Any:
        if self.is_stored(name):
            stored = dict.get(self, name, DELETED)
            if stored is DELETED:
                raise KeyError(name)
            if name not in self.real and (target := self.names.places.get(self.real, name)) is not None:
                target.refuse_absent()
            return stored
        if name in self.resolved:
            return self.resolved[name]
        if (operator := operator_called(name)) is not None:
            self.resolved[name] = operator
            return operator
        if name not in self.real:
            if name.endswith(MARK) and name.removesuffix(MARK) in self.real:
                return called(self[name.removesuffix(MARK)])
            if name.endswith(MATCHED) and name.removesuffix(MATCHED) in self.real:
                return matched(self[name.removesuffix(MATCHED)])
            self._miss(name.removesuffix(MARK).removesuffix(MATCHED))
            raise KeyError(name)
        return self._resolved(name)

    def _resolved(self, name: str) -> Any:
        """Return a global as it is outside."""
        if name not in self.resolved:
            read = functools.partial(self.real.__getitem__, name)
            self.resolved[name] = self.names.resolve(read(), read, self._title(name))
        return self.resolved[name]

    def _title(self, name: str) -> str:
        return self._titles.get(name, name)

    def attribute(self, name: str, title: str) -> Any:
        """Return a global as an attribute of its module, which is ``title`` in errors. Raises KeyError if there is none."""
        if name not in self.resolved:
            self._titles.setdefault(name, title)
        if not self.is_stored(name) and name not in self.real:
            raise KeyError(name)
        return self[name]

    def store(self, name: str, value: Any, title: str) -> None:
        """Store a global as an attribute of its module, DELETED if it is deleted."""
        if self.is_stored(name) or self.resolved.get(name, AS_BEFORE) is not value:
            self._titles.setdefault(name, title)
            dict.__setitem__(self, name, value)

    def is_stored(self, name: str) -> bool:
        """Return whether the function stored a global, or deleted it."""
        if not dict.__contains__(self, name):
            return name in self._stored_directly
        return dict.__getitem__(self, name) is not self._stored_directly.get(name, AS_BEFORE)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the global, or ``default``."""
        return self[name] if self.__contains__(name) else default

    def __contains__(self, name: object) -> bool:
        if self.is_stored(str(name)):
            return dict.get(self, str(name), DELETED) is not DELETED
        if name not in self.real:
            self._miss(str(name))
        return name in self.real

    def store_directly(self, name: str) -> None:
        """Store a global in the dict, for code that looks it up without ``__getitem__``."""
        if name in self.real:
            self._stored_directly[name] = value = self[name]
            dict.__setitem__(self, name, value)

    def places(self) -> Iterator[tuple[Any, Callable[[], Place]]]:
        """Yield the globals that the function stored, each with its key among the places and a function that makes the place."""
        for name in {**self, **self._stored_directly}:
            if self.is_stored(name) and name != "__warningregistry__":
                yield (id(self.real), name), functools.partial(self._place, name)

    def _place(self, name: str) -> Place:
        def put(value: Any) -> None:
            if value is not AS_BEFORE and not (value is DELETED and name not in self.real):
                dict.__setitem__(self, name, value)
            elif name in self._stored_directly:
                dict.__setitem__(self, name, self._stored_directly[name])
            elif dict.__contains__(self, name):
                dict.__delitem__(self, name)

        def get() -> Any:
            value = dict.get(self, name, DELETED if name in self._stored_directly else AS_BEFORE)
            return AS_BEFORE if value is self._stored_directly.get(name, AS_BEFORE) else value

        self.names.read_again(self.resolved.get(name), self._title(name))
        before = functools.partial(self._resolved, name)
        return VariablePlace(GLOBAL, lambda: self.real, name, self._title(name), before, get, put)

    def _miss(self, name: str) -> None:
        if not self.missed:
            self.names.check(functools.partial(are_absent, self.real, self.missed), True, "builtins are not hidden")
        self.missed.add(name)
        self.names.same(functools.partial(vars(builtins).get, name, ABSENT), f"the builtin {name}", is_library=True)
