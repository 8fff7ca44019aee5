"""The first half of the fast call: find the candidate record of a call, and check the call against it."""

from __future__ import annotations

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, part
from pullback.runtime.fastcall.objects import forget_error, take_apart, take_fields
from pullback.runtime.fastcall.record_layout import Guard, Node, Reading

SEED, PRIME = 0x1F3D5B79, 0x9E3779B97F4A7C15 - (1 << 64)
"""Constants of the hash."""
MAX_DEPTH = 16
"""The nesting depth of containers below which the hash stops."""

HASH = "pullback_call_hash"


def _stir(f: Entrance, h: Word, x: Word) -> Word:
    mixed = f.mul(f.xor(h, x), PRIME)
    return f.xor(mixed, f.shr(mixed, 29))


@part("i64", "ptr", "i64", "i64")
def mix(f: Entrance, x: Word, previous: Word, depth: Word) -> None:
    """(object, hash, depth) -> hash: mixes in the type, and the properties of arrays, tuples, lists and dicts that programs
    depend on."""
    kind = f.type_of(x)
    h = f.variable(_stir(f, previous, f.as_word(kind)))
    with f.when(f.same(kind, f.api("ndarray"))):
        rank = f.load(x, abi.ARRAY_RANK, "i32")
        count = f.let(f"zext {rank} to i64")
        flags = f.bit_and(f.load(x, abi.ARRAY_FLAGS, "i32"), abi.ROW_MAJOR)
        h.set(_stir(f, h.get(), f.load(f.load(x, abi.ARRAY_DTYPE, "ptr"), abi.DTYPE_CLASS)))
        h.set(_stir(f, h.get(), f.as_word(f.eq(flags, abi.ROW_MAJOR))))
        shape = f.load(x, abi.ARRAY_SHAPE, "ptr")
        for k in f.each(count):
            h.set(_stir(f, h.get(), f.item(shape, k)))
        f.ret(_stir(f, h.get(), count))
    is_tuple, is_list = (f.same(kind, f.api(name)) for name in ("tuple", "list"))
    is_deep = f.ge(depth, MAX_DEPTH)
    with f.when(is_deep):
        f.ret(h.get())
    deeper = f.add(depth, 1)
    with f.when(f.bit_or(is_tuple, is_list)):
        count = f.load(x, abi.SIZE)
        items = f.variable(f.at(x, abi.ITEMS))
        with f.when(is_list):
            items.set(f.load(x, abi.ITEMS, "ptr"))
        for k in f.each(count):
            h.set(f.use(mix, f.item(items.get(), k, "ptr"), h.get(), deeper))
        f.ret(_stir(f, h.get(), count))
    with f.when(f.same(kind, f.api("dict"))):
        position, key, value = f.words(1), f.words(1), f.words(1)
        f.store(0, position)
        with f.loop():
            more = f.python("i32", "PyDict_Next", x, position, key, value)
            f.leave_if(f.eq(more, 0))
            h.set(f.use(mix, f.load(value, 0, "ptr"), h.get(), deeper))
    f.ret(h.get())


@part("i64", "ptr", "i64", "i64", symbol=HASH)
def hash_of_call(f: Entrance, arguments: Word, count: Word, keywords: Word) -> None:
    """(arguments, count, number of keywords) -> hash"""
    h = f.variable(_stir(f, Word(str(SEED)), keywords))
    for k in f.each(count):
        h.set(f.use(mix, f.item(arguments, k, "ptr"), h.get(), 0))
    f.ret(_stir(f, h.get(), count))


@part("i1", "ptr", "ptr", "i64", "ptr")
def check_keys(f: Entrance, x: Word, keys: Word, count: Word, registers: Word) -> None:
    """(dict, keys, count, registers) -> whether it has these keys, in this order; its values are stored in the registers."""
    position, key, value = f.words(1), f.words(1), f.words(1)
    f.store(0, position)
    for k in f.each(count):
        more = f.python("i32", "PyDict_Next", x, position, key, value)
        with f.when(f.eq(more, 0)):
            f.ret(Word("false", "i1"))
        actual, expected = f.load(key, 0, "ptr"), f.item(keys, k, "ptr")
        with f.unless(f.same(actual, expected)):
            with f.unless(f.same(f.type_of(actual), f.type_of(expected))):
                f.ret(Word("false", "i1"))
            with f.unless(f.eq(f.python("i32", "PyObject_RichCompareBool", actual, expected, Word("2", "i32")), 1)):
                f.ret(Word("false", "i1"))
        f.put(f.load(value, 0, "ptr"), registers, k)
    f.ret(f.eq(f.python("i32", "PyDict_Next", x, position, key, value), 0))


