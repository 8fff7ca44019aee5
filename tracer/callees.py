"""Calls of Python's number types in a followed function: ``float(x)`` loads a name of its own, so that it can take traced values.

The types themselves stay what they are (``dtype=float``, ``isinstance(x, int)``, ``type(x) is float``): only a load whose value
is called at once, which bytecode marks, is renamed from ``float`` to ``float()``.
"""

from __future__ import annotations

import dis
import functools
from types import CodeType

NAMES = ("float", "int", "bool")
MARK = "()"


def renamed(code: CodeType) -> CodeType:
    """Code, with that of nested functions, in which calls of those types load the marked names."""
    return _renamed(code, code.co_filename) if _has_names(code) else code


def restored(code: CodeType) -> CodeType:
    """The code that ``renamed`` was given, but for its order of names."""
    constants = tuple(restored(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    names = tuple(n.removesuffix(MARK) for n in code.co_names)
    return code.replace(co_names=names, co_consts=constants)


def _has_names(code: CodeType) -> bool:
    inside = (c for c in code.co_consts if isinstance(c, CodeType))
    return not set(NAMES).isdisjoint(code.co_names) or any(map(_has_names, inside))


@functools.lru_cache(maxsize=4096)
def _renamed(code: CodeType, file: str) -> CodeType:
    """``file`` tells apart what code of equal text compares as equal."""
    constants = tuple(renamed(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    text, names = bytearray(code.co_code), list(code.co_names)
    uses = [i for i in dis.get_instructions(code) if i.opcode in dis.hasname and i.argval in NAMES]
    for name in {i.argval for i in uses}:
        mine = [i for i in uses if i.argval == name]
        calls = [i for i in mine if i.opname == "LOAD_GLOBAL" and i.arg is not None and i.arg & 1]
        if calls == mine:
            names[names.index(name)] = name + MARK
            continue
        argument = len(names) << 1 | 1
        if calls and argument < 256 and all(i.arg is not None and i.arg < 256 for i in calls):
            names.append(name + MARK)
            for i in calls:
                text[i.offset + 1] = argument
    return code.replace(co_code=bytes(text), co_names=tuple(names), co_consts=constants)
