"""Calls of number types in a traced function: ``float(x)`` and ``np.float64(x)`` load marked names, so that they accept traced
values.

The types themselves are unchanged (``dtype=float``, ``isinstance(x, int)``, ``type(x) is np.float64``): only a load whose
value is called at once, which the bytecode shows, is renamed from ``float`` to ``float()``.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Mapping
from itertools import pairwise
from types import CodeType, ModuleType
from typing import Any

import numpy as np

from pullback.tracer.user_code.clauses import SUPPRESSES

NAMES = frozenset(("float", "int", "bool", "complex", "range", "enumerate", "zip", "reversed"))
"""The builtin types that have replacements in calls."""
MARK = "()"
MATCHED = "(match)"
"""The marks of the names of classes that are called, and that are patterns of ``match`` statements."""

_SCALARS = frozenset(name for name, kind in vars(np).items() if isinstance(kind, type) and issubclass(kind, np.generic))
_LARGEST = 256
"""First operand that does not fit in one byte."""
_HAS_METHOD_LOADS = sys.version_info < (3, 12)


def renamed(code: CodeType, globals: Mapping[str, Any]) -> CodeType:
    """Return the code, and its nested functions, with calls of number types loading the marked names.

    ``globals`` shows which names are NumPy's types and which are modules that contain them.
    """
    used = frozenset(_names(code))
    types = frozenset(n for n in used if n in NAMES or _is_scalar(globals.get(n)))
    modules = frozenset(n for n in used if not _SCALARS.isdisjoint(used) and _has_scalars(globals.get(n)))
    return _renamed(code, code.co_filename, types, modules) if types or modules else code


@functools.lru_cache(maxsize=4096)
def catches(code: CodeType) -> bool:
    """Return whether code, or a function in it, has an except clause, or a ``with`` statement that may suppress exceptions."""
    if any(catches(c) for c in code.co_consts if isinstance(c, CodeType)):
        return True
    if not code.co_exceptiontable:
        return False
    instructions = [i.opname for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG")]
    is_with = SUPPRESSES in code.co_names
    return any(a == "PUSH_EXC_INFO" and (is_with or b != "WITH_EXCEPT_START") for a, b in pairwise(instructions))


def restored(code: CodeType) -> CodeType:
    """Return the code that was passed to ``renamed``, up to the order of its names."""
    constants = tuple(restored(c) if isinstance(c, CodeType) else c for c in code.co_consts)
    names = tuple(n.removesuffix(MARK).removesuffix(MATCHED) for n in code.co_names)
    return code.replace(co_names=names, co_consts=constants)


def _names(code: CodeType) -> list[str]:
    return [*code.co_names, *(n for c in code.co_consts if isinstance(c, CodeType) for n in _names(c))]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, np.generic)


def _has_scalars(value: Any) -> bool:
    return isinstance(value, ModuleType) and value.__name__ in ("numpy", "pullback.numpy")


@functools.lru_cache(maxsize=4096)
def _renamed(code: CodeType, file: str, types: frozenset[str], modules: frozenset[str]) -> CodeType:
    """Rename the loads; ``file`` keeps equal code of different files distinct in the cache."""
    constants = tuple(_renamed(c, file, types, modules) if isinstance(c, CodeType) else c for c in code.co_consts)
    text, names = bytearray(code.co_code), list(code.co_names)
    instructions = [i for i in dis.get_instructions(code) if i.opcode not in (dis.opmap["CACHE"], dis.opmap["EXTENDED_ARG"])]
    marked: dict[tuple[str, str], list[dis.Instruction]] = {}
    patterns = _patterns(instructions, types, modules)
    for before, i, after in zip([None, *instructions], instructions, [*instructions[1:], None]):
        if i in patterns:
            marked.setdefault((i.argval, MATCHED), []).append(i)
        elif _calls_global(i, types) or _calls_attribute(before, i, after, modules):
            marked.setdefault((i.argval, MARK), []).append(i)
    for (name, mark), loads in marked.items():
        position = names.index(name) if name in names else -1
        if len(loads) == sum(i.opcode in dis.hasname and i.argval == name for i in instructions):
            names[position] = name + mark
        elif all(_operand(i, len(names)) < _LARGEST and i.arg is not None and i.arg < _LARGEST for i in loads):
            for i in loads:
                text[i.offset + 1] = _operand(i, len(names))
            names.append(name + mark)
    return code.replace(co_code=bytes(text), co_names=tuple(names), co_consts=constants)


def _patterns(instructions: list[dis.Instruction], types: frozenset[str], modules: frozenset[str]) -> list[dis.Instruction]:
    """Return the instructions that load a type of numbers as the class of a pattern."""
    classes = []
    for k, i in enumerate(instructions):
        is_class = [x.opname for x in instructions[k + 1 : k + 3]] == ["LOAD_CONST", "MATCH_CLASS"]
        of = instructions[k - 1] if k else None
        is_attribute = i.opname == "LOAD_ATTR" and of is not None and of.opname == "LOAD_GLOBAL" and of.argval in modules
        if is_class and (is_attribute or (i.opname == "LOAD_GLOBAL" and i.argval in types)):
            classes.append(i)
    return classes


def _calls_global(i: dis.Instruction, types: frozenset[str]) -> bool:
    return i.opname == "LOAD_GLOBAL" and i.argval in types and bool((i.arg or 0) & 1)


def _calls_attribute(
    before: dis.Instruction | None, i: dis.Instruction, after: dis.Instruction | None, modules: frozenset[str]
) -> bool:
    """Return whether an instruction loads a type of a module to call it: as a method, or after a null was pushed for the call."""
    if before is None or before.opname != "LOAD_GLOBAL" or before.argval not in modules or i.argval not in _SCALARS:
        return False
    if i.opname == "LOAD_METHOD" or (i.opname == "LOAD_ATTR" and not _HAS_METHOD_LOADS and bool((i.arg or 0) & 1)):
        return True
    if i.opname != "LOAD_ATTR" or after is None:
        return False
    has_room = bool((before.arg or 0) & 1) and after.opname not in ("LOAD_ATTR", "LOAD_METHOD")
    return has_room or after.opname == "PUSH_NULL"


def _operand(i: dis.Instruction, position: int) -> int:
    """Return the operand with which an instruction loads the name at a position; the flag in its last bit is kept."""
    if i.opname == "LOAD_METHOD" or (i.opname == "LOAD_ATTR" and _HAS_METHOD_LOADS):
        return position
    return position << 1 | ((i.arg or 0) & 1)
