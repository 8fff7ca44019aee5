"""The native side of compiled functions: what a call of one entry must be and does, told to ``runtime.records``.

What cannot be told so, or not yet, raises NotNative; calls of that entry then go through Python, as every first call does. Which
of both serves a call makes no difference but for time.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from pullback.entry import Entry
from pullback.runtime import abi
from pullback.runtime.ahead import Begun
from pullback.runtime.entrance import Entry as Entrance
from pullback.runtime.entrance import Unavailable, begin, load
from pullback.runtime.fork import work
from pullback.runtime.fused import prepare
from pullback.runtime.layouts import Build, Guard, Node, Reading
from pullback.runtime.records import Description, Dispatch, NodeOf, NotNative, Record, Source
from pullback.tracer import Signature
from pullback.tracer.frame import Captured, variable
from pullback.tracer.guards import Guard as Guarded
from pullback.tracer.guards import attribute_of, attribute_through
from pullback.tracer.tracebacks import keep_users_frames
from pullback.tracer.tree import ROW_MAJOR, TreeDef, is_array_like, known_by_identity

_NUMBERS = {float: ("number", np.float64), complex: ("number", np.complex128), int: ("int", np.int64), bool: ("bool", np.bool_)}
_SCALAR_KINDS = "biufc"
_VALUES = (str, int, bool, bytes)

# "entrance": the native call path of this process, or why there is none.
_state: dict[str, Entrance | Unavailable] = {}
# "code": the thread that compiles it, None if nothing has to be compiled.
_begun: dict[str, Begun | None] = {}


def is_underway() -> bool:
    """Whether the code of the native call path is being compiled, which a thread begins to do at the first question. Nobody has
    to wait: calls go through Python meanwhile. Never where the path is asked for by name."""
    if "entrance" in _state or abi.wanted() in abi.NATIVE:
        return False
    if "code" not in _begun:
        with work.underway():
            _begun.setdefault("code", begin())
    code = _begun["code"]
    return code is not None and not code.is_done


def entrance(plain: Callable[..., Any]) -> Entrance | None:
    """The native call path, made at the first need; None if there is none. ``plain`` serves what it does not know."""
    found = _state.get("entrance")
    if found is None:
        # Threads that are here at once load the same code and write the same addresses.
        made: Entrance | Unavailable
        try:
            with work.underway():
                made = load(plain, variable(), Dispatch)
        except Unavailable as reason:
            made = reason
            if abi.wanted() in abi.NATIVE:
                raise RuntimeError(f"{abi.VARIABLE}={abi.wanted()}: {reason}") from reason
        found = _state.setdefault("entrance", made)
    return found if not isinstance(found, Unavailable) else None


def status() -> str:
    """One line: which path warm calls take, and why."""
    found = _state.get("entrance")
    reason = abi.problem() or (str(found) if isinstance(found, Unavailable) else "")
    return f"plain ({reason})" if reason else f"native ({abi.VARIABLE}={abi.wanted() or 'auto'})"


def record_of(entry: Entry, call: Signature, found: Entrance) -> Record:
    """The record of an entry, of which ``call`` is one. Raises NotNative."""
    args, kwargs = call.given
    if type(entry) is not Entry:
        raise NotNative("the function writes into arrays, or depends on how they lie in memory")
    flat = _Flat([*args, *kwargs.values()], call.static)
    given = flat.inputs
    outside = _Outside(entry, given)
    flat.expand(outside.values)
    leaves = flat.leaves()
    if [x for _, x in leaves] != [*map(_same, call.leaves)]:
        raise NotNative("arguments that stand for arrays")
    trace, program = entry.trace, entry.program
    for pinned in trace.pinned:
        register = leaves[pinned.index][0]
        flat.pin(register, call.leaves[pinned.index])
    registers = [register for register, _ in leaves]
    everything = [*zip(registers, call.leaves), *((given + k, x) for k, x in enumerate(outside.values))]
    sources = [_source(register, x) for register, x in everything] + [Source(kind="constant", value=c) for c in program.constants]
    build = _build(entry, registers, call.leaves, everything)
    is_native = bool(build)
    has_inside = 0 if len(flat.nodes) == given + len(outside.values) else 1
    if has_inside and any(kind is Build.REGISTER or kind is Build.COPY for kind, _, _ in build):
        has_inside = 2
    template = program.template
    description = Description(
        positional=len(args),
        keywords=tuple(kwargs),
        nodes=flat.nodes,
        has_inside=has_inside,
        guards=outside.guards,
        reads=outside.reads,
        watch=outside.watch,
        outside=len(outside.values),
        sources=sources,
        leaves=registers + [given + k for k in range(len(outside.values))],
        build=build,
        finish=None if is_native else functools.partial(_finish, entry, len(registers)),
        failed=functools.partial(_failed, entry, len(registers)),
    )
    executable = None if template is None else template.executable
    record = Record(
        entry, description, executable, program.instance, found.hash_of([*args, *kwargs.values()], len(kwargs)), found
    )
    prepare(record)
    return record


def _same(x: Any) -> Any:
    return _Held(x)


class _Held:
    """Equal to another if both hold one object."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.x is self.x

    __hash__ = None  # type: ignore[assignment]


