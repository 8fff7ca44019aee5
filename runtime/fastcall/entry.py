"""The native function that a warm call is: it finds the record of the call's signature, checks the arguments and what the trace
depends on outside, runs the program and builds the result.

It interprets tables (``layouts``). What they do not know goes to ``__call__`` in Python, which traces or explains; so does
anything that is not as expected before the program has run. The program runs at most once a call, but for guards of its own on
values.

References: arguments belong to the caller for as long as the call lasts. What is inside containers is held where Python code, or
another thread, may run meanwhile; what is read from outside always is. Between the look at a slot of the hash table and the
reference to its record no Python code runs. A frame is used by one call at a time; others take their own.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pullback.runtime.compile.background import Begun
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.compile.validation import CompileError
from pullback.runtime.fastcall import (
    abi,
)
from pullback.runtime.fastcall import (
    checks as entrance_checks,
)
from pullback.runtime.fastcall import (
    memory_checks as entrance_memory,
)
from pullback.runtime.fastcall import (
    methods as entrance_methods,
)
from pullback.runtime.fastcall import (
    objects as entrance_objects,
)
from pullback.runtime.fastcall import (
    run as entrance_run,
)
from pullback.runtime.fastcall.checks import HASH, hash_of_call
from pullback.runtime.fastcall.common import GLOBALS, NULL, STATE, STATE_FIELDS, Entrance, Word, function_at, part
from pullback.runtime.fastcall.methods import GET, METHOD
from pullback.runtime.fastcall.record_layout import SLOT, TABLE, size
from pullback.runtime.fastcall.run import ATTEMPT, missed
from pullback.runtime.process import counters

CALL, INIT = "pullback_call", "pullback_call_init"
_OFFSET_FLAG = 1 << 63
"""PY_VECTORCALL_ARGUMENTS_OFFSET"""
MOST_PROBES = 64
MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"


class Unavailable(Exception):
    """Why calls take the plain path."""


@part("void", "ptr", symbol=INIT)
def _init(f: Entrance, words: Word) -> None:
    """(words): takes over the addresses."""
    with f.count_to(len(abi.ADDRESSES) + len(STATE_FIELDS)) as k:
        f.put(f.item(words, k), function_at(STATE), k)
    f.give_nothing()


@part("ptr", "ptr", "ptr", "ptr", "i64", "i64", "ptr")
def _plain(f: Entrance, function: Word, own: Word, arguments: Word, count: Word, positional: Word, names: Word) -> None:
    """(function, callable, arguments, count, positional, names) -> what the function gives for a call of the callable"""
    words = f.many_words(f.add(count, 2))
    f.put(own, words, 1)
    for k in f.each(count):
        f.put(f.item(arguments, k), words, f.add(k, 2))
    number = f.either(f.add(positional, 1), Word(str(_OFFSET_FLAG - (1 << 64))))
    f.give(f.call("ptr", f.api("PyObject_Vectorcall"), function, f.at(words, 8), number, names))


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr")
def _held_attempt(f: Entrance, record: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """As the record's own attempt, which this is with the record held."""
    owner = f.field("record", record, "owner")
    f.hold(owner)
    function = f.field("record", record, "attempt")
    found = f.call("ptr", function, record, arguments, positional, keywords, names)
    f.release(owner)
    f.give(found)


