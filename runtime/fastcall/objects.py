"""Python objects on the fast call: those decomposed through their attributes or a function, and those created by a call."""

from __future__ import annotations

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, part
from pullback.runtime.fastcall.record_layout import Build

YES, NO = Word("true", "i1"), Word("false", "i1")


def forget_error(f: Entrance) -> None:
    """Clear a pending error if it is an Exception; an interrupt or the like stays."""
    with f.unless(f.is_null(f.python("ptr", "PyErr_Occurred"))):
        is_exception = f.ne(f.python("i32", "PyErr_ExceptionMatches", f.api("Exception")), 0)
        with f.when(is_exception):
            f.python("void", "PyErr_Clear")


@part("void", "ptr", "i64", "i64")
def drop(f: Entrance, registers: Word, first: Word, end: Word) -> None:
    """(objects, from, to): releases the objects in a range of registers, except null."""
    for k in f.each(end, first):
        f.decref(f.item(registers, k, "ptr"))
    f.ret_void()


@part("i1", "ptr", "ptr", "i64", "ptr")
def take_fields(f: Entrance, x: Word, names: Word, count: Word, registers: Word) -> None:
    """(object, names, count, registers) -> whether it has these attributes. They are stored in the registers, held; none if
    the result is false."""
    with f.count_to(count) as k:
        value = f.python("ptr", "PyObject_GetAttr", x, f.item(names, k, "ptr"))
        with f.when(f.is_null(value)):
            forget_error(f)
            f.use(drop, registers, 0, k)
            f.ret(NO)
        f.put(value, registers, k)
    f.ret(YES)


@part("i1", "ptr", "ptr", "i64", "ptr")
def take_apart(f: Entrance, function: Word, x: Word, count: Word, registers: Word) -> None:
    """(function, object, count, registers) -> whether the function returns a pair of count - 1 children and auxiliary data.
    They are stored in the registers, held; none if the result is false."""
    own = f.words(1)
    f.put(x, own, 0)
    pair = f.python("ptr", "PyObject_Vectorcall", function, own, 1, NULL)
    with f.when(f.is_null(pair)):
        forget_error(f)
        f.ret(NO)
    fits = f.variable(NO)
    with f.when(f.same(f.type_of(pair), f.api("tuple"))), f.when(f.eq(f.load(pair, abi.SIZE), 2)):
        children = f.load(pair, abi.ITEMS, "ptr")
        kind = f.type_of(children)
        items = f.variable(f.at(children, abi.ITEMS))
        is_list = f.same(kind, f.api("list"))
        with f.when(f.bit_or(is_list, f.same(kind, f.api("tuple")))):
            with f.when(is_list):
                items.set(f.load(children, abi.ITEMS, "ptr"))
            fits.set(f.eq(f.add(f.load(children, abi.SIZE), 1), count))
        with f.when(fits.get()):
            last = f.sub(count, 1)
            with f.count_to(last) as k:
                child = f.item(items.get(), k, "ptr")
                f.incref(child)
                f.put(child, registers, k)
            auxiliary = f.load(pair, abi.ITEMS + 8, "ptr")
            f.incref(auxiliary)
            f.put(auxiliary, registers, last)
    f.decref(pair)
    f.ret(fits.get())


@part("ptr", "i64", "i64", "ptr", "ptr")
def make_object(f: Entrance, kind: Word, count: Word, how: Word, items: Word) -> None:
    """(kind, count, how, items) -> the result of a call with the items, or an object with them as attributes; null with an
    error set. Releases the items."""
    result = f.variable(NULL)
    with f.case(kind, Build.CALL):
        result.set(f.python("ptr", "PyObject_Vectorcall", how, items, count, NULL))
    with f.case(kind, Build.FIELDS):
        result.set(f.python("ptr", "PyObject_Vectorcall", f.api("new"), how, 1, NULL))
        with f.count_to(count) as k:
            x = result.get()
            f.leave_if(f.is_null(x))
            wrong = f.python("i32", "PyObject_GenericSetAttr", x, f.item(how, f.add(k, 1), "ptr"), f.item(items, k, "ptr"))
            with f.unless(f.eq(wrong, 0)):
                f.decref(x)
                result.set(NULL)
    f.use(drop, items, 0, count)
    f.ret(result.get())


PARTS: list[Part] = [drop, take_fields, take_apart, make_object]
