"""``pb.jit(dynamic=True)``: traces whose sizes are symbolic, and the programs of other shapes made of them without a trace.

Such a trace serves each call of the same types, ranks and memory order for which everything that was asked of sizes has the same
answer. A call for which something has another is traced again, and that trace is kept beside the first.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.ir import NOWHERE, Function
from pullback.ir.core.device_arrays import Remote
from pullback.ir.passes.size_classes import templated
from pullback.ir.shapes.guards import Asked, extents_in
from pullback.ir.shapes.instantiate import Fails, Values, abstract_at, function_at, pinned, value_at, values_at
from pullback.ir.shapes.symbolic import key_of
from pullback.ir.text import canonical
from pullback.programs.donation import Donated, over_of
from pullback.programs.pipeline import (
    Over,
    Program,
    Template,
    layouts_of,
    needs_program,
    program_at,
    split_outcomes,
    template_of_key,
)
from pullback.runtime.process import counters
from pullback.tracer import Signature, Trace, TraceError
from pullback.tracer.arrays.frame import Called, Constant, Input, digest
from pullback.tracer.arrays.python_ints import is_short
from pullback.tracer.arrays.tree import leaf_key, map_statics, weakened

ON_DEVICE = "programs on a device have sizes that are numbers"
MOST_VARIANTS = 16
MOST_KINDS = 1024


class NotSymbolic(Exception):
    """A function, called so, is traced with sizes that are numbers; the message says why."""


class Instantiated(Trace):
    """A trace with symbolic sizes at one point. Its function is made when something asks for it. ``size_guards``: its guards on
    sizes."""

    size_guards: Sequence[Asked]

    @property
    def function(self) -> Function:
        found: Any = self.__dict__["_function"]
        if not isinstance(found, Function):
            found = self.__dict__["_function"] = function_at(*found)
        return found

    @function.setter
    def function(self, given: Any) -> None:
        self.__dict__["_function"] = given


class Variant:
    """A trace with symbolic sizes, whose guards on them are among ``sizes.steps``. Raises NotSymbolic for one that serves no
    other call."""

    def __init__(self, trace: Trace, call: Signature) -> None:
        assert trace.sizes is not None
        if trace.branches or trace.strides:
            what = "branches on values" if trace.branches else "the strides of an argument"
            raise NotSymbolic(f"the trace depends on {what}")
        if trace.sizes.refused:
            raise NotSymbolic(trace.sizes.refused)
        if any(isinstance(x, Remote) for x in trace.outside() or ()):
            raise NotSymbolic(ON_DEVICE)
        if any(isinstance(given, Called) for given in trace.inputs):
            raise NotSymbolic("the program calls functions of Python")
        self.sizes = trace.sizes
        self.sizes.place = lambda: NOWHERE
        self.trace = replace(trace, function=pinned(trace.function))
        function, self.outcomes = split_outcomes(self.trace)
        found = templated(function, exactly=True)
        self.found = replace(found, function=pinned(found.function, whole=True))
        self.is_needed = needs_program(self.found.function)
        self.sizes.is_open = False
        self.extents = extents_of(call.leaves)
        made = values_at(self.sizes, self.extents)
        if any(key_of(atom.value) != key_of(value) for atom, value in zip(self.sizes.atoms, made, strict=True)):
            raise NotSymbolic("what NumPy made of sizes is something else when it is made again")
        self._templates: dict[tuple[tuple[str, ...], Over], Template] = {}

    @property
    def guards(self) -> list[Asked]:
        """What was asked of sizes, in order."""
        return [step for step in self.sizes.steps if isinstance(step, Asked)]

    def values(self, call: Signature) -> Values:
        """The values of sizes in a call. Raises Fails if the trace does not serve it."""
        return values_at(self.sizes, extents_of(call.leaves))

    def is_alike(self, call: Signature) -> bool:
        """Whether the numbers among the arguments that the trace depends on are what they were."""
        pairs = [(p.value, call.leaves[p.index]) for p in self.trace.pinned]
        is_alike = all(type(a) is type(b) and a == b for a, b in pairs)
        return is_alike and all(is_short(call.leaves[k]) for k in self.trace.short)

    def at(self, values: Values) -> Trace:
        """The trace at a point."""
        fields = {name: getattr(self.trace, name) for name in Trace.__dataclass_fields__}
        out_tree = map_statics(self.trace.out_tree, lambda x: value_at(x, values))
        inputs = tuple(_input_at(given, values) for given in self.trace.inputs)
        changed = {"function": (self.trace.function, values), "inputs": inputs, "out_tree": out_tree, "sizes": None}
        found = Instantiated(**fields | changed)
        if inputs == self.trace.inputs:
            found.__dict__["watch"] = self.trace.watch
        found.__dict__["size_guards"] = self.guards
        return found

    def program(self, trace: Trace, values: Values, leaves: Sequence[Any], donated: Donated) -> Program:
        """The program at a point, of which this is the trace."""
        if not self.is_needed:
            return Program(template=None, instance=None, sizes={}, constants=(), outcomes=self.outcomes)
        over = over_of(trace, donated) if donated or trace.writes else ()
        layouts = layouts_of(trace, leaves, len(self.found.constants))
        found = abstract_at(self.found, values)
        template = self._templates.get((layouts, over))
        if template is None:
            template = self._templates[layouts, over] = template_of_key(found, layouts, "cpu", over)
        else:
            counters.count("templates_instantiated")
        return program_at(found, self.outcomes, template)


@dataclass(kw_only=True)
class Kind:
    """What is known of calls of one kind. ``reason``: why they are traced with sizes that are numbers, if they are."""

    variants: tuple[Variant, ...] = ()
    reason: str = ""


class Variants:
    """The traces with symbolic sizes of a function, by all that a trace depends on in a call but its extents."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Kind] = {}

    def kind(self, call: Signature) -> Kind:
        """What is known of calls like this one."""
        key = _key(call)
        found = self._kinds.get(key)
        if found is None:
            while len(self._kinds) >= MOST_KINDS:
                self._kinds.pop(next(iter(self._kinds.copy())), None)
            found = self._kinds.setdefault(self._weakened(key), Kind())
        return found

    def find(self, call: Signature) -> Kind | None:
        """The same; None if there was none yet."""
        return self._kinds.get(_key(call))

    def _weakened(self, key: Any) -> Any:
        """The key, which goes when something in it dies."""
        kinds = weakref.ref(self)
        made: list[Any] = []

        def died(_: Any) -> None:
            found = kinds()
            if found is not None and made:
                found._kinds.pop(made.pop(), None)

        made.append(weakened(key, died))
        return made[0]


