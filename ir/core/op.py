"""The op record and the op table.

An op is one record: its name, its NumPy reference (meaning, interpreter, oracle of the tests, and the name the tracer
listens for), its gradient rule, its scalar spelling for each target, its effect. What ops share sits on their family, a
subclass in ``pullback.ir.ops``. Creating a record registers it; nothing else is needed to add an op.

The gradient rule is called as ``rule(builder, op, inputs, outputs, cotangents, params, wants)`` once per instruction, at
compile time, and returns one contribution per input: a value of exactly the input's type, ``ZERO``, or an ``Into``. It may
read every input, output and cotangent; reading a value makes it a residual. It emits ordinary ops.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from pullback.ir.core.types import DType, Extent, Type
from pullback.ir.core.value import Value


class Zero:
    """The cotangent of a value that the differentiated results do not depend on. A compile-time object, never an array."""

    def __repr__(self) -> str:
        return "ZERO"


ZERO = Zero()


@dataclass(frozen=True, eq=False)
class Into:
    """A contribution that is added into a part of a buffer: ``add(base)`` emits the sum of ``base`` and the contribution.

    ``dense()`` emits the contribution as a value of the whole type. Rules of ops that read a part of an array return it,
    so that many small contributions meet in one buffer.
    """

    add: Callable[[Value], Value]
    dense: Callable[[], Value]


class Operation(Protocol):
    """What an op's type rule reads of an instruction in a region of its own."""

    @property
    def op(self) -> Op:
        """The op that is applied."""

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that the instruction reads, but for what its regions read."""

    @property
    def results(self) -> tuple[Value, ...]:
        """The values that the instruction defines."""

    @property
    def regions(self) -> Sequence[Region]:
        """The regions of the instruction."""


class Region(Protocol):
    """What an op's type rule reads of a region of its instruction."""

    @property
    def parameters(self) -> tuple[Value, ...]:
        """The values that the region starts with."""

    @property
    def instructions(self) -> Sequence[Operation]:
        """The instructions, in order."""

    @property
    def results(self) -> tuple[Value, ...]:
        """The values that the region returns."""


class RuleBuilder(Protocol):
    """What gradient and batching rules emit instructions with. Ops are methods: ``b.mul(x, y)``.

    ``is_linear``: whether what rules emit is transposed, so that it must be linear in cotangents, whose numbers are not known.
    """

    is_linear: bool

    def emit(self, op: Op, operands: Sequence[Value] = (), params: dict[str, Any] | None = None) -> tuple[Value, ...]:
        """Append an instruction without regions and return its results. Raises TypeError on operands the op does not take."""

    def const(self, value: Any, dtype: DType | str) -> Value:
        """Return a rank-0 constant."""

    def full(self, value: Any, type: Type) -> Value:
        """Return an array of one constant."""

    def zeros_like(self, x: Value) -> Value:
        """Return an array of zeros of the type of ``x``."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the method that emits the op of that name."""


class NoDerivative(Exception):
    """Raised by a rule where there is no derivative; the message says why."""


Contribution = Value | Zero | Into
Cotangent = Value | Zero
Same = Callable[[Extent, Extent], None]
Literal = Callable[[Sequence[Type], Mapping[str, Any]], Mapping[str, Sequence[bool]]]
Rule = Callable[
    [RuleBuilder, "Op", Sequence[Value], Sequence[Value], Sequence[Cotangent], Mapping[str, Any], Sequence[bool]],
    Sequence[Contribution],
]

