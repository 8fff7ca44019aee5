"""The first half of the native call path: which record a call may have, and whether it is one of it."""

from __future__ import annotations

from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.common import NULL, Entrance, Part, Word, part
from pullback.runtime.fastcall.objects import forget_error, take_apart, take_fields
from pullback.runtime.fastcall.record_layout import Guard, Node, Reading

SEED, PRIME = 0x1F3D5B79, 0x9E3779B97F4A7C15 - (1 << 64)
DEEPEST = 16

HASH = "pullback_call_hash"


def _stir(f: Entrance, h: Word, x: Word) -> Word:
    mixed = f.mul(f.xor(h, x), PRIME)
    return f.xor(mixed, f.shr(mixed, 29))


@part("i64", "ptr", "i64", "i64")
def mix(f: Entrance, x: Word, given: Word, depth: Word) -> None:
    """(object, hash, depth) -> hash: by type, and by what a program depends on in an array, tuple, list or dict."""
    kind = f.type_of(x)
    h = f.variable(_stir(f, given, f.as_word(kind)))
    with f.when(f.same(kind, f.api("ndarray"))):
        rank = f.load(x, abi.ARRAY_RANK, "i32")
        count = f.let(f"zext {rank} to i64")
        flags = f.both(f.load(x, abi.ARRAY_FLAGS, "i32"), abi.ROW_MAJOR)
        h.set(_stir(f, h.get(), f.load(f.load(x, abi.ARRAY_DTYPE, "ptr"), abi.DTYPE_CLASS)))
        h.set(_stir(f, h.get(), f.as_word(f.eq(flags, abi.ROW_MAJOR))))
        shape = f.load(x, abi.ARRAY_SHAPE, "ptr")
        for k in f.each(count):
            h.set(_stir(f, h.get(), f.item(shape, k)))
        f.give(_stir(f, h.get(), count))
    is_tuple, is_list = (f.same(kind, f.api(name)) for name in ("tuple", "list"))
    is_deep = f.ge(depth, DEEPEST)
    with f.when(is_deep):
        f.give(h.get())
    deeper = f.add(depth, 1)
    with f.when(f.either(is_tuple, is_list)):
        count = f.load(x, abi.SIZE)
        items = f.variable(f.at(x, abi.ITEMS))
        with f.when(is_list):
            items.set(f.load(x, abi.ITEMS, "ptr"))
        for k in f.each(count):
            h.set(f.use(mix, f.item(items.get(), k, "ptr"), h.get(), deeper))
        f.give(_stir(f, h.get(), count))
    with f.when(f.same(kind, f.api("dict"))):
        place, key, value = f.words(1), f.words(1), f.words(1)
        f.store(0, place)
        with f.loop():
            more = f.python("i32", "PyDict_Next", x, place, key, value)
            f.leave_if(f.eq(more, 0))
            h.set(f.use(mix, f.load(value, 0, "ptr"), h.get(), deeper))
    f.give(h.get())


@part("i64", "ptr", "i64", "i64", symbol=HASH)
def hash_of_call(f: Entrance, arguments: Word, count: Word, keywords: Word) -> None:
    """(arguments, how many, keywords among them) -> hash"""
    h = f.variable(_stir(f, Word(str(SEED)), keywords))
    for k in f.each(count):
        h.set(f.use(mix, f.item(arguments, k, "ptr"), h.get(), 0))
    f.give(_stir(f, h.get(), count))