@part("i1", "ptr", "ptr", "ptr", is_inline=True)
def check_node(f: Entrance, node: Word, x: Word, registers: Word) -> None:
    """(node, object, registers) -> whether the object matches the node; the items of a container are stored in the registers."""
    yes, no = Word("true", "i1"), Word("false", "i1")
    kind = f.field("node", node, "kind")
    a = f.pointer("node", node, "a")
    type = f.type_of(x)
    with f.case(kind, Node.ARRAY):
        _check_array(f, node, x, type)
    with f.case(kind, Node.SAME):
        f.ret(f.same(x, a))
    with f.case(kind, Node.ANY):
        f.ret(yes)
    with f.case(kind, Node.WEAK):
        f.ret(f.same(x, f.load(a, abi.REFERENT, "ptr")))
    with f.case(kind, Node.EQUAL):
        with f.when(f.same(x, a)):
            f.ret(yes)
        with f.unless(f.same(type, f.type_of(a))):
            f.ret(no)
        with f.when(f.same(type, f.api("float"))):
            f.ret(f.eq(f.load(x, abi.VALUE), f.load(a, abi.VALUE)))
        f.ret(f.eq(f.python("i32", "PyObject_RichCompareBool", x, a, Word("2", "i32")), 1))
    with f.unless(f.same(type, f.field("node", node, "type"))):
        f.ret(no)
    with f.case(kind, Node.EXACT, Node.OBJECT):
        f.ret(yes)
    with f.case(kind, Node.METHOD):
        f.ret(f.same(f.load(x, abi.BOUND_FUNCTION, "ptr"), a))
    with f.case(kind, Node.NUMBER):
        overflow = f.words(1)
        integer = f.python("i64", "PyLong_AsLongLongAndOverflow", x, overflow)
        fits = f.eq(f.load(overflow, 0, "i32"), 0)
        f.ret(f.bit_and(fits, f.eq(integer, f.field("node", node, "a"))))
    with f.case(kind, Node.RANGE):
        overflow = f.words(1)
        value = f.python("i64", "PyLong_AsLongLongAndOverflow", x, overflow)
        fits = f.eq(f.load(overflow, 0, "i32"), 0)
        low = f.let(f"sext {f.let(f'trunc {value} to i32', 'i32')} to i64")
        f.ret(f.bit_and(fits, f.bit_or(f.eq(f.field("node", node, "b"), 64), f.eq(low, value))))
    count = f.field("node", node, "count")
    inside = f.at(registers, f.scaled(f.field("node", node, "first")))
    with f.case(kind, Node.DICT):
        f.ret(f.use(check_keys, x, a, count, inside))
    with f.case(kind, Node.FIELDS):
        f.ret(f.use(take_fields, x, a, count, inside))
    with f.case(kind, Node.TAKEN):
        f.ret(f.use(take_apart, a, x, count, inside))
    with f.unless(f.eq(f.load(x, abi.SIZE), count)):
        f.ret(no)
    items = f.variable(f.at(x, abi.ITEMS))
    with f.case(kind, Node.LIST):
        items.set(f.load(x, abi.ITEMS, "ptr"))
    for k in f.each(count):
        f.put(f.item(items.get(), k, "ptr"), inside, k)
    f.ret(yes)


def _check_array(f: Entrance, node: Word, x: Word, type: Word) -> None:
    no = Word("false", "i1")
    with f.unless(f.same(type, f.field("node", node, "type"))):
        f.ret(no)
    expected, actual = f.pointer("node", node, "a"), f.load(x, abi.ARRAY_DTYPE, "ptr")
    with f.unless(f.same(actual, expected)):
        same = f.python("i8", "PyArray_EquivTypes", actual, expected)
        with f.when(f.eq(same, 0)):
            f.ret(no)
    rank = f.field("node", node, "b")
    with f.unless(f.eq(f.let(f"zext {f.load(x, abi.ARRAY_RANK, 'i32')} to i64"), rank)):
        f.ret(no)
    flags = f.bit_and(f.load(x, abi.ARRAY_FLAGS, "i32"), abi.ROW_MAJOR)
    dense = f.as_word(f.eq(flags, abi.ROW_MAJOR))
    with f.unless(f.eq(dense, f.field("node", node, "first"))):
        f.ret(no)
    shape, wanted = f.load(x, abi.ARRAY_SHAPE, "ptr"), f.pointer("node", node, "c")
    for k in f.each(rank):
        with f.unless(f.eq(f.item(shape, k), f.item(wanted, k))):
            f.ret(no)
    f.ret(Word("true", "i1"))


