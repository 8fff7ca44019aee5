"""explain: whether a call is traced and compiled, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from pullback.inspection.provenance import dissect
from pullback.ir.core.structure import Loc
from pullback.ir.passes.size_classes import templated
from pullback.programs import matmul_choices as chosen
from pullback.programs.argument_types import ArgumentType, key_text, shortened, type_text
from pullback.programs.call import Call
from pullback.programs.dynamic_shapes import Failed, Instantiated, failed
from pullback.programs.pipeline import has_template, is_stored, layouts_of, scheduled, split_outcomes
from pullback.programs.report import Report, counted, paragraph, place, table
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import parts_of
from pullback.tracer import Captured, Guard, Trace

if TYPE_CHECKING:
    from pullback.programs.branch_paths import Paths
    from pullback.programs.entry import Entry

Status = Literal["compiled", "other sizes", "size guard failed", "guard failed", "new signature", "first call"]
SHOWN_STAGES = ("trace", "grad", "simplify", "fuse", "lower", "schedule", "compile")
MOST_SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Read:
    """Something read from outside: ``is_input`` if its value is read anew at each call, else it is guarded. ``text``: its type,
    or the value that it must have."""

    name: str
    text: str
    is_input: bool


@dataclass(frozen=True, kw_only=True)
class Change:
    """Something outside, or an argument's type, that is not as a compiled program found it. ``old`` may be unknown (empty)."""

    name: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name} is {self.new}, was {self.old}" if self.old else f"{self.name} has changed; it is {self.new}"


@dataclass(frozen=True, kw_only=True)
class StaticNumber:
    """An int or bool among the arguments whose value the trace asked for, at ``loc``: another value is another program."""

    name: str
    value: Any
    loc: Loc


@dataclass(frozen=True, kw_only=True)
class BranchTaken:
    """A branch on a traced value that the trace followed (``pb.jit(guards=True)``): ``text`` of the source at ``loc``, and the
    value that it must have."""

    text: str
    value: Any
    loc: Loc

    def __str__(self) -> str:
        return f"{self.text} is {shortened(self.value)} ({place(self.loc)})"