OPS: dict[str, Op] = {}


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """One op.

    ``reference``: dotted name of a NumPy or SciPy function, or a callable, over arrays and the params as keywords.
    ``also``: further dotted names the tracer listens for. ``effect``: "pure", "fails" (never removed as dead) or
    "effect". ``nondifferentiable``: why inputs get no cotangent, or empty. ``missing``: positions of inputs by which there is no
    derivative, and why: asking for one is an error. ``extents``: the params that hold extents or
    offsets. ``literal(types, params)``: by param, whether each of these numbers stays in a template, given the operand types, in
    which known extents are ints. ``typed``: of the params, those that the result type shows (``shape``, ``dtype``); the text
    omits them. ``implied``: those that operand types and other params settle, under whatever names of extents. ``linear``: in its
    inexact operands together; so its results' tangents are the op on the tangents, and a cotangent of zero gives contributions of
    zero whatever the operands, NaN and infinities included. ``finite``: values and derivatives are finite where the operands are,
    unless they grow out of the dtype's range. ``commutative``: its two operands may change places."""

    name: str
    reference: str | Callable[..., Any] | None = None
    also: tuple[str, ...] = ()
    pullback: Rule | None = None
    nondifferentiable: str = ""
    missing: Mapping[int, str] = field(default_factory=dict)
    effect: str = "pure"
    vocabularies: frozenset[str] = frozenset({"func"})
    extents: tuple[str, ...] = ()
    literal: Literal | None = None
    typed: tuple[str, ...] = ()
    linear: bool = False
    implied: tuple[str, ...] = ()
    finite: bool = False
    commutative: bool = False

    def __post_init__(self) -> None:
        if self.name in OPS:
            raise ValueError(f"there is an op {self.name} already")
        OPS[self.name] = self

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The reference, resolved."""
        return resolve(self.reference)

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        """Result types. Raises TypeError on operands the op has no meaning for; ``same`` is told extents that must agree."""
        raise NotImplementedError(self.name)

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        """The types of the parameters of one of the op's regions, given those of the operands and the regions before it."""
        return tuple(types)

    def settle(self, types: Sequence[Type], params: dict[str, Any]) -> dict[str, Any]:
        """The params in their one canonical form, given operand types; the builder calls it."""
        return params

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        """The op's meaning on NumPy arrays; ``types`` are the result types."""
        result = self.function(*operands, **params)
        return result if isinstance(result, tuple) else (result,)

    def batch(
        self, b: RuleBuilder, operands: Sequence[Value], batched: Sequence[bool], params: Mapping[str, Any], size: Extent
    ) -> tuple[Value, ...]:
        """Emit the op for each index of a leading axis of extent ``size``, which the operands marked in ``batched`` have (at
        least one) and all results get. Here: the op takes any axes in front, and names its own in the params."""
        return b.emit(self, leading(b, operands, batched, size), shifted(params, size))


def leading(b: RuleBuilder, operands: Sequence[Value], batched: Sequence[bool], size: Extent) -> list[Value]:
    """The operands, all with a leading axis of extent ``size``: those not ``batched`` repeat."""
    return [
        x if is_batched else b.emit(OPS["broadcast"], (x,), {"axes": (0,), "shape": (size, *x.type.shape)})[0]
        for x, is_batched in zip(operands, batched, strict=True)
    ]


def shifted(params: Mapping[str, Any], size: Extent) -> dict[str, Any]:
    """Params that name axes and extents, for arrays with one axis more in front."""
    found = dict(params)
    if "axis" in params:
        found["axis"] = params["axis"] + 1
    if "axes" in params:
        found["axes"] = tuple(a + 1 for a in params["axes"])
    if "perm" in params:
        found["perm"] = (0, *(a + 1 for a in params["perm"]))
    if "shape" in params:
        found["shape"] = (size, *params["shape"])
    if "step" in params:
        found["start"], found["step"] = (None, *params["start"]), (1, *params["step"])
    return found


def resolve(reference: str | Callable[..., Any] | None) -> Callable[..., Any]:
    """The object a dotted name stands for; a callable stands for itself."""
    if reference is None:
        raise LookupError("the op has no reference")
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def must_match(a: Extent, b: Extent) -> None:
    """The strict ``same``: extents that must agree are equal."""
    if a != b:
        raise TypeError(f"extents {a} and {b} must be equal")
