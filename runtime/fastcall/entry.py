"""The native entry point of a fast call: it finds the record of the call's signature, checks the arguments and the captures of
the trace, runs the program and builds the result.

It interprets tables (``record_layout``). What they cannot express is served by ``__call__`` in Python, which traces or raises;
so is any call that fails a check before the program has run. The program runs at most once per call, except for its own guards
on values.

References: arguments belong to the caller for the duration of the call. The items of containers are held if Python code, or
another thread, may run meanwhile; captures always are. No Python code runs between reading a slot of the hash table and
holding its record. A frame is used by one call at a time; concurrent calls allocate their own.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.runtime.compile.background import BackgroundTask
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.compile.validation import CompileError
from pullback.runtime.fastcall import (
    abi,
)
from pullback.runtime.fastcall import (
    checks as fastcall_checks,
)
from pullback.runtime.fastcall import (
    memory_checks as fastcall_memory,
)
from pullback.runtime.fastcall import (
    methods as fastcall_methods,
)
from pullback.runtime.fastcall import (
    objects as fastcall_objects,
)
from pullback.runtime.fastcall import (
    run as fastcall_run,
)
from pullback.runtime.fastcall.checks import HASH, hash_of_call
from pullback.runtime.fastcall.common import GLOBALS, NULL, STATE, STATE_FIELDS, Entrance, Word, function_at, part
from pullback.runtime.fastcall.methods import GET, METHOD
from pullback.runtime.fastcall.record_layout import SLOT, TABLE, size
from pullback.runtime.fastcall.run import ATTEMPT, CREATE, not_served
from pullback.runtime.process import counters

CALL, INIT = "pullback_call", "pullback_call_init"
_OFFSET_FLAG = 1 << 63
"""PY_VECTORCALL_ARGUMENTS_OFFSET"""
MAX_PROBES = 64
"""The largest number of slots of the hash table that a call reads."""
MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"


class Unavailable(Exception):
    """Raised, with the reason, if there is no native path."""


@part("void", "ptr", symbol=INIT)
def _init(f: Entrance, words: Word) -> None:
    """(words): stores the table of addresses."""
    with f.count_to(len(abi.ADDRESSES) + len(STATE_FIELDS)) as k:
        f.put(f.item(words, k), function_at(STATE), k)
    f.ret_void()


@part("ptr", "ptr", "ptr", "ptr", "i64", "i64", "ptr")
def _plain(f: Entrance, function: Word, own: Word, arguments: Word, count: Word, positional: Word, names: Word) -> None:
    """(function, callable, arguments, count, positional, names) -> the result of the function for a call of the callable"""
    words = f.many_words(f.add(count, 2))
    f.put(own, words, 1)
    for k in f.each(count):
        f.put(f.item(arguments, k), words, f.add(k, 2))
    flagged_count = f.bit_or(f.add(positional, 1), Word(str(_OFFSET_FLAG - (1 << 64))))
    f.ret(f.call("ptr", f.api("PyObject_Vectorcall"), function, f.at(words, 8), flagged_count, names))


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr")
def _held_attempt(f: Entrance, record: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """As the record's own attempt, with the record held meanwhile."""
    owner = f.field("record", record, "owner")
    f.incref(owner)
    function = f.field("record", record, "attempt")
    result = f.call("ptr", function, record, arguments, positional, keywords, names)
    f.decref(owner)
    f.ret(result)


