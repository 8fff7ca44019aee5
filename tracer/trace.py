"""trace: runs a NumPy function on traced arrays and returns it as IR, with all it depends on.

A trace depends on its signature (structure, dtypes, shapes and memory order of the arguments), on the guards, and on nothing
else: numbers and arrays, of arguments and from outside, are inputs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from pullback.ir import Function, Loc, Value
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.structure import use_counts
from pullback.ir.shapes.guards import Sizes
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.frame import Argument, Captured, Constant, Frame, Input, Pinned, digest
from pullback.tracer.arrays.labelled import holds_labelled
from pullback.tracer.arrays.literals import literal_type, refuse_dtype
from pullback.tracer.arrays.make import as_traced, holds_traced, instead_of_special, is_special_array
from pullback.tracer.arrays.python_ints import argument_bounds
from pullback.tracer.arrays.replacements import takes_traced
from pullback.tracer.arrays.strides import Strides, strides_in
from pullback.tracer.arrays.traced import READONLY, Origin, TracedArray
from pullback.tracer.arrays.tree import (
    LEAF,
    TreeDef,
    bare,
    container_of,
    containers,
    fingerprint,
    flatten,
    leaf_key,
    map_statics,
    named,
    paths,
    real_class,
    static_key,
    unflatten,
)
from pullback.tracer.branch_guards import Branch, Outcomes
from pullback.tracer.failures import exception_of
from pullback.tracer.names.guard_code import Watch, native
from pullback.tracer.names.guards import Guard
from pullback.tracer.names.proxies import Outside
from pullback.tracer.names.resolver import Names, is_filled
from pullback.tracer.names.side_effects import line_by_line
from pullback.tracer.names.user_classes import of_real_class
from pullback.tracer.user_code.errors import TraceError, error_loc, foreign_error, user_loc
from pullback.tracer.user_code.ownership import adopt
from pullback.tracer.user_code.unroll_warning import warn_unrolled


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of a user's function: ``names`` by position, ``rest`` of ``*args``; ``static`` are its static names."""

    names: tuple[str, ...]
    rest: str
    static: frozenset[str]

    def name(self, position: int) -> str:
        return self.names[position] if position < len(self.names) else f"{self.rest}_{position - len(self.names)}"


def parameters_of(function: Callable[..., Any], static_argnames: str | Iterable[str] = ()) -> Parameters:
    """The parameters of a function. Raises ValueError if a static name is none of them."""
    static = frozenset((static_argnames,) if isinstance(static_argnames, str) else static_argnames)
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Parameters(names=(), rest="x", static=static)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(p.name for p in found if p.kind in positional)
    rest = next((p.name for p in found if p.kind is inspect.Parameter.VAR_POSITIONAL), "x")
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found)
    unknown = static - {p.name for p in found}
    if unknown and not open_ended:
        title = getattr(function, "__name__", function)
        raise ValueError(f"static_argnames {sorted(unknown)} are no parameters of {title}, which has {[p.name for p in found]}")
    return Parameters(names=names, rest=rest, static=static)


