"""Run a function and record it as a straight line: the instructions that ran, with each loop iteration and the branches taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, Loc
from pullback.ir.core.types import I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.interpret import concrete, interpret
from pullback.ir.ops.array.create import DefineExtent
from pullback.ir.ops.control.loops import Scan, StackLength, Switch, While
from pullback.ir.shapes.extents import value_of

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class _Rows:
    """A sequence of values as its rows; ``array`` is the stacked value, built when something first reads it."""

    type: Any
    rows: list[Value]
    array: Value | None = None


Operand = Value | _Rows
Env = dict[Value, Operand]


def straight_line(
    function: Function, values: dict[Value, Array], iterations: dict[Instruction, tuple[int, ...]] | None = None, *,
    effects: bool = True,
) -> Function:  # fmt: skip
    """Run a function with parameters of concrete shapes. Return the instructions that ran as a function without control flow.

    ``values`` holds the values of the parameters; those of all executed instructions are added. ``iterations`` receives the
    loop iterations in which instructions ran. Without ``effects`` nothing is printed. The returned function has the same
    results. Raises CheckFailed if a check fails.
    """
    run = _Run(values, {} if iterations is None else iterations, effects)
    env: Env = {p: p for p in function.parameters}
    run.block(function.body, env)
    results = [run.array(env[v]) for v in function.results]
    return run.builder.function(function.name, function.parameters, results)


class _Run:
    def __init__(self, values: dict[Value, Array], iterations: dict[Instruction, tuple[int, ...]], effects: bool) -> None:
        self.values = values
        self.iterations = iterations
        self.effects = effects
        self.iteration: tuple[int, ...] = ()
        self.sizes: dict[str, int] = {}
        self.builder = Builder()

    def block(self, block: Block, env: Env) -> None:
        for i in block.instructions:
            env.update(zip(i.results, self.instruction(i, [env[v] for v in i.operands]), strict=True))

    def region(self, region: Block, operands: Sequence[Operand]) -> list[Operand]:
        env: Env = dict(zip(region.parameters, operands, strict=True))
        self.block(region, env)
        return [env[v] for v in region.results]

    def instruction(self, i: Instruction, operands: Sequence[Operand]) -> Sequence[Operand]:
        match i.op:
            case Switch():
                return self.region(i.regions[int(self.value(operands[0]))], operands[1:])
            case Scan():
                return self.scan(i, operands)
            case While():
                return self.while_loop(i, operands)
            case StackLength() if isinstance(operands[0], _Rows):
                return [self.constant(len(operands[0].rows), i.loc)]
        return self.step(i, [self.array(x) for x in operands])

    def scan(self, i: Instruction, operands: Sequence[Operand]) -> Sequence[Operand]:
        (region,) = i.regions
        length, carried_count = i.params["length"], i.params["carried"]
        count = value_of(length[0], self.sizes) if length else int(self.value(operands[0]))
        inputs = operands if length else operands[1:]
        carried, sequences = list(inputs[:carried_count]), inputs[carried_count : carried_count + i.params["sliced"]]
        captures = inputs[carried_count + len(sequences) :]
        outputs: list[list[Operand]] = [[] for _ in range(count)]
        for k in reversed(range(count)) if i.params["reverse"] else range(count):
            rows = [self.row(xs, k, i.loc) for xs in sequences]
            results = self.in_iteration(k, region, [self.constant(k, i.loc), *carried, *rows, *captures])
            carried, outputs[k] = results[:carried_count], results[carried_count:]
        return [*carried, *self.sequences(i.results[carried_count:], outputs)]

    def while_loop(self, i: Instruction, operands: Sequence[Operand]) -> Sequence[Operand]:
        condition, body = i.regions
        carried_count = i.params["carried"]
        carried, captures = list(operands[:carried_count]), operands[carried_count:]
        outputs: list[list[Operand]] = []
        while True:
            index = self.constant(len(outputs), i.loc)
            if not self.value(self.region(condition, [index, *carried, *captures])[0]):
                return [*carried, index, *self.sequences(i.results[carried_count + 1 :], outputs)]
            results = self.in_iteration(len(outputs), body, [index, *carried, *captures])
            carried = results[:carried_count]
            outputs.append(results[carried_count:])

    def in_iteration(self, k: int, region: Block, operands: Sequence[Operand]) -> list[Operand]:
        outside, self.iteration = self.iteration, (*self.iteration, k)
        results = self.region(region, operands)
        self.iteration = outside
        return results

    def sequences(self, results: Sequence[Value], outputs: Sequence[Sequence[Operand]]) -> list[Operand]:
        return [_Rows(v.type, [self.array(row[k]) for row in outputs]) for k, v in enumerate(results)]

    def row(self, xs: Operand, k: int, loc: Loc) -> Value:
        if isinstance(xs, _Rows):
            return xs.rows[k]
        shape = xs.type.shape
        zeros = (0,) * (len(shape) - 1)
        part = {"start": (k, *zeros), "step": (1,) * len(shape), "shape": (1, *shape[1:])}
        b = self.builder.at(loc)
        return self.record(b.squeeze(self.record(b.slice(xs, **part), self.values[xs][k : k + 1]), axes=(0,)), self.values[xs][k])

    def array(self, x: Operand) -> Value:
        if isinstance(x, Value):
            return x
        if x.array is None:
            x.array = self.joined(x)
        return x.array

    def joined(self, sequence: _Rows) -> Value:
        t, count, b = sequence.type, len(sequence.rows), self.builder
        shape: Any = (count, *sequence.rows[0].type.shape) if count else t.shape
        values = np.asarray([self.values[v] for v in sequence.rows], t.dtype.numpy).reshape(shape)
        if not count:
            return self.record(b.full(0, ArrayType(t.dtype, t.shape)), values)
        rows = [self.record(b.broadcast(v, axes=(0,), shape=(1, *v.type.shape)), self.values[v][None]) for v in sequence.rows]
        return self.record(b.concat(*rows, axis=0, starts=tuple(range(count)), shape=shape), values)

    def constant(self, k: int, loc: Loc) -> Value:
        """Emit an i64 constant."""
        return self.record(self.builder.at(loc).const(k, I64), np.asarray(k))

    def record(self, value: Value, array: Any) -> Value:
        """Record the array of a value and return the value."""
        self.values[value] = np.asarray(array)
        return value

    def value(self, x: Operand) -> Any:
        return self.values[self.array(x)]

    def step(self, i: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
        """Run one instruction and append a copy of it with new results."""
        parameters = tuple(dict.fromkeys(operands))
        params, types = i.params, [v.type for v in i.results]
        if isinstance(i.op, DefineExtent):
            self.sizes[params["extent"][0]] = int(self.values[operands[0]])
        elif self.sizes:
            params = concrete(params, i.op.extents, self.sizes)
            shapes = [tuple(value_of(e, self.sizes) for e in t.shape) for t in types]
            types = [ArrayType(t.dtype, s) if isinstance(t, ArrayType) else t for t, s in zip(types, shapes, strict=True)]
        results = tuple(Value(t, v.name) for t, v in zip(types, i.results, strict=True))
        executed = Instruction(i.op, tuple(operands), results, params, i.regions, i.loc)
        single = Function("step", Block(parameters, (executed,), results))
        arrays = interpret(single, *(self.values[v] for v in parameters), sizes=self.sizes, effects=self.effects)
        self.builder.append(executed)
        if self.iteration:
            self.iterations[executed] = self.iteration
        self.values.update(zip(results, arrays, strict=True))
        return results