@part("i1", "ptr", "ptr", "i64", "ptr")
def check_keys(f: Entrance, x: Word, keys: Word, count: Word, registers: Word) -> None:
    """(dict, keys, count, registers) -> whether it has these keys, in this order; its values go to the registers."""
    place, key, value = f.words(1), f.words(1), f.words(1)
    f.store(0, place)
    for k in f.each(count):
        more = f.python("i32", "PyDict_Next", x, place, key, value)
        with f.when(f.eq(more, 0)):
            f.give(Word("false", "i1"))
        found, expected = f.load(key, 0, "ptr"), f.item(keys, k, "ptr")
        with f.unless(f.same(found, expected)):
            with f.unless(f.same(f.type_of(found), f.type_of(expected))):
                f.give(Word("false", "i1"))
            with f.unless(f.eq(f.python("i32", "PyObject_RichCompareBool", found, expected, Word("2", "i32")), 1)):
                f.give(Word("false", "i1"))
        f.put(f.load(value, 0, "ptr"), registers, k)
    f.give(f.eq(f.python("i32", "PyDict_Next", x, place, key, value), 0))


@part("i1", "ptr", "ptr", "ptr", is_inline=True)
def check_node(f: Entrance, node: Word, x: Word, registers: Word) -> None:
    """(node, object, registers) -> whether the object is what the node says; what is inside goes to the registers."""
    yes, no = Word("true", "i1"), Word("false", "i1")
    kind = f.field("node", node, "kind")
    a = f.pointer("node", node, "a")
    type = f.type_of(x)
    with f.case(kind, Node.ARRAY):
        _check_array(f, node, x, type)
    with f.case(kind, Node.SAME):
        f.give(f.same(x, a))
    with f.case(kind, Node.ANY):
        f.give(yes)
    with f.case(kind, Node.WEAK):
        f.give(f.same(x, f.load(a, abi.REFERENT, "ptr")))
    with f.case(kind, Node.EQUAL):
        with f.when(f.same(x, a)):
            f.give(yes)
        with f.unless(f.same(type, f.type_of(a))):
            f.give(no)
        with f.when(f.same(type, f.api("float"))):
            f.give(f.eq(f.load(x, abi.VALUE), f.load(a, abi.VALUE)))
        f.give(f.eq(f.python("i32", "PyObject_RichCompareBool", x, a, Word("2", "i32")), 1))
    with f.unless(f.same(type, f.field("node", node, "type"))):
        f.give(no)
    with f.case(kind, Node.EXACT):
        f.give(yes)
    with f.case(kind, Node.NUMBER):
        overflow = f.words(1)
        found = f.python("i64", "PyLong_AsLongLongAndOverflow", x, overflow)
        fits = f.eq(f.load(overflow, 0, "i32"), 0)
        f.give(f.both(fits, f.eq(found, f.field("node", node, "a"))))
    with f.case(kind, Node.RANGE):
        overflow = f.words(1)
        value = f.python("i64", "PyLong_AsLongLongAndOverflow", x, overflow)
        fits = f.eq(f.load(overflow, 0, "i32"), 0)
        low = f.let(f"sext {f.let(f'trunc {value} to i32', 'i32')} to i64")
        f.give(f.both(fits, f.either(f.eq(f.field("node", node, "b"), 64), f.eq(low, value))))
    count = f.field("node", node, "count")
    inside = f.at(registers, f.scaled(f.field("node", node, "first")))
    with f.case(kind, Node.DICT):
        f.give(f.use(check_keys, x, a, count, inside))
    with f.case(kind, Node.FIELDS):
        f.give(f.use(take_fields, x, a, count, inside))
    with f.case(kind, Node.TAKEN):
        f.give(f.use(take_apart, a, x, count, inside))
    with f.unless(f.eq(f.load(x, abi.SIZE), count)):
        f.give(no)
    items = f.variable(f.at(x, abi.ITEMS))
    with f.case(kind, Node.LIST):
        items.set(f.load(x, abi.ITEMS, "ptr"))
    for k in f.each(count):
        f.put(f.item(items.get(), k, "ptr"), inside, k)
    f.give(yes)


