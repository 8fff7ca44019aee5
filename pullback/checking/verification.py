"""Compare a compiled call with plain Python, for ``pb.jit(verify=n)``.

The function runs in plain Python on copies of the arguments, which share memory where the arguments do. Structure, dtypes,
shapes, values, writes and exceptions are compared. Where no plain Python function exists, as for gradients, the interpreter is
the reference.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.checking.control_flow_reference import in_python
from pullback.checking.divergence import Difference, diverging_line
from pullback.checking.rounding_noise import Interpreted, interpreted
from pullback.checking.stored_contents import Unlike, stored_pairs
from pullback.compiled.transform import Gradient
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Loc
from pullback.programs.call import Call
from pullback.programs.entry import MISS
from pullback.programs.report import location
from pullback.tracer import TraceError, TreeDef, flatten, signature
from pullback.tracer.arrays.mixed_numbers import MixedResult
from pullback.tracer.names.call_objects import is_of_call, serving
from pullback.tracer.stores import Mutable, Stores, mutable_of
from pullback.tracer.user_code.source import line_text
from pullback.tracer.user_code.tracebacks import traceback_at
from pullback.tree import leaf_paths

if TYPE_CHECKING:
    from pullback.compiled.function import Jitted

__all__ = ["MISS", "VerificationError", "compare"]

Run = Callable[[Sequence[Any], Mapping[str, Any]], Any]
Array = np.ndarray[Any, Any]

PYTHON = (bool, int, float, complex)
"""The types of Python numbers."""
ULPS = 4
"""Tolerance of every element in units in the last place: compiled formulas are not always NumPy's own."""


class VerificationError(AssertionError):
    """Report that a compiled call differs from plain Python, under ``pb.jit(f, verify=...)``.

    Attributes
    ----------
    function : str
        The function with its transforms.
    what : str
        The first difference, such as ``result[1]``, ``x afterwards`` or ``exception``.
    index : tuple of int or None
        The element that differs, None if it has none.
    found : str
        The compiled function's value, with its dtype.
    expected : str
        Plain Python's value, with its dtype.
    file : str
        The file of the user's line after which the two first differ, or else of the line that computes the value; empty if
        unknown.
    line : int
        That line, from 1; 0 if unknown.
    source : str
        The text of that line.
    reason : str
        What is known about that line.

    See Also
    --------
    jit : Its option ``verify``.

    Examples
    --------
    The first three calls of each program are compared, and raise this error if they differ:

    >>> f = pb.jit(lambda x: np.sort(x)[::-1], verify=3)
    >>> f(np.array([1.0, 3.0, 2.0]))
    array([3., 2., 1.])
    """

    __module__ = "pullback"

    def __init__(self, function: str, wrong: _Wrong, loc: Loc, reason: str) -> None:
        self.function, self.what, self.index = function, wrong.label, wrong.index
        self.found, self.expected = wrong.actual, wrong.expected
        self.file, self.line = loc.file, loc.line
        self.source = line_text(loc.file, loc.line).strip() if loc.file else ""
        self.reason = reason
        super().__init__(str(self))

    def __str__(self) -> str:
        at = "" if self.index is None or not self.index else f" at {list(self.index)}"
        lines = [f"verify: {self.function}: {self.what} differs{at}: compiled {self.found}, plain Python {self.expected}"]
        if self.file:
            lines += [f"  {location(Loc(self.file, self.line))}{': ' if self.reason else ''}{self.reason}", f"    {self.source}"]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class _Wrong:
    """A difference. ``ordinal``: the position of the differing value among the program's results, None if it is not a result."""

    label: str
    actual: str
    expected: str
    index: tuple[int, ...] | None = None
    ordinal: int | None = None


def compare(function: Jitted[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], run: Run, *, reuse: bool = False) -> Any:
    """Return the result of the compiled call ``run(args, kwargs)`` if plain Python does the same on copies of the arguments.

    Without ``reuse`` the compiled call is made on copies too. Raises VerificationError if the two differ, after restoring the
    arguments and outside arrays; the call's own error if plain Python raises the same; TypeError if an argument cannot be
    copied.
    """
    leaves = function.examine(args, kwargs).leaves
    before, plain = _Copies(args, kwargs, leaves), _Copies(args, kwargs, leaves)
    mine = _Arguments(args, kwargs, leaves) if reuse else _Copies(args, kwargs, leaves)
    with serving(mine.objects(function)):
        return _compared(function, before, plain, mine, run, reuse)


