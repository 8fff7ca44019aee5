"""What is imported when it is first asked for: whole modules, and names of a package.

A program that is on disk needs no pass and no code generation, and most programs need no report and no check: nobody waits for
those to be imported. Each use stands beside an import for type checkers, from which the way of the imports is tested.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

lock = threading.RLock()
"""Held while such a module is imported; a fork waits for it."""


class Later:
    """A module that is imported when something of it is first asked for."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(_imported(self._name), attribute)

    def __repr__(self) -> str:
        return f"<{self._name}, imported at its first use>"


def later(name: str) -> Any:
    """The module of that name, imported at its first use."""
    return Later(name)


def names_later(package: dict[str, Any], homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package with these globals: names by the modules that they come from. A module listed with no
    names is one itself."""
    home = {name: module for module, names in homes.items() for name in names}
    modules = {module.rpartition(".")[2]: module for module, names in homes.items() if not names}

    def find(name: str) -> Any:
        if name in home:
            found = getattr(_imported(home[name]), name)
        elif name in modules:
            found = _imported(modules[name])
        else:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        package[name] = found
        return found

    return find


def _imported(name: str) -> ModuleType:
    found = sys.modules.get(name)
    if found is not None and not getattr(getattr(found, "__spec__", None), "_initializing", False):
        return found
    with lock:
        return importlib.import_module(name)
