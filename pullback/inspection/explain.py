"""The explain report: whether a call is traced and compiled, and why."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

from pullback.inspection.provenance import dissect
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Loc
from pullback.ir.passes.size_classes import templated
from pullback.programs import matmul_choices
from pullback.programs.argument_types import ArgumentType, key_text, shortened, type_text
from pullback.programs.call import Call
from pullback.programs.dynamic_shapes import Failed, Instantiated, closest_failure
from pullback.programs.pipeline import has_template, is_stored, layouts_of, scheduled, split_outcomes
from pullback.programs.report import Report, counted, location, paragraph, table
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import parts_of
from pullback.tracer import Captured, Guard, Trace

if TYPE_CHECKING:
    from pullback.programs.branch_paths import Paths
    from pullback.programs.entry import Entry

Status = Literal["compiled", "other sizes", "size guard failed", "guard failed", "new signature", "first call"]
SHOWN_STAGES = ("trace", "grad", "simplify", "fuse", "lower", "schedule", "compile")
"""Stages whose times are shown, in order."""
MOST_SHOWN = 12
"""Largest number of entries shown in each list."""
MOST_SHOWN_STATEMENTS = 40
"""Largest number of branches, loops and checks shown."""
LONGEST_LINE = 40
"""Largest number of characters shown of a line of the user's."""


@dataclass(frozen=True, kw_only=True)
class Read:
    """Describe a value read from outside.

    Attributes
    ----------
    name : str
        The value, as the user would write it.
    text : str
        Its type, or the value that it must have.
    is_input : bool
        Whether it is read at each call; otherwise it is guarded.

    See Also
    --------
    Explanation : Holds the reads of a program.

    Examples
    --------
    >>> scale = np.ones(3)
    >>> f = pb.jit(lambda x: x * scale)
    >>> [(r.name, r.is_input) for r in f.explain(np.ones(3)).reads]
    [('scale', True), ('<lambda>', False)]
    """

    name: str
    text: str
    is_input: bool


@dataclass(frozen=True, kw_only=True)
class Change:
    """Describe an outside value or an argument's type that differs from the one in a compiled program.

    Attributes
    ----------
    name : str
        The value.
    old : str
        The value or type in the program; empty if unknown.
    new : str
        The value or type now.

    See Also
    --------
    Explanation : Holds the changes since a program was compiled.

    Examples
    --------
    >>> f = pb.jit(lambda x: x + 1)
    >>> _ = f(np.ones(3))
    >>> [(c.name, c.old, c.new) for c in f.explain(np.ones((3, 3))).changes]
    [('x', 'f64[3]', 'f64[3,3]')]
    """

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name} is {self.new}, was {self.old}" if self.old else f"{self.name} has changed; it is {self.new}"


@dataclass(frozen=True, kw_only=True)
class StaticNumber:
    """Describe an int or bool argument whose value the trace used: another value needs another program.

    Attributes
    ----------
    name : str
        The argument.
    value : object
        Its value.
    loc : Loc
        The user's line that used it.

    See Also
    --------
    Explanation : Holds those of a program.

    Examples
    --------
    >>> f = pb.jit(lambda x, n: x[:n])
    >>> _ = f(np.ones(5), 2)
    >>> [(s.name, s.value) for s in f.explain(np.ones(5), 2).static_numbers]
    [('n', 2)]
    """

    name: str
    value: Any
    loc: Loc


@dataclass(frozen=True, kw_only=True)
class BranchTaken:
    """A branch on a traced value that the trace followed (``pb.jit(guards=True)``): its ``text`` in the source at ``loc``, and
    the value that it must have."""

    text: str
    value: Any
    loc: Loc

    def __str__(self) -> str:
        return f"{self.text} is {shortened(self.value)} ({location(self.loc)})"


@dataclass(frozen=True, kw_only=True)
class ControlFlow:
    """A branch, a loop or a check of the function and of those that it calls.

    ``kind``: "branch", "loop", "check", or "function" for one whose source is not at hand. ``text``: the user's line at ``loc``.
    ``how`` it is compiled: "one side runs", "both sides are computed, and one is selected", "rolled: ..." (the body is compiled
    once), "unrolled: ..." and why, or "checked at run time, raises ...".
    """

    kind: Literal["branch", "loop", "check", "function"]
    text: str
    how: str
    loc: Loc

    def __str__(self) -> str:
        return f"{location(self.loc)}: {self.text.removesuffix(':')}: {self.how}"