def _compared(
    function: Jitted[..., Any], before: _Arguments, plain: _Arguments, mine: _Arguments, run: Run, reuse: bool
) -> Any:  # fmt: skip
    """Return the result of ``compare``, of a call with the arguments ``mine``."""
    call = function.examine(before.args, before.kwargs)
    traced = _outcome(lambda: call.trace)
    if isinstance(traced, TraceError):
        raise traced
    outside = [] if isinstance(traced, Exception) or traced.stores is None else traced.stores.changes_outside
    if outside:
        raise TypeError(f"verify: the function stores to {outside[0]}, which plain Python would do again; compile without verify")
    written = [] if isinstance(traced, Exception) else [w.read() for w in traced.outside_writes]
    kept = [np.array(x) for x in written]
    contents = [] if isinstance(traced, Exception) or traced.stores is None else mine.contents(traced.stores)
    result = _outcome(run, mine.args, mine.kwargs)
    if isinstance(result, TraceError):
        raise result
    after = [np.array(x) for x in written]
    _write(written, kept)
    check = _Check(function, call, before, mine, plain)
    wrong = check.first(result, written, after)
    if wrong is not None:
        _write(written, kept)
        error = check.error(wrong, result)
        mine.restore(before)
        for container, record, items in contents:
            record.fill(container, items)
        _write(written, kept)
        raise error
    _write(written, after if reuse else kept)
    if isinstance(result, Exception):
        raise result
    return result


@dataclass(frozen=True, eq=False)
class _Arguments:
    """The arguments of a call; ``leaves`` are the arrays and numbers in them."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    leaves: Sequence[Any]

    def restore(self, before: _Arguments) -> None:
        """Write the earlier contents back into the arrays."""
        for x, old in zip(self.leaves, before.leaves, strict=True):
            if isinstance(x, np.ndarray) and x.flags.writeable and x.tobytes() != old.tobytes():
                x[...] = old


    def objects(self, function: Jitted[..., Any]) -> Sequence[Any]:
        """Return the objects among the arguments that a function reads by attributes."""
        return signature(function._parameters, self.args, self.kwargs, reads_all=True).objects

    def contents(self, stores: Stores) -> list[tuple[Any, Mutable, Any]]:
        """Return the containers that a call changes, each with its kind and a copy."""
        containers = stores.containers((self.args, self.kwargs))
        changed = [containers[fill.index] for fill in stores.fills if fill.index < len(containers)]
        records = [mutable_of(type(container)) for container in changed]
        return [(x, record, copy.copy(x)) for x, record in zip(changed, records, strict=True) if record is not None]


class _Copies(_Arguments):
    """Copies of a call's arguments, whose arrays overlap in memory where the originals do."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Any]) -> None:
        memo: dict[int, Any] = {id(a): a for a in (*args, *kwargs.values()) if type(a) is object}
        arrays = copied_arrays([x for x in leaves if isinstance(x, np.ndarray)])
        memo.update(arrays)
        memo.update({id(x): np.asarray(x) for x in leaves if isinstance(x, Remote)})
        try:
            copied_args, copied_kwargs = copy.deepcopy((tuple(args), dict(kwargs)), memo)
        except Exception as error:
            raise TypeError(f"verify: an argument cannot be copied for plain Python ({error}); compile without verify") from error
        super().__init__(copied_args, copied_kwargs, [memo.get(id(x), x) for x in leaves])


