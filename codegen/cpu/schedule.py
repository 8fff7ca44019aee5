"""schedule: says how a target runs a kernel's loops, and spells out what the target has no instruction for.

Requires: a lowered kernel. Keeps: its meaning. On the CPU the outermost loops are cut into chunks that threads share (``chunk``),
what is read across memory is read through tiles (``transposes``), the innermost loops whose iterations are independent become
vector loops, the others run serially, and short reductions are made four rows at a time (``jam``); functions spelled ``recipe``
become kernel ops, shared parts once. Half-precision functions are computed in float32. On CUDA the outermost loops become grids
of threads or blocks (``map_loops``), and matrix products tiles (``tiled``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.analysis.independence import is_independent
from pullback.codegen.cpu.loops.distribute_loops import phases
from pullback.codegen.cpu.loops.parallelize import chunk
from pullback.codegen.cpu.loops.schedule_divisions import Work, paced
from pullback.codegen.cpu.loops.shared_functions import Told
from pullback.codegen.cpu.loops.split_index_sets import borders
from pullback.codegen.cpu.loops.stage_rows import nears
from pullback.codegen.cpu.loops.tile_transposes import transposes
from pullback.codegen.cpu.loops.unroll_and_jam import jam
from pullback.codegen.cpu.matmul.expand import products
from pullback.codegen.cpu.matmul.library_or_generated import of_library
from pullback.codegen.cuda.schedule.map_loops import map_loops
from pullback.codegen.cuda.schedule.select_tiled_matmul import tiled
from pullback.codegen.math.recipes import HALF, OF_BITS, RECIPES
from pullback.codegen.targets import PROCESSORS, Processor, Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS, Op
from pullback.ir.core.structure import Block, Function, Instruction, Loc, Value, key_of, rewired
from pullback.ir.core.types import F32, DType
from pullback.ir.ops.elementwise.elementwise import Elementwise, cast
from pullback.ir.ops.kernel.float_parts import cold
from pullback.ir.ops.kernel.functions import Call, shared
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.library.routines import Library

Known = dict[Any, tuple[Value, ...]]
Functions = dict[str, Instruction]
"""The functions that code rarely calls, by name."""


ANY = Target(64)


def schedule(
    kernel: Function, target: str = "cpu", processor: str = "", machine: Target = ANY, told: Told | None = None
) -> Function:  # fmt: skip
    """The kernel as ``target`` ("cpu" or "cuda") runs it. ``processor``: LLVM's name of the CPU, of any if empty; ``machine``:
    what matrix products are made for; ``told``: called with the functions that these share with other kernels, at once, as
    ``Functions`` has it."""
    if target == "cuda":
        return Function(kernel.name, map_loops(tiled(kernel.body)), kernel.kind)
    known = PROCESSORS.get(processor)
    early = None if told is None else lambda i, steps: told(_apart(i), steps)
    apart, inside = _without(products(of_library(kernel, machine).body, machine, early), shared)
    rarely, often = _without(chunk(_spelled(inside, known)), cold)
    found = phases(_map(jam(nears(transposes(borders(often)), machine.vector_bytes))), known)
    return Function(kernel.name, replace(found, instructions=(*map(_apart, apart), *rarely, *found.instructions)), kernel.kind)


def _without(block: Block, op: Op) -> tuple[tuple[Instruction, ...], Block]:
    """The instructions of an op at the top of a kernel, and what is left."""
    apart = tuple(i for i in block.instructions if i.op is op)
    return apart, replace(block, instructions=tuple(i for i in block.instructions if i.op is not op)) if apart else block


@functools.cache
def _of_its_own(body: Block) -> Block:
    """The body of a function that kernels share."""
    return _map(_spelled(body))


def _apart(i: Instruction) -> Instruction:
    return replace(i, regions=tuple(map(_of_its_own, i.regions)))


def _spelled(body: Block, processor: Processor | None = None) -> Block:
    """A kernel's body in which every op has a spelling, the functions that it rarely calls in front."""
    spelling = _Spelling(processor)
    if not spelling.has_recipes(body):
        return spelling.in_order(body)
    found = spelling.block(body, {}, {})
    return replace(found, instructions=(*spelling.cold.values(), *found.instructions))


def _map(block: Block) -> Block:
    return _mapped(block)[0]


def _mapped(block: Block) -> tuple[Block, bool]:
    """A block whose loops are told how they run, and whether something in it keeps loops around it from being vectors."""
    made, is_blocked = [], False
    for i in block.instructions:
        is_blocked = is_blocked or isinstance(i.op, Library | Call) or may_be_vector(i)
        if not i.regions:
            made.append(i)
            continue
        mapped = [_mapped(r) for r in i.regions]
        blocked = any(inside for _, inside in mapped)
        is_blocked = is_blocked or blocked
        how = {"map": "vector" if may_be_vector(i) and not blocked else "serial"} if isinstance(i.op, For) else {}
        if "map" in i.params:
            how = {}
        regions = tuple(region for region, _ in mapped)
        made.append(Instruction(i.op, i.operands, i.results, {**i.params, **how}, regions, i.loc))
    return Block(block.parameters, tuple(made), block.results), is_blocked