def _check_array(f: Entrance, node: Word, x: Word, type: Word) -> None:
    no = Word("false", "i1")
    with f.unless(f.same(type, f.field("node", node, "type"))):
        f.give(no)
    expected, found = f.pointer("node", node, "a"), f.load(x, abi.ARRAY_DTYPE, "ptr")
    with f.unless(f.same(found, expected)):
        same = f.python("i8", "PyArray_EquivTypes", found, expected)
        with f.when(f.eq(same, 0)):
            f.give(no)
    rank = f.field("node", node, "b")
    with f.unless(f.eq(f.let(f"zext {f.load(x, abi.ARRAY_RANK, 'i32')} to i64"), rank)):
        f.give(no)
    flags = f.both(f.load(x, abi.ARRAY_FLAGS, "i32"), abi.ROW_MAJOR)
    dense = f.as_word(f.eq(flags, abi.ROW_MAJOR))
    with f.unless(f.eq(dense, f.field("node", node, "first"))):
        f.give(no)
    shape, wanted = f.load(x, abi.ARRAY_SHAPE, "ptr"), f.pointer("node", node, "c")
    for k in f.each(rank):
        with f.unless(f.eq(f.item(shape, k), f.item(wanted, k))):
            f.give(no)
    f.give(Word("true", "i1"))


@part("i1", "ptr", "ptr", "i1", "ptr", is_inline=True)
def check(f: Entrance, record: Word, registers: Word, holds: Word, held: Word) -> None:
    """(record, registers, whether to hold, where the number of registers held goes) -> whether every node's object is as it says.

    Holds what is inside containers, if asked to, as far as it got."""
    nodes = f.field("record", record, "nodes")
    for k in f.each(f.field("record", record, "node_count")):
        node = f.row("node", nodes, k)
        x = f.item(registers, k, "ptr")
        with f.unless(f.use(check_node, node, x, registers)):
            f.give(Word("false", "i1"))
        count = f.field("node", node, "count")
        with f.when(f.both(holds, f.ne(count, 0))):
            first = f.field("node", node, "first")
            end = f.add(first, count)
            # What attributes and calls gave is held already.
            with f.when(f.lt(f.field("node", node, "kind"), Node.FIELDS)):
                for n in f.each(end, first):
                    f.hold(f.item(registers, n, "ptr"))
            f.store(end, held)
    f.give(Word("true", "i1"))


@part("ptr", "i64", "ptr", "ptr")
def read_one(f: Entrance, kind: Word, a: Word, b: Word) -> None:
    """(kind, a, b) -> an object from outside, held; null if there is none. An error is left set if it is no Exception."""
    found = f.variable(NULL)
    with f.case(kind, Reading.SAME):
        f.hold(a)
        f.give(a)
    with f.case(kind, Reading.ITEM):
        item = f.python("ptr", "PyDict_GetItemWithError", a, b)
        with f.unless(f.is_null(item)):
            f.hold(item)
        found.set(item)
    with f.unless(f.eq(kind, Reading.ITEM)):
        owner = f.variable(a)
        with f.case(kind, Reading.THROUGH):
            owner.set(f.load(a, abi.REFERENT, "ptr"))
        last = owner.get()
        f.hold(last)
        found.set(f.python("ptr", "PyObject_GetAttr", last, b))
        f.release(last)
    with f.when(f.is_null(found.get())):
        forget_error(f)
    f.give(found.get())


@part("i1", "ptr", "ptr", is_inline=True)
def is_expected(f: Entrance, guard: Word, x: Word) -> None:
    """(guard, object or null) -> whether it is the object expected; by value also a number or text of its type that is equal."""
    expected = f.pointer("guard", guard, "expected")
    with f.when(f.same(x, expected)):
        f.give(Word("true", "i1"))
    with f.when(f.either(f.is_null(x), f.eq(f.field("guard", guard, "by_value"), 0))):
        f.give(Word("false", "i1"))
    type = f.type_of(x)
    with f.unless(f.same(type, f.type_of(expected))):
        f.give(Word("false", "i1"))
    with f.when(f.same(type, f.api("float"))):
        f.give(f.eq(f.load(x, abi.VALUE), f.load(expected, abi.VALUE)))
    f.give(f.eq(f.python("i32", "PyObject_RichCompareBool", x, expected, Word("2", "i32")), 1))


