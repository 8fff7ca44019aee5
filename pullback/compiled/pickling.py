"""How transformed functions are pickled: by name, like Python's functions, where a module shows them by their name; else by the
function and what is done to it.

Pickling by value is up to the pickler: cloudpickle takes lambdas, closures and the code of ``__main__`` along.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any


def shown(value: Any) -> Any:
    """What the module of a function or class shows under its dotted name, to the pickler at work; None if nothing."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or _is_by_value(module):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _is_by_value(module: str) -> bool:
    """Whether the pickler that asks takes along what is written in a module.

    The protocol does not tell which pickler asks; the nearest frame on the stack that is not ours or ``pickle``'s is its.
    """
    frame = sys._getframe(1)
    ours = (__name__, "pullback.compiled.function", pickle.__name__)
    while frame.f_back is not None and frame.f_globals.get("__name__") in ours:
        frame = frame.f_back
    if "cloudpickle" not in frame.f_globals.get("__name__", "").split("."):
        return False
    registered = frame.f_globals.get("list_registry_pickle_by_value", set)()
    return module == "__main__" or any(module == name or module.startswith(f"{name}.") for name in registered)