@dataclass(frozen=True, kw_only=True)
class SizeCondition:
    """A condition on sizes that a function tested while it was traced (``pb.jit(dynamic=True)``).

    ``text``, such as ``x.shape[0] > 10``, was evaluated at ``loc``. A call for which it does not hold is traced again.
    """

    text: str
    loc: Loc

    def __str__(self) -> str:
        return f"{self.text} ({location(self.loc)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Report):
    """Hold the reason why a call runs a compiled program or is traced first.

    Attributes
    ----------
    function : str
        The function with its transforms.
    arguments : tuple of ArgumentType
        The arguments of the call.
    status : str
        "compiled" (a program exists), "guard failed" (one exists, but an outside value that it read has changed), "new signature"
        (programs exist for arguments of other types) or "first call"; with symbolic sizes also "other sizes" (the program of an
        existing trace serves the call) and "size guard failed" (none does).
    changes : tuple of Change
        The differences from the nearest existing program.
    reads : tuple of Read
        The outside values that the program depends on.
    static_numbers : tuple of StaticNumber
        The argument values that it depends on.
    branches : tuple of BranchTaken
        Its guards on traced values.
    signatures : int
        The number of the function's programs by types of arguments and static values.
    variants : int
        The number of its programs for this signature.
    template : str
        "built", "loaded", "instantiated" (of a compiled program), "new", "stored", "known" (if it were traced now) or "none"
        (nothing is computed).
    kernels : mapping of str to int
        How many kernels come from "memory", from "disk", or are "compiled".
    seconds : mapping of str to float
        The time of each stage; empty for a call that was not made.
    device : str
        Where the call runs.
    on_cpu : tuple of str
        The ops that the CPU computes, on copies, if ``device`` is another.
    choices : tuple of str
        The choices between generated kernels and libraries, and why, with measured times.
    path : str
        The path of calls like this one from the third on: "native", "native, but ..." or "Python, since ..."; empty for a call
        that would be traced.
    size_guards : tuple of SizeCondition
        Conditions on sizes in the user's lines.
    numbers_since : str
        Why sizes are concrete in a function with symbolic sizes.
    statements : tuple of ControlFlow
        Its branches, loops and checks, and how they are compiled.
    not_rolled : str
        Why no statement is compiled as such, if none is.
    is_compiled : bool
        Whether a program exists.
    headline : str
        The first line of the text.

    See Also
    --------
    Change : A difference from a program.
    Read : A value from outside.

    Examples
    --------
    >>> f = pb.jit(lambda x: x + 1)
    >>> f.explain(np.ones(3)).status
    'first call'
    """

    function: str
    arguments: tuple[ArgumentType, ...]
    status: Status
    changes: tuple[Change, ...]
    reads: tuple[Read, ...]
    static_numbers: tuple[StaticNumber, ...]
    branches: tuple[BranchTaken, ...]
    signatures: int
    variants: int
    template: str
    kernels: Mapping[str, int]
    seconds: Mapping[str, float] = field(default_factory=dict)
    device: str = "cpu"
    on_cpu: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    path: str = ""
    size_guards: tuple[SizeCondition, ...] = ()
    numbers_since: str = ""
    statements: tuple[ControlFlow, ...] = ()
    not_rolled: str = ""

    @property
    def is_compiled(self) -> bool:
        """Whether the call would run without being traced."""
        return self.status in ("compiled", "other sizes")

    @property
    def headline(self) -> str:
        """The text's first line."""
        return f"{self.function}: {_VERDICTS[self.status]}"

    def __str__(self) -> str:
        lines = [*paragraph(self.headline, ""), *paragraph(f"call: {', '.join(map(str, self.arguments)) or 'no arguments'}", "")]
        static = [a.name for a in self.arguments if a.is_static and not a.is_object]
        static += [f"{n.name} ({n.value!r}, asked for at {location(n.loc)})" for n in self.static_numbers]
        if static:
            lines += paragraph(f"static, so that another value is another program: {', '.join(static)}", "")
        if self.device != "cpu":
            lines.append(f"runs on {self.device}")
        if self.on_cpu:
            lines += paragraph(f"the CPU does, on copies: {', '.join(self.on_cpu)}", "")
        for choice in self.choices:
            lines += paragraph(f"chosen: {choice}", "")
        if self.size_guards:
            lines.append("asked of sizes, guarded:")
            lines += [line for condition in self.size_guards[:MOST_SHOWN] for line in paragraph(str(condition))]
            if len(self.size_guards) > MOST_SHOWN:
                lines.append(f"  and {counted(len(self.size_guards) - MOST_SHOWN, 'more guard')}")
        if self.numbers_since:
            lines += paragraph(f"sizes are numbers: {self.numbers_since}", "")
        if self.branches:
            lines.append("branches on values, guarded:")
            lines += [line for branch in self.branches[:MOST_SHOWN] for line in paragraph(str(branch))]
            if len(self.branches) > MOST_SHOWN:
                lines.append(f"  and {counted(len(self.branches) - MOST_SHOWN, 'more guard')}")
        if self.not_rolled:
            lines += paragraph(f"loops are unrolled, since one statement cannot be compiled as such: {self.not_rolled}", "")
        if self.statements:
            lines.append("branches, loops and checks:")
            rows = [(location(s.loc), shortened_line(s.text), s.how) for s in self.statements[:MOST_SHOWN_STATEMENTS]]
            lines += table(("line", "statement", "how it is compiled"), rows)[1:]
            if len(self.statements) > MOST_SHOWN_STATEMENTS:
                lines.append(f"  and {counted(len(self.statements) - MOST_SHOWN_STATEMENTS, 'more statement')}")
        if self.changes:
            lines.append("what differs from the nearest program:")
            lines += [line for change in self.changes for line in paragraph(str(change))]
        if self.reads:
            lines.append("read from outside:")
            inputs = [r for r in self.reads if r.is_input]
            guards = [r for r in self.reads if not r.is_input]
            shown = [(r.name, r.text, "input: read at each call") for r in inputs]
            shown += [(r.name, r.text, "guard: checked at each call") for r in guards]
            lines += table(("name", "type or value", ""), shown[:MOST_SHOWN])[1:]
            if len(shown) > MOST_SHOWN:
                lines.append(f"  and {counted(len(shown) - MOST_SHOWN, 'more guard')}")
        lines.append(f"programs: {counted(self.signatures, 'signature')} known, {counted(self.variants, 'program')} for this one")
        lines += paragraph(_template_text(self), "")
        if self.path:
            lines += paragraph(f"path of warm calls: {self.path}", "")
        if self.seconds:
            times = ", ".join(f"{stage} {self.seconds[stage]:.4f}" for stage in SHOWN_STAGES if stage in self.seconds)
            lines += paragraph(f"seconds: {times}", "")
        return "\n".join(lines)


