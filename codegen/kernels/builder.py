"""The result of lowering one step, a kernel and how to launch it, and the builder of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS, Op
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc, key_of
from pullback.ir.core.types import I64, Extent, RefType, Shape, scalar
from pullback.ir.core.value import Value

LARGEST_OFFSET = 1 << 30
"""The largest distance, in elements, up to which additions of constants to an index are folded into one."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Draft:
    """A kernel and how to launch it. ``kernel`` takes the operands, the results and the scratch buffers. ``sizes`` are the
    program's extents for s0, s1, ...; ``failures`` the meaning of each status code. ``in_place``: a kernel without the
    first operand that updates the first result."""

    kernel: Function
    sizes: tuple[Extent, ...]
    scratch: tuple[RefType, ...] = ()
    failures: tuple[tuple[str, str, str], ...] = ()
    in_place: Function | None = None

    @property
    def updates_first(self) -> bool:
        """Return whether there is a variant that updates the first operand in place."""
        return self.in_place is not None


class KernelBuilder(Builder):
    """A builder of a kernel's nested loops. It hoists every instruction to the outermost loop body in which all its operands
    are defined, emits equal pure instructions once, and adds constant indices at once. ``open`` and ``close`` begin and end
    loops; ``here`` appends to the innermost body."""

    def __init__(self) -> None:
        super().__init__()
        self.levels: list[list[Instruction]] = [self.instructions]
        self.level: dict[Value, int] = {}
        self.emitted: dict[Any, tuple[Value, ...]] = {}
        self.constants: dict[Value, int] = {}
        self.offsets: dict[Value, tuple[Value, int]] = {}
        self.names: dict[Extent, str] = {}
        self.location: Loc = NOWHERE
        self.result_name = ""

    def size(self, extent: Extent) -> Extent:
        """Return the kernel's name of a program extent."""
        if isinstance(extent, int):
            return extent
        return self.names.setdefault(extent, f"s{len(self.names)}")

    def sizes(self) -> tuple[Extent, ...]:
        """Return the program extents that the kernel uses, in the order of their names."""
        return tuple(self.names)

    def shape(self, shape: Shape) -> Shape:
        return tuple(self.size(e) for e in shape)

    def extent_of(self, extent: Extent) -> Value:
        """Return the i64 value of a program extent or of an int."""
        if isinstance(extent, int):
            return self.const(extent, I64)
        return self.emit(OPS["extent"], (), {"size": self.size(extent)})[0]

    def emit(
        self, op: Op, operands: Sequence[Value] = (), params: dict[str, Any] | None = None, regions: Sequence[Block] = ()
    ) -> tuple[Value, ...]:
        params = params or {}
        if op.name in ("add", "sub") and all(v in self.constants for v in operands):
            a, c = (self.constants[v] for v in operands)
            return (self.const(a + c if op.name == "add" else a - c, I64),)
        base, by = self.distance(op, operands)
        if base is not None:
            if not by:
                return (base,)
            op, operands = OPS["add" if by > 0 else "sub"], (base, self.const(abs(by), I64))
        key = key_of(op, operands, params)
        results = self.emitted.get(key)
        if results is None:
            depth = max((self.level.get(v, 0) for v in operands), default=0)
            results = self.put(depth, op, operands, params)
            self.emitted[key] = results
            if base is not None:
                self.offsets[results[0]] = base, by
            elif op is OPS["const"] and params["dtype"] is I64:
                self.constants[results[0]] = int(params["value"])
        return results

    def distance(self, op: Op, operands: Sequence[Value]) -> tuple[Value | None, int]:
        """Return the base of an index that is a base plus a constant, and the constant; None and 0 for another index.
        Successive additions and subtractions of constants are summed up."""
        if op.name not in ("add", "sub") or operands[0].type.dtype is not I64:
            return None, 0
        a, b = operands if op.name == "sub" or operands[1] in self.constants else operands[::-1]
        by = self.constants.get(b)
        if by is None or a in self.constants or abs(by) > LARGEST_OFFSET:
            return None, 0
        base, offset = self.offsets.get(a, (a, 0))
        return base, offset + (by if op.name == "add" else -by)

    def put(
        self, depth: int, op: Op, operands: Sequence[Value], params: dict[str, Any], regions: Sequence[Block] = ()
    ) -> tuple[Value, ...]:
        """Append an instruction to the loop body at a depth; return its results."""
        types = op.infer([v.type for v in operands], params, regions, lambda a, b: None)
        results = tuple(Value(t, self.result_name) for t in types)
        self.levels[depth].append(Instruction(op, tuple(operands), results, params, tuple(regions), self.location))
        for value in results:
            self.level[value] = depth
        return results

    def here(self, name: str, *operands: Value, **params: Any) -> Any:
        """Append an instruction to the innermost body, whatever its operands: for reads and writes of memory that changes."""
        results = self.put(len(self.levels) - 1, OPS[name], operands, params)
        return results[0] if len(results) == 1 else results

    def open(self, hint: str = "i") -> Value:
        """Enter a loop body; return its index."""
        self.levels.append([])
        return self.bound(I64, hint)

    def bound(self, dtype: Any, hint: str) -> Value:
        """Return a new parameter of the innermost loop body."""
        value = Value(scalar(dtype), hint)
        self.level[value] = len(self.levels) - 1
        return value

    def close(
        self,
        index: Value,
        count: Value,
        initial: Sequence[Value] = (),
        yields: Sequence[Value] = (),
        combine: Sequence[str] | None = None,
        carried: Sequence[Value] = (),
        scan: Sequence[str] = (),
        ordered: bool = False,
        independent: bool = False,
        way: str = "",
        short: bool = False,
        trip_count: int = 0,
    ) -> tuple[Value, ...]:
        """Leave a loop body; return the loop's results. ``independent``: its iterations write disjoint memory; ``short``: the
        trip count is usually small; ``trip_count``: the expected trip count; ``way``: the loop's mapping ("vector", "core",
        "serial")."""
        body = Block((index, *carried), tuple(self.levels.pop()), tuple(yields))
        params: dict[str, Any] = {} if combine is None else {"combine": tuple(combine)}
        if scan:
            params["scan"] = tuple(scan)
        params |= {name: True for name, holds in (("ordered", ordered), ("independent", independent), ("short", short)) if holds}
        if trip_count:
            params["trip_count"] = trip_count
        if way:
            params["map"] = way
        return self.put(len(self.levels) - 1, OPS["for"], (count, *initial), params, (body,))

    def close_ordered(self, index: Value, count: Value) -> None:
        """Leave the body of a loop whose iterations run in order although they have no carries, because they write to memory."""
        body = Block((index,), tuple(self.levels.pop()), ())
        self.put(len(self.levels) - 1, OPS["for"], (count,), {"ordered": True}, (body,))

    def enter(self) -> None:
        """Enter the body of a conditional."""
        self.levels.append([])

    def leave_if(self, condition: Value) -> None:
        """Leave the body of a conditional and append it, guarded by a condition."""
        body = Block((), tuple(self.levels.pop()), ())
        self.put(len(self.levels) - 1, OPS["if"], (condition,), {}, (body,))

    def when(self, condition: Value, body: Callable[[], object]) -> None:
        """Append the instructions that ``body`` appends, guarded by a condition."""
        self.levels.append([])
        body()
        region = Block((), tuple(self.levels.pop()), ())
        self.put(len(self.levels) - 1, OPS["if"], (condition,), {}, (region,))

    def kernel(self, parameters: Sequence[Value]) -> Function:
        """Return the kernel, with all loops closed."""
        return Function("k", Block(tuple(parameters), tuple(self.levels[0]), ()), "kernel")
