"""The ``except`` and ``finally`` clauses around the user's code that runs: they see the errors of a trace, not those of compiled
code."""

from __future__ import annotations

import builtins
import dis
import functools
import inspect
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import numpy as np

from pullback.tracer.user_code.ownership import is_users

Path = tuple[str, ...]
"""The name by which a clause refers to a class, with its attributes: ``("np", "linalg", "LinAlgError")``."""

_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FAST", "LOAD_FAST_CHECK")
NOT_HANDLED = "TraceError"
"""The ``error`` of a check whose exception a clause handles in Python, but not in the program."""
SUPPRESSES = "suppress"
"""The name of the context manager that suppresses exceptions."""
_MATCHES = ("CHECK_EXC_MATCH", "CHECK_EG_MATCH")


def error_class(name: str) -> type[Exception] | None:
    """Return the exception class that a check raises; None if it is none of Python or np.linalg."""
    kind = np.linalg.LinAlgError if name == "LinAlgError" else getattr(builtins, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def is_caught(ends_act: bool) -> bool:
    """Return whether a function of the trace that is running is in a ``try`` statement. ``ends_act``: or in a ``with``
    statement."""
    return any(True for _ in _around(ends_act))


def is_handled(kind: type[Exception], ends_act: bool) -> bool:
    """Return whether a function of the trace that is running is in a ``try`` statement of which an ``except`` clause handles
    exceptions of a class. ``ends_act``: or in a ``with`` statement, or a ``try`` statement with only a ``finally`` clause."""
    around = _around(ends_act)
    return any((ends_act and not clauses) or any(_matches(path, kind, names) for path in clauses) for clauses, names in around)


@functools.lru_cache(maxsize=4096)
def may_suppress(code: CodeType) -> bool:
    """Return whether code, or a function in it, ends a ``with`` statement in a way that may suppress its exception: a method
    ``__exit__`` that returns a truth, or a generator with an ``except`` clause."""
    if any(may_suppress(c) for c in code.co_consts if isinstance(c, CodeType)):
        return True
    opcodes = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "NOP")]
    if code.co_flags & inspect.CO_GENERATOR:
        return any(i.opname in _MATCHES for i in opcodes)
    returned = [a for a, b in itertools.pairwise(opcodes) if b.opname == "RETURN_VALUE"]
    return code.co_name == "__exit__" and not all(a.opname == "LOAD_CONST" and not a.argval for a in returned)


def is_in_end() -> bool:
    """Return whether a function of the trace that is running is in a ``finally`` clause that no exception has reached, or in a
    method ``__exit__``."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "pullback.tracer.trace":
        code = frame.f_code
        if code.co_name == "__exit__" and is_users(code):
            return True
        if is_users(code) and code.co_exceptiontable and _position(code, frame.f_lasti) in _finally_positions(code):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _position(code: CodeType, at: int) -> Any:
    return next(itertools.islice(code.co_positions(), at // 2, None))


@functools.lru_cache(maxsize=4096)
def _finally_positions(code: CodeType) -> frozenset[Any]:
    """Return the positions of the calls in ``finally`` clauses, of which the bytecode has a copy for exceptions."""
    handlers, instructions, index = _decoded(code)
    positions: set[Any] = set()
    for target in {h.target for h in handlers}:
        if _of_handler(instructions, index, target) == []:
            positions |= {i.positions for i in _clause(handlers, instructions, target) if "CALL" in i.opname}
    return frozenset(map(tuple, positions))


def _clause(handlers: list[Any], instructions: list[dis.Instruction], target: int) -> list[dis.Instruction]:
    """Return the instructions of a ``finally`` clause whose handler is at an offset."""
    cleanup = {h.target for h in handlers if h.start <= target + 2 < h.end}
    inside = [h for h in handlers if h.target in cleanup and h.start >= target]
    return [i for i in instructions if any(h.start <= i.offset < h.end for h in inside)]


def _may_end_otherwise(instructions: Iterable[dis.Instruction]) -> bool:
    """Return whether a ``finally`` clause may leave its statement itself, by ``break``, ``return`` or an exception."""
    for i in instructions:
        if i.opname in ("RAISE_VARARGS", "RETURN_VALUE", "RETURN_CONST", "POP_EXCEPT"):
            return True
        if isinstance(i.argval, CodeType) and any(x.opname == "RAISE_VARARGS" for x in dis.get_instructions(i.argval)):
            return True
    return False


def _decoded(code: CodeType) -> tuple[list[Any], list[dis.Instruction], dict[int, int]]:
    """Return the table of exceptions of code, its instructions, and their numbers by their offsets."""
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "EXTENDED_ARG", "NOP")]
    return handlers, instructions, {i.offset: k for k, i in enumerate(instructions)}


def _around(ends_act: bool) -> Iterator[tuple[tuple[Path, ...], Mapping[str, Any]]]:
    """Yield the classes of the clauses of each ``try`` statement that is running, with the names of its module."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") != "pullback.tracer.trace":
        if is_users(frame.f_code) and frame.f_code.co_exceptiontable:
            names = getattr(frame.f_globals, "real", frame.f_globals)
            yield from ((clauses, names) for clauses in _statements(frame.f_code, frame.f_lasti, ends_act))
        frame = frame.f_back  # type: ignore[assignment]


