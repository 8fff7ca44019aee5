"""The tables that the fast call interprets, and the meaning of each word. All words have 64 bits.

A *record* is one compiled signature. It has registers, which hold objects: first the arguments in the order of the call, then
the captures, then the items of containers, parents before children, then the results. Each register except the results' has a
*node*, which describes the object that it must hold.
"""

from __future__ import annotations

from enum import IntEnum

RECORD = (
    "owner", "positional", "keywords", "names",
    "registers", "nodes", "node_count", "has_inside",
    "guards", "guard_count", "reads", "read_count", "watch", "watched",
    "attempt", "countdown", "warm", "state",
    "mode", "took", "frame", "busy", "frame_bytes", "filled_bytes", "arena_bytes", "arena_context", "arena_malloc", "arena_free",
    "fills", "fill_count", "frame_fills", "frame_fill_count",
    "functions", "offsets", "steps",
    "results", "result_count", "first_result", "context",
    "build", "build_count", "finish", "failed", "leaves", "leaf_count",
    "demands", "demand_count", "puts", "put_count",
    "creation", "created", "lacking",
)  # fmt: skip
"""``owner``: the Python object that owns the tables. ``names``: of ``keywords`` arguments. ``watch``: the function that reads
all captures in Python, or 0, and ``watched`` the number of arguments of the call that it gets. ``attempt``: the function that
serves a call. ``countdown``: the number of calls after which ``warm`` is called. ``state``: the addresses of Python's and
NumPy's functions. ``mode``: below 0, Python's lock is released while the program runs; above 0 too, and the run is timed; at 0
it is kept. ``took``: the nanoseconds of the shortest timed run. ``filled_bytes``: the bytes of a frame that are initialised
before a call; the rest is for temporaries. ``has_inside``: 0 without containers, 2 if their items are always held.
``arena_*``: memory for temporaries outside the frame. ``finish``: the function that builds the result in Python, or 0.
``failed``: the function called with a status. ``demands``: requirements on the memory of arrays. ``puts``: arrays that are
filled when the result is built. ``creation``: the offset in the frame of a ``CREATION``, or 0; ``created``: the positions of
the results that the program creates, in their order; ``lacking``: the function called with the address of a table of extents
for which no array could be created."""
CREATION = ("record", "results", "thread")
"""The state of a call whose program creates results: its record, the registers of its results, and, while Python's lock is
released, the state of its thread."""

NODE = ("kind", "type", "a", "b", "c", "first", "count", "spare")
GUARD = ("kind", "a", "b", "expected", "tag", "by_value")
READ = ("kind", "a", "b", "type", "index")
FILL = ("kind", "register", "target", "extra")
RESULT = ("kind", "dtype", "rank", "shape", "offset", "allocate")
BUILD = ("kind", "a", "b", "place")
DEMAND = ("kind", "register", "a", "b")
SPAN = ("register", "item_bytes", "is_written")
"""An array whose memory is compared with other arrays."""
PUT = ("target", "source")

SLOT = ("hash", "record")
TABLE = ("mask", "count", "only")
"""The head of a hash table, before its slots: the number of slots less one, the number of records, and the record if it is the
only one."""

TABLES = {
    "record": RECORD, "node": NODE, "guard": GUARD, "read": READ, "fill": FILL, "result": RESULT, "build": BUILD, "table": TABLE,
    "demand": DEMAND, "span": SPAN, "put": PUT, "creation": CREATION,
}  # fmt: skip


class Node(IntEnum):
    """The kinds of objects that a register must hold."""

    ARRAY = 1
    """a: dtype, b: rank, c: shape, first: whether dense in row-major order"""
    EXACT = 2
    """of the type"""
    SAME = 3
    """the object a"""
    EQUAL = 4
    """the object a, or of its type and equal to it"""
    WEAK = 5
    """the object that the weak reference a leads to"""
    SEQUENCE = 6
    """of the type, a tuple or a subclass, with ``count`` items, which are stored in the registers from ``first``"""
    LIST = 7
    DICT = 8
    """a: its keys, in order"""
    NUMBER = 9
    """a: its value"""
    FIELDS = 10
    """of the type; its attributes, with the names a, are stored in the registers"""
    TAKEN = 11
    """of the type; the result of a(object), a pair of children and auxiliary data, is stored in the registers"""
    ANY = 12
    """any object"""
    RANGE = 13
    """an int of at most b bits, 32 or 64"""
    OBJECT = 14
    """of the type; its attributes are read"""
    METHOD = 15
    """of the type, a bound method, of the function a"""


