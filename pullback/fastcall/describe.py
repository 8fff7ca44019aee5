"""Describe the calls of an entry for the native fast call: what a call must be and does, as records for
``runtime.fastcall.records``.

What cannot be described, or not yet, raises NotNative; calls of that entry then go through Python, as every first call does.
The path affects speed only, never results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from pullback.fastcall.arguments import NUMBERS, Flat
from pullback.fastcall.captures import flattened
from pullback.fastcall.results import Built, demands, first_unmet
from pullback.ir.core.records import dataclass
from pullback.programs.entry import Entry
from pullback.programs.out import out_of
from pullback.runtime.compile.background import BackgroundTask
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.entry import Entry as Entrance
from pullback.runtime.fastcall.entry import Unavailable, compile_in_background, load
from pullback.runtime.fastcall.record_layout import Guard
from pullback.runtime.fastcall.records import Description, Dispatch, NotNative, Record, Source
from pullback.runtime.fastcall.specialized_entry import prepare
from pullback.runtime.process.fork import work
from pullback.tracer import Signature
from pullback.tracer.arrays.frame import variable
from pullback.tracer.arrays.tree import REGISTRATIONS
from pullback.tracer.names.call_objects import is_of_call
from pullback.tracer.user_code.tracebacks import keep_users_frames

# "entrance": the native call path of this process, or the reason why there is none.
_state: dict[str, Entrance | Unavailable] = {}
# "code": the task that compiles the native call path, None if nothing has to be compiled.
_begun: dict[str, BackgroundTask | None] = {}


@dataclass(frozen=True, kw_only=True)
class Callables:
    """The functions and classes that the native call path needs.

    ``plain`` serves a call in Python, ``get`` the access to an attribute; ``method`` is the class that ``get`` returns;
    ``kinds`` are the classes of callables that have this ``get``.
    """

    plain: Callable[..., Any]
    get: Callable[..., Any]
    method: type
    kinds: list[type] = field(default_factory=list)

    def add(self, kind: type) -> None:
        """Add a class of callables."""
        self.kinds.append(kind)
        path = _state.get("entrance")
        if path is not None and not isinstance(path, Unavailable):
            abi.set_descriptor(kind, path.get)


def method_address() -> int:
    """Return the address of the native call of a bound method; 0 as long as there is no native path."""
    path = _state.get("entrance")
    return 0 if path is None or isinstance(path, Unavailable) else path.method


def is_underway() -> bool:
    """Return whether the native call path is still being compiled; the first query starts the compilation in a thread.

    Calls use the Python path until the compile finishes. Always false if the native path is requested by name. Since the
    caller has made a call before, code first compiled quickly is now recompiled with optimisation.
    """
    default_engine().improve()
    if "entrance" in _state or abi.wanted() in abi.NATIVE:
        return False
    if "code" not in _begun:
        with work.underway():
            _begun.setdefault("code", compile_in_background())
    code = _begun["code"]
    return code is not None and not code.is_done


def native_path(callables: Callables) -> Entrance | None:
    """Return the native call path, loaded at the first use; None if there is none. Raises RuntimeError if it is requested by
    name but unavailable."""
    path = _state.get("entrance")
    if path is None:
        # Threads that run this at the same time load the same code and write the same addresses.
        loaded: Entrance | Unavailable
        try:
            with work.underway():
                loaded = load(callables.plain, variable(), Dispatch, callables.get, callables.method)
        except Unavailable as reason:
            loaded = reason
            if abi.wanted() in abi.NATIVE:
                raise RuntimeError(f"{abi.VARIABLE}={abi.wanted()}: {reason}") from reason
        path = _state.setdefault("entrance", loaded)
        if not isinstance(path, Unavailable):
            for kind in callables.kinds:
                abi.set_descriptor(kind, path.get)
    return path if not isinstance(path, Unavailable) else None


def status() -> str:
    """Return one line: the path that warm calls take, and why."""
    path = _state.get("entrance")
    reason = abi.problem() or (str(path) if isinstance(path, Unavailable) else "")
    return f"plain ({reason})" if reason else f"native ({abi.VARIABLE}={abi.wanted() or 'auto'})"


def record_of(entry: Entry, call: Signature, path: Entrance, out: Any = None) -> Record:
    """Return the record of an entry that ``call`` runs; with ``out``, of calls whose first argument is ``out``. Raises
    NotNative."""
    template, instance = entry.program.template, entry.program.instance
    executable = None if template is None else template.executable
    refuse_stores(entry)
    if out is not None and template is not None and template.is_native and template.executable.plan.created:
        raise NotNative("values decide the lengths of its results, which are copied to out")
    args, kwargs = call.arguments
    arguments = [*(() if out is None else (out,)), *args, *kwargs.values()]
    described = _flattened(entry, call, out)[0]
    record = Record(entry, described, executable, instance, path.hash_of(arguments, len(kwargs)), path)
    prepare(record)
    return record


def refuse_stores(entry: Entry) -> None:
    """Raise NotNative for an entry that changes containers of its call."""
    if entry.trace.changes:
        raise NotNative(f"it changes {', '.join(entry.trace.changes)}, which Python stores")
    if entry.trace.stores is not None:
        raise NotNative("a list or dict is several arguments")


def path_of(entry: Entry, call: Signature) -> str:
    """Return the path of calls like one of an entry's: "native", "native, but ...", or "Python, since ..."."""
    if problem := abi.problem():
        return f"Python, since calls are plain here: {problem}"
    template, instance = entry.program.template, entry.program.instance
    if template is not None and not template.is_native:
        return f"Python, since it runs on {template.device}"
    try:
        refuse_stores(entry)
        described, flat = _flattened(entry, call, None)
        Record(entry, described, None if template is None else template.executable, instance, 0, None)
    except NotNative as reason:
        return f"Python, since {reason}"
    names = dict(zip(described.leaves, entry.trace.labels))
    if unmet := first_unmet(described.demands, flat, names):
        return f"Python, since {unmet}"
    slow = [
        *(["what is read from outside is looked at in Python"] if described.watch is not None else []),
        *(["the result is put together in Python"] if described.finish is not None else []),
    ]
    return f"native, but {' and '.join(slow)}" if slow else "native"