@dataclass(frozen=True, kw_only=True)
class SizeAsked:
    """What a function was told of sizes while it was traced (``pb.jit(dynamic=True)``): ``text``, as ``x.shape[0] > 10``, asked
    at ``loc``. A call for which it does not hold is traced again."""

    text: str
    loc: Loc

    def __str__(self) -> str:
        return f"{self.text} ({place(self.loc)})"


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Report):
    """Why a call of ``function`` runs a compiled program or is traced first.

    ``status``: "compiled" (a program is there), "guard failed" (one was, but what it read has changed), "new signature" (there
    are programs for arguments of other types) or "first call"; where sizes are symbolic also "other sizes" (the program of a
    trace serves the call) and "size guard failed" (none does). ``size_guards``: what the user's lines asked of sizes;
    ``numbers_since``: why sizes are numbers in such a function. ``changes``: what differs from the nearest program there is.
    ``reads``: what the program depends on outside; ``static_numbers``: what it depends on in the values of arguments.
    ``branches``: its guards on traced values. ``signatures`` and ``variants`` count the programs of the function: by types of
    arguments and static values, and for these.

    ``template``: "built", "loaded", "instantiated" (of a compiled program), "new", "stored", "known" (if it were traced now) or
    "none" (nothing is computed). ``kernels``: how many are (or were) found in "memory", on "disk", or "compiled". ``seconds``
    that each stage took; empty for a call that was not made. ``device``: where the call runs; ``on_cpu``: what the CPU does of
    it, on copies, if that is another; ``choices``: between kernels of ours and libraries, and why, with times that were measured.

    ``path``: what calls like this one take from the third on: "native", "native, but ..." or "Python, since ..."; empty for a
    call that would be traced.
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
    size_guards: tuple[SizeAsked, ...] = ()
    numbers_since: str = ""

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
        static = [a.name for a in self.arguments if a.is_static]
        static += [f"{n.name} ({n.value!r}, asked for at {place(n.loc)})" for n in self.static_numbers]
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
            lines += [line for asked in self.size_guards[:MOST_SHOWN] for line in paragraph(str(asked))]
            if len(self.size_guards) > MOST_SHOWN:
                lines.append(f"  and {counted(len(self.size_guards) - MOST_SHOWN, 'more guard')}")
        if self.numbers_since:
            lines += paragraph(f"sizes are numbers: {self.numbers_since}", "")
        if self.branches:
            lines.append("branches on values, guarded:")
            lines += [line for branch in self.branches[:MOST_SHOWN] for line in paragraph(str(branch))]
            if len(self.branches) > MOST_SHOWN:
                lines.append(f"  and {counted(len(self.branches) - MOST_SHOWN, 'more guard')}")
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
        lines += paragraph(_made(self), "")
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


def _made(explanation: Explanation) -> str:
    if explanation.template in ("none", "loaded", "instantiated", "stored", "known"):
        new = explanation.kernels.get("compiled", 0)
        parts = f"; {counted(new, 'part')} of kernels compiled, which only such sizes reach" if new else ""
        return f"{_TEMPLATES[explanation.template]}{parts}"
    by_origin = [(explanation.kernels.get(k, 0), k) for k in ("memory", "disk", "compiled")]
    words = {"memory": "in memory", "disk": "on disk", "compiled": "compiled" if explanation.is_compiled else "to be compiled"}
    kernels = ", ".join(f"{count} {words[k]}" for count, k in by_origin if count)
    return f"{_TEMPLATES[explanation.template]}; kernels: {kernels or 'none'}"


def explain(call: Call) -> Explanation:
    """The report on a call. Traces it if it would be traced; changes nothing."""
    variants = call.variants
    for entry in variants:
        if entry.holds(call.leaves):
            return _of_program(call, entry, len(variants))
    status: Status = "guard failed" if variants else "new signature" if call.entries else "first call"
    changes = _changes(variants[0].trace) if variants else _nearest(call)
    fails = None if call.kind is None or variants else failed(call.kind, call.signature)
    if not variants and call.served is not None:
        status, changes = "other sizes", ()
    elif fails is not None:
        status, changes = "size guard failed", _resized(fails)
    template, kernels = _prospect(call)
    return Explanation(
        function=call.title,
        arguments=call.arguments,
        status=status,
        changes=changes,
        reads=_reads(call.trace),
        static_numbers=_static_numbers(call.trace),
        branches=_branches(call.trace),
        signatures=len(call.entries),
        variants=len(variants),
        template=template,
        kernels=kernels,
        device=call.device,
        size_guards=_size_guards(call.trace),
        numbers_since=_numbers_since(call, call.trace),
    )


def _resized(fails: Failed) -> tuple[Change, ...]:
    """A guard on sizes that does not hold, for each extent that it is about."""
    if fails.asked is None:
        return (Change(name="what is computed from sizes", old="", new=fails.reason),)
    text = str(SizeAsked(text=str(fails.asked), loc=fails.asked.loc))
    moved = [(name, old, new) for name, old, new in fails.extents if old != new]
    return tuple(Change(name=f"{text}: {name}", old=str(old), new=str(new)) for name, old, new in moved)


def _numbers_since(call: Call, trace: Trace) -> str:
    """Why sizes are numbers in a trace of a function in which they might be symbolic."""
    return "" if call.kind is None or isinstance(trace, Instantiated) else call.kind.reason


def _size_guards(trace: Trace) -> tuple[SizeAsked, ...]:
    """What lines of the user's asked."""
    found = trace.size_guards if isinstance(trace, Instantiated) else ()
    return tuple(SizeAsked(text=str(asked), loc=asked.loc) for asked in found if asked.loc)