def copied_arrays(arrays: Sequence[Array]) -> dict[int, Array]:
    """Return copies of arrays, keyed by their ids, with the same strides, flags and overlaps."""
    copies: dict[int, Array] = {}
    spans = sorted((*np.lib.array_utils.byte_bounds(x), k) for k, x in enumerate(arrays) if x.size)
    groups: list[tuple[int, int, list[int]]] = []
    for low, high, k in spans:
        if groups and low < groups[-1][1]:
            start, end, members = groups.pop()
            groups.append((start, max(end, high), [*members, k]))
        else:
            groups.append((low, high, [k]))
    for low, high, members in groups:
        memory = np.empty(high - low, np.uint8)
        for k in members:
            x = arrays[k]
            offset = x.__array_interface__["data"][0] - low
            duplicate: Array = np.ndarray(x.shape, x.dtype, memory, offset, x.strides)
            copies[id(x)] = duplicate
        for k in members:
            twin = copies[id(arrays[k])]
            if not any(s == 0 for s in twin.strides):
                twin[...] = arrays[k]
            else:
                np.copyto(_without_repeats(twin), _without_repeats(arrays[k]))
            twin.flags.writeable = arrays[k].flags.writeable
    for x in arrays:
        if not x.size:
            copies[id(x)] = x.copy()
    return copies


def _without_repeats(x: Array) -> Array:
    """Return a view of an array without the repetitions of a broadcast."""
    return x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]


def _write(arrays: Sequence[Array], values: Sequence[Array]) -> None:
    for x, value in zip(arrays, values, strict=True):
        x[...] = value