def _matches(path: Path, kind: type[Exception], names: Mapping[str, Any]) -> bool:
    """Return whether a clause handles exceptions of a class. A clause whose class is not known does."""
    value: Any = names.get(path[0], getattr(builtins, path[0], None))
    for name in path[1:]:
        value = getattr(value, name, None)
    try:
        return issubclass(kind, value)
    except TypeError:
        return True


@functools.lru_cache(maxsize=4096)
def _statements(code: CodeType, at: int, ends_act: bool) -> tuple[tuple[Path, ...], ...]:
    """Return the classes of the clauses of each ``try`` statement around the instruction at an offset; none for one with only a
    ``finally`` clause, unless that may leave the statement itself. A ``with`` statement is one
    that may handle any class in code that names ``suppress``, and if ``ends_act``."""
    handlers, instructions, index = _decoded(code)
    statements: list[tuple[Path, ...]] = []
    while True:
        target = next((h.target for h in handlers if h.start <= at < h.end), None)
        if target is None:
            return tuple(statements)
        paths = _of_handler(instructions, index, target, ends_act or SUPPRESSES in code.co_names)
        if paths == [] and _may_end_otherwise(_clause(handlers, instructions, target)):
            paths = [("BaseException",)]
        if paths is not None:
            statements.append(tuple(paths))
        at = target


def _of_handler(
    instructions: list[dis.Instruction], index: dict[int, int], target: int, suppresses: bool = False
) -> list[Path] | None:  # fmt: skip
    """Return the classes of the clauses of a handler; None for that of a clause, or of a ``with`` statement, unless it
    ``suppresses`` exceptions."""
    k = next((n for offset, n in sorted(index.items()) if offset >= target), len(instructions))
    if k + 1 >= len(instructions) or instructions[k].opname != "PUSH_EXC_INFO":
        return None
    if instructions[k + 1].opname == "WITH_EXCEPT_START":
        return [("BaseException",)] if suppresses else None
    paths: list[Path] = []
    current: list[Path] = []
    k += 1
    if instructions[k].opname == "POP_TOP":
        return [("BaseException",)]
    while k < len(instructions):
        i = instructions[k]
        if i.opname in _LOADS:
            current.append((str(i.argval),))
        elif i.opname == "LOAD_ATTR" and current:
            current[-1] = (*current[-1], str(i.argval))
        elif i.opname in _MATCHES:
            paths += current
            current = []
        elif i.opname.startswith("POP_JUMP") and paths and not current:
            k = index.get(i.argval, len(instructions)) - 1
        elif i.opname == "POP_TOP" and paths and not current:
            return [*paths, ("BaseException",)]
        elif i.opname not in ("BUILD_TUPLE", "PUSH_NULL", "COPY"):
            return paths
        k += 1
    return paths
