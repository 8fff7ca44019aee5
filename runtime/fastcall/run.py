"""The second half of the native call path: the argument block is filled, the program run, and what it gave built."""

from __future__ import annotations

from collections.abc import Callable

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.checks import check, outside
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, part
from pullback.runtime.fastcall.llvm_builder import Variable
from pullback.runtime.fastcall.memory_checks import demands_hold, put_all
from pullback.runtime.fastcall.objects import drop, make_object
from pullback.runtime.fastcall.record_layout import CONTAINERS, Build, Fill, Result

ATTEMPT = "pullback_call_attempt"
LONG_NS = 20_000
"""A run of so many nanoseconds lets other threads go on meanwhile."""
SHORT_RUNS = 4
"""After so many shorter ones in a row it is not timed any more."""


def missed(f: Entrance) -> Word:
    """What stands for "Python has to look": no object lies there."""
    return f.as_pointer(Word("1"))


@part("i64", "ptr", "ptr", "ptr", "ptr", is_inline=True)
def fill_one(f: Entrance, fill: Word, x: Word, frame: Word, arena: Word) -> None:
    """(fill, object, frame, arena) -> 0, or 1 where the object's number does not fit"""
    kind, extra = f.field("fill", fill, "kind"), f.field("fill", fill, "extra")
    target = f.at(frame, f.field("fill", fill, "target"))
    with f.case(kind, Fill.POINTER):
        f.store(f.add(f.load(x, abi.ARRAY_DATA), extra), target)
        f.give(0)
    with f.case(kind, Fill.FRAME):
        f.store(f.at(frame, extra), target)
        f.give(0)
    with f.case(kind, Fill.STRIDE):
        f.store(f.load(f.load(x, abi.ARRAY_STRIDES, "ptr"), extra), target)
        f.give(0)
    with f.case(kind, Fill.ARENA):
        f.store(f.at(arena, extra), target)
        f.give(0)
    with f.case(kind, Fill.INTEGER):
        overflow = f.words(1)
        f.store(f.python("i64", "PyLong_AsLongLongAndOverflow", x, overflow), target)
        f.give(f.as_word(f.ne(f.load(overflow, 0, "i32"), 0)))
    with f.case(kind, Fill.BOOL):
        f.store(f.let(f"zext {f.same(x, f.api('true'))} to i8", "i8"), target)
        f.give(0)
    source = f.variable(f.at(x, abi.VALUE))
    with f.case(kind, Fill.ELEMENT):
        source.set(f.load(x, abi.ARRAY_DATA, "ptr"))
    with f.when(f.eq(extra, 8)):
        f.store(f.let(f"load i64, {source.get()}, align 1"), target)
        f.give(0)
    f.let_nothing(f"call void @llvm.memcpy.p0.p0.i64({target}, {source.get()}, {extra}, i1 false)")
    f.give(0)


@part("i64", "ptr", "i64", "ptr", "ptr", "ptr", is_inline=True)
def fill_all(f: Entrance, fills: Word, count: Word, registers: Word, frame: Word, arena: Word) -> None:
    """(fills, count, registers, frame, arena) -> 0, or 1 where a number does not fit"""
    for k in f.each(count):
        fill = f.row("fill", fills, k)
        x = f.item(registers, f.field("fill", fill, "register"), "ptr")
        wrong = f.use(fill_one, fill, x, frame, arena)
        with f.unless(f.eq(wrong, 0)):
            f.give(1)
    f.give(0)


