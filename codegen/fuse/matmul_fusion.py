"""matmul_fusion: contractions that fuse with their neighbours into one kernel (``kernels.groups.matmul``).

A group may contain one contraction whose results are elements of its space. Elementwise ops that read these at their own index
join it, as do others of that space that they read, and reductions down the columns. The reindexing and elementwise ops from
which its operands are computed are evaluated as the operands are read, if that is cheap. A contraction without neighbours
stays a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from pullback.codegen.fuse.clusters import ENDED, Cluster
from pullback.codegen.fuse.rematerialize import weight
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import F32, F64, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, split
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.matmul import COMBINERS

ALONE = "cuda-alone"
"""The target "cuda" without a library for matrix products."""
FUSING_TARGETS: frozenset[str] = frozenset({ALONE})
"""The targets whose products are as fast with neighbours as without."""
HALVES = ("f16", "bf16")
"""The 16-bit float types."""
HALF_TARGETS: frozenset[str] = frozenset({"cuda", ALONE})
"""The targets that multiply 16-bit numbers several times as fast as others, if the product itself converts them to float32."""
COLUMN_SUM_TARGETS: frozenset[str] = frozenset({"cpu"})
"""The targets whose products also sum down their columns."""
BATCH_TARGETS: frozenset[str] = frozenset({"cpu"})
"""The targets on which batches of products have neighbours, in kernels of their own (``kernels.groups.batched_matmul``): cheap
ops before and after, and reductions along the rows."""
MOST_AFTER = 6
"""Most ops on the results of a batch in its kernel: sums stay in registers meanwhile."""
MOST_WORK = 8
"""Most cheap ops between memory and an operand that are recomputed each time it is read; otherwise it is stored."""
Maker = Callable[[Value], Instruction | None]
"""Returns the instruction that computes a value."""
LEFT, RIGHT = 3, 1
"""Bit masks of how often operands are read: the left one for each block of columns, the right one once; each once in a batch."""


def may_fuse(i: Instruction, target: str, maker: Maker) -> bool:
    """Return whether a contraction in canonical form may share a kernel with others. ``maker(v)`` returns the instruction of a
    value."""
    if not isinstance(i.op, Contract) or i.result.type.dtype not in (F32, F64):
        return False
    if is_batch(i, target):
        return True
    if target not in FUSING_TARGETS and not is_of_halves(i, target, maker):
        return False
    (left, right), out = split(i.params["spec"])
    return all(k in left and k in right for k in out[:-2]) and out[-2] not in right and out[-1] not in left


def is_of_halves(i: Instruction, target: str, maker: Maker) -> bool:
    """Return whether both operands of a contraction are converted from the same 16-bit type to float32 as they are read."""
    if target not in HALF_TARGETS or not isinstance(i.op, Contract):
        return False
    before = []
    for value in i.operands:
        definition = maker(value)
        while definition is not None and isinstance(definition.op, Reindex) and len(definition.operands) == 1:
            definition = maker(definition.operands[0])
        before.append(definition.operands[0].type.dtype.name if definition is not None and definition.op.name == "cast" else None)
    return before[0] in HALVES and before[0] == before[1]


def read_masks(product: Instruction, target: str) -> tuple[int, int]:
    """Return how often the operands of a contraction are read, as bit masks."""
    return (RIGHT, RIGHT) if is_batch(product, target) else (LEFT, RIGHT)


def is_batch(i: Instruction, target: str) -> bool:
    """Return whether a contraction in canonical form is a batch that fuses with its neighbours in a kernel of its own."""
    return target in BATCH_TARGETS and "z" in i.params["spec"]


def sums_left_operand(i: Instruction, product: Instruction | None) -> bool:
    """Return whether an instruction sums the left operand of a batch of narrow products along K, along which it is not
    contiguous: that takes a pass over memory, as packing the operand does."""
    if product is None or not isinstance(i.op, Reduce) or i.op.combine != "add" or i.operands[0] is not product.operands[0]:
        return False
    (word, right), _ = split(product.params["spec"])
    if "z" not in word or word[-1] == "k" or tuple(i.params["axes"]) != (word.index("k"),):
        return False
    extents = dict(zip(word + right, (e for v in product.operands for e in v.type.shape), strict=True))
    return i.result.type.dtype is product.result.type.dtype and all(isinstance(extents[k], int) for k in "mn")


def is_cheap_operand(value: Value, maker: Maker) -> bool:
    """Return whether an operand is cheap enough to be recomputed each time it is read. ``maker(v)`` returns the instruction of
    a value that need not be stored."""
    work, stack = 0, [value]
    seen: set[Instruction] = set()
    while stack and work <= MOST_WORK:
        definition = maker(stack.pop())
        if definition is not None and definition.result.type.shape and definition not in seen:
            seen.add(definition)
            work += weight(definition)
            stack += definition.operands
    return work <= MOST_WORK


def product_phase(cluster: Cluster, product: Instruction, is_inside: bool, target: str) -> int | str:
    """Return the phase of a contraction in a group; if it cannot be a member, the reason. ``is_inside``: whether it reads what
    the group computes."""
    name = product.op.name
    if cluster.product not in (None, product):
        return f"{name} would be a second one in its kernel"
    if product.result.type.shape != cluster.space:
        return f"{name} is not of the kernel's shape"
    if is_inside:
        return f"{name} reads it at other places than its own"
    if is_batch(product, target):
        is_alone = all(_may_follow(i, product, cluster) for i in cluster.members)
        return 0 if is_alone else f"{name} shares a kernel with few cheap ops and reductions along its rows alone"
    if not all(_may_be_neighbour(i, cluster.space, target) for i in cluster.members):
        return f"{name} shares a kernel with elementwise ops and sums down its columns alone"
    return 0


def neighbour_phase(instruction: Instruction, level: str, phase: int, cluster: Cluster, target: str) -> int | str:
    """Return the phase of another instruction in a group with a contraction; if it cannot be a member, the reason. ``phase``:
    the phase of its operands."""
    op, space, product = instruction.op, cluster.space, cluster.product
    assert product is not None
    if is_batch(product, target):
        if not _may_follow(instruction, product, cluster):
            return f"{op.name} is none of few cheap ops on results of contract, nor a reduction along their rows"
        return ENDED if isinstance(op, Reduce) else phase
    if not _may_be_neighbour(instruction, space, target) or level == "row":
        return f"{op.name} is neither elementwise on the results of contract nor down their columns"
    if isinstance(op, Reduce):
        return ENDED
    if level == "scalar":
        return ENDED if phase else f"{op.name} reads nothing that the kernel reduces"
    return phase


def _may_follow(i: Instruction, product: Instruction, cluster: Cluster) -> bool:
    """Return whether an instruction can share a kernel with a batch of products: one of few cheap elementwise ops, or a
    reduction along the rows. If the batch axis comes after K in an operand, the products of each K iteration are adjacent,
    sums are kept in memory, and nothing can fuse."""
    (left, right), out = split(product.params["spec"])
    if any("z" in word and word.index("k") < word.index("z") for word in (left, right)):
        return False
    space = cluster.space
    if isinstance(i.op, Reduce):
        is_across = i.operands[0].type.shape == space and tuple(i.params["axes"]) == (len(space) - 1,) and out[-1] == "n"
        return is_across and i.op.combine in COMBINERS and i.result.type.dtype is product.result.type.dtype
    others = sum(k is not product and k is not i for k in cluster.members)
    return isinstance(i.op, Elementwise) and i.op.cheap and i.result.type.shape == space and others < MOST_AFTER


def _may_be_neighbour(i: Instruction, space: Shape, target: str) -> bool:
    """Return whether an instruction can share a kernel with a contraction: an elementwise one, or a reduction down the
    columns, possibly over other axes too."""
    if isinstance(i.op, Reduce):
        is_down = i.operands[0].type.shape == space and len(space) - 2 in i.params["axes"]
        return is_down and target in COLUMN_SUM_TARGETS and i.op.combine in COMBINERS and i.result.type.dtype in (F32, F64)
    return isinstance(i.op, Elementwise) and i.result.type.shape in (space, ())
