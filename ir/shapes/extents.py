"""Extents: turn a function of concrete shapes into one that serves all shapes, and instantiate it again.

``abstract`` gives every extent and offset of a function a name; two share a name only where a type rule forces them to be
equal, never because their values agree. Numbers fixed by the program stay literal (an op's ``literal``): the count of scalars
put into an array, the position of one of them. Constants whose value no rewrite reads become parameters. The canonical text of
the result is the key of a program template; the returned sizes and constants instantiate that template.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.ir.core.scalars import as_int
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import ArrayType, DType, Extent, RefType, StackType, Type, is_by_value
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, DefineExtent
from pullback.ir.shapes.symbolic import is_size, lifted

NOMINAL = 256
"""Value assumed for a named extent when byte counts are compared."""
LITERALS = (0, 1, -1, 2, -2, 3, 4, 0.5, -0.5, 1.5, -1.5, 2.5)
"""Constants that stay literal, since rewrites match on them. So do bools, NaN and infinities."""


@dataclass(frozen=True, eq=False)
class Abstract:
    """``function`` has named extents; its last parameters are the constants. ``sizes`` and ``constants`` hold the values for
    one call."""

    function: Function
    sizes: Mapping[str, int]
    constants: tuple[Any, ...]


def abstract(function: Function, *, loose: bool = False) -> Abstract:
    """Name the extents of a function of concrete shapes. Raises TypeError on ill-typed instructions.

    ``loose``: offsets of 0 are named too, and each constant becomes a parameter of its own, in order. The result then
    describes only which instructions there are, whatever their numbers.
    """
    work = _Loose() if loose else _Abstraction()
    parameters = tuple(work.parameter(v) for v in function.parameters)
    body = work.block(function.body, parameters)
    block = Block((*parameters, *work.constants), body.instructions, body.results)
    names, sizes = work.final_names()
    renamed = rename(Function(function.name, block, function.kind), names)
    used = extents_of(renamed)
    return Abstract(renamed, {k: v for k, v in sizes.items() if k in used}, tuple(work.values))


Key = tuple[DType, Any]


class _Abstraction:
    """The state of one ``abstract``: a union-find over provisional names ``$0``, ``$1``, ... and the constants by scope."""

    def __init__(self) -> None:
        self.parent: dict[str, Extent] = {}
        self.count: dict[str, int] = {}
        self.env: dict[Value, Value] = {}
        self.constants: list[Value] = []
        self.values: list[Any] = []
        self.scopes: list[dict[tuple[DType, str], tuple[Key, Value]]] = [{}]

    def fresh(self, extent: Extent | None) -> Extent | None:
        if extent is None or isinstance(extent, str):
            return extent
        name = f"${len(self.count)}"
        self.count[name] = extent
        return name

    def find(self, extent: Extent) -> Extent:
        root = extent
        while isinstance(root, str) and root in self.parent:
            root = self.parent[root]
        while isinstance(extent, str) and extent != root:
            above = self.parent[extent]
            self.parent[extent] = root
            extent = above
        return root

    def same(self, a: Extent, b: Extent) -> None:
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if isinstance(a, str) and not is_by_value(a):
            self.parent[a] = b
        elif isinstance(b, str) and not is_by_value(b):
            self.parent[b] = a
        else:
            raise TypeError(f"extents {a} and {b} must be equal")

    def parameter(self, value: Value) -> Value:
        assert isinstance(value.type, ArrayType)
        if not value.type.shape:
            self.env[value] = value
            return value
        shape = tuple(self.fresh(e) for e in value.type.shape)
        self.env[value] = Value(ArrayType(value.type.dtype, shape), value.name)  # type: ignore[arg-type]
        return self.env[value]

    def block(self, block: Block, parameters: Sequence[Value]) -> Block:
        self.env.update(zip(block.parameters, parameters, strict=True))
        instructions = [new for old in block.instructions if (new := self.instruction(old)) is not None]
        return Block(tuple(parameters), tuple(instructions), tuple(self.env[v] for v in block.results))

    def instruction(self, old: Instruction) -> Instruction | None:
        op = old.op
        if isinstance(op, Constant) and not self.is_literal(old.params["value"]):
            self.env[old.result] = self.constant((old.params["dtype"], old.params["value"]))
            return None
        operands = tuple(self.env[v] for v in old.operands)
        if not op.extents and not old.regions and not any(v.type.shape for v in (*operands, *old.results)):
            self.env.update((v, v) for v in old.results)
            return old if operands == old.operands else replace(old, operands=operands)
        kept = op.literal([substitute(v.type, self.find) for v in operands], old.params) if op.literal else {}
        params = {k: self.offsets(k, v, kept.get(k)) if k in op.extents else v for k, v in old.params.items()}
        operands, regions = self.regions(old, operands, params)
        types = op.infer([v.type for v in operands], params, regions, self.same)
        results = tuple(Value(t, v.name) for t, v in zip(types, old.results, strict=True))
        self.env.update(zip(old.results, results, strict=True))
        return Instruction(op, operands, results, params, regions, old.loc)

    def regions(
        self, old: Instruction, operands: tuple[Value, ...], params: dict[str, Any]
    ) -> tuple[tuple[Value, ...], tuple[Block, ...]]:
        """Return the operands and the closed regions of an instruction; the regions' constants become further operands."""
        types = [v.type for v in operands]
        blocks: list[Block] = []
        scopes: list[dict[Any, tuple[Key, Value]]] = []
        for region in old.regions:
            inside = old.op.inside(types, params, blocks)
            parameters = [Value(t, v.name) if t.shape else v for t, v in zip(inside, region.parameters, strict=True)]
            self.scopes.append({})
            blocks.append(self.block(region, parameters))
            scopes.append(self.scopes.pop())
        keys = {same: key for scope in scopes for same, (key, _) in scope.items()}
        regions = []
        for block, scope in zip(blocks, scopes, strict=True):
            constants = [scope[same][1] if same in scope else Value(ArrayType(keys[same][0])) for same in keys]
            regions.append(Block((*block.parameters, *constants), block.instructions, block.results))
        return (*operands, *map(self.constant, keys.values())), tuple(regions)

    def offsets(self, name: str, values: Sequence[Any], kept: Sequence[bool] | None) -> tuple[Any, ...]:
        """Name the extents except those in ``kept``; an offset of 0 stays literal."""
        literal = [self.is_zero(v) and name != "shape" for v in values]
        return tuple(v if zero or keep else self.fresh(v) for v, zero, keep in zip(values, literal, kept or literal))

    def constant(self, key: Key) -> Value:
        """Return the value of a constant in the current scope: a parameter of the function or of the region."""
        scope = self.scopes[-1]
        same = self.constant_key(key)
        if same not in scope:
            scope[same] = key, Value(ArrayType(key[0]), f"c{len(scope)}")
            if len(self.scopes) == 1:
                self.constants.append(scope[same][1])
                self.values.append(key[1])
        return scope[same][1]

    def is_literal(self, value: Any) -> bool:
        """Return whether a constant stays literal."""
        return bool(lifted(is_literal, value))

    def is_zero(self, offset: Any) -> bool:
        """Return whether an offset stays literal because it is 0."""
        return bool(offset == 0)

    def constant_key(self, key: Key) -> tuple[DType, str]:
        """Return the key under which equal constants share a parameter."""
        return key[0], f"a size {key[1].key}" if is_size(key[1]) else repr(key[1])

    def final_names(self) -> tuple[dict[str, Extent], dict[str, int]]:
        """Return the final name of each provisional one, numbered in order of appearance, and the values of the sizes."""
        final: dict[Extent, Extent] = {}
        names: dict[str, Extent] = {}
        sizes: dict[str, int] = {}
        for raw, value in self.count.items():
            root = self.find(raw)
            if isinstance(root, str) and not is_by_value(root) and root not in final:
                final[root] = f"n{len(sizes)}"
                sizes[f"n{len(sizes)}"] = value
            names[raw] = final.get(root, root)
        return names, sizes