class Signature:
    """A call's ``leaves`` and what a trace depends on in it: ``key`` can be hashed and compared."""

    __slots__ = ("_args", "_kwargs", "_parameters", "key", "leaves")

    def __init__(
        self, key: Any, leaves: list[Any], parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.key = key
        self.leaves = leaves
        self._parameters = parameters
        self._args = args
        self._kwargs = kwargs

    @property
    def given(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The call's arguments, by position and by keyword."""
        return self._args, self._kwargs

    @property
    def static(self) -> tuple[bool, ...]:
        """Of each argument, those by keyword last, whether it was declared static."""
        names = [*map(self._parameters.name, range(len(self._args))), *self._kwargs]
        return tuple(name in self._parameters.static for name in names)

    @property
    def tree(self) -> TreeDef:
        """The structure of ``(args, kwargs)``."""
        args, kwargs, parameters = self._args, self._kwargs, self._parameters
        if not parameters.static:
            return flatten((tuple(args), dict(kwargs)))[1]
        leaves: list[Any] = []
        children = [_child(a, leaves, parameters.name(i) in parameters.static) for i, a in enumerate(args)]
        positional = TreeDef("tuple", tuple, children=children)
        children = [_child(v, leaves, k in parameters.static) for k, v in kwargs.items()]
        _, keywords = flatten(dict.fromkeys(kwargs))
        keyed = TreeDef("dict", dict, keywords.data, keywords.key[2], children)
        return TreeDef("tuple", tuple, children=[positional, keyed])


def signature(parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Signature:
    """The signature of a call. Raises TraceError for a static value that cannot be hashed."""
    leaves: list[Any] = []
    key: list[Any] = [len(args), *kwargs]
    if not parameters.static:
        for value in args:
            fingerprint(value, leaves, key)
        for value in kwargs.values():
            fingerprint(value, leaves, key)
        return Signature(tuple(key), leaves, parameters, args, kwargs)
    names = [*map(parameters.name, range(len(args))), *kwargs]
    for name, value in zip(names, (*args, *kwargs.values())):
        if name in parameters.static:
            key.append(static_key(value, by_identity=False))
        else:
            fingerprint(value, leaves, key)
    return Signature(tuple(key), leaves, parameters, args, kwargs)


def _child(value: Any, leaves: list[Any], is_static: bool) -> TreeDef:
    if is_static:
        return named(value)
    found, tree = flatten(value)
    leaves.extend(found)
    return tree


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A traced function. ``inputs`` says what feeds each parameter of ``function``; ``guards`` must hold for it to be valid.

    Its results fill the leaves of ``out_tree``; ``weak`` names the Python type ("bool", "int", "float") that a leaf would have
    in Python, or is empty for a NumPy scalar or array. ``returned`` has, for each leaf, the index of the call's leaf that is
    returned itself, or None.

    The results after those are what the call's leaves ``writes``, which are arrays, hold in the end, and then what the arrays
    ``outside_writes`` from outside do: ``writes_count`` in sum. ``kept_readonly`` are leaves that the function found to be
    read-only when it wrote into them. ``labels`` names the call's leaves. ``pinned`` are those whose values the trace depends on,
    ``strides`` has the strides (see ``layout``) of those that it depends on by theirs; ``short`` are those that are ints of at
    most 32 bits in it.
    ``branches`` are its guards on traced values, as they were asked; ``in_order``: the program asks in that order.
    ``sizes``: where what its extents and numbers come from is known, if they are symbolic.
    """

    function: Function
    inputs: tuple[Input, ...]
    guards: tuple[Guard, ...]
    out_tree: TreeDef
    weak: tuple[str, ...]
    returned: tuple[int | None, ...]
    writes: tuple[int, ...] = ()
    outside_writes: tuple[Captured, ...] = ()
    kept_readonly: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    pinned: tuple[Pinned, ...] = ()
    strides: tuple[tuple[int, Strides | None], ...] = ()
    short: tuple[int, ...] = ()
    branches: tuple[Branch, ...] = ()
    in_order: bool = True
    sizes: Sizes | None = None

    @property
    def result_tree(self) -> TreeDef:
        """The structure of all results: that of ``out_tree``, in a tuple with what is written if there is any."""
        if not self.writes_count:
            return self.out_tree
        return TreeDef("tuple", tuple, children=[self.out_tree, *[LEAF] * self.writes_count])

    @property
    def writes_count(self) -> int:
        return len(self.writes) + len(self.outside_writes)

    @functools.cached_property
    def watch(self) -> Watch:
        """The code that reads and checks what is outside."""
        return Watch(self.guards, self.inputs)

    def holds(self) -> bool:
        """Whether everything outside is still as the trace found it, up to the values of captured inputs."""
        return self.watch.holds()

    def arguments(self, leaves: Sequence[Any]) -> list[Any] | None:
        """The values for the function's parameters, read now; None if a captured value changed its type.

        Arrays come in native byte order, those of rank 0 as scalars; scalars as they are.
        """
        outside = self.outside()
        return None if outside is None else [*map(native, leaves), *outside]

    def outside(self) -> list[Any] | None:
        """The values for the parameters that are no leaves of the call, which are the last; None as in ``arguments``."""
        return self.watch.outside()

    def outside_arrays(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """The arrays from outside that the program reads, and what they are called."""
        for given in self.inputs:
            value = given.read() if isinstance(given, Captured) else getattr(given, "array", None)
            if isinstance(value, np.ndarray):
                yield getattr(given, "describe", "an array met in the function"), value


def trace(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
    static_argnames: str | Iterable[str] = (), name: str | None = None, parameters: Parameters | None = None,
    call: Signature | None = None, captured: frozenset[str] = frozenset(), symbolic: bool = False,
) -> Trace:  # fmt: skip
    """Trace a call. ``parameters`` and ``call`` (its signature) may be given if they are known already.

    Numbers from outside that ``captured`` names, and those in containers that it names, are inputs even where a rewrite looks for
    their values. ``symbolic``: extents of arguments are sizes (``ir.shapes.symbolic``), and what is computed from them is.

    Raises TraceError for what cannot be traced, and what the function itself raises.
    """
    adopt(function)
    found = parameters or parameters_of(function, static_argnames)
    call = call or signature(found, args, kwargs or {})
    title = name or getattr(function, "__name__", None) or type(function).__name__
    run = functools.partial(_trace, function, call, found, title, captured, symbolic)
    try:
        return run()
    except TraceError as error:
        if error.wants_traced or error.wants_counts:
            # Once more, with traced arrays for those of static values, into which it may write, or with counts that are guarded.
            with suppress(TraceError):
                return run(traces_made=error.wants_traced, counts_chosen=error.wants_counts)
        if not error.is_effect:
            raise
    # Once more, to find the line. It passes if what changed was the doing of another thread.
    return run(by_line=True)


def _trace(
    function: Callable[..., Any], call: Signature, found: Parameters, title: str, captured: frozenset[str], symbolic: bool,
    by_line: bool = False, traces_made: bool = False, counts_chosen: bool = False,
) -> Trace:  # fmt: skip
    """``trace``, with a look at the function's effects after each line or in the end."""
    frame, loc = Frame(), user_loc()
    frame.traces_made, frame.counts_chosen = traces_made, counts_chosen
    names = frame.names = Names(frame, captured)
    frame.outcomes = Outcomes(frame, call.leaves, title)
    sizes = frame.sizes = Sizes(user_loc) if symbolic else None
    tree = call.tree
    with closing(names):
        with frame.active():
            labels = _labels(tree, found)
            leaves = _arguments(frame, call.leaves, labels, loc, sizes)
            positional, keywords = unflatten(map_statics(tree, names.argument, names.shadow), leaves)
            for k, value in enumerate(positional):
                names.effects.watch_argument(value, found.name(k))
            for label, value in keywords.items():
                names.effects.watch_argument(value, label)
            with line_by_line(names.finish) if by_line else nullcontext():
                result = _run(frame, names.follow(function), positional, keywords)
            names.finish()
            if sizes is not None and sizes.refused:
                raise TraceError(sizes.refused)
            results, out_tree = flatten(result, static_numbers=True)
            out_tree = bare(out_tree)
            for container in containers(out_tree):
                names.same(functools.partial(container_of, container.type), container.type.__name__)
            out_tree = map_statics(out_tree, lambda v: _returned(v, names), real_class)
            traced = [as_traced(r) for r in results]
            writes = [k for k, leaf in enumerate(leaves) if leaf.argument is not None and leaf.value is not frame.parameters[k]]
            outside = names.written()
            values = [frame.lift(t) for t in (*traced, *(leaves[k] for k in writes), *(t for _, t in outside))]
        _check_constants(frame)
        warn_unrolled(frame.builder.instructions, title)
        used, inputs, unread = _used(frame, values)
        return Trace(
            function=frame.builder.function(_identifier(title), used, values),
            inputs=inputs,
            guards=(*names.guards.values(), *unread),
            out_tree=out_tree,
            weak=tuple(t.weak for t in traced),
            returned=tuple(next((k for k, leaf in enumerate(leaves) if leaf is r), None) for r in results),
            writes=tuple(writes),
            outside_writes=tuple(given for given, _ in outside),
            kept_readonly=tuple(sorted(frame.kept_readonly)),
            labels=labels,
            pinned=tuple(names.pinned[k] for k in sorted(names.pinned)),
            strides=tuple(frame.pinned_strides.items()),
            short=tuple(sorted(frame.short - names.pinned.keys())),
            branches=tuple(frame.outcomes.branches),
            in_order=frame.outcomes.in_order,
            sizes=sizes,
        )


def _returned(value: Any, names: Names) -> Any:
    """What a static result is outside the trace. Raises TraceError for one that would hold traced values."""
    kind = type(value)
    if is_size(value):
        return value
    if isinstance(value, Iterator | AsyncIterator):
        raise TraceError(f"the traced function returns a {kind.__name__}, which would run after the trace; return a list")
    if isinstance(value, Coroutine):
        value.close()
        raise TraceError("the traced function is a coroutine, which would run after the trace; write it with def, without await")
    if isinstance(value, FunctionType) and any(map(holds_traced, _captured_by(value))):
        raise TraceError(
            f"the traced function returns the function {value.__name__}, which holds traced values; "
            "return the values, and make the function of them outside"
        )
    if issubclass(kind, Outside):
        return object.__getattribute__(value, "_real")
    if not isinstance(value, type | FunctionType) and any(map(holds_traced, getattr(value, "__dict__", {}).values())):
        raise TraceError(
            f"the traced function returns an object of class {kind.__name__} that holds traced values; "
            "return them in a tuple, dict, namedtuple or dataclass"
        )
    return names.original(value) if real_class(kind) is kind else of_real_class(value)


def _labels(tree: TreeDef, parameters: Parameters) -> tuple[str, ...]:
    """What the leaves of a call are called."""
    positional, keyed = tree.children
    labels = [p for i, c in enumerate(positional.children) for p in paths(c, parameters.name(i))]
    return *labels, *(p for k, c in zip(keyed.data[0], keyed.children) for p in paths(c, k))


def _captured_by(function: FunctionType) -> list[Any]:
    """The values that a function keeps: its closure's and its defaults."""
    cells = [c.cell_contents for c in function.__closure__ or () if is_filled(c)]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _arguments(
    frame: Frame, leaves: Sequence[Any], labels: Sequence[str], loc: Loc, sizes: Sizes | None
) -> list[TracedArray]:
    taken: set[str] = set()
    found = []
    for index, (leaf, label) in enumerate(zip(leaves, labels, strict=True)):
        check_leaf(leaf, f"argument {label}")
        array_type, weak = literal_type(leaf)
        if sizes is not None:
            names = (f"{label}.shape[{k}]" for k in range(array_type.rank))
            array_type = array_type.with_shape(tuple(map(sizes.extent, names, array_type.shape)))  # type: ignore[arg-type]
        value = frame.parameter(array_type, _unique(_identifier(label), taken))
        frame.inputs.append(Argument(index=index))
        is_array = isinstance(leaf, np.ndarray)
        readonly = READONLY if is_array and not leaf.flags.writeable else ""
        argument = index if is_array else None
        traced = TracedArray(array_type, frame, value, weak=weak, readonly=readonly, loc=loc, argument=argument)
        traced.origin = Origin("argument", label)
        if isinstance(leaf, Remote):
            traced.readonly = f"argument {label} is an array on a device, which does not change; return the new array instead"
            traced.is_dense = leaf.layout != "strided"
        if argument is not None:
            frame.strides[argument] = strides_in(leaf)
            traced.is_dense = leaf_key(leaf)[2] == "c"
        if isinstance(leaf, int | np.integer | np.bool_):
            traced.known = frame.names.scalar(value, index, label, leaf)
            traced.bounds = argument_bounds(index, leaf)
        found.append(traced)
    return found


def check_leaf(leaf: Any, what: str) -> None:
    """Raises TraceError, naming it as ``what``, for an array or scalar that cannot be traced."""
    if is_special_array(leaf):
        raise TraceError(f"{what} is a {type(leaf).__name__}; {instead_of_special(leaf)}")
    if isinstance(leaf, np.ndarray | np.generic | Remote):
        refuse_dtype(leaf.dtype, what)


def _identifier(text: str) -> str:
    found = re.sub(r"\W+", "_", text)
    return found.strip("_") or "function" if not found[:1].isdigit() else f"x{found}"


def _unique(name: str, taken: set[str]) -> str:
    found, k = name, 1
    while found in taken:
        k += 1
        found = f"{name}_{k}"
    taken.add(found)
    return found


def _run(frame: Frame, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the user's function. The first TraceError met in it is the one that leaves it, whatever became of it inside: a
    library may turn it into another error, and an except clause would run where plain Python does not run it."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        _failed_before(frame)
        foreign = None if frame.refusals else foreign_error(error, _holds_traced)
        if foreign is not None:
            raise foreign from error
        if not frame.refusals and _NOT_AN_ARRAY in str(error):
            what = "an object of a class with __array__, which gives a traced array, is passed to a function of NumPy"
            raise TraceError(f"{what}; pass np.asarray of the object", error_loc(error)) from error
        if not frame.refusals and TracedArray.__name__ in str(error):
            error.add_note(_STANDS_FOR)
        if isinstance(error, RecursionError):
            error.add_note("  (a traced function is run once: a recursion ends by Python values, never by traced ones)")
        if not frame.refusals or error is frame.refusals[0]:
            raise
        stems = _stems_from(error, frame.refusals[0])
        said = error.message if isinstance(error, TraceError) else error
        ended = "" if stems else f", which then raised {type(error).__name__}: {said}"
    else:
        _failed_before(frame)
        if not frame.refusals:
            return result
        ended = ": what it did instead is not what the program does"
    first = frame.refusals[0]
    if ended:
        first.add_note(f"  (caught inside the traced function{ended})")
    raise first from None


def _failed_before(frame: Frame) -> None:
    """Raises what a check of the trace so far did when the function asked for a value."""
    outcomes = frame.outcomes
    if outcomes.failed is not None:
        raise exception_of(outcomes.failed, outcomes.ran()) from None


def _holds_traced(value: Any) -> bool:
    return takes_traced((value,), {}) or holds_labelled(value)


_NOT_AN_ARRAY = "object __array__ method not producing an array"
_STANDS_FOR = f"  ({TracedArray.__name__} stands for an array while a function is traced; only NumPy and SciPy know it)"


def _stems_from(error: BaseException, refused: TraceError) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if seen is refused:
            return True
        seen = seen.__cause__ or seen.__context__
    place = error_loc(error)
    return (place.file, place.line) == (refused.file, refused.line)


def _check_constants(frame: Frame) -> None:
    for given in frame.inputs:
        if isinstance(given, Constant) and digest(given.array) != given.digest:
            raise TraceError(
                "the traced function wrote into an array that it had already used with traced values; "
                "make it with NumPy inside the function, or use a copy"
            )


def _used(frame: Frame, results: Sequence[Value]) -> tuple[list[Value], tuple[Input, ...], list[Guard]]:
    """Parameters and inputs without captured ones that nothing reads, which are guarded by their types instead."""
    counts = use_counts(frame.builder.block(frame.parameters, results))
    pairs = list(zip(frame.parameters, frame.inputs, strict=True))
    used = [(p, i) for p, i in pairs if isinstance(i, Argument) or p in counts]
    unread = [
        Guard(read=i.read, expected=i.key, how="type", describe=i.describe)
        for p, i in pairs
        if isinstance(i, Captured) and p not in counts
    ]
    return [p for p, _ in used], tuple(i for _, i in used), unread
