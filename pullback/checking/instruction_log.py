"""A run as a straight line: the instructions that ran, one after the other, each turn of a loop and the branches taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, Loc
from pullback.ir.core.types import I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.loops import Scan, StackLength, Switch, While

Array = np.ndarray[Any, Any]


@dataclass(eq=False)
class _Rows:
    """A sequence as its rows; ``whole`` is the array of them, once something reads it."""

    type: Any
    rows: list[Value]
    whole: Value | None = None


Known = Value | _Rows
Env = dict[Value, Known]


def straight(
    function: Function, values: dict[Value, Array], turns: dict[Instruction, tuple[int, ...]] | None = None, *,
    effects: bool = True,
) -> Function:  # fmt: skip
    """Run a function of concrete shapes whose parameters have ``values``, to which those of all instructions are added.

    ``turns`` gets the turns of loops in which instructions ran. Without ``effects`` nothing is printed. Returns what ran, without
    control flow: its results are those of the function. Raises CheckFailed where a check fails.
    """
    run = _Run(values, {} if turns is None else turns, effects)
    env: Env = {p: p for p in function.parameters}
    run.block(function.body, env)
    results = [run.array(env[v]) for v in function.results]
    return run.builder.function(function.name, function.parameters, results)


class _Run:
    def __init__(self, values: dict[Value, Array], turns: dict[Instruction, tuple[int, ...]], effects: bool) -> None:
        self.values = values
        self.turns = turns
        self.effects = effects
        self.turn: tuple[int, ...] = ()
        self.builder = Builder()

    def block(self, block: Block, env: Env) -> None:
        for i in block.instructions:
            env.update(zip(i.results, self.instruction(i, [env[v] for v in i.operands]), strict=True))

    def region(self, region: Block, operands: Sequence[Known]) -> list[Known]:
        env: Env = dict(zip(region.parameters, operands, strict=True))
        self.block(region, env)
        return [env[v] for v in region.results]

    def instruction(self, i: Instruction, operands: Sequence[Known]) -> Sequence[Known]:
        match i.op:
            case Switch():
                return self.region(i.regions[int(self.value(operands[0]))], operands[1:])
            case Scan():
                return self.scan(i, operands)
            case While():
                return self.repeat(i, operands)
            case StackLength() if isinstance(operands[0], _Rows):
                return [self.number(len(operands[0].rows), i.loc)]
        return self.step(i, [self.array(x) for x in operands])

    def scan(self, i: Instruction, operands: Sequence[Known]) -> Sequence[Known]:
        (region,) = i.regions
        length, number = i.params["length"], i.params["carried"]
        count = int(length[0]) if length else int(self.value(operands[0]))
        given = operands if length else operands[1:]
        carried, sequences = list(given[:number]), given[number : number + i.params["sliced"]]
        captures = given[number + len(sequences) :]
        made: list[list[Known]] = [[] for _ in range(count)]
        for k in reversed(range(count)) if i.params["reverse"] else range(count):
            rows = [self.row(xs, k, i.loc) for xs in sequences]
            found = self.in_turn(k, region, [self.number(k, i.loc), *carried, *rows, *captures])
            carried, made[k] = found[:number], found[number:]
        return [*carried, *self.sequences(i.results[number:], made)]

    def repeat(self, i: Instruction, operands: Sequence[Known]) -> Sequence[Known]:
        condition, body = i.regions
        number = i.params["carried"]
        carried, captures = list(operands[:number]), operands[number:]
        made: list[list[Known]] = []
        while True:
            index = self.number(len(made), i.loc)
            if not self.value(self.region(condition, [index, *carried, *captures])[0]):
                return [*carried, index, *self.sequences(i.results[number + 1 :], made)]
            found = self.in_turn(len(made), body, [index, *carried, *captures])
            carried = found[:number]
            made.append(found[number:])

    def in_turn(self, k: int, region: Block, operands: Sequence[Known]) -> list[Known]:
        outside, self.turn = self.turn, (*self.turn, k)
        found = self.region(region, operands)
        self.turn = outside
        return found

    def sequences(self, results: Sequence[Value], made: Sequence[Sequence[Known]]) -> list[Known]:
        return [_Rows(v.type, [self.array(row[k]) for row in made]) for k, v in enumerate(results)]

    def row(self, xs: Known, k: int, loc: Loc) -> Value:
        if isinstance(xs, _Rows):
            return xs.rows[k]
        shape = xs.type.shape
        rest = (0,) * (len(shape) - 1)
        part = {"start": (k, *rest), "step": (1,) * len(shape), "shape": (1, *shape[1:])}
        b = self.builder.at(loc)
        return self.known(b.squeeze(self.known(b.slice(xs, **part), self.values[xs][k : k + 1]), axes=(0,)), self.values[xs][k])

    def array(self, x: Known) -> Value:
        if isinstance(x, Value):
            return x
        if x.whole is None:
            x.whole = self.joined(x)
        return x.whole

    def joined(self, sequence: _Rows) -> Value:
        t, count, b = sequence.type, len(sequence.rows), self.builder
        shape: Any = (count, *sequence.rows[0].type.shape) if count else t.shape
        values = np.asarray([self.values[v] for v in sequence.rows], t.dtype.numpy).reshape(shape)
        if not count:
            return self.known(b.full(0, ArrayType(t.dtype, t.shape)), values)
        rows = [self.known(b.broadcast(v, axes=(0,), shape=(1, *v.type.shape)), self.values[v][None]) for v in sequence.rows]
        return self.known(b.concat(*rows, axis=0, starts=tuple(range(count)), shape=shape), values)

    def number(self, k: int, loc: Loc) -> Value:
        return self.known(self.builder.at(loc).const(k, I64), np.asarray(k))

    def known(self, value: Value, array: Any) -> Value:
        self.values[value] = np.asarray(array)
        return value

    def value(self, x: Known) -> Any:
        return self.values[self.array(x)]

    def step(self, i: Instruction, operands: Sequence[Value]) -> Sequence[Value]:
        parameters = tuple(dict.fromkeys(operands))
        results = tuple(Value(v.type, v.name) for v in i.results)
        made = Instruction(i.op, tuple(operands), results, i.params, i.regions, i.loc)
        single = Function("step", Block(parameters, (made,), results))
        found = interpret(single, *(self.values[v] for v in parameters), effects=self.effects)
        self.builder.append(made)
        if self.turn:
            self.turns[made] = self.turn
        self.values.update(zip(results, found, strict=True))
        return results
