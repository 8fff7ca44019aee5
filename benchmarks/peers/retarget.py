"""The same code on another library."""

import types
from collections.abc import Callable
from typing import Any


def retarget(function: Callable[..., Any], names: dict[str, Any]) -> Callable[..., Any]:
    """The same code with other globals; functions of the same module that it calls are retargeted too, as are those it holds.

    Requires: `names` holds the replacements by global name; a name of a function replaces that function.
    """
    assert isinstance(function, types.FunctionType)
    namespace = {**function.__globals__, **names}
    codes = [function.__code__, *[c for c in function.__code__.co_consts if isinstance(c, types.CodeType)]]
    for name in {name for code in codes for name in code.co_names}:
        helper = function.__globals__.get(name)
        ours = isinstance(helper, types.FunctionType) and helper.__module__ == function.__module__
        if ours and name not in names:
            namespace[name] = retarget(helper, names)
    return types.FunctionType(function.__code__, namespace, function.__name__, function.__defaults__)
