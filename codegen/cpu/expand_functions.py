"""Expand functions that the CPU has no instruction for, and reorder long bodies to keep the divider busy."""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.cpu.loops.schedule_divisions import Work, paced
from pullback.codegen.math.expand import Expander, Functions, Known, expanded, needs_recipe
from pullback.codegen.targets import Processor
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, key_of, substitute_values
from pullback.ir.core.types import I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise

BY_PARAMETER = {"floordiv": "floor_quotient", "mod": "floor_remainder"}
"""The ops of divisions by a scalar parameter of a kernel."""


def expand_body(body: Block, processor: Processor | None = None) -> Block:
    """Return a kernel's body in which every op has an LLVM lowering, preceded by the functions that it rarely calls."""
    body = _by_parameters(body)
    spelling = BlockExpander(processor)
    if not spelling.needs_expansion(body):
        return spelling.reordered(body)
    expanded_body = spelling.block(body, {}, {})
    return replace(expanded_body, instructions=(*spelling.cold.values(), *expanded_body.instructions))


def _by_parameters(body: Block) -> Block:
    """Return a body whose 64-bit integers, outside its loops, are divided by scalar parameters by ops of their own."""
    divisors = {v for v in body.parameters if v.type == ArrayType(I64)}
    if not any(i.op.name in BY_PARAMETER and i.operands[1] in divisors for i in body.instructions):
        return body
    instructions = [
        replace(i, op=OPS[BY_PARAMETER[i.op.name]], params={}) if i.op.name in BY_PARAMETER and i.operands[1] in divisors else i
        for i in body.instructions
    ]
    return replace(body, instructions=tuple(instructions))


class BlockExpander:
    """Expands blocks for a processor, or for any if None; ``cold``: the functions that they rarely call."""

    def __init__(self, processor: Processor | None) -> None:
        self.processor = processor
        self.cold: Functions = {}
        self.is_expandable: dict[Block, bool] = {}

    def needs_expansion(self, block: Block) -> bool:
        """Return whether a block contains an op without an LLVM lowering."""
        if block not in self.is_expandable:
            directly = any(needs_recipe(i.op, i.operands) for i in block.instructions)
            nested = [self.needs_expansion(r) for i in block.instructions for r in i.regions]
            self.is_expandable[block] = directly or any(nested)
        return self.is_expandable[block]

    def work(self, i: Instruction) -> Work:
        """Return the divider cycles and other instructions of an instruction after expansion."""
        assert self.processor is not None
        ops = expanded(i) if needs_recipe(i.op, i.operands) else (i,)
        cycles = [self.processor.cycles(k) for k in ops]
        others = sum(isinstance(k.op, Elementwise) and not c for k, c in zip(ops, cycles, strict=True))
        return Work(sum(cycles), others)

    def reordered(self, block: Block) -> Block:
        """Return an expanded block in an order that keeps the divider busy."""
        instructions = tuple(
            replace(i, regions=tuple(map(self.reordered, i.regions))) if i.regions else i for i in block.instructions
        )
        return self.paced_block(replace(block, instructions=instructions))

    def paced_block(self, block: Block) -> Block:
        """Reorder the instructions of a block, without its regions, if the processor's divider is slow."""
        return block if self.processor is None else paced(block, self.work, self.processor.others)

    def block(self, block: Block, known: Known, env: dict[Value, Value]) -> Block:
        """Return a block in which every op has an LLVM lowering.

        ``known``: values that enclosing blocks computed, by their expression, restored at the end. ``env``: replacements of
        values, to which those of the block are added.
        """
        if not self.needs_expansion(block):
            return self.reordered(substitute_values(block, env))
        before = len(known)
        block = self.paced_block(block)
        instructions: list[Instruction] = []
        for i in block.instructions:
            operands = tuple(env.get(v, v) for v in i.operands)
            if isinstance(i.op, Elementwise) and needs_recipe(i.op, operands):
                results = Expander(i.loc, instructions, known, self.cold).emit(i.op, operands, dict(i.params))
                env.update(zip(i.results, results, strict=True))
                continue
            regions = tuple(self.block(r, known, env) for r in i.regions)
            instructions.append(Instruction(i.op, operands, i.results, i.params, regions, i.loc))
            if isinstance(i.op, Elementwise) or i.op is OPS["const"]:
                known.setdefault(key_of(i.op, operands, i.params), i.results)
        while len(known) > before:
            known.popitem()
        return Block(block.parameters, tuple(instructions), tuple(env.get(v, v) for v in block.results))
