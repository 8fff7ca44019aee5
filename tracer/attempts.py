"""The ways to trace a call, in the order in which they are tried.

A trace that ends with an error is followed by the first attempt of ``ATTEMPTS`` that applies after the failures so far. Most
functions need the first one alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.frame import Frame
from pullback.tracer.syntax.bytecode import LoopKey
from pullback.tracer.user_code.errors import Restart, TraceError
from pullback.tracer.user_code.source import shown

RAISED = (ValueError, TypeError, IndexError, ArithmeticError, AssertionError, np.linalg.LinAlgError)
"""Exceptions that a function raises in plain Python too if they end a trace with branches and loops as instructions, outside any
of these. Another one, such as a NameError for a variable that another path binds, may be the trace's own."""
MOST_PLAIN = 8
"""Largest number of loops of functions without source that turn out, one after another, to have no common body."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The ``error`` of an attempt, None if its trace is not kept.

    ``is_final``: it is the error of any other attempt too, since no function was rewritten, or since a check failed that the
    program has as well. ``has_lists``: rewritten functions made lists, ``has_nested``: they have lists of lists at indices that
    values decide. ``has_keys``: rewritten functions made dicts or sets whose keys values may decide. ``has_static_arrays``:
    functions created arrays of static values, which may be traced. ``perform`` makes the host calls before the error.
    """

    error: Exception | None
    is_final: bool
    has_lists: bool = False
    has_nested: bool = False
    has_keys: bool = False
    has_static_arrays: bool = False
    perform: Callable[[], None] = lambda: None

    def wants(self, *wishes: str) -> bool:
        """Return whether the error is a TraceError and has one of some attributes set, if there are any. ``wants_traced`` counts
        only where there are arrays that may be traced."""
        if not isinstance(self.error, TraceError):
            return False
        wanted = [w for w in wishes if getattr(self.error, w) and (w != "wants_traced" or self.has_static_arrays)]
        return not wishes or bool(wanted)


