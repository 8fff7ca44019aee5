"""Checks of the memory of arrays that are written, and the filling of the caller's arrays.

A call that fails a check goes to Python, which copies, raises, or determines exactly whether two arrays share an element.
"""

from __future__ import annotations

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, part
from pullback.runtime.fastcall.record_layout import Demand

SPAN_WORDS = 3
"""The words of an array's span: its first byte, the byte after its last, whether it is written."""

YES, NO = Word("true", "i1"), Word("false", "i1")


def _rank(f: Entrance, x: Word) -> Word:
    return f.let(f"zext {f.load(x, abi.ARRAY_RANK, 'i32')} to i64")


def _positive(f: Entrance, a: Word) -> Word:
    result = f.variable(a)
    with f.when(f.lt(a, 0)):
        result.set(f.sub(Word("0"), a))
    return result.get()


@part("void", "ptr", "i64", "ptr")
def bounds(f: Entrance, x: Word, item: Word, target: Word) -> None:
    """(array, bytes of an element, address of three words): stores its first byte and the byte after its last; both are 0 if
    it has no elements."""
    start, end = f.variable(f.load(x, abi.ARRAY_DATA)), f.variable(0)
    end.set(f.add(start.get(), item))
    shape, strides = f.load(x, abi.ARRAY_SHAPE, "ptr"), f.load(x, abi.ARRAY_STRIDES, "ptr")
    with f.count_to(_rank(f, x)) as k:
        count = f.item(shape, k)
        with f.when(f.eq(count, 0)):
            f.put(0, target, 0)
            f.put(0, target, 1)
            f.ret_void()
        reach = f.mul(f.sub(count, 1), f.item(strides, k))
        is_back = f.lt(reach, 0)
        with f.when(is_back):
            start.set(f.add(start.get(), reach))
        with f.unless(is_back):
            end.set(f.add(end.get(), reach))
    f.put(start.get(), target, 0)
    f.put(end.get(), target, 1)
    f.ret_void()


@part("i1", "ptr", "i64", "ptr")
def are_apart(f: Entrance, rows: Word, count: Word, registers: Word) -> None:
    """(spans, count, registers) -> whether no written array shares memory with another: sorted by their starts, each is
    compared with the earlier one that ends last."""
    sorted_ = f.many_words(f.add(f.mul(count, SPAN_WORDS), SPAN_WORDS))
    span = f.words(SPAN_WORDS)
    step = 8 * SPAN_WORDS
    with f.count_to(count) as k:
        row = f.row("span", rows, k)
        x = f.item(registers, f.field("span", row, "register"), "ptr")
        f.use(bounds, x, f.field("span", row, "item_bytes"), span)
        start, end = f.load(span), f.load(span, 8)
        offset = f.variable(f.mul(k, step))
        with f.loop():
            f.leave_if(f.eq(offset.get(), 0))
            before = f.at(sorted_, f.sub(offset.get(), step))
            f.leave_if(f.ge(start, f.load(before)))
            own = f.at(sorted_, offset.get())
            for word in range(SPAN_WORDS):
                f.put(f.item(before, word), own, word)
            offset.set(f.sub(offset.get(), step))
        own = f.at(sorted_, offset.get())
        for word, value in enumerate((start, end, f.field("span", row, "is_written"))):
            f.put(value, own, word)
    until, is_written = f.variable(0), f.variable(0)
    with f.count_to(count) as k:
        own = f.at(sorted_, f.mul(k, step))
        start, end, written = (f.item(own, word) for word in range(SPAN_WORDS))
        shares = f.bit_and(f.lt(start, until.get()), f.lt(start, end))
        concerns = f.ne(f.bit_or(written, is_written.get()), 0)
        with f.when(f.bit_and(shares, concerns)):
            f.ret(NO)
        with f.unless(f.ge(until.get(), end)):
            until.set(end)
            is_written.set(written)
    f.ret(YES)


