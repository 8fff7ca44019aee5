"""The op record and the op table.

An op is one record: its name, its NumPy reference (its semantics, the interpreter's implementation, the oracle of the tests,
and the function that the tracer intercepts), its gradient rule, its scalar lowering for each target, and its effect. Behaviour
shared by similar ops is defined by their family, a subclass in ``pullback.ir.ops``. Constructing a record registers it;
nothing else is needed to add an op.

The gradient rule is called as ``rule(builder, op, inputs, outputs, cotangents, params, wants)`` once per instruction, at
compile time, and returns one contribution per input: a value of exactly the input's type, ``ZERO``, or an ``Into``. It may
read every input, output and cotangent; reading a value makes it a residual. It emits ordinary ops.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, Protocol

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DType, Extent, Type
from pullback.ir.core.value import Value


class Zero:
    """The cotangent of a value that no differentiated result depends on. A compile-time object, never an array."""

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
    """The interface of an instruction in a region, as the type rules of ops read it."""

    @property
    def op(self) -> Op:
        """The op that is applied."""

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that the instruction reads, not including the ones that its regions read."""

    @property
    def results(self) -> tuple[Value, ...]:
        """The values that the instruction defines."""

    @property
    def regions(self) -> Sequence[Region]:
        """The regions of the instruction."""


class Region(Protocol):
    """The interface of a region, as the type rules of ops read it."""

    @property
    def parameters(self) -> tuple[Value, ...]:
        """The parameters of the region."""

    @property
    def instructions(self) -> Sequence[Operation]:
        """The instructions, in order."""

    @property
    def results(self) -> tuple[Value, ...]:
        """The values that the region returns."""


class RuleBuilder(Protocol):
    """The interface of a builder as gradient and batching rules use it. Ops are methods: ``b.mul(x, y)``.

    ``is_linear``: whether the emitted code is going to be transposed, so that it must be linear in the cotangents, which are
    symbolic then.
    """

    is_linear: bool

    def emit(self, op: Op, operands: Sequence[Value] = (), params: dict[str, Any] | None = None) -> tuple[Value, ...]:
        """Append an instruction without regions and return its results. Raises TypeError on operands the op does not take."""

    def const(self, value: Any, dtype: DType | str) -> Value:
        """Return a rank-0 constant."""

    def full(self, value: Any, type: Type) -> Value:
        """Return an array filled with one constant."""

    def zeros_like(self, x: Value) -> Value:
        """Return an array of zeros of the type of ``x``."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return the method that emits the op of that name."""


class NoDerivative(Exception):
    """Raised by a gradient rule, or by a batching rule, where there is no derivative, or no batch; the message gives the
    reason."""


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

    - ``reference``: dotted name of a NumPy or SciPy function, or a callable; it takes arrays, and the params as keywords.
    - ``also``: further dotted names that the tracer maps to the op.
    - ``effect``: "pure", "fails" (never removed as dead code) or "effect".
    - ``nondifferentiable``: why inputs get no cotangent, or empty.
    - ``missing``: by input position, why there is no derivative with respect to it; requesting one is an error.
    - ``extents``: the params that hold extents or offsets.
    - ``literal(types, params)``: by param, whether each of its numbers stays literal in a program template, for operand ``types``
      in which known extents are ints.
    - ``typed``: the params that the result type shows (``shape``, ``dtype``); the text format omits them.
    - ``implied``: the params that operand types and the other params determine, up to the names of extents.
    - ``linear``: whether the op is jointly linear in its inexact operands. Tangents of its results are then the op applied to
      the tangents, and a cotangent of zero gives contributions of zero for any operands, NaN and infinities included.
    - ``finite``: whether values and derivatives are finite for finite operands, unless they overflow the dtype.
    - ``commutative``: whether its two operands may be swapped.
    """

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
        """The reference as a callable."""
        return resolve(self.reference)

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        """Return the result types. Raises TypeError on operands that the op does not accept; ``same`` is called with each pair
        of extents that must agree."""
        raise NotImplementedError(self.name)

    def inside(self, types: Sequence[Type], params: Mapping[str, Any], before: Sequence[Region] = ()) -> tuple[Type, ...]:
        """Return the parameter types of a region, from the operand types and the regions ``before`` it."""
        return tuple(types)

    def settle(self, types: Sequence[Type], params: dict[str, Any]) -> dict[str, Any]:
        """Return the params in canonical form for the operand types. Called by the builder."""
        return params

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        """Evaluate the op on NumPy arrays; ``types`` are the result types."""
        result = self.function(*operands, **params)
        return result if isinstance(result, tuple) else (result,)

    def batch(
        self, b: RuleBuilder, operands: Sequence[Value], batched: Sequence[bool], params: Mapping[str, Any], size: Extent
    ) -> tuple[Value, ...]:
        """Emit the op for each index of a leading axis of extent ``size``. The operands marked in ``batched`` (at least one)
        have that axis, and all results get it. The default is for ops that accept any leading axes and name their axes in
        the params."""
        return b.emit(self, with_leading_axis(b, operands, batched, size), shifted_params(params, size))


def with_leading_axis(b: RuleBuilder, operands: Sequence[Value], batched: Sequence[bool], size: Extent) -> list[Value]:
    """Return the operands, all with a leading axis of extent ``size``; operands that are not ``batched`` are broadcast."""
    return [
        x if is_batched else b.emit(OPS["broadcast"], (x,), {"axes": (0,), "shape": (size, *x.type.shape)})[0]
        for x, is_batched in zip(operands, batched, strict=True)
    ]


def shifted_params(params: Mapping[str, Any], size: Extent) -> dict[str, Any]:
    """Return params that name axes and extents, for arrays with one more leading axis."""
    result = dict(params)
    if "axis" in params:
        result["axis"] = params["axis"] + 1
    if "axes" in params:
        result["axes"] = tuple(a + 1 for a in params["axes"])
    if "perm" in params:
        result["perm"] = (0, *(a + 1 for a in params["perm"]))
    if "shape" in params:
        result["shape"] = (size, *params["shape"])
    if "step" in params:
        result["start"], result["step"] = (None, *params["start"]), (1, *params["step"])
    return result


def resolve(reference: str | Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the object that a dotted name refers to; a callable is returned unchanged."""
    if reference is None:
        raise LookupError("the op has no reference")
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.rpartition(".")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function


def must_match(a: Extent, b: Extent) -> None:
    """Raise TypeError unless two extents are equal. The strict ``same`` of ``Op.infer``."""
    if a != b:
        raise TypeError(f"extents {a} and {b} must be equal")
