"""Products of a batch of which more is done with the sums than to store them: their blocks are those of plain products, whose
functions kernels share. The sums of a block go where the results belong, and are what these are computed from, row by row, while
they are in a cache.

So nothing else may be there: what is read beside the sums has no element for each result.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.loops.nest_builder import loop, number, serial
from pullback.codegen.cpu.loops.shared_functions import Functions
from pullback.codegen.cpu.matmul.blocked import Block
from pullback.codegen.cpu.matmul.shared_blocks import PlainBlocks, access
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Instruction, copied
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load, Store


def stored(i: Instruction) -> Instruction | None:
    """A product that stores the sums of another one and is plain; None if there is none."""
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


class StoredBlocks(PlainBlocks):
    """The blocks of such a product: ``plain`` stores its sums, ``i`` is all of it."""

    def __init__(
        self, b: Builder, plain: Instruction, i: Instruction, target: Target, functions: Functions, batch: tuple[Value, Value]
    ) -> None:
        super().__init__(b, plain, target, functions, True, batch)
        self.after = i.regions[2]

    def runs(self, b: Builder, block: Block) -> None:
        super().runs(b, block)
        (i0, panels), (j0, width) = block.rows, block.columns
        height = b.minimum(b.mul(panels, number(b, self.shape.rows)), b.sub(self.rows, i0))

        def row(b: Builder, r: Value) -> None:
            at = b.add(i0, r)

            def element(b: Builder, c: Value) -> None:
                j = b.add(j0, c)
                ref, index = ref_and_index(copied(self.each, (at, j, number(b, 0))).instructions[0])
                found = copied(self.after, (at, j, b.load(ref, *index)))
                b.instructions.extend(found.instructions)

            loop(b, width, element)

        serial(b, height, row)