_VERDICTS = {
    "compiled": "runs a compiled program",
    "other sizes": "runs the program of a trace whose sizes are symbolic; it is not traced",
    "size guard failed": "is traced again, since what it asked of sizes has another answer",
    "guard failed": "is traced again, since what was read from outside has changed",
    "new signature": "is traced, since no program is for arguments of these types and static values",
    "first call": "is traced, since it is the function's first call",
}
_TEMPLATES = {
    "built": "template: built for this program, all passes ran",
    "loaded": "template: loaded from the cache folder, no pass ran",
    "instantiated": "template: instantiated, no pass ran",
    "known": "template: known, no pass will run",
    "stored": "template: in the cache folder, no pass will run",
    "new": "template: new, all passes will run",
    "none": "template: none, nothing is computed",
}


def _template_text(explanation: Explanation) -> str:
    """Return the line about the template and the kernels."""
    if explanation.template in ("none", "loaded", "instantiated", "stored", "known"):
        new = explanation.kernels.get("compiled", 0)
        parts = f"; {counted(new, 'part')} of kernels compiled, which only such sizes reach" if new else ""
        return f"{_TEMPLATES[explanation.template]}{parts}"
    by_origin = [(explanation.kernels.get(k, 0), k) for k in ("memory", "disk", "compiled")]
    labels = {"memory": "in memory", "disk": "on disk", "compiled": "compiled" if explanation.is_compiled else "to be compiled"}
    kernels = ", ".join(f"{count} {labels[k]}" for count, k in by_origin if count)
    return f"{_TEMPLATES[explanation.template]}; kernels: {kernels or 'none'}"