@part("i1", "ptr", "ptr", "i1", "ptr", is_inline=True)
def check(f: Entrance, record: Word, registers: Word, holds: Word, held: Word) -> None:
    """(record, registers, whether to hold, where to store the end of the held registers) -> whether every node matches its
    object.

    If it is to hold them, increments the reference counts of the items of containers that it has reached.
    """
    nodes = f.field("record", record, "nodes")
    for k in f.each(f.field("record", record, "node_count")):
        node = f.row("node", nodes, k)
        x = f.item(registers, k, "ptr")
        with f.unless(f.use(check_node, node, x, registers)):
            f.ret(Word("false", "i1"))
        count = f.field("node", node, "count")
        with f.when(f.bit_and(holds, f.ne(count, 0))):
            first = f.field("node", node, "first")
            end = f.add(first, count)
            # The results of attributes and calls are held already.
            with f.when(f.lt(f.field("node", node, "kind"), Node.FIELDS)):
                for n in f.each(end, first):
                    f.incref(f.item(registers, n, "ptr"))
            f.store(end, held)
    f.ret(Word("true", "i1"))


@part("ptr", "i64", "ptr", "ptr")
def read_one(f: Entrance, kind: Word, a: Word, b: Word) -> None:
    """(kind, a, b) -> a captured object, held; null if there is none. An error stays set if it is no Exception."""
    result = f.variable(NULL)
    with f.case(kind, Reading.SAME):
        f.incref(a)
        f.ret(a)
    with f.case(kind, Reading.ITEM):
        item = f.python("ptr", "PyDict_GetItemWithError", a, b)
        with f.unless(f.is_null(item)):
            f.incref(item)
        result.set(item)
    with f.unless(f.eq(kind, Reading.ITEM)):
        owner = f.variable(a)
        with f.case(kind, Reading.THROUGH):
            owner.set(f.load(a, abi.REFERENT, "ptr"))
        last = owner.get()
        f.incref(last)
        result.set(f.python("ptr", "PyObject_GetAttr", last, b))
        f.decref(last)
    with f.when(f.is_null(result.get())):
        forget_error(f)
    f.ret(result.get())


@part("ptr", "i64", "ptr", "ptr", "i64")
def read_inside(f: Entrance, kind: Word, owner: Word, name: Word, index: Word) -> None:
    """(kind, object, attribute or key, index) -> an attribute or item, held; null if there is none."""
    result = f.variable(NULL)
    with f.case(kind, Reading.OF):
        result.set(f.python("ptr", "PyObject_GetAttr", owner, name))
        with f.when(f.is_null(result.get())):
            forget_error(f)
        f.ret(result.get())
    with f.case(kind, Reading.VALUE_OF):
        result.set(f.python("ptr", "PyDict_GetItemWithError", owner, name))
        with f.when(f.is_null(result.get())):
            forget_error(f)
    with f.unless(f.eq(kind, Reading.VALUE_OF)), f.when(f.lt(index, f.load(owner, abi.SIZE))):
        items = f.variable(f.at(owner, abi.ITEMS))
        with f.when(f.same(f.type_of(owner), f.api("list"))):
            items.set(f.load(owner, abi.ITEMS, "ptr"))
        result.set(f.item(items.get(), index, "ptr"))
    with f.unless(f.is_null(result.get())):
        f.incref(result.get())
    f.ret(result.get())


@part("i1", "ptr", "ptr", is_inline=True)
def is_expected(f: Entrance, guard: Word, x: Word) -> None:
    """(guard, object or null) -> whether it is the expected object, or, by value, an equal number or text of the same type."""
    expected = f.pointer("guard", guard, "expected")
    with f.when(f.same(x, expected)):
        f.ret(Word("true", "i1"))
    with f.when(f.bit_or(f.is_null(x), f.eq(f.field("guard", guard, "by_value"), 0))):
        f.ret(Word("false", "i1"))
    type = f.type_of(x)
    with f.unless(f.same(type, f.type_of(expected))):
        f.ret(Word("false", "i1"))
    with f.when(f.same(type, f.api("float"))):
        f.ret(f.eq(f.load(x, abi.VALUE), f.load(expected, abi.VALUE)))
    f.ret(f.eq(f.python("i32", "PyObject_RichCompareBool", x, expected, Word("2", "i32")), 1))


