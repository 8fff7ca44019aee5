"""Bound methods on the fast call: created at each access, as Python does, and called with the instance first."""

from __future__ import annotations

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, function_at, part

METHOD, GET = "pullback_call_method", "pullback_call_get"
_OFFSET_FLAG = 1 << 63
"""PY_VECTORCALL_ARGUMENTS_OFFSET"""


@part("ptr", "ptr", "ptr", "i64", "ptr", symbol=METHOD)
def call_method(f: Entrance, own: Word, arguments: Word, flagged: Word, names: Word) -> None:
    """The vectorcall function of a bound method: (method, arguments, count and flag, names of keywords) -> a new reference"""
    function, instance = f.load(own, abi.FUNCTION, "ptr"), f.load(own, abi.INSTANCE, "ptr")
    with f.when(f.bit_or(f.is_null(function), f.is_null(instance))):
        f.python("void", "PyErr_SetNone", f.api("AttributeError"))
        f.ret(NULL)
    positional = f.bit_and(flagged, _OFFSET_FLAG - 1)
    with f.when(f.lt(flagged, 0)):
        # The caller lets us overwrite the word before the first argument.
        before = f.at(arguments, -8)
        last = f.load(before)
        f.store(instance, before)
        result = f.python("ptr", "PyObject_Vectorcall", function, before, f.add(positional, 1), names)
        f.store(last, before)
        f.ret(result)
    count = f.variable(positional)
    with f.unless(f.is_null(names)):
        count.set(f.add(positional, f.load(names, abi.SIZE)))
    words = f.many_words(f.add(count.get(), 1))
    f.put(instance, words, 0)
    with f.count_to(count.get()) as k:
        f.put(f.item(arguments, k), words, f.add(k, 1))
    f.ret(f.python("ptr", "PyObject_Vectorcall", function, words, f.add(positional, 1), names))


@part("ptr", "ptr", "ptr", "ptr", symbol=GET)
def get(f: Entrance, own: Word, instance: Word, owner: Word) -> None:
    """The descriptor function of callables: (callable, instance or null, owner or null) -> a new reference. Unusual cases are
    served by ``__get__`` in Python."""
    none = f.api("none")
    function = f.load(own, abi.METHOD, "ptr")
    is_usual = f.variable(f.xor(f.bit_or(f.is_null(instance), f.is_null(function)), 1))
    with f.when(is_usual.get()):
        is_usual.set(f.xor(f.bit_or(f.same(instance, none), f.same(function, none)), 1))
    with f.unless(is_usual.get()):
        words = f.words(3)
        f.put(own, words, 0)
        for k, operand in enumerate((instance, owner), 1):
            f.put(operand, words, k)
            with f.when(f.is_null(operand)):
                f.put(none, words, k)
        f.ret(f.python("ptr", "PyObject_Vectorcall", f.state("get"), words, 3, NULL))
    bound_method = f.python("ptr", "PyType_GenericAlloc", f.state("method"), 0)
    with f.when(f.is_null(bound_method)):
        f.ret(NULL)
    f.incref(function)
    f.incref(instance)
    f.store(function, bound_method, abi.FUNCTION)
    f.store(instance, bound_method, abi.INSTANCE)
    f.store(function_at(METHOD), bound_method, abi.VECTORCALL)
    f.ret(bound_method)


PARTS: list[Part] = [call_method, get]