def _table(f: Entrance, dispatch: Word) -> Word:
    """Load the current hash table of a dispatch."""
    slots = f.load(dispatch, abi.SLOTS, "ptr")
    return f.load(f.load(slots, abi.SLOTS, "ptr"), abi.ARRAY_DATA, "ptr")


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr")
def _search(f: Entrance, dispatch: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """(dispatch, arguments, positional, keywords, names) -> as ``attempt``, over the records with the hash of the call."""
    h = f.use(hash_of_call, arguments, f.add(positional, keywords), keywords)
    result = f.variable(not_served(f))
    with f.count_to(MAX_PROBES) as k:
        # Read again each time: a guard may have run Python code that replaced the table.
        table = _table(f, dispatch)
        index = f.bit_and(f.add(h, k), f.field("table", table, "mask"))
        slot = f.at(table, f.add(f.mul(index, size(SLOT)), size(TABLE)))
        record = f.load(slot, 8, "ptr")
        f.leave_if(f.is_null(record))
        with f.when(f.eq(f.load(slot), h)):
            result.set(f.use(_held_attempt, record, arguments, positional, keywords, names))
            f.leave_if(f.ne(result.get(), not_served(f)))
            f.leave_if(f.xor(f.is_null(f.python("ptr", "PyErr_Occurred")), 1))
    f.ret(result.get())


@part("ptr", "ptr", "ptr", "i64", "ptr", symbol=CALL)
def _call(f: Entrance, own: Word, arguments: Word, flagged: Word, names: Word) -> None:
    """The vectorcall function: (callable, arguments, count and flag, names of keywords) -> a new reference"""
    positional = f.bit_and(flagged, _OFFSET_FLAG - 1)
    keywords = f.variable(0)
    with f.unless(f.is_null(names)):
        keywords.set(f.load(names, abi.SIZE))
    result = f.variable(not_served(f))
    dispatch = f.load(own, abi.HELD, "ptr")
    operands = (arguments, positional, keywords.get(), names)
    with f.unless(f.is_null(dispatch)), f.when(f.same(f.type_of(dispatch), f.state("dispatch"))):
        table = _table(f, dispatch)
        count = f.field("table", table, "count")
        is_traced = f.variable(f.eq(count, 0))
        with f.unless(is_traced.get()):
            frame = f.words(1)
            wrong = f.python("i32", "PyContextVar_Get", f.state("variable"), NULL, frame)
            with f.unless(f.eq(wrong, 0)):
                f.ret(NULL)
            trace = f.load(frame, 0, "ptr")
            f.decref(trace)
            is_traced.set(f.xor(f.bit_or(f.is_null(trace), f.same(trace, f.api("none"))), 1))
        with f.unless(is_traced.get()):
            with f.when(f.eq(count, 1)):
                result.set(f.use(_held_attempt, f.field("table", table, "only"), *operands))
            with f.unless(f.eq(count, 1)):
                f.incref(dispatch)
                result.set(f.use(_search, dispatch, *operands))
                f.decref(dispatch)
    with f.when(f.ne(result.get(), not_served(f))):
        f.ret(result.get())
    with f.unless(f.is_null(f.python("ptr", "PyErr_Occurred"))):
        f.ret(NULL)
    fallback, dispatch = f.variable(f.state("plain")), f.load(own, abi.HELD, "ptr")
    with f.unless(f.is_null(dispatch)), f.when(f.same(f.type_of(dispatch), f.state("dispatch"))):
        unserved = f.load(dispatch, abi.SLOTS + 8, "ptr")
        with f.unless(f.bit_or(f.is_null(unserved), f.same(unserved, f.api("none")))):
            fallback.set(unserved)
    count = f.add(positional, keywords.get())
    f.ret(f.use(_plain, fallback.get(), own, arguments, count, positional, names))


def source() -> str:
    """Return the text of all parts. It contains no address."""
    modules = (fastcall_objects, fastcall_memory, fastcall_checks, fastcall_run, fastcall_methods)
    parts = [*(each for module in modules for each in module.PARTS), _init, _plain, _held_attempt, _search, _call]
    return "\n".join([GLOBALS, MEMCPY, *(each.text for each in parts)])


@dataclass(frozen=True, eq=False)
class Entry:
    """``address``: the vectorcall function of callables, ``method`` that of bound methods, ``get`` the function that reads an
    attribute whose value is a callable. ``attempt``: the initial function that serves a call of a record. ``create``:
    the function that creates a result whose extents a program computes. ``state``: the
    table of addresses that native code reads. ``hash_of(arguments, keywords)``: the hash of a call."""

    address: int
    method: int
    get: int
    attempt: int
    create: int
    state: int
    hash_of: Callable[[list[Any], int], int]
    has_clock: bool


def _clock() -> int:
    """Return the address of clock_gettime; 0 where clock 1 may not be monotonic."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return int(ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0)
    except (AttributeError, OSError):
        return 0


def compile_in_background() -> BackgroundTask | None:
    """Start compiling the code that ``load`` needs in a background thread; return None if it is compiled already, or not used
    here."""
    return None if abi.problem() else default_engine().compile_in_background(source(), passes="full")


def load(plain: Any, variable: Any, dispatch: type, get: Any, method: type) -> Entry:
    """Load the native code of the fast call: ``plain`` serves a call in Python, ``variable`` is the context variable whose
    value is None outside traces, ``dispatch`` the class of the dispatches, ``get`` reads an attribute whose value is a
    callable, and ``method`` is the class of what it returns. Raises Unavailable."""
    if reason := abi.problem():
        raise Unavailable(reason)
    try:
        with counters.own():
            code = default_engine().load(source(), symbols=[CALL, INIT, HASH, METHOD, GET, ATTEMPT, CREATE], passes="full")
    except (CompileError, RuntimeError) as error:
        raise Unavailable(f"{type(error).__name__}: {error}".splitlines()[0]) from error
    clock = _clock()
    words = [*abi.addresses(), id(plain), id(variable), id(dispatch), clock, id(get), id(method)]
    table = (ctypes.c_int64 * len(words))(*words)
    _kept.extend((plain, variable, dispatch, get, method, table))
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(code[INIT])(ctypes.addressof(table))
    native = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(code[HASH])

    def hash_of(arguments: list[Any], keywords: int) -> int:
        objects = (ctypes.c_int64 * max(1, len(arguments)))(*map(id, arguments))
        return int(native(ctypes.addressof(objects), len(arguments), keywords))

    state = ctypes.addressof(table)
    return Entry(code[CALL], code[METHOD], code[GET], code[ATTEMPT], code[CREATE], state, hash_of, clock != 0)


_kept: list[Any] = []