def _flattened(entry: Entry, call: Signature, out: Any) -> tuple[Description, Flat]:
    """Return the description and the objects of a call. Raises NotNative."""
    args, kwargs = call.arguments
    first = 0 if out is None else 1
    flat, outside = flattened(entry, [*((out,) * first), *args, *kwargs.values()], [*((False,) * first), *call.static])
    input_count = flat.inputs
    registers = flat.leaves(first, input_count)
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
    required = demands(entry, flat, everything, outs, True)
    are_separate = out is None or not first_unmet(required, flat, {})
    if not are_separate:
        required = demands(entry, flat, everything, outs, False)
    required += outside.demands
    if out is not None:
        built.use(out_of(entry.trace, out), outs, are_separate)
    rows = built.rows()
    if out is not None and not rows:
        raise NotNative("a part of the result is put together in Python")
    if not rows and any(is_of_call(target.read) for target in entry.trace.outside_writes):
        raise NotNative("arrays of an object are written in Python")
    has_inside = 0 if len(flat.nodes) == input_count + len(outside.values) else 1
    if has_inside and (flat.runs_python or required or built.reads_registers):
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
        watched=outside.watched,
        outside=len(outside.values),
        sources=sources + [Source(kind="constant", value=c) for c in entry.program.constants],
        leaves=read,
        build=rows,
        finish=None if rows else functools.partial(_finish, entry, len(registers)),
        failed=functools.partial(_failed, entry, len(registers)),
        caller_arrays=built.caller_arrays,
        demands=required,
        puts=built.puts if rows else (),
        numbers=built.numbers,
    )
    return described, flat


def _unfilled(entry: Entry, leaves: Sequence[Any]) -> list[int]:
    """Return the ints among the leaves of a call that the program does not read: their width is not checked elsewhere."""
    template, instance = entry.program.template, entry.program.instance
    read: set[int] = set()
    if template is not None and instance is not None:
        read = {k for _, _, k in instance.scalars} | {k for k, _ in template.executable.plan.boxed}
    return [k for k, leaf in enumerate(leaves) if type(leaf) is int and k not in read]


def _unregistered() -> tuple[Guard, Any, Any, Any, bool]:
    """Return the guard that no class has been registered since."""
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
    """Return the result of a call whose program has run, from the program's results, the call's leaves and the captured
    values."""
    try:
        return entry.finish(results, values[:count], values[count:])
    except Exception as error:
        keep_users_frames(error)
        raise


def _failed(entry: Entry, count: int, status: int, values: list[Any]) -> Any:
    """Raise the error of a status; return NotImplemented if the program is not one for the call, which Python then serves."""
    try:
        entry.fail(status, values[:count], values[count:])
    except Exception as error:
        keep_users_frames(error)
        raise
    return NotImplemented