def explain(call: Call) -> Explanation:
    """Return the explain report of a call. Traces the call if it would be traced; changes nothing."""
    variants = call.variants
    for entry in variants:
        if entry.holds(call.leaves):
            return _of_program(call, entry, len(variants))
    status, changes = why_traced(call)
    template, kernels = _expected_template(call)
    return Explanation(
        function=call.title,
        arguments=call.arguments,
        status=status,
        changes=changes,
        reads=_reads(call.trace),
        static_numbers=_static_numbers(call.trace),
        branches=_branches(call.trace),
        statements=statements_of(call.trace),
        not_rolled=call.trace.not_rolled,
        signatures=len(call.entries),
        variants=len(variants),
        template=template,
        kernels=kernels,
        device=call.device,
        size_guards=_size_guards(call.trace),
        numbers_since=_numbers_since(call, call.trace),
    )


def why_traced(call: Call) -> tuple[Status, tuple[Change, ...]]:
    """Return why no program serves a call, and the differences from the nearest one."""
    variants = call.variants
    if not variants and call.served is not None:
        return "other sizes", ()
    fails = None if call.kind is None or variants else closest_failure(call.kind, call.signature)
    if fails is not None:
        return "size guard failed", _size_changes(fails)
    if variants:
        return "guard failed", _changes(variants[0].trace)
    return "new signature" if call.entries else "first call", _nearest(call)


def _size_changes(fails: Failed) -> tuple[Change, ...]:
    """Return the change of each extent in a size condition that does not hold."""
    if fails.condition is None:
        return (Change(name="what is computed from sizes", old="", new=fails.reason),)
    text = str(SizeCondition(text=str(fails.condition), loc=fails.condition.loc))
    moved = [(name, old, new) for name, old, new in fails.extents if old != new]
    return tuple(Change(name=f"{text}: {name}", old=str(old), new=str(new)) for name, old, new in moved)


def _numbers_since(call: Call, trace: Trace) -> str:
    """Return why sizes are concrete in a trace of a function in which they might be symbolic."""
    return "" if call.kind is None or isinstance(trace, Instantiated) else call.kind.reason


def _size_guards(trace: Trace) -> tuple[SizeCondition, ...]:
    """Return the size conditions that were tested in the user's lines."""
    conditions = trace.size_guards if isinstance(trace, Instantiated) else ()
    return tuple(SizeCondition(text=str(condition), loc=condition.loc) for condition in conditions if condition.loc)


def _of_program(call: Call, entry: Entry, variants: int) -> Explanation:
    """Return the explanation of a call that an existing program serves."""
    counts = entry.record.counts
    origins = {"built": counts.templates_built, "loaded": counts.templates_loaded, "instantiated": counts.templates_instantiated}
    origin = next((name for name, count in origins.items() if count), "none")
    kernels = {"memory": counts.hits, "disk": counts.disk_hits, "compiled": counts.compiles}
    return Explanation(
        function=call.title,
        arguments=call.arguments,
        status="compiled",
        changes=(),
        reads=_reads(entry.trace),
        static_numbers=_static_numbers(entry.trace),
        branches=_branches(entry.trace),
        statements=statements_of(entry.trace),
        not_rolled=entry.trace.not_rolled,
        signatures=len(call.entries),
        variants=variants,
        template=origin,
        kernels=kernels,
        seconds=entry.record.seconds,
        device=_device(entry),
        on_cpu=_on_cpu(entry),
        choices=_choices(entry),
        path=call.path(entry),
        size_guards=_size_guards(entry.trace),
        numbers_since=_numbers_since(call, entry.trace),
    )


def _device(entry: Entry) -> str:
    template = entry.program.template
    return "cpu" if template is None or template.is_native else str(template.executable.device.name)


def _on_cpu(entry: Entry) -> tuple[str, ...]:
    """Return the ops of a device program that the CPU computes, each with its line."""
    template = entry.program.template
    fallbacks = () if template is None or template.is_native else template.executable.fallbacks
    return tuple(dict.fromkeys(f"{f.what} ({location(f.loc)})" for f in fallbacks))


def _choices(entry: Entry) -> tuple[str, ...]:
    """Return the choices between generated kernels and libraries; on a device for all sizes so far."""
    template = entry.program.template
    if template is None:
        return ()
    if template.is_native:
        return matmul_choices.of_executable(template.executable, entry.program.sizes)
    return tuple(map(str, template.executable.choices.values()))


