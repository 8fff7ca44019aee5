"""Run a NumPy function on traced arrays and return it as IR, with everything on which that IR depends.

A trace depends on its signature (structure, dtypes, shapes and memory order of the arguments) and on its guards, and on
nothing else: numbers and arrays, of arguments and from outside, are inputs.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import field, replace
from types import FunctionType
from typing import Any

import numpy as np

from pullback.ir import ArrayType, Function, Loc, Value
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import use_counts
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.order_clocks import order_clocks
from pullback.ir.shapes.by_value import is_value_size, numbered
from pullback.ir.shapes.guards import Sizes
from pullback.ir.shapes.symbolic import is_size
from pullback.tracer.arrays.descriptions import REFUSED, shows_traced
from pullback.tracer.arrays.frame import Argument, Captured, Constant, Frame, Input, Pinned, digest
from pullback.tracer.arrays.keyed_results import result_of_counter
from pullback.tracer.arrays.labelled import holds_labelled
from pullback.tracer.arrays.literals import PYTHON_NUMBERS, literal_type, refuse_dtype
from pullback.tracer.arrays.make import as_traced, holds_traced, instead_of_special, is_special_array
from pullback.tracer.arrays.mixed_numbers import number_of_path, result_of
from pullback.tracer.arrays.object_results import ObjectResult, is_object_result
from pullback.tracer.arrays.python_ints import argument_bounds
from pullback.tracer.arrays.python_scalars import settled_truth
from pullback.tracer.arrays.replacements import takes_traced
from pullback.tracer.arrays.strides import Strides, strides_in
from pullback.tracer.arrays.traced import READONLY, Keyed, Listed, Origin, Tagged, TracedArray, has_rows
from pullback.tracer.arrays.tree import (
    EQUAL,
    LEAF,
    Leaves,
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
    with_children,
)
from pullback.tracer.attempts import FOLLOWED, ROLLED, Failures, next_attempt
from pullback.tracer.branch_guards import Branch, Outcomes
from pullback.tracer.failures import ErrorTemplate, exception_of
from pullback.tracer.names.call_objects import serving
from pullback.tracer.names.guard_code import Watch, native
from pullback.tracer.names.guards import Guard
from pullback.tracer.names.places import presence
from pullback.tracer.names.proxies import Outside
from pullback.tracer.names.resolver import Names, is_filled
from pullback.tracer.names.side_effects import line_by_line
from pullback.tracer.names.user_classes import of_real_class
from pullback.tracer.stores import ContainersOfCall, OnlyLonger, Stores
from pullback.tracer.user_code.control_flow import Statement, in_source_order
from pullback.tracer.user_code.defects import raise_defect
from pullback.tracer.user_code.errors import NotKnown, Restart, TraceError, error_loc, foreign_error, user_loc
from pullback.tracer.user_code.ownership import adopt, attribute_names
from pullback.tracer.user_code.unroll_warning import warn_unrolled


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """The parameters of a user's function.

    ``names`` are by position, ``variadic`` is the name of ``*args``, ``static`` holds the names of static parameters.
    ``longer``: the lists that the function only makes longer.
    """

    names: tuple[str, ...]
    variadic: str
    static: frozenset[str]
    longer: OnlyLonger = field(default_factory=OnlyLonger, compare=False, repr=False)

    def name(self, position: int) -> str:
        return self.names[position] if position < len(self.names) else f"{self.variadic}_{position - len(self.names)}"


def parameters_of(function: Callable[..., Any], static_argnames: str | Iterable[str] = ()) -> Parameters:
    """Return the parameters of a function. Raises ValueError if a static name is not among them."""
    static = frozenset((static_argnames,) if isinstance(static_argnames, str) else static_argnames)
    while type(function) in EQUAL and "__signature__" not in vars(function):
        function = vars(function)["_wrapped"]  # ``__wrapped__`` is followed in a trace
    try:
        listed = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return Parameters(names=(), variadic="x", static=static)
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = tuple(p.name for p in listed if p.kind in positional)
    variadic = next((p.name for p in listed if p.kind is inspect.Parameter.VAR_POSITIONAL), "x")
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in listed)
    unknown = static - {p.name for p in listed}
    if unknown and not open_ended:
        title = getattr(function, "__name__", function)
        raise ValueError(f"static_argnames {sorted(unknown)} are no parameters of {title}, which has {[p.name for p in listed]}")
    return Parameters(names=names, variadic=variadic, static=static)


class Signature:
    """A call's ``leaves``, and the hashable ``key`` of everything in the call on which a trace depends. ``undecided``: the ints
    and bools of Python among the leaves that decide no branches, bounds and exponents, like those of NumPy."""

    __slots__ = ("_args", "_kwargs", "_parameters", "key", "leaves", "undecided")

    def __init__(
        self, key: Any, leaves: Leaves, parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.key = key
        self.leaves = leaves
        self.undecided: frozenset[int] = frozenset()
        self._parameters = parameters
        self._args = args
        self._kwargs = kwargs

    @property
    def arguments(self) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """The call's arguments, by position and by keyword."""
        return self.leaves.arguments

    @property
    def has_longer_lists(self) -> bool:
        """Whether there are lists whose contents are no input."""
        return self.leaves.arguments[0] is not self._args

    @property
    def objects(self) -> Sequence[Any]:
        """The objects of the call that its trace reads by attributes."""
        return self.leaves.objects

    @property
    def static(self) -> tuple[bool, ...]:
        """Whether each argument, positional ones first, was declared static."""
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


