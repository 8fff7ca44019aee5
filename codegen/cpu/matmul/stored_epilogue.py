"""Products of a batch with an epilogue that may run from memory: their blocks are those of plain products, whose functions
kernels share. The sums of a block are stored where the results belong, and the epilogue computes the results from them in
place, row by row, while they are in cache.

The results' memory must therefore hold nothing else: an operand of the epilogue may not alias it.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import constant, loop, serial
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.blocked import Block
from pullback.codegen.cpu.matmul.shared_blocks import PlainBlockedMatmul, access
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Instruction, copy_block
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load, Store


def plain_part(i: Instruction) -> Instruction | None:
    """Return the plain product that stores the sums of a product with an epilogue; None if the epilogue needs another form."""
    left, right, each, *ends = i.regions
    stores = [k for k in each.instructions if isinstance(k.op, Store)]
    is_masked = any(isinstance(k.op, Store) and k.op.masked for k in stores)
    if ends or each.results or len(i.operands) != 3 or len(stores) != 1 or is_masked:
        return None
    out, index = ref_and_index(stores[0])
    total = each.parameters[2]
    reads = (ref_and_index(k)[0] for k in each.instructions if isinstance(k.op, Load))
    if out.type.dtype is not total.type.dtype or out in reads:
        return None
    store = Instruction(stores[0].op, (total, out, *index), (), stores[0].params, (), stores[0].loc)
    plain = replace(i, regions=(left, right, Region(each.parameters, (store,), ())))
    return plain if access(plain) is not None else None


class StoredEpilogueMatmul(PlainBlockedMatmul):
    """The blocks of such a product: ``plain`` stores the sums, ``i`` is the whole product."""

    def __init__(
        self, b: Builder, plain: Instruction, i: Instruction, target: Target, functions: Functions, batch: tuple[Value, Value]
    ) -> None:
        super().__init__(b, plain, target, functions, True, batch)
        self.stored_epilogue = i.regions[2]

    def runs(self, b: Builder, block: Block) -> None:
        """Emit the call for a block, then its epilogue."""
        super().runs(b, block)
        (i0, panels), (j0, width) = block.rows, block.columns
        height = b.minimum(b.mul(panels, constant(b, self.shape.rows)), b.sub(self.rows, i0))

        def row(b: Builder, r: Value) -> None:
            at = b.add(i0, r)

            def element(b: Builder, c: Value) -> None:
                j = b.add(j0, c)
                ref, index = ref_and_index(copy_block(self.epilogue, (at, j, constant(b, 0))).instructions[0])
                inlined = copy_block(self.stored_epilogue, (at, j, b.load(ref, *index)))
                b.instructions.extend(inlined.instructions)

            loop(b, width, element)

        serial(b, height, row)