def _of_program(call: Call, entry: Entry, variants: int) -> Explanation:
    made = entry.record.made
    met = {"built": made.templates_built, "loaded": made.templates_loaded, "instantiated": made.templates_instantiated}
    origin = next((name for name, count in met.items() if count), "none")
    kernels = {"memory": made.hits, "disk": made.disk_hits, "compiled": made.compiles}
    return Explanation(
        function=call.title,
        arguments=call.arguments,
        status="compiled",
        changes=(),
        reads=_reads(entry.trace),
        static_numbers=_static_numbers(entry.trace),
        branches=_branches(entry.trace),
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
    """What the CPU does of a program for a device, each with its line."""
    template = entry.program.template
    found = () if template is None or template.is_native else template.executable.fallbacks
    return tuple(dict.fromkeys(f"{f.what} ({place(f.loc)})" for f in found))


def _choices(entry: Entry) -> tuple[str, ...]:
    """What was chosen between kernels of ours and libraries; on a device for all sizes that were met."""
    template = entry.program.template
    if template is None:
        return ()
    if template.is_native:
        return chosen.of_executable(template.executable, entry.program.sizes)
    return tuple(map(str, template.executable.choices.values()))


def _reads(trace: Trace) -> tuple[Read, ...]:
    inputs = [Read(name=i.describe, text=key_text(i.key), is_input=True) for i in trace.inputs if isinstance(i, Captured)]
    guards = [Read(name=g.describe, text=_expected(g), is_input=False) for g in trace.guards if not g.is_library]
    return tuple(dict.fromkeys([*inputs, *guards]))


def _static_numbers(trace: Trace) -> tuple[StaticNumber, ...]:
    return tuple(StaticNumber(name=p.describe, value=p.value, loc=p.loc) for p in trace.pinned)


def _branches(trace: Trace) -> tuple[BranchTaken, ...]:
    return tuple(BranchTaken(text=b.text, value=b.outcome, loc=b.loc) for b in trace.branches)


def _expected(guard: Guard) -> str:
    """What a guard asks for, where that is a value a person can read."""
    match guard.how:
        case "identity" | "value":
            return shortened(guard.expected)
        case "type":
            return "of one type"
    return "of equal contents"


def _now(read: Any) -> str:
    try:
        return shortened(read())
    except Exception as error:
        return f"not there ({type(error).__name__})"


def _changes(trace: Trace) -> tuple[Change, ...]:
    """The guards of a trace that do not hold, and its inputs from outside that have other types."""
    found = [
        Change(name=g.describe, old=_expected(g) if g.how in ("identity", "value") else "", new=_now(g.read))
        for g in trace.guards
        if not g.holds()
    ]
    for given in trace.inputs:
        if isinstance(given, Captured):
            now = _type_now(given)
            if now != key_text(given.key):
                found.append(Change(name=given.describe, old=key_text(given.key), new=now))
    return tuple(found)


def _type_now(given: Captured) -> str:
    try:
        return type_text(given.read())
    except Exception as error:
        return f"not there ({type(error).__name__})"


def _nearest(call: Call) -> tuple[Change, ...]:
    """How the arguments differ from those of the known signature that differs least."""
    known = [entry for variants in list(call.entries.values()) for entry in variants[:1]]
    return min([_differences(call, entry) for entry in known], key=len, default=())


def _differences(call: Call, entry: Entry | Paths) -> tuple[Change, ...]:
    before = {a.name: a.text for a in entry.record.arguments}
    after = {a.name: a.text for a in call.arguments}
    if before == after:
        pairs = [(p, call.leaves[p.index]) for p in entry.trace.pinned]
        found = [Change(name=p.describe, old=repr(p.value), new=repr(value)) for p, value in pairs if p.value != value]
        return tuple(found) or (Change(name="the kind or order of a container", old="", new="another one"),)
    found = [Change(name=k, old=before.get(k, "not given"), new=v) for k, v in after.items() if before.get(k) != v]
    found += [Change(name=k, old=v, new="not given") for k, v in before.items() if k not in after]
    return tuple(found)


def _prospect(call: Call) -> tuple[str, Mapping[str, int]]:
    """The template that a trace of the call would find or build, and where its kernels are."""
    function, _ = split_outcomes(call.trace)
    anatomy = dissect(call)
    if anatomy is None:
        return "none", {}
    found = templated(function)
    layouts = layouts_of(call.trace, call.leaves, len(found.constants), call.device)
    if has_template(found, layouts, call.device, call.over):
        return "known", {}
    if is_stored(found, layouts, call.device, call.over):
        return "stored", {}
    if call.device != "cpu":
        return "new", {}
    kernels: dict[str, int] = {}
    for text in parts_of(scheduled(anatomy.module, call.device)):
        where = default_engine().where(text) or "compiled"
        kernels[where] = kernels.get(where, 0) + 1
    return "new", kernels