@part("i1", "ptr", is_inline=True)
def guard_holds(f: Entrance, guard: Word) -> None:
    """(guard) -> whether the guarded object is unchanged."""
    kind, expected = f.field("guard", guard, "kind"), f.pointer("guard", guard, "expected")
    a, b = f.pointer("guard", guard, "a"), f.pointer("guard", guard, "b")
    with f.case(kind, Guard.TAGGED):
        tag = f.load(a, abi.DICT_TAG)
        with f.when(f.eq(tag, f.field("guard", guard, "tag"))):
            f.ret(Word("true", "i1"))
        holds = f.use(is_expected, guard, f.python("ptr", "PyDict_GetItemWithError", a, b))
        with f.when(holds):
            f.set_field("guard", guard, "tag", tag)
        f.ret(holds)
    with f.case(kind, Guard.ITEM):
        f.ret(f.use(is_expected, guard, f.python("ptr", "PyDict_GetItemWithError", a, b)))
    with f.case(kind, Guard.CODE):
        owner = f.load(a, abi.REFERENT, "ptr")
        with f.when(f.same(owner, f.api("none"))):
            f.ret(f.same(b, expected))
        f.ret(f.same(f.python("ptr", "PyFunction_GetCode", owner), expected))
    current = f.use(read_one, kind, a, b)
    holds = f.use(is_expected, guard, current)
    f.decref(current)
    f.ret(holds)


@part("i1", "ptr", "ptr", is_inline=True)
def outside(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> whether the guards hold. Captured objects are stored in the registers, held; none is held if the
    result is false."""
    guards = f.field("record", record, "guards")
    for k in f.each(f.field("record", record, "guard_count")):
        holds = f.use(guard_holds, f.row("guard", guards, k))
        with f.unless(holds):
            f.ret(Word("false", "i1"))
    first = f.add(f.field("record", record, "positional"), f.field("record", record, "keywords"))
    own = f.at(registers, f.scaled(first))
    count = f.field("record", record, "read_count")
    watch = f.field("record", record, "watch")
    with f.unless(f.is_null(watch)):
        _watched(f, watch, registers, f.field("record", record, "watched"), own, count)
    reads = f.field("record", record, "reads")
    for k in f.each(count):
        read = f.row("read", reads, k)
        kind, name = f.field("read", read, "kind"), f.pointer("read", read, "b")
        result = f.variable(NULL)
        is_inside = f.ge(kind, int(Reading.OF))
        with f.when(is_inside):
            owner = f.item(registers, f.field("read", read, "a"), "ptr")
            with f.when(f.same(f.type_of(owner), f.pointer("read", read, "type"))):
                result.set(f.use(read_inside, kind, owner, name, f.field("read", read, "index")))
        with f.unless(is_inside):
            result.set(f.use(read_one, kind, f.pointer("read", read, "a"), name))
        value = result.get()
        with f.when(f.is_null(value)):
            for n in f.each(k):
                f.decref(f.item(own, n, "ptr"))
            f.ret(Word("false", "i1"))
        f.put(value, own, k)
    f.ret(Word("true", "i1"))


def _watched(f: Entrance, watch: Word, arguments: Word, watched: Word, own: Word, count: Word) -> None:
    """Store the values in the list that a trace's watch returns, held; return false from the function if it returns None."""
    no = Word("false", "i1")
    values = f.python("ptr", "PyObject_Vectorcall", watch, arguments, watched, NULL)
    with f.when(f.is_null(values)):
        f.ret(no)
    is_list = f.same(f.type_of(values), f.api("list"))
    fits = f.variable(Word("false", "i1"))
    with f.when(is_list):
        fits.set(f.eq(f.load(values, abi.SIZE), count))
    with f.unless(fits.get()):
        f.decref(values)
        f.ret(no)
    items = f.load(values, abi.ITEMS, "ptr")
    for k in f.each(count):
        item = f.item(items, k, "ptr")
        f.incref(item)
        f.put(item, own, k)
    f.decref(values)
    f.ret(Word("true", "i1"))


PARTS: list[Part] = [mix, hash_of_call, check_keys, check_node, check, read_one, read_inside, is_expected, guard_holds, outside]
