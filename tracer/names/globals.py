"""The globals of a followed function: a dict whose lookups resolve through the trace.

Python looks globals up in a subclass of dict by its ``__getitem__``, but stores them past it: what is stored here and was not
placed is a store by the traced function.
"""

from __future__ import annotations

import builtins
import functools
from typing import Any

from pullback.ir import Loc
from pullback.tracer.arrays.number_types import MARK
from pullback.tracer.arrays.replacements import called
from pullback.tracer.names.guards import ABSENT
from pullback.tracer.names.reader import Reader
from pullback.tracer.names.side_effects import effect


class Namespace(dict[str, Any]):
    """The globals of a followed function. Stored are ``__builtins__``, what was placed, and what the function stored itself."""

    def __init__(self, real: dict[str, Any], names: Reader) -> None:
        super().__init__(__builtins__=names.builtins, __name__=real.get("__name__"))
        self.real = real
        self.names = names
        self.found: dict[str, Any] = {}
        self.missed: set[str] = set()
        self._placed = dict(self)

    def __getitem__(self, name: str) -> Any:
        if name in self.found:
            return self.found[name]
        self.refuse_stores()
        if name not in self.real:
            if name.endswith(MARK) and name.removesuffix(MARK) in self.real:
                return called(self[name.removesuffix(MARK)])
            self._miss(name.removesuffix(MARK))
            raise KeyError(name)
        read = functools.partial(self.real.__getitem__, name)
        found = self.found[name] = self.names.resolve(read(), read, name)
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """The global, or ``default``."""
        return self[name] if self.__contains__(name) else default

    def __contains__(self, name: object) -> bool:
        if name not in self.real:
            self._miss(str(name))
        return name in self.real

    def place(self, name: str) -> None:
        """Store a global for code that looks it up past ``__getitem__``."""
        if name in self.real:
            self._placed[name] = value = self[name]
            dict.__setitem__(self, name, value)

    def refuse_stores(self, loc: Loc | None = None) -> None:
        """Raises TraceError if the function has stored a global."""
        for name, value in self.items():
            if value is self.found.get(name):
                continue
            if value is not self._placed.get(name) and name != "__warningregistry__":
                raise effect(f"the traced function writes the global {name}; return the value instead", loc)

    def _miss(self, name: str) -> None:
        if not self.missed:
            self.names.check(functools.partial(self.real.keys().isdisjoint, self.missed), True, "builtins are not hidden")
        self.missed.add(name)
        self.names.same(functools.partial(vars(builtins).get, name, ABSENT), f"the builtin {name}", is_library=True)