@dataclass(kw_only=True)
class Failures:
    """The failures of a call so far, by the names of the attempts, and how the call is traced.

    ``rolls`` and ``follows_choices`` are options of the function. ``leaves_handlers``: where an operation raises an
    error in a ``try`` statement that handles it, the call ends with TraceError, which is tried if no guard can decide whether one
    is raised; all attempts may be made anew then.
    ``ends_act``: a ``finally`` clause or the end of a ``with`` statement has an effect on the outside, or may suppress an
    exception, so it runs where an operation raises an error, too.
    ``defects`` are errors that may be this package's own. ``plain_loops``: the loops of functions without source whose trace as
    one body failed, which unroll in the attempts after it. ``settles_truths``: see ``Frame``.
    ``stored_inputs``: the places to which the function stores whose numbers are inputs, and the containers from
    outside that it changes; ``read_whole``: those whose contents are inputs, since a trace without them failed;
    ``in_items``: the lists whose items are read one by one, since a trace with their elements in arrays failed.
    """

    rolls: bool
    follows_choices: bool
    leaves_handlers: bool = False
    ends_act: bool = False
    by_name: dict[str, Failure] = field(default_factory=dict)
    defects: list[Exception] = field(default_factory=list)
    plain_loops: frozenset[LoopKey] = frozenset()
    settles_truths: bool = False
    stored_inputs: frozenset[str] = frozenset()
    read_whole: frozenset[str] = frozenset()
    in_items: frozenset[str] = frozenset()

    def wants(self, name: str, *wishes: str) -> bool:
        """Return whether an attempt failed with a TraceError that has one of some attributes set."""
        return name in self.by_name and self.by_name[name].wants(*wishes)

    def error(self, *names: str) -> Exception | None:
        """Return the error of the last of some attempts that failed."""
        return next((self.by_name[n].error for n in reversed(names) if n in self.by_name), None)

    def last(self, names: tuple[str, ...]) -> Failure | None:
        """Return the last failure if it is a TraceError of one of some attempts."""
        if not self.by_name or next(reversed(self.by_name)) not in names:
            return None
        failure = next(reversed(self.by_name.values()))
        return failure if isinstance(failure.error, TraceError) and not self.is_final else None

    @property
    def is_final(self) -> bool:
        """Whether the attempts with rewritten functions ended with an error that is the one of any other."""
        return any(failure.is_final for failure in self.by_name.values())

    @property
    def rolled(self) -> Exception | None:
        """The error for which branches and loops are not compiled: that of the trace with keys that values decide if one before
        ended at such a key; that of the trace with lists as rows of arrays if there is one with plain lists after it; else the
        one before, or the last if it is no TraceError."""
        if self.is_final:
            return None
        if self.error(*KEYS) is not None and any(failure.wants("wants_keys") for failure in self.by_name.values()):
            return self.error(*KEYS)
        first = self.error(*(LISTS_AS_ROWS if self.error(*PLAIN_LISTS) else LISTS_AS_THEY_ARE))
        last = self.error(*ROLLED)
        return first if isinstance(last, TraceError) else last

    @property
    def unrolled(self) -> Exception | None:
        """The error of a trace without rewritten functions."""
        return self.error(*ROLLED) if self.is_final else self.error("unrolled")

    def is_refused(self, *wishes: str) -> bool:
        """Return whether a trace without rewritten functions failed with a TraceError that has one of some attributes set."""
        names = [n for n in ROLLED if n in self.by_name] if self.is_final else ["unrolled"]
        return self.wants(names[-1], *wishes)

    @property
    def reason(self) -> str:
        """Why branches and loops are not compiled, or why they cannot be as the function is written."""
        return reason_of(self.rolled)

    @property
    def reason_to_follow(self) -> str:
        """Why the choices of a call are followed."""
        return reason_of(self.rolled if isinstance(self.rolled, TraceError) else self.unrolled)

    def add(self, attempt: Attempt, frame: Frame, error: Exception) -> None:
        """Note a failure."""
        failed_check = frame.outcomes is not None and frame.outcomes.failed is not None
        has_more = frame.is_rewritten or (isinstance(error, TraceError) and (error.wants_lists or error.wants_keys))
        is_final = attempt.name in ROLLED and (not has_more or failed_check)
        self.by_name[attempt.name] = Failure(
            error=error, is_final=is_final, has_lists=frame.has_lists, has_nested=frame.has_nested,
            has_keys=frame.has_keys, has_static_arrays=frame.has_static_arrays, perform=frame.perform,
        )  # fmt: skip
        self.defects += [*frame.defects, error]

    def adapts(self, frame: Frame, error: BaseException) -> bool:
        """Return whether an attempt that failed with an error is to be repeated: with other inputs, unless a later attempt may do
        without, or with keys of outside dicts that values decide, or, for functions without source, with Python bools that are
        True or False, or with one more loop unrolled; or all attempts, with the items of lists from outside one by one."""
        if not frame.wanted_inputs <= self.stored_inputs:
            self.stored_inputs |= frame.wanted_inputs
            self.read_whole |= frame.wanted_whole
            return True
        has_rows_later = isinstance(error, TraceError) and error.wants_lists and frame.grows is None
        has_keys_later = isinstance(error, TraceError) and error.wants_keys and not frame.is_keyed
        if not frame.only_added <= self.read_whole and not has_rows_later and not has_keys_later:
            self.read_whole |= frame.only_added
            return True
        if frame.wants_ends and not self.ends_act:
            self.ends_act = True
            return True
        if isinstance(error, TraceError) and error.wants_keys and not frame.plain_dicts <= self.stored_inputs:
            self.stored_inputs |= frame.plain_dicts
            self.read_whole |= frame.plain_dicts
            return True
        is_refused = isinstance(error, TraceError | Restart) and not has_keys_later
        if is_refused and frame.grows and not frame.in_columns <= self.in_items:
            self.in_items |= frame.in_columns
            self.by_name.clear()
            return True
        if frame.needs_truths and not self.settles_truths:
            self.settles_truths = True
            return True
        if not frame.failed_loops or len(self.plain_loops) == MOST_PLAIN:
            return False
        self.plain_loops |= {frame.failed_loops[0]}
        return True

    def discard(self, attempt: Attempt) -> None:
        """Note that an attempt that is not kept did not fail."""
        self.by_name[attempt.name] = Failure(error=None, is_final=False)

    def clear(self) -> None:
        """Forget the errors."""
        self.by_name.clear()
        self.defects.clear()

    def begin_again(self) -> bool:
        """Return whether all attempts are to be made anew in another way, and forget the failures then."""
        if self.is_refused("wants_rolled") and not self.rolls:
            self.rolls = True
        elif not self.leaves_handlers and (
            self.is_refused("wants_checks") or (self.is_refused() and getattr(self.rolled, "wants_checks", False))
        ):
            self.leaves_handlers = True
        else:
            return False
        self.by_name.clear()
        return True

    def perform(self, error: Exception) -> None:
        """Make the host calls of the function before an error of an attempt, which is the one of the call."""
        if not isinstance(error, TraceError):
            next(failure for failure in self.by_name.values() if failure.error is error).perform()

    def final(self) -> Exception:
        """Return the error of the call. That of a trace without rewritten functions says why another one failed."""
        error, rolled = self.unrolled, self.rolled
        assert error is not None
        if isinstance(rolled, TraceError) and not _is_same(rolled, error):
            assert isinstance(error, TraceError)
            error.origins = (*error.origins, f"not rolled: {reason_of(rolled)}")
        elif isinstance(rolled, RAISED):
            return rolled
        return error


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One way to trace a call, whose frame has the ``settings`` (see ``Frame``).

    ``applies`` returns whether it is the next one after the failures so far. ``is_kept``: its result is the trace; else it is run
    for the errors that the function raises. ``by_line``: side effects are checked after each line, to locate one.
    """

    name: str
    applies: Callable[[Failures], bool]
    settings: Callable[[Failures], dict[str, bool | None]]
    is_kept: bool = True
    by_line: bool = False

    def frame(self, failures: Failures) -> Frame:
        """Return the frame of the trace."""
        frame = Frame()
        frame.follows_syntax = False if failures.rolls else None
        frame.leaves_handlers, frame.plain_loops = failures.leaves_handlers, failures.plain_loops
        frame.settles_truths, frame.ends_act = failures.settles_truths, failures.ends_act
        for name, value in self.settings(failures).items():
            setattr(frame, name, value)
        frame.rolls = bool(frame.follows_syntax)
        return frame

    def is_of_call(self, error: Exception, failures: Failures) -> bool:
        """Return whether an error of the attempt, which was added to the failures, is the one of the call."""
        if isinstance(error, TraceError):
            return self.by_line or self is AS_WRITTEN
        return failures.is_final or self.name not in (*ROLLED, *FOLLOWED)


def _rolled(
    name: str, applies: Callable[[Failures], bool], grows: bool | None, traces_made: bool = False, nests: bool = False,
    is_keyed: bool = False,
) -> Attempt:  # fmt: skip
    """Return an attempt with the syntax of the functions rewritten."""
    settings = {"follows_syntax": True, "grows": grows, "traces_made": traces_made, "nests": nests, "is_keyed": is_keyed}
    return Attempt(name=name, applies=applies, settings=lambda failures: settings)


def _followed(name: str, applies: Callable[[Failures], bool], is_kept: bool = True, **settings: bool) -> Attempt:
    """Return an attempt with the choices of the call as guards."""
    return Attempt(name=name, applies=applies, is_kept=is_kept, settings=lambda failures: {"follows_choices": True, **settings})


LISTS_AS_THEY_ARE = "rolled", "rolled, arrays traced"
LISTS_AS_ROWS = "lists as rows", "lists as rows, arrays traced"
NESTED_LISTS = "nested lists as rows", "nested lists as rows, arrays traced"
PLAIN_LISTS = "plain lists", "plain lists, arrays traced"
WITHOUT_KEYS = LISTS_AS_THEY_ARE + LISTS_AS_ROWS + NESTED_LISTS + PLAIN_LISTS
KEYS = "keys by value", "keys by value, arrays traced"
ROLLED = WITHOUT_KEYS + KEYS
FOLLOWED = "followed", "followed, arrays traced"


def _makes_lists(failures: Failures) -> bool:
    last = failures.last(LISTS_AS_THEY_ARE)
    return last is not None and last.has_lists and not getattr(last.error, "wants_checks", False)


def _has_nested(failures: Failures) -> bool:
    last = failures.last(LISTS_AS_ROWS)
    return last is not None and last.has_nested and not getattr(last.error, "wants_checks", False)


def _has_keys(failures: Failures) -> bool:
    last = failures.last(WITHOUT_KEYS)
    has_keys = any(failure.has_keys for failure in failures.by_name.values())
    return last is not None and has_keys and not getattr(last.error, "wants_checks", False)


def _may_follow(failures: Failures) -> bool:
    return failures.follows_choices and failures.is_refused("wants_guards")


def _wants_traced(name: str) -> Callable[[Failures], bool]:
    """Return whether an attempt was made that would have to trace arrays of static values too, as a function of the failures."""
    return lambda f: f.last((name,)) is not None and f.wants(name, "wants_traced")


ATTEMPTS = (
    _rolled("rolled", lambda f: f.rolls and not f.by_name, None),
    _rolled(
        "rolled, arrays traced",
        lambda f: (
            f.last(("rolled",)) is not None
            and f.wants("rolled", "wants_traced")
            and not f.wants("rolled", "wants_lists", "wants_checks")
        ),
        None,
        True,
    ),
    _rolled("lists as rows", _makes_lists, True),
    _rolled("lists as rows, arrays traced", _wants_traced("lists as rows"), True, True),
    _rolled("nested lists as rows", _has_nested, True, nests=True),
    _rolled("nested lists as rows, arrays traced", _wants_traced("nested lists as rows"), True, True, nests=True),
    _rolled(
        "plain lists",
        lambda f: f.last(LISTS_AS_ROWS + NESTED_LISTS) is not None and getattr(f.error(*LISTS_AS_THEY_ARE), "wants_lists", False),
        False,
    ),
    _rolled(
        "plain lists, arrays traced",
        lambda f: (
            f.last(("plain lists",)) is not None
            and f.wants("plain lists", "wants_traced")
            and not f.wants("plain lists", "wants_lists")
        ),
        False,
        True,
    ),
    _rolled("keys by value", _has_keys, True, is_keyed=True),
    _rolled("keys by value, arrays traced", _wants_traced("keys by value"), True, True, is_keyed=True),
    Attempt(
        name="unrolled",
        applies=lambda f: not f.is_final and (f.error(*ROLLED) is not None or not f.rolls),
        settings=lambda f: {},
    ),
    _followed("followed", _may_follow),
    _followed("followed, arrays traced", lambda f: _may_follow(f) and f.wants("followed", "wants_traced"), traces_made=True),
    _followed("values followed", _may_follow, is_kept=False, traces_made=True, follows_values=True),
)
"""The attempts in their order. Each is made at most once, unless ``Failures.begin_again`` or
``Failures.adapts``.