def _outcome(run: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns, or the exception that it raises."""
    try:
        return run(*arguments)
    except Exception as error:
        return error


@dataclass(frozen=True, eq=False)
class _Check:
    """A compiled call and its reference.

    ``call`` is on copies of the arguments from before the call, ``mine`` holds the arguments that it used and ``plain`` those
    of plain Python.
    """

    function: Jitted[..., Any]
    call: Call
    before: _Arguments
    mine: _Arguments
    plain: _Arguments

    @property
    def reference(self) -> tuple[Callable[..., Any] | None, bool]:
        """Return the plain function, None if there is none, and whether it returns the entire result or only the value of a
        value_and_grad."""
        function: Any = self.function
        is_whole = True
        while hasattr(function, "is_plain"):
            if not function.is_plain:
                is_value = isinstance(function._transform, Gradient) and function._transform.name == "value_and_grad"
                if not is_value or not is_whole:
                    return None, False
                is_whole = False
            function = function.__wrapped__
        return function, is_whole

    def first(self, result: Any, written: Sequence[Array], after: Sequence[Array]) -> _Wrong | None:
        """Return the first difference.

        ``written`` are the arrays from outside that the call writes, restored to their earlier contents; ``after`` is what the
        call left in them.
        """
        function, is_whole = self.reference
        if function is None:
            return None if isinstance(result, Exception) else self.interpreted(result)
        with in_python(prints=False), np.errstate(all="ignore"):
            expected = _outcome(lambda: function(*self.plain.args, **self.plain.kwargs))
        wrong = _unlike_errors(result, expected)
        if wrong is not None or isinstance(result, Exception):
            return wrong
        wrong = self.values("result", result if is_whole else result[0], expected, 0)
        if wrong is None and not is_whole:
            return self.interpreted(result)
        return wrong or self.stored() or self.writes(written, after)

    def values(self, name: str, result: Any, expected: Any, first_index: int) -> _Wrong | None:
        """Return the first leaf that differs; ``first_index`` is the index of the first leaf among the program's results."""
        if hasattr(expected, "__array__") and not isinstance(expected, np.ndarray | np.generic):
            expected = np.asarray(expected)
        leaves, tree = flatten(_ordered(result))
        expected_leaves, other = flatten(_ordered(expected))
        if tree != other:
            return _Wrong(label="the structure of the result", actual=str(tree), expected=str(other))
        for k, (at, a, b) in enumerate(zip(leaf_paths(tree, name), leaves, expected_leaves, strict=True)):
            if type(a) in PYTHON and type(a) is not type(b):
                return _Wrong(label=at, actual=f"a Python {type(a).__name__}", expected=_typed(np.asarray(b)))
            wrong = self.leaf_difference(at, a, b, self.ordinal(first_index + k))
            if wrong is not None:
                return wrong
        return None

    def ordinal(self, k: int) -> int:
        """Return which result of the program leaf ``k`` of the result is: a number with a tag is two results."""
        return self.ordinals[k] if k < len(self.ordinals) else k

    @cached_property
    def ordinals(self) -> list[int]:
        """The index of the program's result for each leaf of the result."""
        return _ordinals(self.call.trace.out_tree, itertools.count())

    def stored(self) -> _Wrong | None:
        """Return the first difference of the containers of the arguments afterwards."""
        trace = self.call.trace
        if trace.stores is None:
            return None
        mine, plain = (self.mine.args, self.mine.kwargs), (self.plain.args, self.plain.kwargs)
        try:
            for at, a, b, ordinal in stored_pairs(trace.stores, trace.out_tree.count, mine, plain):
                wrong = self.leaf_difference(at, a, b, ordinal)
                if wrong is not None:
                    return wrong
        except Unlike as unlike:
            return _Wrong(label=unlike.args[0], actual=unlike.args[1], expected=unlike.args[2])
        return None

    def writes(self, written: Sequence[Array], after: Sequence[Array]) -> _Wrong | None:
        """Return the first array, of the arguments or from outside, whose contents differ afterwards."""
        start = len(self.call.trace.returned)
        numbers = {k: start + j for j, k in enumerate(self.call.trace.writes)}
        donated = {k for tree, first in self.call.donated for k in range(first, first + tree.count)}
        names = [a.name for a in self.call.arguments if not a.is_static]
        for k, (name, a, b) in enumerate(zip(names, self.mine.leaves, self.plain.leaves, strict=True)):
            if isinstance(a, np.ndarray) and k not in donated:
                wrong = self.leaf_difference(f"argument {name} afterwards", a, b, numbers.get(k))
                if wrong is not None:
                    return wrong
        start += len(self.call.trace.writes)
        for k, (w, a, b) in enumerate(zip(self.call.trace.outside_writes, after, written, strict=True)):
            if is_of_call(w.read):
                with serving(self.plain.objects(self.function)):
                    b = w.read()
            wrong = self.leaf_difference(f"{w.describe} afterwards", a, b, start + k)
            if wrong is not None:
                return wrong
        return None

    def interpreted(self, result: Any) -> _Wrong | None:
        """Return the first leaf that differs from the interpreter's result."""
        leaves, tree = flatten(_ordered(result))
        exact = self.rounding.exact
        for k, (at, a) in enumerate(zip(leaf_paths(tree, "result"), leaves, strict=True)):
            wrong = self.leaf_difference(at, a, exact[self.ordinal(k)], self.ordinal(k))
            if wrong is not None:
                return wrong
        return None

    def leaf_difference(self, label: str, got: Any, expected: Any, ordinal: int | None) -> _Wrong | None:
        """Return the difference of two leaves beyond rounding; None if there is none."""
        a, b = np.asarray(got), np.asarray(expected)
        if a.shape != b.shape or a.dtype != b.dtype:
            return _Wrong(label=label, actual=_typed(a), expected=_typed(b), ordinal=ordinal)
        wrong = beyond(a, b, 0.0)
        if wrong.any() and ordinal is not None:
            wrong &= ~self.rounding.explains(ordinal, a, b)
        if not wrong.any():
            return None
        index = tuple(int(k) for k in np.argwhere(wrong)[0])
        return _Wrong(label=label, actual=f"{a[index]!s} ({_typed(a)})", expected=f"{b[index]!s}", index=index, ordinal=ordinal)

    @cached_property
    def rounding(self) -> Interpreted:
        """The interpreted runs that show how much rounding can change the program's results."""
        return interpreted(self.call)

    def error(self, wrong: _Wrong, outcome: Any) -> VerificationError:
        """Build the error that names the line where the two first differ."""
        line = None if isinstance(outcome, Exception) else _outcome(self.line)
        if isinstance(line, Difference) and line.file:
            loc, reason = Loc(line.file, line.line), f"{line.what} is {line.found}, plain Python has {line.expected}"
        else:
            loc, reason = self.producer(wrong.ordinal), "makes it" if wrong.ordinal is not None else ""
            traceback = outcome.__traceback__ if isinstance(outcome, Exception) else None
            while traceback is not None and traceback.tb_next is not None:
                traceback = traceback.tb_next
            if traceback is not None:
                loc = Loc(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        error = VerificationError(self.call.title, wrong, loc, reason)
        if loc.file:
            error.__traceback__ = traceback_at(loc.file, loc.line)
        return error

    def line(self) -> Difference | None:
        """Return the first difference between the plain run and the trace, or else between a compiled instruction and the
        interpreter."""
        function, _ = self.reference

        def run_plain() -> Any:
            fresh = _Copies(self.before.args, self.before.kwargs, self.before.leaves)
            with in_python(prints=False), np.errstate(all="ignore"):
                assert function is not None
                return function(*fresh.args, **fresh.kwargs)

        fresh = _Copies(self.before.args, self.before.kwargs, self.before.leaves)
        call = self.function.examine(fresh.args, fresh.kwargs)
        return diverging_line(call, (lambda: None) if function is None else run_plain)

    def producer(self, index: int | None) -> Loc:
        """Return the location of the instruction that computes a result of the program."""
        function = self.call.trace.function
        results = function.results
        if index is None or index >= len(results):
            return NOWHERE
        instruction = next((i for i in reversed(function.instructions) if results[index] in i.results), None)
        return NOWHERE if instruction is None else _inner(instruction, results[index])


def _inner(instruction: Any, value: Any) -> Loc:
    """Return the location of an instruction or, if it has none, of the last located instruction in its regions."""
    if instruction.loc or not instruction.regions:
        loc: Loc = instruction.loc
        return loc
    locs = (i.loc for region in instruction.regions for i in reversed(region.instructions) if i.loc)
    return next(locs, NOWHERE)


def beyond(actual: Array, expected: Array, allowed: Any) -> Any:
    """Return a mask of the elements that differ by more than ULPS units in the last place plus ``allowed``. NaNs are equal,
    zeros too."""
    if expected.dtype.kind not in "fc":
        return np.asarray(actual != expected)
    with np.errstate(all="ignore"):
        close = np.abs(actual - expected) <= ULPS * np.finfo(expected.dtype).eps * np.abs(expected) + allowed
        same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    return np.asarray(~(close | same))


def _unlike_errors(actual: Any, expected: Any) -> _Wrong | None:
    """Return the difference between two outcomes if one is an exception that the other does not match."""
    if not isinstance(actual, Exception) and not isinstance(expected, Exception):
        return None
    if isinstance(actual, Exception) and isinstance(expected, Exception):
        public = next(k for k in type(expected).__mro__ if "._" not in k.__module__)
        if isinstance(actual, public) and _same_message(_message(actual), _message(expected)):
            return None
    return _Wrong(label="exception", actual=_outcome_text(actual), expected=_outcome_text(expected))


_WITH_COUNTS = ("operands could not be broadcast together", "NumPy boolean array indexing assignment cannot assign")
"""Beginnings of NumPy errors that go on with the number of elements a mask selects, which compiled code does not report."""


def _same_message(text: str, expected: str) -> bool:
    """Return whether two messages agree, except for the counts of selected elements."""
    return text == expected or any(text.startswith(s) and expected.startswith(s) and ": a mask" in text for s in _WITH_COUNTS)


def _message(error: Exception) -> str:
    """Return the message of an exception, without digits for a singular matrix: they differ from NumPy's."""
    text = " ".join(str(error).split())
    return re.sub(r"\d+(-th)?", "", text) if isinstance(error, np.linalg.LinAlgError) else text


def _outcome_text(outcome: Any) -> str:
    """Return the text of an outcome."""
    return f"raises {type(outcome).__name__}: {outcome}" if isinstance(outcome, Exception) else "gives a result"


def _typed(x: Array) -> str:
    return f"{x.dtype}[{', '.join(map(str, x.shape))}]"


def _ordered(value: Any) -> Any:
    """Return a tree with sorted lists in place of sets."""
    if type(value) in (tuple, list):
        return type(value)(map(_ordered, value))
    if type(value) is dict:
        return {k: _ordered(v) for k, v in value.items()}
    return ("a set", sorted(value)) if type(value) is set else value


def _ordinals(tree: TreeDef, numbers: Iterator[int]) -> list[int]:
    """Return the numbers of the leaves of a structure; of a number with a tag, that of the number."""
    if tree.kind == "leaf":
        return [next(numbers)]
    inside = [k for child in tree.children for k in _ordinals(child, numbers)]
    return inside[:1] if tree.kind == "registered" and tree.type is MixedResult else inside