@part("i64", "ptr", "ptr", is_inline=True)
def make_results(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> 0, or 1 with an error set. Arrays for the results, in their registers."""
    specs = f.field("record", record, "results")
    own = f.at(registers, f.scaled(f.field("record", record, "first_result")))
    i32 = Word("0", "i32")
    for k in f.each(f.field("record", record, "result_count")):
        spec = f.row("result", specs, k)
        kind, dtype = f.field("result", spec, "kind"), f.field("result", spec, "dtype")
        made = f.variable(NULL)
        with f.case(kind, Result.GIVEN):
            given = f.item(registers, f.field("result", spec, "offset"), "ptr")
            f.hold(given)
            made.set(given)
        with f.case(kind, Result.SMALL, Result.LARGE):
            context = f.field("record", record, "context")
            is_large = f.eq(kind, Result.LARGE)
            with f.when(is_large), f.unless(f.eq(f.python("i32", "PyContext_Enter", context), 0)):
                f.give(1)
            f.hold(dtype)
            rank = f.narrowed(f.field("result", spec, "rank"), "i32")
            shape = f.field("result", spec, "shape")
            made.set(f.python("ptr", "PyArray_NewFromDescr", f.api("ndarray"), dtype, rank, shape, NULL, NULL, i32, NULL))
            with f.when(is_large):
                f.python("i32", "PyContext_Exit", context)
            with f.when(f.is_null(made.get())):
                f.give(1)
        f.put(made.get(), own, k)
    f.give(0)


@part("i64", "ptr", "ptr", is_inline=True)
def run_steps(f: Entrance, record: Word, frame: Word) -> None:
    """(record, frame) -> the status, as the launcher's"""
    functions, offsets = f.field("record", record, "functions"), f.field("record", record, "offsets")
    mode = f.field("record", record, "mode")
    thread, before, after = f.variable(NULL), f.words(2), f.words(2)
    clock, monotonic = f.state("clock"), Word("1", "i32")
    is_timed = f.let(f"icmp sgt {mode}, 0", "i1")
    with f.unless(f.eq(mode, 0)):
        thread.set(f.python("ptr", "PyEval_SaveThread"))
    with f.when(is_timed):
        f.call("i32", clock, monotonic, before)
    status = f.variable(0)
    for k in f.each(f.field("record", record, "steps")):
        own = f.at(frame, f.scaled(f.item(offsets, k)))
        found = f.call("i64", f.item(functions, k, "ptr"), own)
        with f.unless(f.eq(found, 0)):
            status.set(f.either(f.shl(f.add(k, 1), 32), found))
            f.leave()
    with f.when(is_timed):
        f.call("i32", clock, monotonic, after)
    with f.unless(f.eq(mode, 0)):
        f.python("void", "PyEval_RestoreThread", thread.get())
    with f.when(is_timed):
        seconds = f.sub(f.load(after), f.load(before))
        took = f.add(f.mul(seconds, 1_000_000_000), f.sub(f.load(after, 8), f.load(before, 8)))
        left = f.variable(f.sub(mode, 1))
        with f.when(f.ge(took, LONG_NS)):
            left.set(SHORT_RUNS)
        f.set_field("record", record, "mode", left.get())
        with f.when(f.lt(took, f.field("record", record, "took"))):
            f.set_field("record", record, "took", took)
    f.give(status.get())


@part("ptr", "ptr", "ptr", "i64")
def collect(f: Entrance, registers: Word, which: Word, count: Word) -> None:
    """(registers, which, count) -> a list of what is in them, or null"""
    made = f.python("ptr", "PyList_New", count)
    with f.when(f.is_null(made)):
        f.give(NULL)
    items = f.load(made, abi.ITEMS, "ptr")
    for k in f.each(count):
        x = f.item(registers, f.item(which, k), "ptr")
        f.hold(x)
        f.put(x, items, k)
    f.give(made)


@part("ptr", "ptr", "ptr")
def build(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> the result of the call, or null with an error set. It takes results out of their registers."""
    rows = f.field("record", record, "build")
    count = f.field("record", record, "build_count")
    stack = f.many_words(f.add(count, 1))
    own = f.at(registers, f.scaled(f.field("record", record, "first_result")))

    def push(x: Word, place: Word) -> None:
        f.put(x, stack, place)
        with f.when(f.is_null(x)):
            f.use(drop, stack, 0, place)
            f.give(NULL)

    for k in f.each(count):
        row = f.row("build", rows, k)
        kind, a, place = (f.field("build", row, name) for name in ("kind", "a", "place"))
        with f.case(kind, Build.RESULT):
            found = f.item(own, a, "ptr")
            f.put(NULL, own, a)
            push(found, place)
        with f.case(kind, Build.SHARED):
            found = f.item(own, a, "ptr")
            f.hold(found)
            push(found, place)
        with f.case(kind, Build.AGAIN):
            push(_again(f, f.item(own, a, "ptr")), place)
        with f.case(kind, Build.REGISTER):
            found = f.item(registers, a, "ptr")
            f.hold(found)
            push(found, place)
        with f.case(kind, Build.OBJECT):
            found = f.as_pointer(a)
            f.hold(found)
            push(found, place)
        with f.case(kind, Build.COPY):
            push(f.python("ptr", "PyArray_NewCopy", f.item(registers, a, "ptr"), Word("0", "i32")), place)
        with f.case(kind, *CONTAINERS):
            items = f.at(stack, f.scaled(place))
            made = f.variable(NULL)
            _container(f, kind, a, f.pointer("build", row, "b"), items, made)
            push(made.get(), place)
    f.give(f.load(stack, 0, "ptr"))


def _again(f: Entrance, x: Word) -> Word:
    """A copy of an array; another object itself, held."""
    is_array = f.same(f.type_of(x), f.api("ndarray"))
    again = f.variable(x)
    with f.when(is_array):
        again.set(f.python("ptr", "PyArray_NewCopy", x, Word("0", "i32")))
    with f.unless(is_array):
        f.hold(x)
    return again.get()


def _container(f: Entrance, kind: Word, count: Word, keys: Word, items: Word, made: Variable) -> None:
    """What is made of the items, which it takes over; where nothing could be made they are let go."""
    with f.case(kind, Build.CALL, Build.FIELDS):
        made.set(f.use(make_object, kind, count, keys, items))
    with f.case(kind, Build.TUPLE, Build.LIST, Build.DICT):
        _filled(f, kind, count, keys, items, made)


def _filled(f: Entrance, kind: Word, count: Word, keys: Word, items: Word, made: Variable) -> None:
    """A tuple, list or dict."""
    with f.case(kind, Build.TUPLE):
        made.set(f.python("ptr", "PyTuple_New", count))
    with f.case(kind, Build.LIST):
        made.set(f.python("ptr", "PyList_New", count))
    with f.case(kind, Build.DICT):
        made.set(f.python("ptr", "PyDict_New"))
    x = made.get()
    with f.when(f.is_null(x)):
        f.use(drop, items, 0, count)
    with f.unless(f.is_null(x)):
        is_dict = f.eq(kind, Build.DICT)
        with f.unless(is_dict):
            place = f.variable(f.at(x, abi.ITEMS))
            with f.case(kind, Build.LIST):
                place.set(f.load(x, abi.ITEMS, "ptr"))
            for k in f.each(count):
                f.put(f.item(items, k), place.get(), k)
        with f.when(is_dict):
            failed = f.variable(Word("0", "i32"))
            for k in f.each(count):
                value = f.item(items, k, "ptr")
                wrong = f.python("i32", "PyDict_SetItem", x, f.item(keys, k, "ptr"), value)
                f.release(value)
                with f.unless(f.eq(wrong, 0)):
                    failed.set(wrong)
            with f.unless(f.eq(failed.get(), 0)):
                f.release(x)
                made.set(NULL)


def _called_back(f: Entrance, function: Word, first: Word, record: Word, registers: Word) -> Word:
    """The result of ``function(first, leaves)``; lets go of ``first``."""
    leaves, count = f.field("record", record, "leaves"), f.field("record", record, "leaf_count")
    pair = f.words(2)
    values = f.use(collect, registers, leaves, count)
    found = f.variable(NULL)
    with f.unless(f.either(f.is_null(values), f.is_null(first))):
        f.put(first, pair, 0)
        f.put(values, pair, 1)
        found.set(f.python("ptr", "PyObject_Vectorcall", function, pair, 2, NULL))
    f.release(first)
    f.release(values)
    return found.get()


@part("ptr", "ptr", "ptr", "ptr", "i64", is_inline=True)
def outcome(f: Entrance, record: Word, registers: Word, frame: Word, status: Word) -> None:
    """(record, registers, frame, status) -> the result of the call, null with an error set, or ``missed``."""
    first, count = f.field("record", record, "first_result"), f.field("record", record, "result_count")
    own, specs = f.at(registers, f.scaled(first)), f.field("record", record, "results")
    with f.unless(f.eq(status, 0)):
        said = f.python("ptr", "PyLong_FromLongLong", status)
        found = _called_back(f, f.field("record", record, "failed"), said, record, registers)
        with f.when(f.same(found, f.api("missed"))):
            f.release(found)
            f.give(missed(f))
        f.give(found)
    for k in f.each(count):
        spec = f.row("result", specs, k)
        with f.case(f.field("result", spec, "kind"), Result.NUMBER):
            place = f.at(frame, f.field("result", spec, "offset"))
            number, allocate = f.variable(NULL), f.pointer("result", spec, "allocate")
            with f.when(f.is_null(allocate)):
                number.set(f.python("ptr", "PyArray_Scalar", place, f.field("result", spec, "dtype"), NULL))
            with f.unless(f.is_null(allocate)):
                number.set(f.call("ptr", allocate, f.pointer("result", spec, "shape"), 0))
            x = number.get()
            with f.when(f.is_null(x)):
                f.give(NULL)
            with f.unless(f.is_null(allocate)):
                f.store(f.load(place), x, abi.VALUE)
            f.put(x, own, k)
    finish = f.field("record", record, "finish")
    with f.when(f.is_null(finish)):
        made = f.use(build, record, registers)
        with f.when(f.either(f.is_null(made), f.eq(f.field("record", record, "put_count"), 0))):
            f.give(made)
        f.give(f.use(put_all, record, registers, made))
    which = f.many_words(f.add(count, 1))
    for k in f.each(count):
        f.put(k, which, k)
    f.give(_called_back(f, finish, f.use(collect, own, which, count), record, registers))


def _frame(f: Entrance, record: Word, registers: Word) -> tuple[Word, Callable[[], None]]:
    """The memory of one call, the record's own if no other call has it, and what writes that it is given back."""
    size, filled = f.field("record", record, "frame_bytes"), f.field("record", record, "filled_bytes")
    own = f.field("record", record, "frame")
    fills = f.field("record", record, "frame_fills"), f.field("record", record, "frame_fill_count")
    stacked = f.on_stack(own, size, filled)
    if stacked is not None:
        f.use(fill_all, *fills, registers, stacked, NULL)
        return stacked, lambda: None
    is_own = f.eq(f.field("record", record, "busy"), 0)
    frame, block = f.variable(own), f.variable(NULL)
    with f.when(is_own):
        f.set_field("record", record, "busy", 1)
    with f.unless(is_own):
        block.set(f.python("ptr", "PyMem_RawMalloc", f.add(size, 64)))
        with f.when(f.is_null(block.get())):
            f.give(f.python("ptr", "PyErr_NoMemory"))
        past = f.as_word(block.get())
        frame.set(f.at(block.get(), f.both(f.sub(Word("0"), past), 63)))
        f.let_nothing(f"call void @llvm.memcpy.p0.p0.i64({frame.get()}, {own}, {filled}, i1 false)")
        f.use(fill_all, *fills, registers, frame.get(), NULL)

    def give_back() -> None:
        with f.when(is_own):
            f.set_field("record", record, "busy", 0)
        f.python("void", "PyMem_RawFree", block.get())

    return frame.get(), give_back


@part("ptr", "ptr", "ptr", is_inline=True)
def serve(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> as ``outcome``. Takes a frame, and an arena, for the time of the run."""
    with f.when(f.ne(f.use(make_results, record, registers), 0)):
        f.give(NULL)
    frame, give_back = _frame(f, record, registers)
    arena_bytes = f.field("record", record, "arena_bytes")
    arena = f.variable(NULL)
    found = f.variable(missed(f))
    context = f.field("record", record, "arena_context")
    with f.unless(f.eq(arena_bytes, 0)):
        arena.set(f.call("ptr", f.field("record", record, "arena_malloc"), context, arena_bytes))
    lacks = f.both(f.ne(arena_bytes, 0), f.is_null(arena.get()))
    with f.when(lacks):
        found.set(f.python("ptr", "PyErr_NoMemory"))
    with f.unless(lacks):
        fills = f.field("record", record, "fills"), f.field("record", record, "fill_count")
        with f.when(f.eq(f.use(fill_all, *fills, registers, frame, arena.get()), 0)):
            status = f.use(run_steps, record, frame)
            found.set(f.use(outcome, record, registers, frame, status))
    with f.unless(f.is_null(arena.get())):
        f.call("void", f.field("record", record, "arena_free"), context, arena.get(), arena_bytes)
    give_back()
    f.give(found.get())


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr")
def attempt(f: Entrance, record: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """(record, arguments, positional, keywords, names) -> as ``outcome``, for a record that is held."""
    wanted = f.field("record", record, "positional"), f.field("record", record, "keywords")
    for count, expected in zip((positional, keywords), wanted, strict=True):
        with f.unless(f.eq(count, expected)):
            f.give(missed(f))
    positional, keywords = wanted
    expected = f.field("record", record, "names")
    for k in f.each(keywords):
        with f.unless(f.same(f.item(f.at(names, abi.ITEMS), k, "ptr"), f.item(expected, k, "ptr"))):
            f.give(missed(f))
    count = f.field("record", record, "registers")
    given = f.add(positional, keywords)
    inside = f.add(given, f.field("record", record, "read_count"))
    registers = f.many_words(f.add(count, 1))
    for k in f.each(given):
        f.put(f.item(arguments, k), registers, k)
    first = f.field("record", record, "first_result")
    for k in f.each(count, first):
        f.put(0, registers, k)
    with f.unless(f.use(outside, record, registers)):
        f.give(missed(f))
    held = f.words(1)
    f.store(inside, held)
    has_inside, mode = f.field("record", record, "has_inside"), f.field("record", record, "mode")
    is_simple = f.both(f.eq(mode, 0), f.is_null(f.field("record", record, "finish")))
    holds = f.both(f.ne(has_inside, 0), f.either(f.xor(is_simple, 1), f.eq(has_inside, 2)))
    found = f.variable(missed(f))
    with f.when(f.use(check, record, registers, holds, held)):
        fits = f.variable(Word("true", "i1"))
        with f.unless(f.eq(f.field("record", record, "demand_count"), 0)):
            fits.set(f.use(demands_hold, record, registers))
        with f.when(fits.get()):
            found.set(f.use(serve, record, registers))
    f.use(drop, registers, given, inside)
    with f.when(holds):
        f.use(drop, registers, inside, f.load(held))
    f.use(drop, registers, first, count)
    f.give(found.get())


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr", symbol=ATTEMPT)
def first_attempt(f: Entrance, record: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """As ``attempt``, of a record that counts its calls until it is ``warm``, which Python is then told."""
    left = f.sub(f.field("record", record, "countdown"), 1)
    f.set_field("record", record, "countdown", left)
    with f.when(f.eq(left, 0)):
        own = f.words(1)
        f.store(f.field("record", record, "owner"), own)
        said = f.python("ptr", "PyObject_Vectorcall", f.field("record", record, "warm"), own, 1, NULL)
        with f.when(f.is_null(said)):
            f.give(NULL)
        f.release(said)
    f.give(f.use(attempt, record, arguments, positional, keywords, names))


PARTS: list[Part] = [
    fill_one, fill_all, make_results, run_steps, collect, build, outcome, serve, attempt, first_attempt,
]  # fmt: skip