@part("i1", "ptr", "i64")
def is_single(f: Entrance, x: Word, item: Word) -> None:
    """(array, bytes of an element) -> whether the strides rule out that two elements share memory."""
    with f.unless(f.eq(f.bit_and(f.load(x, abi.ARRAY_FLAGS, "i32"), abi.DENSE), 0)):
        f.ret(YES)
    shape, strides = f.load(x, abi.ARRAY_SHAPE, "ptr"), f.load(x, abi.ARRAY_STRIDES, "ptr")
    rank = _rank(f, x)
    with f.count_to(rank) as k:
        own = _positive(f, f.item(strides, k))
        is_axis = f.lt(Word("1"), f.item(shape, k))
        span = f.variable(item)
        with f.count_to(rank) as n:
            other = _positive(f, f.item(strides, n))
            reach = f.mul(other, f.sub(f.item(shape, n), 1))
            is_smaller = f.bit_or(f.lt(other, own), f.bit_and(f.eq(other, own), f.lt(n, k)))
            with f.when(f.bit_and(is_smaller, f.lt(Word("0"), reach))):
                span.set(f.add(span.get(), reach))
        with f.when(f.bit_and(is_axis, f.lt(own, span.get()))):
            f.ret(NO)
    f.ret(YES)


@part("i1", "ptr", "ptr")
def demand_holds(f: Entrance, demand: Word, registers: Word) -> None:
    """(demand, registers) -> whether it holds"""
    kind, a = f.field("demand", demand, "kind"), f.pointer("demand", demand, "a")
    with f.case(kind, Demand.APART):
        f.ret(f.use(are_apart, a, f.field("demand", demand, "b"), registers))
    x = f.item(registers, f.field("demand", demand, "register"), "ptr")
    with f.case(kind, Demand.SAME, Demand.OTHER):
        is_same = f.same(x, f.item(registers, f.field("demand", demand, "a"), "ptr"))
        f.ret(f.eq(is_same, f.eq(kind, Demand.SAME)))
    with f.case(kind, Demand.SINGLE):
        f.ret(f.use(is_single, x, f.field("demand", demand, "a")))
    with f.case(kind, Demand.STRIDES):
        strides = f.load(x, abi.ARRAY_STRIDES, "ptr")
        with f.count_to(_rank(f, x)) as k, f.unless(f.eq(f.item(strides, k), f.item(a, k))):
            f.ret(NO)
        f.ret(YES)
    is_fixed = f.eq(f.bit_and(f.load(x, abi.ARRAY_FLAGS, "i32"), abi.WRITEABLE), 0)
    f.ret(f.eq(is_fixed, f.eq(kind, Demand.READONLY)))


@part("i1", "ptr", "ptr")
def demands_hold(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> whether the memory of the arrays meets the demands of the record"""
    rows = f.field("record", record, "demands")
    with f.count_to(f.field("record", record, "demand_count")) as k:
        holds = f.use(demand_holds, f.row("demand", rows, k), registers)
        with f.unless(holds):
            f.ret(NO)
    f.ret(YES)


@part("ptr", "ptr", "ptr", "ptr")
def put_all(f: Entrance, record: Word, registers: Word, result: Word) -> None:
    """(record, registers, result) -> the result; null with an error set, and the result released, if an array could not be
    filled."""
    rows = f.field("record", record, "puts")
    with f.count_to(f.field("record", record, "put_count")) as k:
        row = f.row("put", rows, k)
        target = f.item(registers, f.field("put", row, "target"), "ptr")
        source = f.item(registers, f.field("put", row, "source"), "ptr")
        is_array = f.same(f.type_of(source), f.api("ndarray"))
        wrong = f.variable(Word("0", "i32"))
        with f.when(is_array):
            wrong.set(f.python("i32", "PyArray_CopyInto", target, source))
        with f.unless(is_array):
            wrong.set(f.python("i32", "PyArray_CopyObject", target, source))
        with f.unless(f.eq(wrong.get(), 0)):
            f.decref(result)
            f.ret(NULL)
    f.ret(result)


PARTS: list[Part] = [bounds, are_apart, is_single, demand_holds, demands_hold, put_all]
