"""The globals of a followed function: a dict whose lookups resolve through the trace.

Python looks globals up in a subclass of dict by its ``__getitem__``, but stores them without a call: an entry that
``store_directly`` did not add is a store by the traced function, and is what it reads from then on.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterator
from typing import Any

from pullback.tracer.arrays.matched_classes import matched
from pullback.tracer.arrays.number_types import MARK, MATCHED
from pullback.tracer.arrays.replacements import called
from pullback.tracer.names.guards import ABSENT, are_absent
from pullback.tracer.names.places import AS_BEFORE, DELETED, GLOBAL, Place, VariablePlace
from pullback.tracer.names.reader import Reader
from pullback.tracer.syntax.table import operator_called


class Namespace(dict[str, Any]):
    """The globals of a followed function. The dict holds ``__builtins__``, ``store_directly``'s globals, and the function's
    stores."""

    def __init__(self, real: dict[str, Any], names: Reader) -> None:
        super().__init__(__builtins__=names.builtins, __name__=real.get("__name__"))
        self.real = real
        self.names = names
        self.resolved: dict[str, Any] = {}
        self.missed: set[str] = set()
        self._stored_directly = dict(self)

    def __getitem__(self, name: str) -> Any:
        if dict.__contains__(self, name) and name not in self._stored_directly:
            stored = dict.__getitem__(self, name)
            if stored is DELETED:
                raise KeyError(name)
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
            self.resolved[name] = self.names.resolve(read(), read, name)
        return self.resolved[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the global, or ``default``."""
        return self[name] if self.__contains__(name) else default

    def __contains__(self, name: object) -> bool:
        if dict.__contains__(self, name) and name not in self._stored_directly:
            return dict.get(self, str(name)) is not DELETED
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
        for name, value in [*self.items()]:
            if value is not self._stored_directly.get(name, AS_BEFORE) and name != "__warningregistry__":
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
            value = dict.get(self, name, AS_BEFORE)
            return AS_BEFORE if value is self._stored_directly.get(name, DELETED) else value

        self.names.read_again(self.resolved.get(name), name)
        before = functools.partial(self._resolved, name)
        return VariablePlace(GLOBAL, lambda: self.real, name, name, before, get, put)

    def _miss(self, name: str) -> None:
        if not self.missed:
            self.names.check(functools.partial(are_absent, self.real, self.missed), True, "builtins are not hidden")
        self.missed.add(name)
        self.names.same(functools.partial(vars(builtins).get, name, ABSENT), f"the builtin {name}", is_library=True)
