"""The tables that the native call path interprets: what each word means. All words have 64 bits.

A *record* is one compiled signature. It has registers, which hold objects: first the arguments in the order of the call, then
what is read from outside, then what is inside containers, parents before children, then the results. Each register but the
results' has a *node*, which says what the object must be.
"""

from __future__ import annotations

from enum import IntEnum

RECORD = (
    "owner", "positional", "keywords", "names",
    "registers", "nodes", "node_count", "has_inside",
    "guards", "guard_count", "reads", "read_count", "watch",
    "attempt", "countdown", "warm", "state",
    "mode", "took", "frame", "busy", "frame_bytes", "filled_bytes", "arena_bytes", "arena_context", "arena_malloc", "arena_free",
    "fills", "fill_count", "frame_fills", "frame_fill_count",
    "functions", "offsets", "steps",
    "results", "result_count", "first_result", "context",
    "build", "build_count", "finish", "failed", "leaves", "leaf_count",
    "demands", "demand_count", "puts", "put_count",
)  # fmt: skip
"""``owner``: the Python object that all of it lies in. ``names``: of ``keywords`` arguments. ``watch``: what reads everything
from outside in Python, or 0. ``attempt``: what serves a call. ``countdown``: after so many calls ``warm`` is called. ``state``:
the addresses of Python's and NumPy's functions. ``mode``: below 0 Python's lock is let go while the program runs, above 0 too
and the run is timed, 0 not. ``took``: nanoseconds of the shortest run that was timed. ``filled_bytes``: so many of a frame have
values before a call; the rest is for temporaries. ``has_inside``: 0 without containers, 2 where what is inside is held in any
case. ``arena_*``: memory for temporaries that do not lie in the frame. ``finish``: what builds the result in Python, or 0.
``failed``: what is called with a status. ``demands``: of the memory of arrays. ``puts``: arrays that are filled when the result
is built."""

NODE = ("kind", "type", "a", "b", "c", "first", "count", "spare")
GUARD = ("kind", "a", "b", "expected", "tag", "by_value")
READ = ("kind", "a", "b", "spare")
FILL = ("kind", "register", "target", "extra")
RESULT = ("kind", "dtype", "rank", "shape", "offset", "allocate")
BUILD = ("kind", "a", "b", "place")
DEMAND = ("kind", "register", "a", "b")
SPAN = ("register", "item_bytes", "is_written")
"""An array whose memory is compared with others'."""
PUT = ("target", "source")

SLOT = ("hash", "record")
TABLE = ("mask", "count", "only")
"""What a hash table begins with, before its slots: their number less one, how many records are there, and the record if it is the
only one."""

TABLES = {
    "record": RECORD, "node": NODE, "guard": GUARD, "read": READ, "fill": FILL, "result": RESULT, "build": BUILD, "table": TABLE,
    "demand": DEMAND, "span": SPAN, "put": PUT,
}  # fmt: skip


class Node(IntEnum):
    """What an object must be."""

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
    """of the type, a tuple or a subclass, with ``count`` items, which go to the registers from ``first``"""
    LIST = 7
    DICT = 8
    """a: its keys, in order"""
    NUMBER = 9
    """a: its value"""
    FIELDS = 10
    """of the type; its attributes, with the names a, go to the registers"""
    TAKEN = 11
    """of the type; what a call of a with it gives, a pair of children and of what is beside them, goes to the registers"""
    ANY = 12
    """whatever"""
    RANGE = 13
    """an int of at most so many bits as b says, 32 or 64"""


class Guard(IntEnum):
    """Something outside that must still be ``expected``."""

    ITEM = 1
    """item b of the dict a"""
    CODE = 2
    """the code of the function that the weak reference a leads to; of a dead one b"""
    ATTRIBUTE = 3
    """attribute b of the object a"""
    THROUGH = 4
    """attribute b of the object that the weak reference a leads to"""
    TAGGED = 5
    """ITEM, of a dict whose tag changes with it; ``tag``: what it was when the guard last held"""


class Reading(IntEnum):
    """Where an object from outside is."""

    SAME = 0
    ITEM = 1
    ATTRIBUTE = 3
    THROUGH = 4


class Fill(IntEnum):
    """How a word of the argument block is written. ``target``: bytes from the start of the frame."""

    POINTER = 1
    """where an array's elements are, and ``extra`` bytes on"""
    STRIDE = 2
    """a stride of an array; extra: bytes from the first one"""
    VALUE = 3
    """extra: the bytes of a number that are copied"""
    INTEGER = 4
    BOOL = 5
    ELEMENT = 6
    """extra: the bytes of an array's only element that are copied"""
    ARENA = 7
    FRAME = 8


class Result(IntEnum):
    """What a result of the program is. ``offset``: of a number, where it is in the frame."""

    SMALL = 1
    LARGE = 2
    NUMBER = 3
    """``allocate``: what makes an object of the type ``shape`` for 8 bytes, or 0"""
    GIVEN = 4
    """an array of the caller's, in register ``offset``"""


class Build(IntEnum):
    """What is put on the stack of results at ``place``, a container in place of its items."""

    RESULT = 1
    REGISTER = 2
    OBJECT = 3
    COPY = 4
    TUPLE = 5
    LIST = 6
    DICT = 7
    """a: how many, b: the keys"""
    CALL = 8
    """what a call of b gives, with a things from the stack"""
    FIELDS = 9
    """an object of the first of b, with a attributes that have the names after that"""
    AGAIN = 10
    """a copy of a result"""
    SHARED = 11
    """a result that is read again afterwards"""


CONTAINERS = (Build.TUPLE, Build.LIST, Build.DICT, Build.CALL, Build.FIELDS)
"""What takes things from the stack."""


class Demand(IntEnum):
    """What must hold for the memory of an array in a register, or the call goes to Python, which knows what to do instead."""

    WRITEABLE = 1
    READONLY = 2
    STRIDES = 3
    """a: those, in bytes"""
    SINGLE = 4
    """no two elements lie in one place; a: the bytes of one"""
    APART = 5
    """of the b arrays a none that is written shares memory with another"""


def size(fields: tuple[str, ...]) -> int:
    return 8 * len(fields)