Rewritten functions come first. If the error says so, arrays that the function creates are traced; if it makes lists, they may be
rows of arrays, then lists of lists too, and if this fails and the first trace ended at a list that grows in a block, plain lists,
whose loops may unroll. If it makes dicts or sets, values may decide their keys. Then the function is traced as it is, and at last
for the choices of the call, which become guards."""

LAST = (
    Attempt(
        name="arrays traced",
        applies=lambda f: f.is_refused("wants_traced", "wants_counts") and not isinstance(f.rolled, RAISED),
        settings=lambda f: {"traces_made": f.is_refused("wants_traced"), "counts_chosen": f.is_refused("wants_counts")},
    ),
    Attempt(
        name="by line",
        applies=lambda f: f.is_refused("is_effect") and not isinstance(f.rolled, RAISED),
        settings=lambda f: {},
        by_line=True,
    ),
)
"""The attempts for what is refused in all others: with traced arrays in place of static ones, so that the function may write into
them, or with guarded counts; and to locate a side effect, which succeeds if another thread made the change."""


def next_attempt(failures: Failures, as_written: bool = False) -> Attempt | None:
    """Return the attempt after the failures so far; None if there is none. ``as_written``: see ``trace``."""
    if as_written:
        return AS_WRITTEN
    for attempts in (ATTEMPTS, LAST):
        for attempt in attempts:
            if attempt.name not in failures.by_name and attempt.applies(failures):
                return attempt
        if attempts is ATTEMPTS and failures.begin_again():
            return next_attempt(failures)
    return None


AS_WRITTEN = Attempt(
    name="as written", applies=lambda f: False, settings=lambda f: {"follows_syntax": False, "follows_choices": True}
)
"""The attempt to trace a call line by line as Python runs it, for its choices."""


def reason_of(error: Exception | None) -> str:
    """Return what a trace was refused for, and where; the exception's own text if it is another one."""
    if not isinstance(error, TraceError):
        return f"{type(error).__name__}: {error}" if error is not None else ""
    return f"{error.message.partition('; ')[0]}, at {shown(error.file)}:{error.line}"


def _is_same(failed: TraceError, error: Exception) -> bool:
    """Return whether two traces of a call were refused for the same reason. The source of a branch on a value is known in one."""
    if not isinstance(error, TraceError) or (failed.file, failed.line) != (error.file, error.line):
        return False
    return failed.message == error.message or (failed.wants_guards and error.wants_guards)
