"""Functions that the CPU has no instruction for as kernel ops, and long bodies in the order that its divider takes best."""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.cpu.loops.schedule_divisions import Work, paced
from pullback.codegen.math.expand import Expander, Functions, Known, expanded, needs_recipe
from pullback.codegen.targets import Processor
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, key_of, rewired
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise


def spelled_out(body: Block, processor: Processor | None = None) -> Block:
    """A kernel's body in which every op has a spelling, the functions that it rarely calls in front."""
    spelling = Spelling(processor)
    if not spelling.has_recipes(body):
        return spelling.in_order(body)
    found = spelling.block(body, {}, {})
    return replace(found, instructions=(*spelling.cold.values(), *found.instructions))


class Spelling:
    """Writes blocks anew for a processor, if one is given; ``cold``: the functions that they rarely call."""

    def __init__(self, processor: Processor | None) -> None:
        self.processor = processor
        self.cold: Functions = {}
        self.with_recipes: dict[Block, bool] = {}

    def has_recipes(self, block: Block) -> bool:
        """Whether something in a block has no spelling of its own."""
        if block not in self.with_recipes:
            here = any(needs_recipe(i.op, i.operands) for i in block.instructions)
            inside = [self.has_recipes(r) for i in block.instructions for r in i.regions]
            self.with_recipes[block] = here or any(inside)
        return self.with_recipes[block]

    def work(self, i: Instruction) -> Work:
        """What an instruction takes once it is spelled out."""
        assert self.processor is not None
        made = expanded(i) if needs_recipe(i.op, i.operands) else (i,)
        cycles = [self.processor.cycles(k) for k in made]
        others = sum(isinstance(k.op, Elementwise) and not c for k, c in zip(made, cycles, strict=True))
        return Work(sum(cycles), others)

    def in_order(self, block: Block) -> Block:
        """A block that is spelled out, in the order in which the processor takes it best."""
        inside = tuple(replace(i, regions=tuple(map(self.in_order, i.regions))) if i.regions else i for i in block.instructions)
        return self.paced(replace(block, instructions=inside))

    def paced(self, block: Block) -> Block:
        return block if self.processor is None else paced(block, self.work, self.processor.others)

    def block(self, block: Block, known: Known, env: dict[Value, Value]) -> Block:
        """A block in which every op has a spelling; what enclosing blocks computed is ``known``, which is as before at the end,
        and has other names in ``env``, which gets those of the block too."""
        if not self.has_recipes(block):
            return self.in_order(rewired(block, env))
        before = len(known)
        block = self.paced(block)
        instructions: list[Instruction] = []
        for i in block.instructions:
            operands = tuple(env.get(v, v) for v in i.operands)
            if isinstance(i.op, Elementwise) and needs_recipe(i.op, operands):
                found = Expander(i.loc, instructions, known, self.cold).emit(i.op, operands, dict(i.params))
                env.update(zip(i.results, found, strict=True))
                continue
            regions = tuple(self.block(r, known, env) for r in i.regions)
            instructions.append(Instruction(i.op, operands, i.results, i.params, regions, i.loc))
            if isinstance(i.op, Elementwise) or i.op is OPS["const"]:
                known.setdefault(key_of(i.op, operands, i.params), i.results)
        while len(known) > before:
            known.popitem()
        return Block(block.parameters, tuple(instructions), tuple(env.get(v, v) for v in block.results))