class Guard(IntEnum):
    """The kinds of guards on captured objects, which must be ``expected``."""

    ITEM = 1
    """item b of the dict a; null is expected where it must have none"""
    CODE = 2
    """the code of the function that the weak reference a refers to; b if it is dead"""
    ATTRIBUTE = 3
    """attribute b of the object a"""
    THROUGH = 4
    """attribute b of the object that the weak reference a refers to"""
    TAGGED = 5
    """ITEM, of a dict with a version tag; ``tag``: its value when the guard last held"""


class Reading(IntEnum):
    """The ways to read a captured object."""

    SAME = 0
    ITEM = 1
    ATTRIBUTE = 3
    THROUGH = 4
    OF = 5
    """attribute b of the object in register a, an argument or an object read before, which must have the type ``type``"""
    ITEM_OF = 6
    """item number ``index`` of the tuple or list in register a, which must have the type ``type``"""
    VALUE_OF = 7
    """the item with key b of the dict in register a"""


class Fill(IntEnum):
    """The ways to write a word of the argument block. ``target``: bytes from the start of the frame."""

    POINTER = 1
    """the address of an array's elements plus ``extra`` bytes"""
    STRIDE = 2
    """a stride of an array; extra: its offset in the strides, in bytes"""
    VALUE = 3
    """extra: the bytes of a scalar that are copied"""
    INTEGER = 4
    BOOL = 5
    ELEMENT = 6
    """extra: the bytes of an array's only element that are copied"""
    ARENA = 7
    FRAME = 8


class Result(IntEnum):
    """The kinds of results of a program. ``offset``: of a scalar, its offset in the frame."""

    SMALL = 1
    LARGE = 2
    NUMBER = 3
    """``allocate``: the function that creates an object of the type ``shape`` for 8 bytes, or 0"""
    GIVEN = 4
    """an array of the caller's, in register ``offset``"""
    INT = 5
    """a Python int"""
    BOOL = 6
    """a Python bool"""
    COMPLEX = 7
    """a Python complex, created by ``allocate``"""
    CREATED = 8
    """an array that the program creates"""


NUMBERS = (Result.NUMBER, Result.INT, Result.BOOL, Result.COMPLEX)
"""The kinds of results that are not arrays."""


class Build(IntEnum):
    """The objects put on the stack of results at ``place``, a container in place of its items."""

    RESULT = 1
    REGISTER = 2
    OBJECT = 3
    COPY = 4
    TUPLE = 5
    LIST = 6
    DICT = 7
    """a: the number of items, b: the keys"""
    CALL = 8
    """the result of calling b with a items from the stack"""
    FIELDS = 9
    """an object of the first of b, with a attributes named by the others"""
    AGAIN = 10
    """a copy of a result"""
    SHARED = 11
    """a result that is used again afterwards"""
    SELECTED = 12
    """the one of a - 1 items whose position the item before them is"""


CONTAINERS = (Build.TUPLE, Build.LIST, Build.DICT, Build.CALL, Build.FIELDS, Build.SELECTED)
"""The kinds that take items from the stack."""


class Demand(IntEnum):
    """A requirement on the memory of an array in a register, or on an object; if it does not hold, the call goes to Python."""

    WRITEABLE = 1
    READONLY = 2
    STRIDES = 3
    """a: the strides, in bytes"""
    SINGLE = 4
    """no two elements share memory; a: the bytes of one"""
    APART = 5
    """of the b arrays a, none that is written shares memory with another"""
    SAME = 6
    """it is the object in register a"""
    OTHER = 7
    """it is another object than that in register a"""


def size(fields: tuple[str, ...]) -> int:
    return 8 * len(fields)
