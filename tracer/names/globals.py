"""The globals of a followed function: a dict whose lookups resolve through the trace.

Python looks globals up in a subclass of dict by its ``__getitem__``, but stores them without a call: an entry that
``store_directly`` did not add is a store by the traced function.
"""

from __future__ import annotations

import builtins
import functools
from typing import Any

from pullback.ir import Loc
from pullback.tracer.arrays.matched_classes import matched
from pullback.tracer.arrays.number_types import MARK, MATCHED
from pullback.tracer.arrays.replacements import called
from pullback.tracer.names.guards import ABSENT, are_absent
from pullback.tracer.names.reader import Reader
from pullback.tracer.names.side_effects import effect
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
        if name in self.resolved:
            return self.resolved[name]
        if (operator := operator_called(name)) is not None:
            self.resolved[name] = operator
            return operator
        self.refuse_stores()
        if name not in self.real:
            if name.endswith(MARK) and name.removesuffix(MARK) in self.real:
                return called(self[name.removesuffix(MARK)])
            if name.endswith(MATCHED) and name.removesuffix(MATCHED) in self.real:
                return matched(self[name.removesuffix(MATCHED)])
            self._miss(name.removesuffix(MARK).removesuffix(MATCHED))
            raise KeyError(name)
        read = functools.partial(self.real.__getitem__, name)
        resolved = self.resolved[name] = self.names.resolve(read(), read, name)
        return resolved

    def get(self, name: str, default: Any = None) -> Any:
        """Return the global, or ``default``."""
        return self[name] if self.__contains__(name) else default

    def __contains__(self, name: object) -> bool:
        if name not in self.real:
            self._miss(str(name))
        return name in self.real

    def store_directly(self, name: str) -> None:
        """Store a global in the dict, for code that looks it up without ``__getitem__``."""
        if name in self.real:
            self._stored_directly[name] = value = self[name]
            dict.__setitem__(self, name, value)

    def refuse_stores(self, loc: Loc | None = None) -> None:
        """Raise TraceError if the function has stored a global."""
        for name, value in self.items():
            if value is self.resolved.get(name):
                continue
            if value is not self._stored_directly.get(name) and name != "__warningregistry__":
                raise effect(f"the traced function writes the global {name}; return the value instead", loc)

    def _miss(self, name: str) -> None:
        if not self.missed:
            self.names.check(functools.partial(are_absent, self.real, self.missed), True, "builtins are not hidden")
        self.missed.add(name)
        self.names.same(functools.partial(vars(builtins).get, name, ABSENT), f"the builtin {name}", is_library=True)