def served(kind: Kind, call: Signature) -> tuple[Variant, Values] | None:
    """The variant that serves a call, with the values of its sizes."""
    for variant in kind.variants:
        if not variant.is_alike(call):
            continue
        try:
            values = variant.values(call)
        except Fails:
            continue
        if variant.trace.holds() and variant.trace.outside() is not None:
            return variant, values
    return None


@dataclass(frozen=True, kw_only=True)
class Failed:
    """What keeps a variant from serving a call: a guard, or, if that is None, ``reason``. ``extents``: those that it is about,
    with their sizes in the trace and in the call."""

    asked: Asked | None
    reason: str
    extents: tuple[tuple[str, int, int], ...]


def failed(kind: Kind, call: Signature) -> Failed | None:
    """What keeps the variant from serving a call that comes closest to it."""
    found: list[tuple[int, Failed]] = []
    now = extents_of(call.leaves)
    for variant in kind.variants:
        try:
            variant.values(call)
        except Fails as fails:
            steps, names = variant.sizes.steps, {} if fails.asked is None else extents_in(fails.asked)
            extents = tuple((name, variant.extents[k], now[k]) for k, name in names.items())
            depth = len(steps) if fails.asked is None else steps.index(fails.asked)
            found.append((depth, Failed(asked=fails.asked, reason=str(fails), extents=extents)))
    return max(found, key=lambda pair: pair[0], default=(0, None))[1]


def keep(kind: Kind, trace: Trace, call: Signature, retrace: Callable[[], Trace]) -> None:
    """Keep a new trace of a call of a kind. ``retrace`` gives that with numbers, with which it is compared where the function
    might have caught an error that numbers do not raise. Raises NotSymbolic, and whatever the making of its program does."""
    made = Variant(trace, call)
    if made.sizes.is_caught and not is_same(made.at(made.values(call)), retrace()):
        raise NotSymbolic("with numbers the function does something else")
    kind.variants = (made, *kind.variants)[:MOST_VARIANTS]


def is_same(a: Trace, b: Trace) -> bool:
    """Whether two traces are of one program, with the same results."""
    return canonical(a.function) == canonical(b.function) and repr(a.out_tree) == repr(b.out_tree) and a.returned == b.returned


def reason_of(error: Exception) -> str:
    """Why something could not be traced with symbolic sizes."""
    if isinstance(error, TraceError):
        return str(error).partition("\n")[0]
    return str(error) if isinstance(error, NotSymbolic) else f"{type(error).__name__}: {error}"


def _input_at(given: Input, values: Values) -> Input:
    """An input of a trace at a point: an array that NumPy makes of sizes is made there."""
    if not isinstance(given, Constant) or given.made is None:
        return given
    array = value_at(given.made, values)
    return Constant(array=array, digest=digest(array))


def extents_of(leaves: Sequence[Any]) -> tuple[int, ...]:
    """The extents of the arrays among the leaves of a call, in order."""
    return tuple(n for leaf in leaves if isinstance(leaf, np.ndarray) for n in leaf.shape)


def _key(call: Signature) -> Any:
    """What a trace depends on in a call, but for extents."""
    return call.tree, tuple(map(_loose, call.leaves))


def _loose(leaf: Any) -> Any:
    key = leaf_key(leaf)
    return (type(leaf), key[0], len(key[1]), key[2]) if isinstance(key, tuple) and len(key) == 3 else (type(leaf), key)
