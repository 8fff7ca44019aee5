"""A compiled call beside plain Python, for ``pb.jit(verify=n)``.

The function runs in plain Python on copies of the arguments, which share memory where those do. What both give is compared:
structure, dtypes, shapes, values, what they wrote, exceptions. Where there is no plain Python, as for gradients, the interpreter
stands in its place.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.checking.control_flow_reference import in_python
from pullback.checking.divergence import Difference, diverging_line
from pullback.checking.rounding_noise import Interpreted, interpreted
from pullback.compiled.transform import Gradient
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.structure import NOWHERE, Loc
from pullback.programs.call import Call
from pullback.programs.entry import MISS
from pullback.programs.report import place
from pullback.tracer import TraceError, flatten
from pullback.tracer.user_code.source import line_text
from pullback.tracer.user_code.tracebacks import traceback_at
from pullback.tree import places

if TYPE_CHECKING:
    from pullback.compiled.function import Jitted

__all__ = ["MISS", "VerificationError", "compare"]

Run = Callable[[Sequence[Any], Mapping[str, Any]], Any]
Array = np.ndarray[Any, Any]

ULPS = 4
"""By so many units in the last place elements may differ, whatever was computed: formulas are not always NumPy's own."""


class VerificationError(AssertionError):
    """A compiled call did something else than plain Python.

    ``function`` is the function with its transforms; ``what`` what differs first (``result[1]``, ``x afterwards``, ``exception``)
    and ``index`` the element's, None if it is not one; ``found`` is the compiled function's and ``expected`` plain Python's, as
    text with dtype. ``file``, ``line`` and ``source`` are the user's line after which both first differ, else the one that made
    what differs; empty if unknown. ``reason`` says what is known of that line.
    """

    __module__ = "pullback"

    def __init__(self, function: str, wrong: _Wrong, loc: Loc, reason: str) -> None:
        self.function, self.what, self.index = function, wrong.what, wrong.index
        self.found, self.expected = wrong.found, wrong.expected
        self.file, self.line = loc.file, loc.line
        self.source = line_text(loc.file, loc.line).strip() if loc.file else ""
        self.reason = reason
        super().__init__(str(self))

    def __str__(self) -> str:
        at = "" if self.index is None or not self.index else f" at {list(self.index)}"
        lines = [f"verify: {self.function}: {self.what} differs{at}: compiled {self.found}, plain Python {self.expected}"]
        if self.file:
            lines += [f"  {place(Loc(self.file, self.line))}{': ' if self.reason else ''}{self.reason}", f"    {self.source}"]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class _Wrong:
    """A difference. ``number``: of the program's result that differs, if it is one."""

    what: str
    found: str
    expected: str
    index: tuple[int, ...] | None = None
    number: int | None = None


def compare(function: Jitted[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], run: Run, *, given: bool = False) -> Any:
    """The result of a compiled call, ``run(args, kwargs)``, if plain Python does the same on copies of the arguments. Without
    ``given`` the call is made on copies too.

    Raises VerificationError where it does not, after which arguments and arrays from outside are as they were; what the call
    raises if plain Python raises the same; TypeError if an argument cannot be copied.
    """
    leaves = function.examine(args, kwargs).leaves
    before, plain = _Copies(args, kwargs, leaves), _Copies(args, kwargs, leaves)
    mine = _Given(args, kwargs, leaves) if given else _Copies(args, kwargs, leaves)
    call = function.examine(before.args, before.kwargs)
    traced = _outcome(lambda: call.trace)
    if isinstance(traced, TraceError):
        raise traced
    written = [] if isinstance(traced, Exception) else [w.read() for w in traced.outside_writes]
    kept = [np.array(x) for x in written]
    found = _outcome(run, mine.args, mine.kwargs)
    if isinstance(found, TraceError):
        raise found
    made = [np.array(x) for x in written]
    _write(written, kept)
    check = _Check(function, call, before, mine, plain)
    wrong = check.first(found, written, made)
    if wrong is not None:
        _write(written, kept)
        error = check.error(wrong, found)
        mine.restore(before)
        _write(written, kept)
        raise error
    _write(written, made if given else kept)
    if isinstance(found, Exception):
        raise found
    return found


@dataclass(frozen=True, eq=False)
class _Given:
    """A call's own arguments; ``leaves`` are the arrays and numbers in them."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    leaves: Sequence[Any]

    def restore(self, before: _Given) -> None:
        """Writes into the arrays what they held before."""
        for x, old in zip(self.leaves, before.leaves, strict=True):
            if isinstance(x, np.ndarray) and x.flags.writeable and x.tobytes() != old.tobytes():
                x[...] = old


class _Copies(_Given):
    """Copies of them: arrays lie in memory as theirs do."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: Sequence[Any]) -> None:
        memo: dict[int, Any] = {id(a): a for a in (*args, *kwargs.values()) if type(a) is object}
        made = copied_arrays([x for x in leaves if isinstance(x, np.ndarray)])
        memo.update(made)
        memo.update({id(x): np.asarray(x) for x in leaves if isinstance(x, Remote)})
        try:
            found, words = copy.deepcopy((tuple(args), dict(kwargs)), memo)
        except Exception as error:
            raise TypeError(f"verify: an argument cannot be copied for plain Python ({error}); compile without verify") from error
        super().__init__(found, words, [memo.get(id(x), x) for x in leaves])


