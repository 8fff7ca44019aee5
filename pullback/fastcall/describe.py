"""The native side of compiled functions: what a call of one entry must be and does, told to ``runtime.fastcall.records``.

What cannot be told so, or not yet, raises NotNative; calls of that entry then go through Python, as every first call does. Which
of both serves a call makes no difference but for time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.fastcall.arguments import NUMBERS, Flat
from pullback.fastcall.captures import flattened
from pullback.fastcall.results import Built, demands, first_unmet
from pullback.programs.entry import Entry
from pullback.programs.out import out_of
from pullback.runtime.compile.background import Begun
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.entry import Entry as Entrance
from pullback.runtime.fastcall.entry import Unavailable, begin, load
from pullback.runtime.fastcall.record_layout import Guard
from pullback.runtime.fastcall.records import Description, Dispatch, NotNative, Record, Source
from pullback.runtime.fastcall.specialized_entry import prepare
from pullback.runtime.process.fork import work
from pullback.tracer import Signature
from pullback.tracer.arrays.frame import variable
from pullback.tracer.arrays.tree import REGISTRATIONS
from pullback.tracer.user_code.tracebacks import keep_users_frames

# "entrance": the native call path of this process, or why there is none.
_state: dict[str, Entrance | Unavailable] = {}
# "code": the thread that compiles it, None if nothing has to be compiled.
_begun: dict[str, Begun | None] = {}


@dataclass(frozen=True, kw_only=True)
class Callables:
    """What the native call path needs of its callables: ``plain`` serves a call in Python, ``get`` the reading of an attribute;
    ``method`` is the class of what that gives; ``kinds`` are the classes of callables that have this ``get``."""

    plain: Callable[..., Any]
    get: Callable[..., Any]
    method: type
    kinds: list[type] = field(default_factory=list)

    def add(self, kind: type) -> None:
        """Another class of callables."""
        self.kinds.append(kind)
        found = _state.get("entrance")
        if found is not None and not isinstance(found, Unavailable):
            abi.set_descriptor(kind, found.get)


def method_address() -> int:
    """Where a bound method is called natively; 0 as long as there is no native path."""
    found = _state.get("entrance")
    return 0 if found is None or isinstance(found, Unavailable) else found.method


def is_underway() -> bool:
    """Whether the code of the native call path is being compiled, which a thread begins to do at the first question. Nobody has
    to wait: calls go through Python meanwhile. Never where the path is asked for by name. Whoever asks has called before, so what
    was compiled quickly for that is compiled well now."""
    default_engine().improve()
    if "entrance" in _state or abi.wanted() in abi.NATIVE:
        return False
    if "code" not in _begun:
        with work.underway():
            _begun.setdefault("code", begin())
    code = _begun["code"]
    return code is not None and not code.is_done


def entrance(callables: Callables) -> Entrance | None:
    """The native call path, made at the first need; None if there is none."""
    found = _state.get("entrance")
    if found is None:
        # Threads that are here at once load the same code and write the same addresses.
        made: Entrance | Unavailable
        try:
            with work.underway():
                made = load(callables.plain, variable(), Dispatch, callables.get, callables.method)
        except Unavailable as reason:
            made = reason
            if abi.wanted() in abi.NATIVE:
                raise RuntimeError(f"{abi.VARIABLE}={abi.wanted()}: {reason}") from reason
        found = _state.setdefault("entrance", made)
        if not isinstance(found, Unavailable):
            for kind in callables.kinds:
                abi.set_descriptor(kind, found.get)
    return found if not isinstance(found, Unavailable) else None


def status() -> str:
    """One line: which path warm calls take, and why."""
    found = _state.get("entrance")
    reason = abi.problem() or (str(found) if isinstance(found, Unavailable) else "")
    return f"plain ({reason})" if reason else f"native ({abi.VARIABLE}={abi.wanted() or 'auto'})"


def record_of(entry: Entry, call: Signature, found: Entrance, out: Any = None) -> Record:
    """The record of an entry, of which ``call`` is one; of calls whose first argument is ``out``, if there is one. Raises
    NotNative."""
    template, instance = entry.program.template, entry.program.instance
    executable = None if template is None else template.executable
    args, kwargs = call.given
    given = [*(() if out is None else (out,)), *args, *kwargs.values()]
    described = _flattened(entry, call, out)[0]
    record = Record(entry, described, executable, instance, found.hash_of(given, len(kwargs)), found)
    prepare(record)
    return record


def path_of(entry: Entry, call: Signature) -> str:
    """What the calls like one of an entry's take: "native", "native, but ...", or "Python, since ..."."""
    if problem := abi.problem():
        return f"Python, since calls are plain here: {problem}"
    template, instance = entry.program.template, entry.program.instance
    if template is not None and not template.is_native:
        return f"Python, since it runs on {template.device}"
    try:
        given, flat = _flattened(entry, call, None)
        Record(entry, given, None if template is None else template.executable, instance, 0, None)
    except NotNative as reason:
        return f"Python, since {reason}"
    names = dict(zip(given.leaves, entry.trace.labels))
    if unmet := first_unmet(given.demands, flat, names):
        return f"Python, since {unmet}"
    slow = [
        *(["what is read from outside is looked at in Python"] if given.watch is not None else []),
        *(["the result is put together in Python"] if given.finish is not None else []),
    ]
    return f"native, but {' and '.join(slow)}" if slow else "native"