def may_be_vector(i: Instruction) -> bool:
    """Whether lanes can run a loop's iterations: independent ones, and those of a scan."""
    return is_independent(i) or bool(i.params.get("scan"))


class _Expander(Builder):
    """Appends kernel ops to a block, each once, spelling out those that are recipes. What is rarely called goes to ``cold``.

    ``inside`` a recipe, casts and shifts are in range: recipes promise it.
    """

    def __init__(
        self, loc: Loc, instructions: list[Instruction], known: Known, cold: Functions, inside: bool = False
    ) -> None:
        super().__init__(loc, instructions)
        self.known = known
        self.cold = cold
        self.inside = inside

    def emit(
        self, op: Op, operands: Sequence[Value] = (), params: dict[str, Any] | None = None, regions: Sequence[Block] = ()
    ) -> tuple[Value, ...]:
        params = params or {}
        if op is cold:
            self.cold.setdefault(params["function"], Instruction(op, (), (), params, tuple(regions)))
            return ()
        if self.inside and op is cast:
            params = {**params, "in_range": True}
        if self.inside and op.name in ("shl", "shr"):
            op = OPS[f"raw_{op.name}"]
        key = key_of(op, operands, params)
        found = self.known.get(key)
        if found is None:
            spelled = _needs_recipe(op, operands)
            found = (self.spell(op, operands, params),) if spelled else super().emit(op, operands, params, regions)
            self.known[key] = found
        return found

    def region(self) -> _Expander:
        return _Expander(self.loc, [], {}, self.cold, self.inside)

    def spell(self, op: Op, operands: Sequence[Value], params: dict[str, Any]) -> Value:
        inner = _Expander(self.loc, self.instructions, self.known, self.cold, True)
        dtype = operands[0].type.dtype
        if dtype in HALF and op.name not in OF_BITS:
            wide = [inner.cast(v, dtype=F32) for v in operands]
            found: Value = inner.cast(inner.emit(op, wide, params)[0], dtype=dtype)
            return found
        return RECIPES[op.name](inner, *operands, **params)


def _needs_recipe(op: Op, operands: Sequence[Value]) -> bool:
    if not isinstance(op, Elementwise):
        return False
    dtype: DType = operands[1 if op.gives == "select" else 0].type.dtype
    spelling = op.spelling("llvm", dtype.kind)
    return spelling == "recipe" or (spelling.startswith("ufunc:") and dtype in HALF)


_ALONE: dict[tuple[Any, ...], tuple[Instruction, ...]] = {}


def _alone(i: Instruction) -> tuple[Instruction, ...]:
    """What a function is spelled out as where nothing else is known."""
    key = key_of(i.op, [v.type.dtype for v in i.operands], i.params)
    if key not in _ALONE:
        made: list[Instruction] = []
        _Expander(i.loc, made, {}, {}).emit(i.op, [Value(v.type, "x") for v in i.operands], dict(i.params))
        _ALONE[key] = tuple(made)
    return _ALONE[key]


class _Spelling:
    def __init__(self, processor: Processor | None) -> None:
        self.processor = processor
        self.cold: Functions = {}
        self.with_recipes: dict[Block, bool] = {}

    def has_recipes(self, block: Block) -> bool:
        """Whether something in a block has no spelling of its own."""
        if block not in self.with_recipes:
            here = any(_needs_recipe(i.op, i.operands) for i in block.instructions)
            inside = [self.has_recipes(r) for i in block.instructions for r in i.regions]
            self.with_recipes[block] = here or any(inside)
        return self.with_recipes[block]

    def work(self, i: Instruction) -> Work:
        """What an instruction takes once it is spelled out."""
        assert self.processor is not None
        made = _alone(i) if _needs_recipe(i.op, i.operands) else (i,)
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
            if isinstance(i.op, Elementwise) and _needs_recipe(i.op, operands):
                found = _Expander(i.loc, instructions, known, self.cold).emit(i.op, operands, dict(i.params))
                env.update(zip(i.results, found, strict=True))
                continue
            regions = tuple(self.block(r, known, env) for r in i.regions)
            instructions.append(Instruction(i.op, operands, i.results, i.params, regions, i.loc))
            if isinstance(i.op, Elementwise) or i.op is OPS["const"]:
                known.setdefault(key_of(i.op, operands, i.params), i.results)
        while len(known) > before:
            known.popitem()
        return Block(block.parameters, tuple(instructions), tuple(env.get(v, v) for v in block.results))