def signature(
    parameters: Parameters, args: Sequence[Any], kwargs: Mapping[str, Any], reads_all: bool = False
) -> Signature:  # fmt: skip
    """Return the signature of a call. ``reads_all``: with the contents of lists that the function only makes longer. Raises
    TraceError for a static value that cannot be hashed."""
    leaves = Leaves((args, kwargs))
    if parameters.longer.paths and not reads_all:
        args, kwargs = parameters.longer.replaced(args, kwargs)
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
    flat, tree = flatten(value)
    leaves.extend(flat)
    return tree


@dataclass(frozen=True, kw_only=True, eq=False)
class Trace:
    """A traced function. ``inputs`` says what feeds each parameter of ``function``; it is valid while its ``guards`` hold.

    The results fill the leaves of ``out_tree``, and then those of the containers that ``stores`` fills, if it is not None.
    ``weak`` has, for each leaf, the name of its Python type ("bool", "int", "float"), or is empty for a NumPy scalar or array.
    ``returned`` has, for each leaf, the index of the call's leaf that is returned itself, or None.

    After these, the results hold the final contents of the call's leaves ``writes``, which are arrays, and then of the outside
    arrays ``outside_writes``: ``writes_count`` in total. ``kept_readonly`` are leaves that the function tried to write and
    found read-only. ``labels`` names the call's leaves. ``pinned`` are the leaves on whose values the trace depends,
    ``strides`` has the strides (see ``layout``) of the leaves on whose strides it depends, and ``short`` are the leaves that
    are ints of at most 32 bits in it. ``branches`` are its guards on traced values, in the order of the function;
    ``in_order``: the program checks them in that order. ``followed``: why branches were followed without a demand for it, if they
    were. ``errors``: the exceptions of the user's that its checks raise with values. ``not_rolled``: why its branches and loops
    were not compiled as such, if they were not; ``statements``: how they were compiled. ``sizes``: the sources of its symbolic
    extents and numbers, or None.
    """

    function: Function
    inputs: tuple[Input, ...]
    guards: tuple[Guard, ...]
    out_tree: TreeDef
    weak: tuple[str, ...]
    returned: tuple[int | None, ...]
    stores: Stores | None = None
    writes: tuple[int, ...] = ()
    outside_writes: tuple[Captured, ...] = ()
    kept_readonly: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    pinned: tuple[Pinned, ...] = ()
    strides: tuple[tuple[int, Strides | None], ...] = ()
    short: tuple[int, ...] = ()
    branches: tuple[Branch, ...] = ()
    in_order: bool = True
    followed: str = ""
    errors: tuple[ErrorTemplate, ...] = ()
    not_rolled: str = ""
    statements: tuple[Statement, ...] = ()
    sizes: Sizes | None = None

    @property
    def result_tree(self) -> TreeDef:
        """The structure of all results: ``out_tree``, in a tuple with the contents of containers and the written arrays if there
        are any."""
        if not self.writes_count and self.stores is None:
            return self.out_tree
        contents = () if self.stores is None else self.stores.trees
        return TreeDef("tuple", tuple, children=[self.out_tree, *contents, *[LEAF] * self.writes_count])

    @property
    def numbers(self) -> tuple[type | None, ...]:
        """The type of each leaf of the result that is a Python number, None for the others."""
        ranks = (value.type.rank if isinstance(value.type, ArrayType) else 1 for value in self.function.results)
        return tuple(None if rank else PYTHON_NUMBERS.get(weak) for weak, rank in zip(self.weak, ranks, strict=False))

    @property
    def writes_count(self) -> int:
        return len(self.writes) + len(self.outside_writes)

    @property
    def has_effects(self) -> bool:
        """Whether a call changes arrays or containers that the caller has."""
        return bool(self.writes_count or self.changes)

    @property
    def changes(self) -> tuple[str, ...]:
        """The names of the containers and places that a call changes."""
        return () if self.stores is None else self.stores.changes

    @property
    def stored_labels(self) -> list[str]:
        """The description of each leaf that is stored in a container."""
        if self.stores is None:
            return []
        named = zip(self.stores.trees, self.stores.names, strict=True)
        return [f"{path} after the call" for tree, name in named for path in paths(tree, name)]

    @functools.cached_property
    def watch(self) -> Watch:
        """The code that reads and checks the captured outside objects."""
        return Watch(self.guards, self.inputs)

    def holds(self) -> bool:
        """Return whether all guards on outside objects hold; the values of captured inputs may have changed."""
        return self.watch.holds()

    def arguments(self, leaves: Sequence[Any]) -> list[Any] | None:
        """Return the current values of the function's parameters; None if a captured value changed its type.

        Arrays are in native byte order, arrays of rank 0 are passed as scalars, scalars as they are.
        """
        outside = self.outside()
        return None if outside is None else [*map(native, leaves), *outside]

    def outside(self) -> list[Any] | None:
        """Return the values of the parameters that are not leaves of the call, which come last; None as in ``arguments``."""
        return self.watch.outside()

    def outside_arrays(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Yield the outside arrays that the program reads, each with its description."""
        for source in self.inputs:
            value = _content(source.read) if isinstance(source, Captured) else getattr(source, "array", None)
            if isinstance(value, np.ndarray):
                yield getattr(source, "describe", "an array met in the function"), value


def _content(read: Callable[[], Any]) -> Any:
    """Return what is read from outside; None if that fails, as the guards will."""
    try:
        return read()
    except Exception:
        return None


def trace(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
    static_argnames: str | Iterable[str] = (), name: str | None = None, parameters: Parameters | None = None,
    call: Signature | None = None, captured: frozenset[str] = frozenset(), symbolic: bool = False, rolls: bool = True,
    follows_choices: bool = False, as_written: bool = False,
) -> Trace:  # fmt: skip
    """Trace a call. ``parameters`` and ``call`` (its signature) are computed if absent.

    Outside numbers that ``captured`` names, and numbers in containers that it names, are inputs even where a rewrite looks for
    their values. ``symbolic``: extents of arguments, and what is computed from them, are symbolic sizes
    (``ir.shapes.symbolic``). ``rolls``: branches and loops that values decide, and long loops, become instructions; a function
    for which this fails is traced as without it. ``follows_choices``: where that fails too since a truth or a whole number is
    needed, the function is traced once more, for the choices of this call, which become guards. ``as_written``: it is traced so
    in any case, line by line as Python runs it. The attempts are those of ``tracer/attempts.py``.

    Raises TraceError for what cannot be traced, and what the function itself raises.
    """
    adopt(function)
    declared = parameters or parameters_of(function, static_argnames)
    call = call or signature(declared, args, kwargs or {})
    title = name or getattr(function, "__name__", None) or type(function).__name__
    failures = Failures(rolls=rolls, follows_choices=follows_choices and not symbolic)
    refused: Exception | None = None
    try:
        while (attempt := next_attempt(failures, as_written)) is not None:
            frame = attempt.frame(failures)
            reason = "" if attempt.name in ROLLED else failures.reason
            try:
                inputs = failures.stored_inputs, failures.read_whole, failures.in_items
                result = _trace(function, call, declared, title, captured, symbolic, frame, attempt.by_line, reason, inputs)
                if attempt.is_kept:
                    raise_defect([*failures.defects, *frame.defects])
                    followed = failures.reason_to_follow if attempt.name in FOLLOWED else ""
                    return replace(result, followed=followed) if followed else result
                failures.discard(attempt)
            except Restart as restart:
                if failures.adapts(frame, restart):
                    continue
                message = f"a list that grows is changed where no statement provides for it ({restart})"
                failures.add(attempt, frame, TraceError(message))
            except Exception as error:
                if failures.adapts(frame, error):
                    continue
                failures.add(attempt, frame, error)
                if attempt.is_of_call(error, failures):
                    frame.perform()
                    raise_defect(failures.defects, error)
                    raise
        refused = failures.final()
        failures.perform(refused)
        raise_defect(failures.defects, refused)
        raise refused
    finally:
        refused = None
        failures.clear()  # the tracebacks refer to this frame, in cycles that would keep the call's arrays


def _trace(
    function: Callable[..., Any], call: Signature, parameters: Parameters, title: str, captured: frozenset[str], symbolic: bool,
    frame: Frame, by_line: bool = False, not_rolled: str = "", stored_inputs: Sequence[frozenset[str]] = (),
) -> Trace:  # fmt: skip
    """Trace once in a root frame, and check the function's side effects after each line (``by_line``) or at the end.
    ``not_rolled``: why a trace with rewritten syntax failed before; ``stored_inputs``: those of ``Failures``, and its
    ``read_whole`` and ``in_items``."""
    loc = user_loc()
    names = frame.names = Names(frame, captured, *stored_inputs)
    names.take(call.objects)
    frame.outcomes = Outcomes(frame, list(call.leaves), title)
    frame.stores = ContainersOfCall(frame)
    sizes = frame.sizes = Sizes(user_loc) if symbolic else None
    tree = call.tree
    with serving(call.objects), closing(names), closing(frame.stores):
        with frame.active():
            labels = _labels(tree, parameters)
            leaves = _arguments(frame, call, labels, loc, sizes)
            passed = [settled_truth(x) for x in leaves]
            positional, keywords = _copied(frame, call, map_statics(tree, names.argument, names.shadow), passed, parameters)
            with line_by_line(names.finish) if by_line else nullcontext():
                result = _run(frame, names.follow(function), positional, keywords)
            names.finish()
            if sizes is not None and sizes.refused:
                raise TraceError(sizes.refused)
            stores, out_tree, results = _results(frame, result, names)
            traced = [as_traced(r) for r in results]
            writes = [k for k, leaf in enumerate(leaves) if leaf.argument is not None and leaf.value is not frame.parameters[k]]
            outside = names.written()
            values = [frame.lift(t) for t in (*traced, *(leaves[k] for k in writes), *(t for _, t in outside))]
        positions = {id(leaf): k for k, leaf in reversed(list(enumerate(leaves)))}
        _check_constants(frame)
        warn_unrolled(frame.builder.instructions, title, not_rolled)
        used, inputs, unread = _used(frame, values)
        return Trace(
            function=numbered(order_clocks(frame.builder.function(_identifier(title), used, values)), frame.value_sizes),
            inputs=inputs,
            guards=(*names.guards.values(), *names.distinct(), *unread),
            out_tree=out_tree,
            weak=tuple(t.weak for t in traced),
            stores=stores,
            returned=tuple(positions.get(id(r)) for r in results),
            writes=tuple(writes),
            outside_writes=tuple(source for source, _ in outside),
            kept_readonly=tuple(sorted(frame.kept_readonly)),
            labels=labels,
            pinned=tuple(names.pinned[k] for k in sorted(names.pinned)),
            strides=tuple(frame.pinned_strides.items()),
            short=tuple(sorted(frame.short - names.pinned.keys())),
            branches=tuple(frame.outcomes.branches),
            in_order=frame.outcomes.in_order,
            errors=tuple(frame.raised),
            sizes=sizes,
            statements=in_source_order(frame.statements),
            not_rolled=not_rolled,
        )


def _copied(
    frame: Frame, call: Signature, tree: TreeDef, leaves: Sequence[Any], parameters: Parameters
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """Return the arguments of a call with traced leaves, in copies of its containers."""
    names, stores, remaining = frame.names, frame.stores, iter(leaves)
    args, kwargs = call.arguments
    positional, keyed = tree.children
    values: list[Any] = []
    labelled: list[tuple[int | str, str, str, Any]]
    labelled = [(k, f"args[{k}]", parameters.name(k), x) for k, x in enumerate(args)]
    labelled += [(k, f"kwargs[{k!r}]", k, x) for k, x in kwargs.items()]
    for (key, path, label, value), child in zip(labelled, (*positional.children, *keyed.children), strict=True):
        values.append(stores.copied(child, value, remaining, path, label, (key,)))
    stores.begin()
    for (_, _, label, _), value in zip(labelled, values, strict=True):
        names.effects.watch_argument(value, label, stores.holds)
    return values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))


def _results(frame: Frame, result: Any, names: Names) -> tuple[Stores | None, TreeDef, list[Any]]:
    """Return what the function stores, the structure of its result, and the leaves of both."""
    for target in names.places.ordered():
        names.check(presence(target.kind, target.owner, target.key), True, f"whether there is {target.describe}")
    written = frame.stores.stores(result, names.places.changed(), names.outside_arrays(), names.objects_of_call())
    if written is None:
        results, out_tree = flatten(with_lists(result, {}), static_numbers=True)
        return None, _returned_tree(bare(out_tree), names), results
    if frame.sizes is not None:
        raise TraceError("a function with symbolic sizes stores, or returns a list or dict among its arguments")
    trees = tuple(_returned_tree(tree, names) for tree in written.stores.trees)
    return replace(written.stores, trees=trees), _returned_tree(written.out_tree, names), written.leaves


def _returned_tree(tree: TreeDef, names: Names) -> TreeDef:
    """Return the structure of a result as the caller sees it."""
    for container in containers(tree):
        names.same(functools.partial(container_of, container.type), container.type.__name__)
    return map_statics(tree, lambda v: returned_static(v, names), real_class)


def returned_static(value: Any, names: Names) -> Any:
    """Return a static result as the caller sees it. Raises TraceError for one that would hold traced values."""
    kind = type(value)
    if isinstance(value, str) and shows_traced(value):
        raise TraceError(REFUSED)
    if is_size(value) and not is_value_size(value):
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
        return names.fixed(object.__getattribute__(value, "_real"))
    attributes = attribute_names(value) if real_class(kind) is not kind else ()
    contents = [*getattr(value, "__dict__", {}).values(), *(getattr(value, name) for name in attributes)]
    contents = [*contents, *(dict.values(value) if isinstance(value, dict) else ())]
    if not isinstance(value, type | FunctionType) and any(map(holds_traced, contents)):
        raise TraceError(
            f"the traced function returns an object of class {kind.__name__} that holds traced values; "
            "return them in a tuple, dict, namedtuple or dataclass"
        )
    return names.original(value) if real_class(kind) is kind else of_real_class(value)


def with_lists(value: Any, objects: dict[int, Any] | None = None) -> Any:
    """Return a result in which lists of a length that values decide are trees, and so are numbers of which values decide whether
    they are Python's. With ``objects``, so are objects that the function made, which are added to it by their ids. Raises
    TraceError for one that is met again."""
    inside = functools.partial(with_lists, objects=objects)
    if isinstance(value, TracedArray):
        return result_of(value)
    if has_rows(value) or isinstance(value, Keyed):
        result = value.result()
        return list(map(inside, result)) if type(result) is list else result
    if isinstance(value, Tagged):
        cases = list(map(inside, value.cases))
        choice: Any = type(value)
        return value if all(a is b for a, b in zip(cases, value.cases, strict=True)) else choice(value.tag, cases)
    if type(value) in (tuple, list) or isinstance(value, Listed):
        items = list(map(inside, value))
        is_same = all(a is b for a, b in zip(items, value, strict=True))
        kind: type = value.stands_for if isinstance(value, Listed) else type(value)
        return value if is_same else kind(items)
    if type(value) is Counter:
        return result_of_counter(Counter({k: inside(x) for k, x in value.items()}))
    if objects is not None and is_object_result(value):
        if id(value) in objects:
            raise TraceError(f"an object of class {type(value).__name__} is twice in the result; return it once")
        objects[id(value)] = value
        names = attribute_names(value)
        return ObjectResult(real_class(type(value)), names, [inside(getattr(value, name)) for name in names])
    if type(value) is dict and any(isinstance(key, TracedArray) for key in value):
        return {k: inside(x) for k, x in value.items()}  # of keys that values decide there is no structure
    return with_children(value, inside)


def _labels(tree: TreeDef, parameters: Parameters) -> tuple[str, ...]:
    """Return the names of a call's leaves."""
    positional, keyed = tree.children
    labels = [p for i, c in enumerate(positional.children) for p in paths(c, parameters.name(i))]
    return *labels, *(p for k, c in zip(keyed.data[0], keyed.children) for p in paths(c, k))


def _captured_by(function: FunctionType) -> list[Any]:
    """Return the values that a function holds, from its closure and its defaults."""
    cells = [c.cell_contents for c in function.__closure__ or () if is_filled(c)]
    return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _arguments(frame: Frame, call: Signature, labels: Sequence[str], loc: Loc, sizes: Sizes | None) -> list[TracedArray]:
    taken: set[str] = set()
    arguments = []
    for index, (leaf, label) in enumerate(zip(call.leaves, labels, strict=True)):
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
            is_undecided = isinstance(leaf, np.generic) or index in call.undecided
            traced.known = frame.names.scalar(value, index, label, leaf, is_undecided)
            traced.bounds = argument_bounds(index, leaf)
        arguments.append(traced)
    return arguments


def check_leaf(leaf: Any, what: str) -> None:
    """Raise TraceError, calling it ``what``, for an array or scalar that cannot be traced."""
    if is_special_array(leaf):
        raise TraceError(f"{what} is a {type(leaf).__name__}; {instead_of_special(leaf)}")
    if isinstance(leaf, np.ndarray | np.generic | Remote):
        refuse_dtype(leaf.dtype, what)


def _identifier(text: str) -> str:
    identifier = re.sub(r"\W+", "_", text)
    return identifier.strip("_") or "function" if not identifier[:1].isdigit() else f"x{identifier}"


def _unique(name: str, taken: set[str]) -> str:
    candidate, k = name, 1
    while candidate in taken:
        k += 1
        candidate = f"{name}_{k}"
    taken.add(candidate)
    return candidate


def _run(frame: Frame, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the user's function, and raise the first TraceError that occurred in it.

    That error is raised even if the function caught it: a library may turn it into another error, and an except clause would
    run where plain Python does not run it.
    """
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        if not isinstance(error, TraceError) and frame.sizes is None:
            frame.outcomes.check(frame)
        _raise_failed_check(frame)
        if frame.grows and not isinstance(error, TraceError):
            frame.names.effects.refuse(error_loc(error))  # a list whose rows are copies may have other elements than in Python
        foreign = None if frame.refusals else foreign_error(error, _holds_traced)
        if foreign is not None:
            raise foreign from error
        if not frame.refusals and _NOT_AN_ARRAY in str(error):
            what = "an object of a class with __array__, which gives a traced array, is passed to a function of NumPy"
            raise TraceError(f"{what}; pass np.asarray of the object", error_loc(error)) from error
        if not frame.refusals and isinstance(error, ValueError) and _NO_NUMBER.match(str(error)) and shows_traced(str(error)):
            raise TraceError(REFUSED, error_loc(error)) from error
        if not frame.refusals and TracedArray.__name__ in str(error):
            error.add_note(_STANDS_FOR)
        if isinstance(error, RecursionError):
            error.add_note("  (a traced function is run once: a recursion ends by Python values, never by traced ones)")
        if not frame.refusals or error is frame.refusals[0]:
            if not isinstance(error, TraceError):
                frame.perform = frame.outcomes.effects_so_far(frame)
                _show_values(error, frame)
            raise
        stems = _stems_from(error, frame.refusals[0])
        message = error.message if isinstance(error, TraceError) else error
        ended = "" if stems else f", which then raised {type(error).__name__}: {message}"
    else:
        _raise_failed_check(frame)
        if not frame.refusals:
            return result
        ended = ": what it did instead is not what the program does"
    first = frame.refusals[0]
    if ended:
        first.add_note(f"  (caught inside the traced function{ended})")
    raise first from None


def _show_values(error: Exception, frame: Frame) -> None:
    """Replace traced values among the arguments of an error, such as the key of a KeyError, by those of the call."""

    def settled(x: Any) -> Any:
        if isinstance(x, TracedArray):
            value = frame.outcomes.settle(x, frame, lambda value: value)
            return value if x.type_tag is None else number_of_path(value, settled(x.type_tag), x.weak)
        return tuple(map(settled, x)) if type(x) is tuple else x

    if holds_traced(error.args):
        with suppress(NotKnown, CheckFailed):
            error.args = tuple(map(settled, error.args))


def _raise_failed_check(frame: Frame) -> None:
    """Raise the exception of a check of the trace so far that failed when the function needed a value."""
    outcomes = frame.outcomes
    if outcomes.failed is not None:
        frame.perform = outcomes.effects_so_far(frame)
        raise exception_of(outcomes.failed, outcomes.ran(), frame.raised) from None


def _holds_traced(value: Any) -> bool:
    return takes_traced((value,), {}) or holds_labelled(value)


_NO_NUMBER = re.compile(r"could not convert string to float|invalid literal for int|complex\(\) arg")
_NOT_AN_ARRAY = "object __array__ method not producing an array"
_STANDS_FOR = f"  ({TracedArray.__name__} stands for an array while a function is traced; only NumPy and SciPy know it)"


def _stems_from(error: BaseException, refused: TraceError) -> bool:
    seen: BaseException | None = error
    while seen is not None:
        if seen is refused:
            return True
        seen = seen.__cause__ or seen.__context__
    loc = error_loc(error)
    return (loc.file, loc.line) == (refused.file, refused.line)


def _check_constants(frame: Frame) -> None:
    for source in frame.inputs:
        if isinstance(source, Constant) and digest(source.array) != source.digest:
            error = TraceError(
                "the traced function wrote into an array that it had already used with traced values; "
                "make it with NumPy inside the function, or use a copy"
            )
            error.wants_traced = True
            raise error


def _used(frame: Frame, results: Sequence[Value]) -> tuple[list[Value], tuple[Input, ...], list[Guard]]:
    """Return the parameters and inputs without unused captured ones, and guards on the types of these."""
    counts = use_counts(frame.builder.block(frame.parameters, results))
    pairs = list(zip(frame.parameters, frame.inputs, strict=True))
    used = [(p, i) for p, i in pairs if isinstance(i, Argument) or p in counts]
    unread = [
        Guard(read=i.read, expected=i.key, how="type", describe=i.describe)
        for p, i in pairs
        if isinstance(i, Captured) and p not in counts
    ]
    return [p for p, _ in used], tuple(i for _, i in used), unread