def _table(f: Entrance, dispatch: Word) -> Word:
    """The hash table that a dispatch has now."""
    slots = f.load(dispatch, abi.SLOTS, "ptr")
    return f.load(f.load(slots, abi.SLOTS, "ptr"), abi.ARRAY_DATA, "ptr")


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr")
def _search(f: Entrance, dispatch: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """(dispatch, arguments, positional, keywords, names) -> as ``attempt``, of the records whose hash is the call's."""
    h = f.use(hash_of_call, arguments, f.add(positional, keywords), keywords)
    found = f.variable(missed(f))
    with f.count_to(MOST_PROBES) as k:
        # Read anew each time: where a guard has run Python code, the table may be another.
        table = _table(f, dispatch)
        place = f.both(f.add(h, k), f.field("table", table, "mask"))
        slot = f.at(table, f.add(f.mul(place, size(SLOT)), size(TABLE)))
        record = f.load(slot, 8, "ptr")
        f.leave_if(f.is_null(record))
        with f.when(f.eq(f.load(slot), h)):
            found.set(f.use(_held_attempt, record, arguments, positional, keywords, names))
            f.leave_if(f.ne(found.get(), missed(f)))
            f.leave_if(f.xor(f.is_null(f.python("ptr", "PyErr_Occurred")), 1))
    f.give(found.get())


@part("ptr", "ptr", "ptr", "i64", "ptr", symbol=CALL)
def _call(f: Entrance, own: Word, arguments: Word, flagged: Word, names: Word) -> None:
    """The vectorcall function: (callable, arguments, count and flag, names of keywords) -> a new reference"""
    positional = f.both(flagged, _OFFSET_FLAG - 1)
    keywords = f.variable(0)
    with f.unless(f.is_null(names)):
        keywords.set(f.load(names, abi.SIZE))
    found = f.variable(missed(f))
    dispatch = f.load(own, abi.HELD, "ptr")
    given = (arguments, positional, keywords.get(), names)
    with f.unless(f.is_null(dispatch)), f.when(f.same(f.type_of(dispatch), f.state("dispatch"))):
        table = _table(f, dispatch)
        count = f.field("table", table, "count")
        is_traced = f.variable(f.eq(count, 0))
        with f.unless(is_traced.get()):
            frame = f.words(1)
            wrong = f.python("i32", "PyContextVar_Get", f.state("variable"), NULL, frame)
            with f.unless(f.eq(wrong, 0)):
                f.give(NULL)
            trace = f.load(frame, 0, "ptr")
            f.release(trace)
            is_traced.set(f.xor(f.either(f.is_null(trace), f.same(trace, f.api("none"))), 1))
        with f.unless(is_traced.get()):
            with f.when(f.eq(count, 1)):
                found.set(f.use(_held_attempt, f.field("table", table, "only"), *given))
            with f.unless(f.eq(count, 1)):
                f.hold(dispatch)
                found.set(f.use(_search, dispatch, *given))
                f.release(dispatch)
    with f.when(f.ne(found.get(), missed(f))):
        f.give(found.get())
    with f.unless(f.is_null(f.python("ptr", "PyErr_Occurred"))):
        f.give(NULL)
    otherwise, dispatch = f.variable(f.state("plain")), f.load(own, abi.HELD, "ptr")
    with f.unless(f.is_null(dispatch)), f.when(f.same(f.type_of(dispatch), f.state("dispatch"))):
        unserved = f.load(dispatch, abi.SLOTS + 8, "ptr")
        with f.unless(f.either(f.is_null(unserved), f.same(unserved, f.api("none")))):
            otherwise.set(unserved)
    count = f.add(positional, keywords.get())
    f.give(f.use(_plain, otherwise.get(), own, arguments, count, positional, names))


def source() -> str:
    """The text of all of it. No address is in it."""
    rooms = (entrance_objects, entrance_memory, entrance_checks, entrance_run, entrance_methods)
    parts = [*(made for room in rooms for made in room.PARTS), _init, _plain, _held_attempt, _search, _call]
    return "\n".join([GLOBALS, MEMCPY, *(made.text for made in parts)])


@dataclass(frozen=True, eq=False)
class Entry:
    """``address``: what a callable's vectorcall slot is set to, ``method`` that of a bound method, ``get`` what reads an
    attribute that is a callable. ``attempt``: what serves a call of a record, at first. ``state``: the addresses that native code
    reads. ``hash_of(arguments, keywords)``: of a call."""

    address: int
    method: int
    get: int
    attempt: int
    state: int
    hash_of: Callable[[list[Any], int], int]
    has_clock: bool


def _clock() -> int:
    """The address of clock_gettime; 0 where clock 1 is not known to run steadily."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return int(ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value or 0)
    except (AttributeError, OSError):
        return 0


def begin() -> Begun | None:
    """Have a thread compile what ``load`` takes; None if that is compiled already, or not wanted here."""
    return None if abi.problem() else default_engine().begin(source(), passes="full")


def load(plain: Any, variable: Any, dispatch: type, get: Any, method: type) -> Entry:
    """The native call path of this process: ``plain`` is what serves a call in Python, ``variable`` the context variable whose
    value is None outside of traces, ``dispatch`` the class of the tables, ``get`` what reads an attribute that is a callable, and
    ``method`` the class of what that gives. Raises Unavailable."""
    if reason := abi.problem():
        raise Unavailable(reason)
    try:
        with counters.own():
            code = default_engine().load(source(), symbols=[CALL, INIT, HASH, METHOD, GET, ATTEMPT], passes="full")
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
    return Entry(code[CALL], code[METHOD], code[GET], code[ATTEMPT], state, hash_of, clock != 0)


_kept: list[Any] = []
