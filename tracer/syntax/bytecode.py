"""``for`` statements in the bytecode of functions whose source is not at hand."""

from __future__ import annotations

import dis
import functools
import inspect
from types import CodeType

LoopKey = tuple[CodeType, int]
"""The code of a function, and the offset of the ``FOR_ITER`` of a loop in it."""
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")
_IGNORED = ("CACHE", "EXTENDED_ARG", "NOP", "RESUME")
_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR", "YIELD_VALUE", "SEND")
_COLLECTS = ("LIST_APPEND", "SET_ADD", "MAP_ADD")
"""The opcodes with which a comprehension stores an element below its iterator, where no variable holds it."""
_SEES_SCOPE = frozenset(("locals", "vars", "dir", "eval", "exec"))
_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@functools.lru_cache(maxsize=1024)
def loops_in(code: CodeType) -> dict[int, int]:
    """Return the offset of the ``FOR_ITER`` of each ``for`` statement that ends with its iterator alone, by the offsets of the
    instructions that may create the iterator, with their caches: the call whose result the statement goes over, and ``GET_ITER``.

        CALL range; GET_ITER; FOR_ITER -> after; ...; JUMP_BACKWARD; after:

    A loop is left out that ``break``, ``return`` or an ``except`` clause inside it may leave, and so is that of a comprehension.
    """
    if code.co_flags & _SUSPENDED or not code.co_flags & inspect.CO_OPTIMIZED or not _SEES_SCOPE.isdisjoint(code.co_names):
        return {}
    instructions = [i for i in dis.get_instructions(code) if i.opname not in _IGNORED]
    entries = [(e.start, e.end, e.target) for e in dis.Bytecode(code).exception_entries]  # type: ignore[attr-defined]
    result: dict[int, int] = {}
    for k, i in enumerate(instructions):
        if i.opname != "FOR_ITER" or k == 0 or instructions[k - 1].opname != "GET_ITER":
            continue
        start, end = i.offset, i.argval
        body = [x for x in instructions[k + 1 :] if x.offset < end]
        caught = any(start < a and b <= end and not start <= target < end for a, b, target in entries)
        if caught or any(x.opname in (*_LEAVES, *_COLLECTS) for x in body):
            continue
        if any(x.opcode in (*dis.hasjrel, *dis.hasjabs) and not start <= x.argval < end for x in body):
            continue
        first = k - 2 if k > 1 and instructions[k - 2].opname in _CALLS else k - 1
        result.update(dict.fromkeys(range(instructions[first].offset, start, 2), start))
    return result