@part("i1", "ptr", is_inline=True)
def guard_holds(f: Entrance, guard: Word) -> None:
    """(guard) -> whether what it is about is as it was."""
    kind, expected = f.field("guard", guard, "kind"), f.pointer("guard", guard, "expected")
    a, b = f.pointer("guard", guard, "a"), f.pointer("guard", guard, "b")
    with f.case(kind, Guard.TAGGED):
        tag = f.load(a, abi.DICT_TAG)
        with f.when(f.eq(tag, f.field("guard", guard, "tag"))):
            f.give(Word("true", "i1"))
        holds = f.use(is_expected, guard, f.python("ptr", "PyDict_GetItemWithError", a, b))
        with f.when(holds):
            f.set_field("guard", guard, "tag", tag)
        f.give(holds)
    with f.case(kind, Guard.ITEM):
        f.give(f.use(is_expected, guard, f.python("ptr", "PyDict_GetItemWithError", a, b)))
    with f.case(kind, Guard.CODE):
        owner = f.load(a, abi.REFERENT, "ptr")
        with f.when(f.same(owner, f.api("none"))):
            f.give(f.same(b, expected))
        f.give(f.same(f.python("ptr", "PyFunction_GetCode", owner), expected))
    found = f.use(read_one, kind, a, b)
    holds = f.use(is_expected, guard, found)
    f.release(found)
    f.give(holds)


@part("i1", "ptr", "ptr", is_inline=True)
def outside(f: Entrance, record: Word, registers: Word) -> None:
    """(record, registers) -> whether the guards hold. What is read from outside goes to the registers, held; where the answer is
    no, none is."""
    guards = f.field("record", record, "guards")
    for k in f.each(f.field("record", record, "guard_count")):
        holds = f.use(guard_holds, f.row("guard", guards, k))
        with f.unless(holds):
            f.give(Word("false", "i1"))
    first = f.add(f.field("record", record, "positional"), f.field("record", record, "keywords"))
    own = f.at(registers, f.scaled(first))
    count = f.field("record", record, "read_count")
    watch = f.field("record", record, "watch")
    with f.unless(f.is_null(watch)):
        _watched(f, watch, own, count)
    reads = f.field("record", record, "reads")
    for k in f.each(count):
        read = f.row("read", reads, k)
        fields = [f.field("read", read, "kind"), f.pointer("read", read, "a"), f.pointer("read", read, "b")]
        found = f.use(read_one, *fields)
        with f.when(f.is_null(found)):
            for n in f.each(k):
                f.release(f.item(own, n, "ptr"))
            f.give(Word("false", "i1"))
        f.put(found, own, k)
    f.give(Word("true", "i1"))


def _watched(f: Entrance, watch: Word, own: Word, count: Word) -> None:
    """What the watch of a trace reads, a list; None where a guard does not hold."""
    no = Word("false", "i1")
    values = f.python("ptr", "PyObject_Vectorcall", watch, NULL, 0, NULL)
    with f.when(f.is_null(values)):
        f.give(no)
    is_list = f.same(f.type_of(values), f.api("list"))
    fits = f.variable(Word("false", "i1"))
    with f.when(is_list):
        fits.set(f.eq(f.load(values, abi.SIZE), count))
    with f.unless(fits.get()):
        f.release(values)
        f.give(no)
    items = f.load(values, abi.ITEMS, "ptr")
    for k in f.each(count):
        found = f.item(items, k, "ptr")
        f.hold(found)
        f.put(found, own, k)
    f.release(values)
    f.give(Word("true", "i1"))


PARTS: list[Part] = [mix, hash_of_call, check_keys, check_node, check, read_one, is_expected, guard_holds, outside]