def copied_arrays(arrays: Sequence[Array]) -> dict[int, Array]:
    """Copies of arrays by the ids of these, with the same strides and flags; they overlap where the arrays do."""
    found: dict[int, Array] = {}
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
            made: Array = np.ndarray(x.shape, x.dtype, memory, offset, x.strides)
            found[id(x)] = made
        for k in members:
            twin = found[id(arrays[k])]
            if not any(s == 0 for s in twin.strides):
                twin[...] = arrays[k]
            else:
                np.copyto(_once(twin), _once(arrays[k]))
            twin.flags.writeable = arrays[k].flags.writeable
    for x in arrays:
        if not x.size:
            found[id(x)] = x.copy()
    return found


def _once(x: Array) -> Array:
    """An array without the repetitions of a broadcast."""
    return x[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in x.strides)]


def _write(arrays: Sequence[Array], values: Sequence[Array]) -> None:
    for x, value in zip(arrays, values, strict=True):
        x[...] = value


def _outcome(run: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return run(*arguments)
    except Exception as error:
        return error


@dataclass(frozen=True, eq=False)
class _Check:
    """A compiled call and what it is compared with: ``call`` is on copies from before it, ``mine`` were its arguments, ``plain``
    are those of plain Python."""

    function: Jitted[..., Any]
    call: Call
    before: _Given
    mine: _Given
    plain: _Given

    @property
    def reference(self) -> tuple[Callable[..., Any] | None, bool]:
        """The plain function, if there is one, and whether it gives the whole result or the value beside a gradient."""
        found: Any = self.function
        is_whole = True
        while hasattr(found, "is_plain"):
            if not found.is_plain:
                is_value = isinstance(found._transform, Gradient) and found._transform.name == "value_and_grad"
                if not is_value or not is_whole:
                    return None, False
                is_whole = False
            found = found.__wrapped__
        return found, is_whole

    def first(self, found: Any, written: Sequence[Array], made: Sequence[Array]) -> _Wrong | None:
        """The first difference; ``written`` are arrays from outside, which hold what they did before the call, and ``made`` what
        the call left in them."""
        function, is_whole = self.reference
        if function is None:
            return None if isinstance(found, Exception) else self.interpreted(found)
        with in_python(prints=False), np.errstate(all="ignore"):
            expected = _outcome(lambda: function(*self.plain.args, **self.plain.kwargs))
        wrong = _unlike_errors(found, expected)
        if wrong is not None or isinstance(found, Exception):
            return wrong
        wrong = self.values("result", found if is_whole else found[0], expected, 0)
        if wrong is None and not is_whole:
            return self.interpreted(found)
        return wrong or self.writes(written, made)

    def values(self, name: str, found: Any, expected: Any, number: int) -> _Wrong | None:
        """The first leaf that differs, of results the first of which is one of the program."""
        if hasattr(expected, "__array__") and not isinstance(expected, np.ndarray | np.generic):
            expected = np.asarray(expected)
        leaves, tree = flatten(found)
        wanted, other = flatten(expected)
        if tree != other:
            return _Wrong(what="the structure of the result", found=str(tree), expected=str(other))
        for k, (at, a, b) in enumerate(zip(places(tree, name), leaves, wanted, strict=True)):
            wrong = self.unlike(at, a, b, number + k)
            if wrong is not None:
                return wrong
        return None

    def writes(self, written: Sequence[Array], made: Sequence[Array]) -> _Wrong | None:
        """The first array of the arguments, or from outside, that holds something else afterwards."""
        start = len(self.call.trace.returned)
        numbers = {k: start + j for j, k in enumerate(self.call.trace.writes)}
        donated = {k for tree, first in self.call.donated for k in range(first, first + tree.count)}
        names = [a.name for a in self.call.arguments if not a.is_static]
        for k, (name, a, b) in enumerate(zip(names, self.mine.leaves, self.plain.leaves, strict=True)):
            if isinstance(a, np.ndarray) and k not in donated:
                wrong = self.unlike(f"argument {name} afterwards", a, b, numbers.get(k))
                if wrong is not None:
                    return wrong
        start += len(self.call.trace.writes)
        for k, (w, a, b) in enumerate(zip(self.call.trace.outside_writes, made, written, strict=True)):
            wrong = self.unlike(f"{w.describe} afterwards", a, b, start + k)
            if wrong is not None:
                return wrong
        return None

    def interpreted(self, found: Any) -> _Wrong | None:
        """The first leaf that the interpreter finds to be another."""
        leaves, tree = flatten(found)
        exact = self.rounding.exact
        for k, (at, a) in enumerate(zip(places(tree, "result"), leaves, strict=True)):
            wrong = self.unlike(at, a, exact[k], k)
            if wrong is not None:
                return wrong
        return None

    def unlike(self, what: str, found: Any, expected: Any, number: int | None) -> _Wrong | None:
        """Where two leaves differ by more than rounding."""
        a, b = np.asarray(found), np.asarray(expected)
        if a.shape != b.shape or a.dtype != b.dtype:
            return _Wrong(what=what, found=_typed(a), expected=_typed(b), number=number)
        wrong = beyond(a, b, 0.0)
        if wrong.any() and number is not None:
            wrong &= ~self.rounding.explains(number, a, b)
        if not wrong.any():
            return None
        index = tuple(int(k) for k in np.argwhere(wrong)[0])
        return _Wrong(what=what, found=f"{a[index]!s} ({_typed(a)})", expected=f"{b[index]!s}", index=index, number=number)

    @cached_property
    def rounding(self) -> Interpreted:
        """What rounding may change in the program's results."""
        return interpreted(self.call)

    def error(self, wrong: _Wrong, found: Any) -> VerificationError:
        """The error that says where both first differ."""
        line = None if isinstance(found, Exception) else _outcome(self.line)
        if isinstance(line, Difference) and line.file:
            loc, reason = Loc(line.file, line.line), f"{line.what} is {line.found}, plain Python has {line.expected}"
        else:
            loc, reason = self.producer(wrong.number), "makes it" if wrong.number is not None else ""
            traceback = found.__traceback__ if isinstance(found, Exception) else None
            while traceback is not None and traceback.tb_next is not None:
                traceback = traceback.tb_next
            if traceback is not None:
                loc = Loc(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
        error = VerificationError(self.call.title, wrong, loc, reason)
        if loc.file:
            error.__traceback__ = traceback_at(loc.file, loc.line)
        return error

    def line(self) -> Difference | None:
        """The user's line after which the plain run and the trace first differ, or that of the first instruction whose compiled
        result is not the interpreter's."""
        function, _ = self.reference

        def again() -> Any:
            fresh = _Copies(self.before.args, self.before.kwargs, self.before.leaves)
            with in_python(prints=False), np.errstate(all="ignore"):
                assert function is not None
                return function(*fresh.args, **fresh.kwargs)

        fresh = _Copies(self.before.args, self.before.kwargs, self.before.leaves)
        call = self.function.examine(fresh.args, fresh.kwargs)
        return diverging_line(call, (lambda: None) if function is None else again)

    def producer(self, number: int | None) -> Loc:
        """The line of the instruction that makes a result of the program."""
        function = self.call.trace.function
        results = function.results
        if number is None or number >= len(results):
            return NOWHERE
        made = next((i for i in reversed(function.instructions) if results[number] in i.results), None)
        return NOWHERE if made is None else _inner(made, results[number])


def _inner(made: Any, value: Any) -> Loc:
    """The line of an instruction, or of what its region gives, if that has none."""
    if made.loc or not made.regions:
        found: Loc = made.loc
        return found
    locs = (i.loc for region in made.regions for i in reversed(region.instructions) if i.loc)
    return next(locs, NOWHERE)


def beyond(found: Array, expected: Array, allowed: Any) -> Any:
    """Which elements differ by more than some units in the last place and what is allowed besides. NaN is NaN, of whatever bits,
    and zeros are equal."""
    if expected.dtype.kind not in "fc":
        return np.asarray(found != expected)
    with np.errstate(all="ignore"):
        close = np.abs(found - expected) <= ULPS * np.finfo(expected.dtype).eps * np.abs(expected) + allowed
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
    return np.asarray(~(close | same))


def _unlike_errors(found: Any, expected: Any) -> _Wrong | None:
    if not isinstance(found, Exception) and not isinstance(expected, Exception):
        return None
    if isinstance(found, Exception) and isinstance(expected, Exception):
        public = next(k for k in type(expected).__mro__ if "._" not in k.__module__)
        if isinstance(found, public) and _say_the_same(_words(found), _words(expected)):
            return None
    return _Wrong(what="exception", found=_said(found), expected=_said(expected))


_WITH_COUNTS = ("operands could not be broadcast together", "NumPy boolean array indexing assignment cannot assign")
"""Beginnings of NumPy's errors that go on with how many elements a mask chooses, which compiled code does not say."""


def _say_the_same(found: str, expected: str) -> bool:
    return found == expected or any(found.startswith(s) and expected.startswith(s) and ": a mask" in found for s in _WITH_COUNTS)


def _words(error: Exception) -> str:
    """What an exception says; of matrices that are singular without the numbers in it, which are not NumPy's."""
    text = " ".join(str(error).split())
    return re.sub(r"\d+(-th)?", "", text) if isinstance(error, np.linalg.LinAlgError) else text


def _said(outcome: Any) -> str:
    return f"raises {type(outcome).__name__}: {outcome}" if isinstance(outcome, Exception) else "gives a result"


def _typed(x: Array) -> str:
    return f"{x.dtype}[{', '.join(map(str, x.shape))}]"