class _Flat:
    """The objects of a call by register, parents before what is inside, and what each must be."""

    def __init__(self, values: Sequence[Any], static: Sequence[bool]) -> None:
        self.values = list(values)
        self._static = static
        self.inputs = len(self.values)
        self.nodes: list[NodeOf] = []
        self._inside: list[range] = []

    def expand(self, outside: Sequence[Any]) -> None:
        """Add what is read from outside, then everything inside containers of the call."""
        self.values += outside
        k = 0
        while k < len(self.values):
            x = self.values[k]
            is_outside = self.inputs <= k < self.inputs + len(outside)
            node, inside = _node(x, len(self.values))
            if is_outside and (inside or node.kind not in (Node.ARRAY, Node.EXACT)):
                raise NotNative("a container from outside")
            self.nodes.append(node)
            self._inside.append(range(len(self.values), len(self.values) + len(inside)))
            self.values += inside
            k += 1

    def leaves(self) -> list[tuple[int, Any]]:
        """The register and the holder of each leaf, in the order of the call's."""
        found: list[tuple[int, Any]] = []
        left = list(range(self.inputs))[::-1]
        while left:
            k = left.pop()
            if self.nodes[k].kind in (Node.ARRAY, Node.EXACT):
                found.append((k, _Held(self.values[k])))
            left += self._inside[k][::-1]
        return found

    def pin(self, register: int, value: Any) -> None:
        """The number in a register must be this one."""
        if type(value) not in (int, bool) or not -(1 << 63) <= value < 1 << 63:
            raise NotNative("a static number that is no int of 64 bits")
        self.nodes[register] = NodeOf(kind=Node.NUMBER, type=type(value), number=int(value))


def _node(x: Any, first: int) -> tuple[NodeOf, list[Any]]:
    """What an object must be to be taken for another like this one, and what is inside. Agrees with ``tree.fingerprint``."""
    kind = type(x)
    if kind is np.ndarray:
        dense = int(x.flags.num & ROW_MAJOR == ROW_MAJOR)
        return NodeOf(kind=Node.ARRAY, type=kind, a=x.dtype, shape=x.shape, first=dense), []
    if kind in _NUMBERS:
        return NodeOf(kind=Node.EXACT, type=kind), []
    if isinstance(x, np.generic):
        if kind is not x.dtype.type or x.dtype.kind not in _SCALAR_KINDS or x.dtype.itemsize > 16 or x.dtype.num == _LONGDOUBLE:
            raise NotNative(f"a {kind.__name__} among the arguments")
        return NodeOf(kind=Node.EXACT, type=kind), []
    if kind is tuple or (isinstance(x, tuple) and hasattr(x, "_fields") and kind.__iter__ is tuple.__iter__):
        return NodeOf(kind=Node.SEQUENCE, type=kind, first=first, count=len(x)), list(x)
    if kind is list:
        return NodeOf(kind=Node.LIST, type=kind, first=first, count=len(x)), list(x)
    if kind is dict and all(type(k) is str for k in x):
        return NodeOf(kind=Node.DICT, type=kind, keys=tuple(x), first=first, count=len(x)), list(x.values())
    if x is None or kind in _VALUES:
        return (NodeOf(kind=Node.SAME) if x is None else NodeOf(kind=Node.EQUAL, a=x)), []
    if not is_array_like(kind) and known_by_identity(x) and kind.__weakrefoffset__:
        return NodeOf(kind=Node.WEAK, a=weakref.ref(x)), []
    raise NotNative(f"a {kind.__name__} among the arguments")


def _static_node(x: Any) -> tuple[NodeOf, list[Any]]:
    """The same for an argument that is static by the user's word, which is compared by value."""
    if x is None:
        return NodeOf(kind=Node.SAME), []
    if type(x) in _VALUES:
        return NodeOf(kind=Node.EQUAL, a=x), []
    raise NotNative(f"a static {type(x).__name__}")


_LONGDOUBLE = np.dtype(np.longdouble).num


class _Outside:
    """The guards of an entry and what it reads anew, as look-ups; as one call of its watch where those do not say it."""

    def __init__(self, entry: Entry, inputs: int) -> None:
        self.guards: list[tuple[Guard, Any, Any, Any, bool]] = []
        self.reads: list[tuple[Reading, Any, Any]] = []
        self.watch: Callable[[], Any] | None = None
        self.values: list[Any] = []
        trace = entry.trace
        given = trace.inputs[len(trace.inputs) - entry.outside_count :] if entry.outside_count else ()
        try:
            self.guards = [_guard(g) for g in sorted(trace.guards, key=lambda g: g.how != "identity")]
            self.reads = [_reading(i) for i in given]
            self.values = [i.read() if isinstance(i, Captured) else i.array for i in given]  # type: ignore[union-attr]
            if any(isinstance(x, np.ndarray) and not (x.ndim and x.dtype.isnative) for x in self.values):
                raise NotNative("an array from outside is converted")
        except NotNative:
            self.guards, self.reads, self.watch = [], [], trace.watch.read
            found = trace.watch.read()
            if found is None:
                raise NotNative("what is outside has changed") from None
            self.values = found
        except Exception as error:
            raise NotNative("what is outside cannot be read now") from error