def _flattened(entry: Entry, call: Signature, out: Any) -> tuple[Description, Flat]:
    """The description, and the objects of the call."""
    args, kwargs = call.given
    first = 0 if out is None else 1
    flat, outside = flattened(entry, [*((out,) * first), *args, *kwargs.values()], [*((False,) * first), *call.static])
    given = flat.inputs
    registers = flat.leaves(first, given)
    if not flat.has(registers, call.leaves):
        raise NotNative("an argument gives other arrays at each look; keep them in its attributes")
    for pinned in entry.trace.pinned:
        flat.pin(registers[pinned.index], call.leaves[pinned.index])
    static = {p.index for p in entry.trace.pinned}
    for k in _unfilled(entry, call.leaves):
        if k not in static:
            flat.limit(registers[k], 64)
    for k in entry.trace.short:
        flat.limit(registers[k], 32)
    everything = [*registers, *outside.registers(flat)]
    built = Built(entry, flat, everything, call.leaves)
    outs = flat.leaves(0, first)
    asked = demands(entry, flat, everything, outs, True)
    are_apart = out is None or not first_unmet(asked, flat, {})
    if not are_apart:
        asked = demands(entry, flat, everything, outs, False)
    if out is not None:
        built.use(out_of(entry.trace, out), outs, are_apart)
    rows = built.rows()
    if out is not None and not rows:
        raise NotNative("a part of the result is put together in Python")
    has_inside = 0 if len(flat.nodes) == given + len(outside.values) else 1
    if has_inside and (flat.runs_python or asked or built.reads_registers):
        has_inside = 2
    read = everything[: len(entry.trace.inputs)]
    sources = [_source(k, flat.values[k]) for k in read]
    described = Description(
        positional=len(args) + first,
        keywords=tuple(kwargs),
        nodes=flat.nodes,
        has_inside=has_inside,
        guards=[*([_unregistered()] if flat.knows_classes or outside.knows_classes else []), *outside.guards],
        reads=outside.reads,
        watch=outside.watch,
        outside=len(outside.values),
        sources=sources + [Source(kind="constant", value=c) for c in entry.program.constants],
        leaves=read,
        build=rows,
        finish=None if rows else functools.partial(_finish, entry, len(registers)),
        failed=functools.partial(_failed, entry, len(registers)),
        given=built.given,
        demands=asked,
        puts=built.puts if rows else (),
    )
    return described, flat


def _unfilled(entry: Entry, leaves: Sequence[Any]) -> list[int]:
    """The ints among the leaves of a call that the program does not read: nothing else looks whether they fit."""
    template, instance = entry.program.template, entry.program.instance
    read: set[int] = set()
    if template is not None and instance is not None:
        read = {k for _, _, k in instance.scalars} | {k for k, _ in template.executable.plan.boxed}
    return [k for k, leaf in enumerate(leaves) if type(leaf) is int and k not in read]


def _unregistered() -> tuple[Guard, Any, Any, Any, bool]:
    """That no class was registered since."""
    return Guard.ITEM, REGISTRATIONS, "last", REGISTRATIONS["last"], False


def _source(register: int, x: Any) -> Source:
    if isinstance(x, np.ndarray):
        if not x.dtype.isnative:
            raise NotNative('an array is in another byte order; convert it once, x.astype(x.dtype.newbyteorder("="))')
        return Source(kind="array" if x.ndim else "element", register=register, dtype=x.dtype)
    if isinstance(x, np.generic):
        return Source(kind="number", register=register, dtype=x.dtype)
    kind, dtype = NUMBERS[type(x)]
    return Source(kind=kind, register=register, dtype=np.dtype(dtype))


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
