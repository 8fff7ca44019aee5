"""Lazy imports: modules and package attributes that are imported at their first use.

A program loaded from the disk cache needs no passes and no codegen, and most programs need no reports or checks, so these
modules are not imported with the package. Each lazy import stands next to an import for type checkers, from which a test
derives the import graph.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

lock = threading.RLock()
"""Held while a lazy module is imported. A fork acquires it first."""


class LazyModule:
    """A stand-in for a module, which is imported at the first attribute access."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(_imported(self._name), attribute)

    def __repr__(self) -> str:
        return f"<{self._name}, imported at its first use>"


def later(name: str) -> Any:
    """Return a stand-in for the module called ``name``, which is imported at its first use."""
    return LazyModule(name)


def names_later(package: dict[str, Any], homes: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package whose globals are ``package``. ``homes``: attribute names by defining module; a
    module listed without names is itself an attribute."""
    home = {name: module for module, names in homes.items() for name in names}
    modules = {module.rpartition(".")[2]: module for module, names in homes.items() if not names}

    def find(name: str) -> Any:
        if name in home:
            attribute = getattr(_imported(home[name]), name)
        elif name in modules:
            attribute = _imported(modules[name])
        else:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        package[name] = attribute
        return attribute

    return find


def _imported(name: str) -> ModuleType:
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        return module
    with lock:
        return importlib.import_module(name)
