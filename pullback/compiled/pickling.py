"""Decide how transformed functions are pickled: by name, like Python functions, if a module has them under their name;
otherwise by the function and its transform.

Pickling by value is up to the pickler: cloudpickle includes lambdas, closures and the code of ``__main__``.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any


def module_member(value: Any) -> Any:
    """Return the object that a function's or class's module has under its qualified name, for the active pickler; None if
    there is none."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or _is_by_value(module):
        return None
    member: Any = sys.modules.get(module)
    for part in name.split("."):
        member = getattr(member, part, None)
    return member


def _is_by_value(module: str) -> bool:
    """Return whether the active pickler stores the contents of a module by value.

    The protocol does not identify the pickler; it is the nearest frame on the stack that is neither of these modules nor
    ``pickle``'s.
    """
    frame = sys._getframe(1)
    skipped = (__name__, "pullback.compiled.function", pickle.__name__)
    while frame.f_back is not None and frame.f_globals.get("__name__") in skipped:
        frame = frame.f_back
    if "cloudpickle" not in frame.f_globals.get("__name__", "").split("."):
        return False
    registered = frame.f_globals.get("list_registry_pickle_by_value", set)()
    return module == "__main__" or any(module == name or module.startswith(f"{name}.") for name in registered)