def _reads(trace: Trace) -> tuple[Read, ...]:
    inputs = [Read(name=i.describe, text=key_text(i.key), is_input=True) for i in trace.inputs if isinstance(i, Captured)]
    guards = [Read(name=g.describe, text=_expected(g), is_input=False) for g in trace.guards if not g.is_library]
    return tuple(dict.fromkeys([*inputs, *guards]))


def _static_numbers(trace: Trace) -> tuple[StaticNumber, ...]:
    return tuple(StaticNumber(name=p.describe, value=p.value, loc=p.loc) for p in trace.pinned)


def _branches(trace: Trace) -> tuple[BranchTaken, ...]:
    return tuple(BranchTaken(text=b.text, value=b.outcome, loc=b.loc) for b in trace.branches)


def statements_of(trace: Trace) -> tuple[ControlFlow, ...]:
    """Return the branches, loops and checks of a trace with their lines."""
    return tuple(ControlFlow(kind=s.kind, text=line_of(s.loc) or s.kind, how=s.how, loc=s.loc) for s in trace.statements)


def line_of(loc: Loc) -> str:
    """Return the text of the user's line at a location, without the blanks around it; empty if the source is not at hand."""
    return linecache.getline(loc.file, loc.line).strip()


def shortened_line(text: str) -> str:
    """Return a line of the user's, cut to the length that is shown."""
    return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 4]} ..."


def _expected(guard: Guard) -> str:
    """Return the value that a guard requires, if a person can read it."""
    match guard.how:
        case "identity" | "value":
            return shortened(guard.expected)
        case "type":
            return "of one type"
        case "class":
            return f"of class {guard.expected.__name__}"
        case "same":
            return "the same object"
        case "distinct":
            return "different objects"
    return "of equal contents"


def _current_text(read: Any) -> str:
    try:
        return shortened(read())
    except Exception as error:
        return f"not there ({type(error).__name__})"


def _changes(trace: Trace) -> tuple[Change, ...]:
    """Return the guards of a trace that do not hold, and its captured inputs whose types have changed."""
    changes = [
        Change(name=g.describe, old=_expected(g) if g.how in ("identity", "value") else "", new=_current_text(g.read))
        for g in trace.guards
        if not g.holds()
    ]
    for source in trace.inputs:
        if isinstance(source, Captured):
            now = _type_now(source)
            if now != key_text(source.key):
                changes.append(Change(name=source.describe, old=key_text(source.key), new=now))
    return tuple(changes)


def _type_now(source: Captured) -> str:
    try:
        return type_text(source.read())
    except Exception as error:
        return f"not there ({type(error).__name__})"


def _nearest(call: Call) -> tuple[Change, ...]:
    """Return the differences between the arguments and those of the most similar known signature."""
    entries = [entry for variants in list(call.entries.values()) for entry in variants[:1]]
    return min([_differences(call, entry) for entry in entries], key=len, default=())


def _differences(call: Call, entry: Entry | Paths) -> tuple[Change, ...]:
    before = {a.name: a.text for a in entry.record.arguments}
    after = {a.name: a.text for a in call.arguments}
    if before == after:
        pairs = [(p, call.leaves[p.index]) for p in entry.trace.pinned]
        changes = [Change(name=p.describe, old=repr(p.value), new=repr(value)) for p, value in pairs if p.value != value]
        return tuple(changes) or (Change(name="the kind or order of a container", old="", new="another one"),)
    changes = [Change(name=k, old=before.get(k, "not given"), new=v) for k, v in after.items() if before.get(k) != v]
    changes += [Change(name=k, old=v, new="not given") for k, v in before.items() if k not in after]
    return tuple(changes)


def _expected_template(call: Call) -> tuple[str, Mapping[str, int]]:
    """Return the template that a trace of the call would find or build, and where its kernels are."""
    function, _ = split_outcomes(call.trace)
    anatomy = dissect(call)
    if anatomy is None:
        return "none", {}
    template = templated(function)
    layouts = layouts_of(call.trace, call.leaves, len(template.constants), call.device)
    if has_template(template, layouts, call.device, call.over):
        return "known", {}
    if is_stored(template, layouts, call.device, call.over):
        return "stored", {}
    if call.device != "cpu":
        return "new", {}
    kernels: dict[str, int] = {}
    for text in parts_of(scheduled(anatomy.module, call.device)):
        where = default_engine().where(text) or "compiled"
        kernels[where] = kernels.get(where, 0) + 1
    return "new", kernels
