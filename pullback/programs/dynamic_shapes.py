"""Implement ``pb.jit(dynamic=True)``: traces with symbolic sizes, from which programs of other shapes are made without a
trace.

Such a trace serves each call of the same types, ranks and memory order for which every condition on sizes in it has the same
outcome. A call for which one differs is traced again, and that trace is kept as a further variant.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir import NOWHERE, Function
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.records import dataclass
from pullback.ir.passes.size_classes import templated
from pullback.ir.shapes.guards import Guard, extents_in
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
"""The reason for concrete sizes on a device."""
MOST_VARIANTS = 16
"""Largest number of traces kept for one kind of call."""
MOST_KINDS = 1024
"""Largest number of kinds of call kept for one function."""


class NotSymbolic(Exception):
    """A call must be traced with concrete sizes; the message gives the reason."""


class Instantiated(Trace):
    """A trace with symbolic sizes at one point. Its function is built at the first access. ``size_guards``: its guards on
    sizes."""

    size_guards: Sequence[Guard]

    @property
    def function(self) -> Function:
        value: Any = self.__dict__["_function"]
        if not isinstance(value, Function):
            value = self.__dict__["_function"] = function_at(*value)
        return value

    @function.setter
    def function(self, value: Any) -> None:
        self.__dict__["_function"] = value


class Variant:
    """A trace with symbolic sizes, whose guards on them are among ``sizes.steps``. Raises NotSymbolic for one that can serve
    no other call."""

    def __init__(self, trace: Trace, call: Signature) -> None:
        assert trace.sizes is not None
        if trace.branches or trace.strides:
            cause = "branches on values" if trace.branches else "the strides of an argument"
            raise NotSymbolic(f"the trace depends on {cause}")
        if trace.sizes.refused:
            raise NotSymbolic(trace.sizes.refused)
        if any(isinstance(x, Remote) for x in trace.outside() or ()):
            raise NotSymbolic(ON_DEVICE)
        if any(isinstance(source, Called) for source in trace.inputs):
            raise NotSymbolic("the program calls functions of Python")
        self.sizes = trace.sizes
        self.sizes.location = lambda: NOWHERE
        self.trace = replace(trace, function=pinned(trace.function))
        function, self.outcomes = split_outcomes(self.trace)
        exact = templated(function, exactly=True)
        self.abstract = replace(exact, function=pinned(exact.function, whole=True))
        self.is_needed = needs_program(self.abstract.function)
        self.sizes.is_open = False
        self.extents = extents_of(call.leaves)
        recomputed = values_at(self.sizes, self.extents)
        if any(key_of(atom.value) != key_of(value) for atom, value in zip(self.sizes.atoms, recomputed, strict=True)):
            raise NotSymbolic("what NumPy made of sizes is something else when it is made again")
        self._templates: dict[tuple[tuple[str, ...], Over], Template] = {}

    @property
    def guards(self) -> list[Guard]:
        """The conditions on sizes, in order."""
        return [step for step in self.sizes.steps if isinstance(step, Guard)]

    def values(self, call: Signature) -> Values:
        """Return the values of sizes in a call. Raises Fails if the trace does not serve it."""
        return values_at(self.sizes, extents_of(call.leaves))

    def is_alike(self, call: Signature) -> bool:
        """Return whether the argument values that the trace depends on are the same."""
        pairs = [(p.value, call.leaves[p.index]) for p in self.trace.pinned]
        is_alike = all(type(a) is type(b) and a == b for a, b in pairs)
        return is_alike and all(is_short(call.leaves[k]) for k in self.trace.short)

    def at(self, values: Values) -> Trace:
        """Return the trace at a point."""
        fields = {name: getattr(self.trace, name) for name in Trace.__dataclass_fields__}
        out_tree = map_statics(self.trace.out_tree, lambda x: value_at(x, values))
        inputs = tuple(_input_at(source, values) for source in self.trace.inputs)
        changed = {"function": (self.trace.function, values), "inputs": inputs, "out_tree": out_tree, "sizes": None}
        instantiated = Instantiated(**fields | changed)
        if inputs == self.trace.inputs:
            instantiated.__dict__["watch"] = self.trace.watch
        instantiated.__dict__["size_guards"] = self.guards
        return instantiated

    def program(self, trace: Trace, values: Values, leaves: Sequence[Any], donated: Donated) -> Program:
        """Return the program at a point, where ``trace`` is this trace at that point."""
        if not self.is_needed:
            return Program(template=None, instance=None, sizes={}, constants=(), outcomes=self.outcomes)
        over = over_of(trace, donated) if donated or trace.writes else ()
        layouts = layouts_of(trace, leaves, len(self.abstract.constants))
        instantiated = abstract_at(self.abstract, values)
        template = self._templates.get((layouts, over))
        if template is None:
            template = self._templates[layouts, over] = template_of_key(instantiated, layouts, "cpu", over)
        else:
            counters.count("templates_instantiated")
        return program_at(instantiated, self.outcomes, template)


@dataclass(kw_only=True)
class Kind:
    """The traces of calls of one kind. ``reason``: why they have concrete sizes, if they do."""

    variants: tuple[Variant, ...] = ()
    reason: str = ""


class Variants:
    """The traces with symbolic sizes of a function, by everything but the extents that a trace depends on in a call."""

    def __init__(self) -> None:
        self._kinds: dict[Any, Kind] = {}

    def kind(self, call: Signature) -> Kind:
        """Return the traces of calls like this one, added if there are none yet."""
        key = _key(call)
        entry = self._kinds.get(key)
        if entry is None:
            while len(self._kinds) >= MOST_KINDS:
                self._kinds.pop(next(iter(self._kinds.copy())), None)
            entry = self._kinds.setdefault(self._weakened(key), Kind())
        return entry

    def find(self, call: Signature) -> Kind | None:
        """Return the traces of calls like this one; None if there are none yet."""
        return self._kinds.get(_key(call))

    def _weakened(self, key: Any) -> Any:
        """Return the key with weak references; its entry is removed when something in it dies."""
        kinds = weakref.ref(self)
        holder: list[Any] = []

        def died(_: Any) -> None:
            variants = kinds()
            if variants is not None and holder:
                variants._kinds.pop(holder.pop(), None)

        holder.append(weakened(key, died))
        return holder[0]


def find_variant(kind: Kind, call: Signature) -> tuple[Variant, Values] | None:
    """Return the variant that serves a call, with the values of its sizes."""
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
    """The reason why a variant does not serve a call: a condition on sizes or, if that is None, ``reason``. ``extents``: the
    extents in it, with their sizes in the trace and in the call."""

    condition: Guard | None
    reason: str
    extents: tuple[tuple[str, int, int], ...]


def closest_failure(kind: Kind, call: Signature) -> Failed | None:
    """Return why the closest variant does not serve a call; None if there is no reason."""
    failures: list[tuple[int, Failed]] = []
    now = extents_of(call.leaves)
    for variant in kind.variants:
        try:
            variant.values(call)
        except Fails as fails:
            steps, names = variant.sizes.steps, {} if fails.guard is None else extents_in(fails.guard)
            extents = tuple((name, variant.extents[k], now[k]) for k, name in names.items())
            depth = len(steps) if fails.guard is None else steps.index(fails.guard)
            failures.append((depth, Failed(condition=fails.guard, reason=str(fails), extents=extents)))
    return max(failures, key=lambda pair: pair[0], default=(0, None))[1]


def add_variant(kind: Kind, trace: Trace, call: Signature, retrace: Callable[[], Trace]) -> None:
    """Store a new trace of a call of a kind.

    ``retrace`` returns the trace with concrete sizes, with which it is compared if the function may have caught an error that
    concrete sizes do not raise. Raises NotSymbolic, and the errors of building its program.
    """
    variant = Variant(trace, call)
    if variant.sizes.is_caught and not is_same(variant.at(variant.values(call)), retrace()):
        raise NotSymbolic("with numbers the function does something else")
    kind.variants = (variant, *kind.variants)[:MOST_VARIANTS]


def is_same(a: Trace, b: Trace) -> bool:
    """Return whether two traces are of one program, with the same results."""
    return canonical(a.function) == canonical(b.function) and repr(a.out_tree) == repr(b.out_tree) and a.returned == b.returned


def reason_of(error: Exception) -> str:
    """Return why a call could not be traced with symbolic sizes."""
    if isinstance(error, TraceError):
        return str(error).partition("\n")[0]
    return str(error) if isinstance(error, NotSymbolic) else f"{type(error).__name__}: {error}"


def _input_at(source: Input, values: Values) -> Input:
    """Return an input of a trace at a point; an array that NumPy computes from sizes is computed again."""
    if not isinstance(source, Constant) or source.symbolic is None:
        return source
    array = value_at(source.symbolic, values)
    return Constant(array=array, digest=digest(array))


def extents_of(leaves: Sequence[Any]) -> tuple[int, ...]:
    """Return the extents of the arrays among the leaves of a call, in order."""
    return tuple(n for leaf in leaves if isinstance(leaf, np.ndarray) for n in leaf.shape)


def _key(call: Signature) -> Any:
    """Return everything but the extents that a trace depends on in a call."""
    return call.tree, tuple(map(_loose, call.leaves))


def _loose(leaf: Any) -> Any:
    key = leaf_key(leaf)
    return (type(leaf), key[0], len(key[1]), key[2]) if isinstance(key, tuple) and len(key) == 3 else (type(leaf), key)
