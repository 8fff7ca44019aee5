"""The second half of the fast call: fill the argument block, run the program, and build its result."""

from __future__ import annotations

from collections.abc import Callable

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.checks import check, outside
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, part
from pullback.runtime.fastcall.llvm_builder import Variable
from pullback.runtime.fastcall.memory_checks import demands_hold, put_all
from pullback.runtime.fastcall.objects import drop, make_object
from pullback.runtime.fastcall.record_layout import CONTAINERS, Build, Fill, Result

ATTEMPT, CREATE = "pullback_call_attempt", "pullback_call_create"
LONG_NS = 20_000
"""The duration in nanoseconds from which a run releases Python's lock in later calls."""
SHORT_RUNS = 4
"""The number of shorter runs in a row after which runs are no longer timed."""


def not_served(f: Entrance) -> Word:
    """Return the pointer that means "Python must serve the call": the address of no object."""
    return f.as_pointer(Word("1"))


@part("i64", "ptr", "ptr", "ptr", "ptr", is_inline=True)
def fill_one(f: Entrance, fill: Word, x: Word, frame: Word, arena: Word) -> None:
    """(fill, object, frame, arena) -> 0, or 1 if the object's integer overflows"""
    kind, extra = f.field("fill", fill, "kind"), f.field("fill", fill, "extra")
    target = f.at(frame, f.field("fill", fill, "target"))
    with f.case(kind, Fill.POINTER):
        f.store(f.add(f.load(x, abi.ARRAY_DATA), extra), target)
        f.ret(0)
    with f.case(kind, Fill.FRAME):
        f.store(f.at(frame, extra), target)
        f.ret(0)
    with f.case(kind, Fill.STRIDE):
        f.store(f.load(f.load(x, abi.ARRAY_STRIDES, "ptr"), extra), target)
        f.ret(0)
    with f.case(kind, Fill.ARENA):
        f.store(f.at(arena, extra), target)
        f.ret(0)
    with f.case(kind, Fill.INTEGER):
        overflow = f.words(1)
        f.store(f.python("i64", "PyLong_AsLongLongAndOverflow", x, overflow), target)
        f.ret(f.as_word(f.ne(f.load(overflow, 0, "i32"), 0)))
    with f.case(kind, Fill.BOOL):
        f.store(f.let(f"zext {f.same(x, f.api('true'))} to i8", "i8"), target)
        f.ret(0)
    source = f.variable(f.at(x, abi.VALUE))
    with f.case(kind, Fill.ELEMENT):
        source.set(f.load(x, abi.ARRAY_DATA, "ptr"))
    with f.when(f.eq(extra, 8)):
        f.store(f.let(f"load i64, {source.get()}, align 1"), target)
        f.ret(0)
    f.let_nothing(f"call void @llvm.memcpy.p0.p0.i64({target}, {source.get()}, {extra}, i1 false)")
    f.ret(0)


@part("i64", "ptr", "i64", "ptr", "ptr", "ptr", is_inline=True)
def fill_all(f: Entrance, fills: Word, count: Word, registers: Word, frame: Word, arena: Word) -> None:
    """(fills, count, registers, frame, arena) -> 0, or 1 if an integer overflows"""
    for k in f.each(count):
        fill = f.row("fill", fills, k)
        x = f.item(registers, f.field("fill", fill, "register"), "ptr")
        wrong = f.use(fill_one, fill, x, frame, arena)
        with f.unless(f.eq(wrong, 0)):
            f.ret(1)
    f.ret(0)