class _Loose(_Abstraction):
    """The ``loose`` variant: nothing is literal, and no two constants share a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.constant_count = 0

    def is_literal(self, value: Any) -> bool:
        return False

    def is_zero(self, offset: Any) -> bool:
        return False

    def constant_key(self, key: Key) -> tuple[DType, str]:
        self.constant_count += 1
        return key[0], f"{self.constant_count}"


def is_literal(value: Any) -> bool:
    """Return whether rewrites may match on the value of a constant."""
    if isinstance(value, complex):
        return is_literal(value.real) and is_literal(value.imag)
    return isinstance(value, bool) or value in LITERALS or (isinstance(value, float) and not math.isfinite(value))


def quotient(extent: Extent, divisor: int) -> Extent:
    """Divide an extent by an int, rounding up. Returns an int, or a factor ``n0.n1/64`` of products."""
    if isinstance(extent, int):
        return -(-extent // divisor)
    return f"{extent.replace('*', '.')}/{divisor}"


def factor_names(extent: str) -> list[str]:
    """Return the names in a symbolic extent."""
    names = [n for f in extent.split("*") for n in f.partition("/")[0].split(".")]
    return [n for n in names if not n.isdigit()]


def by_value_in(extents: Iterable[Any]) -> list[str]:
    """Return the extents of a shape, or of lists of extents to be multiplied, that depend on extents by value."""
    flat = (e for x in extents for e in (x if isinstance(x, tuple | list) else (x,)))
    return [e for e in flat if isinstance(e, str) and any(map(is_by_value, factor_names(e)))]


def extents_by_value(instruction: Instruction) -> dict[str, None]:
    """Return the extents by value in the types of an instruction's operands and results, in its params, and in its regions,
    without the ones that the regions define."""
    shapes = [v.type.shape for v in (*instruction.operands, *instruction.results)]
    shapes += [instruction.params[name] for name in instruction.op.extents if name in instruction.params]
    names = dict.fromkeys(n for shape in shapes for e in by_value_in(shape) for n in factor_names(e) if is_by_value(n))
    for region in instruction.regions:
        names.update(dict.fromkeys(used_in(region.instructions)))
    return names


def used_in(instructions: Iterable[Instruction]) -> dict[str, None]:
    """Return the extents by value that instructions use and do not define."""
    names: dict[str, None] = {}
    defined = set(definers(instructions := list(instructions)))
    for i in instructions:
        names.update((name, None) for name in extents_by_value(i) if name not in defined)
    return names


def definers(instructions: Iterable[Instruction]) -> dict[str, Value]:
    """Return the numbers by which instructions first define extents by value, by their names; regions are not entered."""
    numbers: dict[str, Value] = {}
    for i in instructions:
        if isinstance(i.op, DefineExtent):
            numbers.setdefault(i.params["extent"][0], i.result)
    return numbers


def _factor(factor: str, names: Callable[[str], Extent]) -> Extent:
    """Return a factor of a product with its names substituted by names or ints."""
    dividend, _, divisor = factor.partition("/")
    total = product([int(n) if n.isdigit() else names(n) for n in dividend.split(".")])
    return quotient(total, int(divisor)) if divisor else total


def product(extents: Sequence[Extent]) -> Extent:
    """Return the product of extents: an int, a name, or names and quotients joined by ``*``."""
    factors = [f for e in extents for f in (e.split("*") if isinstance(e, str) else [e])]
    coefficient = math.prod(as_int(f) for f in factors if isinstance(f, int) or f.isdigit())
    names = [f for f in factors if isinstance(f, str) and not f.isdigit()]
    if not names or coefficient == 0:
        return coefficient
    return "*".join(names if coefficient == 1 else [*names, str(coefficient)])


def nominal_bytes(t: Type, sizes: Mapping[str, int] = MappingProxyType({})) -> int:
    """Return the bytes of a type, for comparisons: a named extent counts as its value in ``known``, or else ``NOMINAL``."""
    return int(product([_named(e, lambda name: sizes.get(name, NOMINAL)) for e in t.shape])) * t.dtype.bytes


def value_of(extent: Extent, sizes: Mapping[str, int]) -> int:
    """Return the value of an extent, or of a product of extents."""
    value = extent if isinstance(extent, int) else sizes.get(extent)
    return int(_named(extent, lambda name: sizes[name])) if value is None else value


def _named(extent: Extent, names: Callable[[str], Extent]) -> Extent:
    """Return an extent with its names substituted by names or ints."""
    return extent if isinstance(extent, int) else product([_factor(f, names) for f in extent.split("*")])


def renamed_extent(extent: Extent, names: Mapping[str, Extent]) -> Extent:
    """Return an extent with its names replaced by other extents; names that are not in the mapping stay."""
    return _named(extent, lambda name: names.get(name, name))


def substitute(t: Type, names: Callable[[Extent], Extent]) -> Type:
    """Return a type with each extent mapped by ``names``."""
    if not t.shape:
        return t
    shape = tuple(names(e) for e in t.shape)
    if isinstance(t, StackType):
        return StackType(t.dtype, shape)
    return RefType(t.dtype, shape, t.layout, t.space) if isinstance(t, RefType) else ArrayType(t.dtype, shape)


def rename(function: Function, names: Mapping[str, Extent]) -> Function:
    """Return the function with extents renamed, or replaced by ints; names that are not in the mapping stay."""

    renamed: dict[str, Extent] = {}

    def one(extent: Any) -> Any:
        if isinstance(extent, tuple):
            return tuple(one(e) for e in extent)
        if not isinstance(extent, str):
            return extent
        if extent not in renamed:
            renamed[extent] = renamed_extent(extent, names)
        return renamed[extent]

    env: dict[Value, Value] = {}

    def define(value: Value) -> Value:
        env[value] = Value(substitute(value.type, one), value.name) if value.type.shape else value
        return env[value]

    def block(old: Block) -> Block:
        parameters = tuple(define(v) for v in old.parameters)
        instructions = []
        for i in old.instructions:
            operands = tuple(env[v] for v in i.operands)
            if not i.op.extents and not i.regions and not any(v.type.shape for v in i.results):
                env.update((v, v) for v in i.results)
                instructions.append(i if operands == i.operands else replace(i, operands=operands))
                continue
            params = {k: one(tuple(v)) if k in i.op.extents else v for k, v in i.params.items()}
            regions = tuple(block(r) for r in i.regions)
            instructions.append(Instruction(i.op, operands, tuple(define(v) for v in i.results), params, regions, i.loc))
        return Block(parameters, tuple(instructions), tuple(env[v] for v in old.results))

    return Function(function.name, block(function.body), function.kind)


def extents_of(function: Function) -> dict[str, None]:
    """Return the named extents of a function, in order of appearance."""
    names: dict[str, None] = {}

    def note(extents: Sequence[Any]) -> None:
        names.update((name, None) for e in extents if isinstance(e, str) for name in factor_names(e))

    def visit(block: Block) -> None:
        for value in block.parameters:
            note(value.type.shape)
        for i in block.instructions:
            for name in i.op.extents:
                note(i.params.get(name, ()))
            for value in i.results:
                note(value.type.shape)
            for region in i.regions:
                visit(region)

    visit(function.body)
    return names