def _guard(guard: Guarded) -> tuple[Guard, Any, Any, Any, bool]:
    if guard.how not in ("identity", "value"):
        raise NotNative("a guard on more than an object")
    kind, a, b, last = _look_up(guard.read)
    if kind is Guard.CODE:
        if guard.expected is not last:
            raise NotNative("a function that changed")
        return kind, a, last, guard.expected, False
    return kind, a, b, guard.expected, guard.how == "value" and type(guard.expected) in (*_VALUES, float)


def _reading(given: Any) -> tuple[Reading, Any, Any]:
    if isinstance(given, Captured):
        kind, a, b, _ = _look_up(given.read)
        if kind is Guard.CODE:
            raise NotNative("the code of a function is read")
        return Reading(int(kind)), a, b
    return Reading.SAME, given.array, None


def _look_up(read: Any) -> tuple[Guard, Any, Any, Any]:
    """What a read looks up: (how, owner, name, what a dead owner had)."""
    if isinstance(read, functools.partial) and not read.keywords:
        function: Any = read.func
        args = read.args
        owner = getattr(function, "__self__", None)
        if type(owner) is dict and function.__name__ == "__getitem__" and type(args[0]) is str:
            return Guard.ITEM, owner, args[0], None
        if function is getattr and len(args) == 2 and type(args[1]) is str:
            return Guard.ATTRIBUTE, args[0], args[1], None
        if function is attribute_through and len(args) == 2 and type(args[0]) is weakref.ref and type(args[1]) is str:
            return Guard.THROUGH, args[0], args[1], None
        if function is attribute_of and args[1] == "__code__" and type(args[0]()) is FunctionType:
            return Guard.CODE, args[0], None, args[2]
    raise NotNative("something outside that is read by code")


def _source(register: int, x: Any) -> Source:
    if isinstance(x, np.ndarray):
        if not x.dtype.isnative:
            raise NotNative("an array in another byte order")
        return Source(kind="array" if x.ndim else "element", register=register, dtype=x.dtype)
    if isinstance(x, np.generic):
        return Source(kind="number", register=register, dtype=x.dtype)
    kind, dtype = _NUMBERS[type(x)]
    return Source(kind=kind, register=register, dtype=np.dtype(dtype))


def _build(
    entry: Entry, registers: Sequence[int], leaves: Sequence[Any], everything: Sequence[tuple[int, Any]]
) -> list[tuple[Build, Any, Any]]:
    """How the result is put together; nothing if Python has to do it."""
    program = entry.program
    template = program.template
    if template is not None and (template.given or not template.executable.plan.gives_all):
        return []
    rows: list[tuple[Build, Any, Any]] = []
    for outcome in program.outcomes:
        if outcome.source == "result":
            rows.append((Build.RESULT, outcome.index, None))
        elif outcome.source == "leaf" and isinstance(leaves[outcome.index], np.ndarray | np.generic):
            rows.append((Build.REGISTER, registers[outcome.index], None))
        elif outcome.source == "parameter" and outcome.index < len(everything) and _is_dense(everything[outcome.index][1]):
            rows.append((Build.COPY, everything[outcome.index][0], None))
        else:
            return []
    found: list[tuple[Build, Any, Any]] = []
    return found if _put_together(entry.trace.result_tree, iter(rows), found) else []


def _is_dense(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.ndim > 0


def _put_together(tree: TreeDef, leaves: Any, found: list[tuple[Build, Any, Any]]) -> bool:
    """Append the rows that make a tree; whether they can."""
    if tree.kind == "leaf":
        found.append(next(leaves))
        return True
    if tree.kind in ("static", "named"):
        found.append((Build.OBJECT, tree.data, None))
        return True
    if tree.type not in (tuple, list, dict):
        return False
    if not all(_put_together(child, leaves, found) for child in tree.children):
        return False
    kind = {tuple: Build.TUPLE, list: Build.LIST, dict: Build.DICT}[tree.type]
    found.append((kind, len(tree.children), tuple(tree.data[0]) if tree.type is dict else None))
    return True


def _finish(entry: Entry, count: int, results: list[Any], values: list[Any]) -> Any:
    """The result of a call whose program has run, from what it gave and from the call's leaves and what is outside."""
    try:
        return entry.finish(results, values[:count], values[count:])
    except Exception as error:
        keep_users_frames(error)
        raise


def _failed(entry: Entry, count: int, status: int, values: list[Any]) -> Any:
    """Raises what a status says, or has Python look where the program is not one for the call."""
    try:
        entry.fail(status, values[:count], values[count:])
    except Exception as error:
        keep_users_frames(error)
        raise
    return NotImplemented