@part("i64", "ptr", "ptr", is_inline=True)
def make_results(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> 0, or 1 with an error set. Allocates arrays for the results, in their registers."""
    specs = f.field("record", record, "results")
    own = f.at(registers, f.scaled(f.field("record", record, "first_result")))
    i32 = Word("0", "i32")
    for k in f.each(f.field("record", record, "result_count")):
        spec = f.row("result", specs, k)
        kind, dtype = f.field("result", spec, "kind"), f.field("result", spec, "dtype")
        array = f.variable(NULL)
        with f.case(kind, Result.GIVEN):
            callers = f.item(registers, f.field("result", spec, "offset"), "ptr")
            f.incref(callers)
            array.set(callers)
        with f.case(kind, Result.SMALL, Result.LARGE):
            context = f.field("record", record, "context")
            is_large = f.eq(kind, Result.LARGE)
            with f.when(is_large), f.unless(f.eq(f.python("i32", "PyContext_Enter", context), 0)):
                f.ret(1)
            f.incref(dtype)
            rank = f.narrowed(f.field("result", spec, "rank"), "i32")
            shape = f.field("result", spec, "shape")
            array.set(f.python("ptr", "PyArray_NewFromDescr", f.api("ndarray"), dtype, rank, shape, NULL, NULL, i32, NULL))
            with f.when(is_large):
                f.python("i32", "PyContext_Exit", context)
            with f.when(f.is_null(array.get())):
                f.ret(1)
        f.put(array.get(), own, k)
    f.ret(0)


@part("i64", "ptr", "i64", symbol=CREATE)
def create(f: Entrance, table: Word, state: Word) -> None:
    """(table, state) -> the address of the elements of a result that the program creates, or 0 with the exception stored. The
    table holds its ordinal and its extents."""
    creation = f.as_pointer(state)
    record, thread = f.field("creation", creation, "record"), f.field("creation", creation, "thread")
    with f.unless(f.is_null(thread)):
        f.python("void", "PyEval_RestoreThread", thread)
    position = f.item(f.field("record", record, "created"), f.load(table))
    spec = f.row("result", f.field("record", record, "results"), position)
    dtype, rank = f.field("result", spec, "dtype"), f.narrowed(f.field("result", spec, "rank"), "i32")
    f.incref(dtype)
    shape, i32 = f.at(table, 8), Word("0", "i32")
    array = f.python("ptr", "PyArray_NewFromDescr", f.api("ndarray"), dtype, rank, shape, NULL, NULL, i32, NULL)
    address = f.variable(0)
    with f.unless(f.is_null(array)):
        address.set(f.load(array, abi.ARRAY_DATA))
        f.put(array, f.pointer("creation", creation, "results"), position)
    with f.when(f.is_null(array)):
        f.python("void", "PyErr_Clear")
        own = f.words(1)
        f.store(f.python("ptr", "PyLong_FromLongLong", f.as_word(table)), own)
        answer = f.python("ptr", "PyObject_Vectorcall", f.field("record", record, "lacking"), own, 1, NULL)
        f.decref(f.load(own, 0, "ptr"))
        f.decref(answer)
    with f.unless(f.is_null(thread)):
        f.python("ptr", "PyEval_SaveThread")
    f.ret(address.get())


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
    creation = f.field("record", record, "creation")
    with f.unless(f.eq(creation, 0)):
        f.set_field("creation", f.at(frame, creation), "thread", thread.get())
    with f.when(is_timed):
        f.call("i32", clock, monotonic, before)
    status = f.variable(0)
    for k in f.each(f.field("record", record, "steps")):
        own = f.at(frame, f.scaled(f.item(offsets, k)))
        code = f.call("i64", f.item(functions, k, "ptr"), own)
        with f.unless(f.eq(code, 0)):
            status.set(f.bit_or(f.shl(f.add(k, 1), 32), code))
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
    f.ret(status.get())


@part("ptr", "ptr", "ptr", "i64")
def collect(f: Entrance, registers: Word, which: Word, count: Word) -> None:
    """(registers, which, count) -> a list of the objects in them, or null"""
    values = f.python("ptr", "PyList_New", count)
    with f.when(f.is_null(values)):
        f.ret(NULL)
    items = f.load(values, abi.ITEMS, "ptr")
    for k in f.each(count):
        x = f.item(registers, f.item(which, k), "ptr")
        f.incref(x)
        f.put(x, items, k)
    f.ret(values)


@part("ptr", "ptr", "ptr")
def build(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> the result of the call, or null with an error set. Results are moved out of their registers."""
    rows = f.field("record", record, "build")
    count = f.field("record", record, "build_count")
    stack = f.many_words(f.add(count, 1))
    own = f.at(registers, f.scaled(f.field("record", record, "first_result")))

    def push(x: Word, position: Word) -> None:
        f.put(x, stack, position)
        with f.when(f.is_null(x)):
            f.use(drop, stack, 0, position)
            f.ret(NULL)

    for k in f.each(count):
        row = f.row("build", rows, k)
        kind, a, position = (f.field("build", row, name) for name in ("kind", "a", "place"))
        with f.case(kind, Build.RESULT):
            item = f.item(own, a, "ptr")
            f.put(NULL, own, a)
            push(item, position)
        with f.case(kind, Build.SHARED):
            item = f.item(own, a, "ptr")
            f.incref(item)
            push(item, position)
        with f.case(kind, Build.AGAIN):
            push(_copied(f, f.item(own, a, "ptr")), position)
        with f.case(kind, Build.REGISTER):
            item = f.item(registers, a, "ptr")
            f.incref(item)
            push(item, position)
        with f.case(kind, Build.OBJECT):
            item = f.as_pointer(a)
            f.incref(item)
            push(item, position)
        with f.case(kind, Build.COPY):
            push(f.python("ptr", "PyArray_NewCopy", f.item(registers, a, "ptr"), Word("0", "i32")), position)
        with f.case(kind, *CONTAINERS):
            items = f.at(stack, f.scaled(position))
            container = f.variable(NULL)
            _container(f, kind, a, f.pointer("build", row, "b"), items, container)
            push(container.get(), position)
    f.ret(f.load(stack, 0, "ptr"))


def _copied(f: Entrance, x: Word) -> Word:
    """Return a copy of an array; another object itself, held."""
    is_array = f.same(f.type_of(x), f.api("ndarray"))
    copied = f.variable(x)
    with f.when(is_array):
        copied.set(f.python("ptr", "PyArray_NewCopy", x, Word("0", "i32")))
    with f.unless(is_array):
        f.incref(x)
    return copied.get()


def _container(f: Entrance, kind: Word, count: Word, keys: Word, items: Word, result: Variable) -> None:
    """Set ``result`` to a container of the items, which it takes over; they are released if it cannot be created."""
    with f.case(kind, Build.CALL, Build.FIELDS):
        result.set(f.use(make_object, kind, count, keys, items))
    with f.case(kind, Build.SELECTED):
        _selected(f, count, items, result)
    with f.case(kind, Build.TUPLE, Build.LIST, Build.DICT):
        _builtin_container(f, kind, count, keys, items, result)


def _selected(f: Entrance, count: Word, items: Word, result: Variable) -> None:
    """Set ``result`` to the item that the first item, an int, counts from the second one on; null, with an error set, if it is
    none. Releases the other items."""
    overflow = f.words(1)
    position = f.add(f.python("i64", "PyLong_AsLongLongAndOverflow", f.item(items, 0, "ptr"), overflow), 1)
    with f.when(f.bit_and(f.ge(position, 1), f.lt(position, count))):
        result.set(f.item(items, position, "ptr"))
        f.put(NULL, items, position)
    f.use(drop, items, 0, count)


def _builtin_container(f: Entrance, kind: Word, count: Word, keys: Word, items: Word, result: Variable) -> None:
    """Set ``result`` to a tuple, list or dict of the items."""
    with f.case(kind, Build.TUPLE):
        result.set(f.python("ptr", "PyTuple_New", count))
    with f.case(kind, Build.LIST):
        result.set(f.python("ptr", "PyList_New", count))
    with f.case(kind, Build.DICT):
        result.set(f.python("ptr", "PyDict_New"))
    x = result.get()
    with f.when(f.is_null(x)):
        f.use(drop, items, 0, count)
    with f.unless(f.is_null(x)):
        is_dict = f.eq(kind, Build.DICT)
        with f.unless(is_dict):
            target = f.variable(f.at(x, abi.ITEMS))
            with f.case(kind, Build.LIST):
                target.set(f.load(x, abi.ITEMS, "ptr"))
            for k in f.each(count):
                f.put(f.item(items, k), target.get(), k)
        with f.when(is_dict):
            failed = f.variable(Word("0", "i32"))
            for k in f.each(count):
                value = f.item(items, k, "ptr")
                wrong = f.python("i32", "PyDict_SetItem", x, f.item(keys, k, "ptr"), value)
                f.decref(value)
                with f.unless(f.eq(wrong, 0)):
                    failed.set(wrong)
            with f.unless(f.eq(failed.get(), 0)):
                f.decref(x)
                result.set(NULL)


def _callback_result(f: Entrance, function: Word, first: Word, record: Word, registers: Word) -> Word:
    """Return the result of ``function(first, leaves)``; releases ``first``."""
    leaves, count = f.field("record", record, "leaves"), f.field("record", record, "leaf_count")
    pair = f.words(2)
    values = f.use(collect, registers, leaves, count)
    result = f.variable(NULL)
    with f.unless(f.bit_or(f.is_null(values), f.is_null(first))):
        f.put(first, pair, 0)
        f.put(values, pair, 1)
        result.set(f.python("ptr", "PyObject_Vectorcall", function, pair, 2, NULL))
    f.decref(first)
    f.decref(values)
    return result.get()


def _python_number(f: Entrance, kind: Word, spec: Word, address: Word) -> Word:
    """Return a Python int, bool or complex with the value at an address, or null with an error set."""
    created = f.variable(NULL)
    with f.case(kind, Result.INT):
        created.set(f.python("ptr", "PyLong_FromLongLong", f.load(address)))
    with f.case(kind, Result.BOOL):
        created.set(f.python("ptr", "PyBool_FromLong", f.let(f"zext {f.load(address, 0, 'i8')} to i64", "i64")))
    with f.case(kind, Result.COMPLEX):
        created.set(f.call("ptr", f.pointer("result", spec, "allocate"), f.pointer("result", spec, "shape"), 0))
        with f.unless(f.is_null(created.get())):
            f.store(f.load(address), created.get(), abi.VALUE)
            f.store(f.load(address, 8), created.get(), abi.VALUE + 8)
    return created.get()


@part("ptr", "ptr", "ptr", "ptr", "i64", is_inline=True)
def outcome(f: Entrance, record: Word, registers: Word, frame: Word, status: Word) -> None:
    """(record, registers, frame, status) -> the result of the call, null with an error set, or ``missed``."""
    first, count = f.field("record", record, "first_result"), f.field("record", record, "result_count")
    own, specs = f.at(registers, f.scaled(first)), f.field("record", record, "results")
    with f.unless(f.eq(status, 0)):
        code = f.python("ptr", "PyLong_FromLongLong", status)
        result = _callback_result(f, f.field("record", record, "failed"), code, record, registers)
        with f.when(f.same(result, f.api("missed"))):
            f.decref(result)
            f.ret(not_served(f))
        f.ret(result)
    for k in f.each(count):
        spec = f.row("result", specs, k)
        kind, address = f.field("result", spec, "kind"), f.at(frame, f.field("result", spec, "offset"))
        with f.case(kind, Result.INT, Result.BOOL, Result.COMPLEX):
            x = _python_number(f, kind, spec, address)
            with f.when(f.is_null(x)):
                f.ret(NULL)
            f.put(x, own, k)
        with f.case(kind, Result.NUMBER):
            scalar, allocate = f.variable(NULL), f.pointer("result", spec, "allocate")
            with f.when(f.is_null(allocate)):
                scalar.set(f.python("ptr", "PyArray_Scalar", address, f.field("result", spec, "dtype"), NULL))
            with f.unless(f.is_null(allocate)):
                scalar.set(f.call("ptr", allocate, f.pointer("result", spec, "shape"), 0))
            x = scalar.get()
            with f.when(f.is_null(x)):
                f.ret(NULL)
            with f.unless(f.is_null(allocate)):
                f.store(f.load(address), x, abi.VALUE)
            f.put(x, own, k)
    finish = f.field("record", record, "finish")
    with f.when(f.is_null(finish)):
        built = f.use(build, record, registers)
        with f.when(f.bit_or(f.is_null(built), f.eq(f.field("record", record, "put_count"), 0))):
            f.ret(built)
        f.ret(f.use(put_all, record, registers, built))
    which = f.many_words(f.add(count, 1))
    for k in f.each(count):
        f.put(k, which, k)
    f.ret(_callback_result(f, finish, f.use(collect, own, which, count), record, registers))


def _frame(f: Entrance, record: Word, registers: Word) -> tuple[Word, Callable[[], None]]:
    """Return the memory of one call, the record's own if no other call uses it, and a function that emits its release."""
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
            f.ret(f.python("ptr", "PyErr_NoMemory"))
        past = f.as_word(block.get())
        frame.set(f.at(block.get(), f.bit_and(f.sub(Word("0"), past), 63)))
        f.let_nothing(f"call void @llvm.memcpy.p0.p0.i64({frame.get()}, {own}, {filled}, i1 false)")
        f.use(fill_all, *fills, registers, frame.get(), NULL)

    def give_back() -> None:
        with f.when(is_own):
            f.set_field("record", record, "busy", 0)
        f.python("void", "PyMem_RawFree", block.get())

    return frame.get(), give_back


@part("ptr", "ptr", "ptr", is_inline=True)
def serve(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> as ``outcome``. Uses a frame, and an arena, during the run."""
    with f.when(f.ne(f.use(make_results, record, registers), 0)):
        f.ret(NULL)
    frame, give_back = _frame(f, record, registers)
    arena_bytes = f.field("record", record, "arena_bytes")
    arena = f.variable(NULL)
    result = f.variable(not_served(f))
    context = f.field("record", record, "arena_context")
    with f.unless(f.eq(arena_bytes, 0)):
        arena.set(f.call("ptr", f.field("record", record, "arena_malloc"), context, arena_bytes))
    lacks = f.bit_and(f.ne(arena_bytes, 0), f.is_null(arena.get()))
    with f.when(lacks):
        result.set(f.python("ptr", "PyErr_NoMemory"))
    with f.unless(lacks):
        fills = f.field("record", record, "fills"), f.field("record", record, "fill_count")
        with f.when(f.eq(f.use(fill_all, *fills, registers, frame, arena.get()), 0)):
            creation = f.field("record", record, "creation")
            with f.unless(f.eq(creation, 0)):
                own = f.at(registers, f.scaled(f.field("record", record, "first_result")))
                f.set_field("creation", f.at(frame, creation), "record", record)
                f.set_field("creation", f.at(frame, creation), "results", own)
            status = f.use(run_steps, record, frame)
            result.set(f.use(outcome, record, registers, frame, status))
    with f.unless(f.is_null(arena.get())):
        f.call("void", f.field("record", record, "arena_free"), context, arena.get(), arena_bytes)
    give_back()
    f.ret(result.get())


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr")
def attempt(f: Entrance, record: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """(record, arguments, positional, keywords, names) -> as ``outcome``, for a record that is held."""
    wanted = f.field("record", record, "positional"), f.field("record", record, "keywords")
    for count, expected in zip((positional, keywords), wanted, strict=True):
        with f.unless(f.eq(count, expected)):
            f.ret(not_served(f))
    positional, keywords = wanted
    expected = f.field("record", record, "names")
    for k in f.each(keywords):
        with f.unless(f.same(f.item(f.at(names, abi.ITEMS), k, "ptr"), f.item(expected, k, "ptr"))):
            f.ret(not_served(f))
    count = f.field("record", record, "registers")
    argument_count = f.add(positional, keywords)
    inside = f.add(argument_count, f.field("record", record, "read_count"))
    registers = f.many_words(f.add(count, 1))
    for k in f.each(argument_count):
        f.put(f.item(arguments, k), registers, k)
    first = f.field("record", record, "first_result")
    for k in f.each(count, first):
        f.put(0, registers, k)
    with f.unless(f.use(outside, record, registers)):
        f.ret(not_served(f))
    held = f.words(1)
    f.store(inside, held)
    has_inside, mode = f.field("record", record, "has_inside"), f.field("record", record, "mode")
    is_simple = f.bit_and(f.eq(mode, 0), f.is_null(f.field("record", record, "finish")))
    holds = f.bit_and(f.ne(has_inside, 0), f.bit_or(f.xor(is_simple, 1), f.eq(has_inside, 2)))
    result = f.variable(not_served(f))
    with f.when(f.use(check, record, registers, holds, held)):
        fits = f.variable(Word("true", "i1"))
        with f.unless(f.eq(f.field("record", record, "demand_count"), 0)):
            fits.set(f.use(demands_hold, record, registers))
        with f.when(fits.get()):
            result.set(f.use(serve, record, registers))
    f.use(drop, registers, argument_count, inside)
    with f.when(holds):
        f.use(drop, registers, inside, f.load(held))
    f.use(drop, registers, first, count)
    f.ret(result.get())


@part("ptr", "ptr", "ptr", "i64", "i64", "ptr", symbol=ATTEMPT)
def first_attempt(f: Entrance, record: Word, arguments: Word, positional: Word, keywords: Word, names: Word) -> None:
    """As ``attempt``, for a record that counts its calls until it is warm; then ``warm`` is called in Python."""
    left = f.sub(f.field("record", record, "countdown"), 1)
    f.set_field("record", record, "countdown", left)
    with f.when(f.eq(left, 0)):
        own = f.words(1)
        f.store(f.field("record", record, "owner"), own)
        answer = f.python("ptr", "PyObject_Vectorcall", f.field("record", record, "warm"), own, 1, NULL)
        with f.when(f.is_null(answer)):
            f.ret(NULL)
        f.decref(answer)
    f.ret(f.use(attempt, record, arguments, positional, keywords, names))


PARTS: list[Part] = [
    fill_one, fill_all, make_results, create, run_steps, collect, build, outcome, serve, attempt, first_attempt,
]  # fmt: skip
