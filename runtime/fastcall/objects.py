"""Objects of Python's on the native call path: those that are taken apart by their attributes or by a function, and those that
are made by a call."""

from __future__ import annotations

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, part
from pullback.runtime.fastcall.record_layout import Build

YES, NO = Word("true", "i1"), Word("false", "i1")


def forget_error(f: Entrance) -> None:
    """An Exception that is set is forgotten; an interrupt and its like stay."""
    with f.unless(f.is_null(f.python("ptr", "PyErr_Occurred"))):
        is_exception = f.ne(f.python("i32", "PyErr_ExceptionMatches", f.api("Exception")), 0)
        with f.when(is_exception):
            f.python("void", "PyErr_Clear")


@part("void", "ptr", "i64", "i64")
def drop(f: Entrance, registers: Word, first: Word, end: Word) -> None:
    """(objects, from, to): lets go of those in a row of registers; null is none."""
    for k in f.each(end, first):
        f.release(f.item(registers, k, "ptr"))
    f.give_nothing()


@part("i1", "ptr", "ptr", "i64", "ptr")
def take_fields(f: Entrance, x: Word, names: Word, count: Word, registers: Word) -> None:
    """(object, names, count, registers) -> whether it has these attributes, which go to the registers, held; where the answer is
    no, none is."""
    with f.count_to(count) as k:
        found = f.python("ptr", "PyObject_GetAttr", x, f.item(names, k, "ptr"))
        with f.when(f.is_null(found)):
            forget_error(f)
            f.use(drop, registers, 0, k)
            f.give(NO)
        f.put(found, registers, k)
    f.give(YES)


@part("i1", "ptr", "ptr", "i64", "ptr")
def take_apart(f: Entrance, function: Word, x: Word, count: Word, registers: Word) -> None:
    """(function, object, count, registers) -> whether the function gives a pair of count - 1 children and of what is beside them.
    They go to the registers, held; where the answer is no, none is."""
    own = f.words(1)
    f.put(x, own, 0)
    pair = f.python("ptr", "PyObject_Vectorcall", function, own, 1, NULL)
    with f.when(f.is_null(pair)):
        forget_error(f)
        f.give(NO)
    fits = f.variable(NO)
    with f.when(f.same(f.type_of(pair), f.api("tuple"))), f.when(f.eq(f.load(pair, abi.SIZE), 2)):
        children = f.load(pair, abi.ITEMS, "ptr")
        kind = f.type_of(children)
        items = f.variable(f.at(children, abi.ITEMS))
        is_list = f.same(kind, f.api("list"))
        with f.when(f.either(is_list, f.same(kind, f.api("tuple")))):
            with f.when(is_list):
                items.set(f.load(children, abi.ITEMS, "ptr"))
            fits.set(f.eq(f.add(f.load(children, abi.SIZE), 1), count))
        with f.when(fits.get()):
            last = f.sub(count, 1)
            with f.count_to(last) as k:
                child = f.item(items.get(), k, "ptr")
                f.hold(child)
                f.put(child, registers, k)
            beside = f.load(pair, abi.ITEMS + 8, "ptr")
            f.hold(beside)
            f.put(beside, registers, last)
    f.release(pair)
    f.give(fits.get())


@part("ptr", "i64", "i64", "ptr", "ptr")
def make_object(f: Entrance, kind: Word, count: Word, how: Word, items: Word) -> None:
    """(kind, count, how, items) -> what a call makes of the items, or an object with them as attributes; null with an error set.
    Lets go of the items."""
    made = f.variable(NULL)
    with f.case(kind, Build.CALL):
        made.set(f.python("ptr", "PyObject_Vectorcall", how, items, count, NULL))
    with f.case(kind, Build.FIELDS):
        made.set(f.python("ptr", "PyObject_Vectorcall", f.api("new"), how, 1, NULL))
        with f.count_to(count) as k:
            x = made.get()
            f.leave_if(f.is_null(x))
            wrong = f.python("i32", "PyObject_GenericSetAttr", x, f.item(how, f.add(k, 1), "ptr"), f.item(items, k, "ptr"))
            with f.unless(f.eq(wrong, 0)):
                f.release(x)
                made.set(NULL)
    f.use(drop, items, 0, count)
    f.give(made.get())


PARTS: list[Part] = [drop, take_fields, take_apart, make_object]
