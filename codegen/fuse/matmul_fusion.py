"""carrying: contractions that take their neighbours along, in one kernel (``product_kernel``).

A group may hold one contraction whose results are elements of its space. Elementwise ops that read these at their own place join
it, others of that space that they read, and reductions down the columns. What its operands are computed from, reindexing and
elementwise ops alike, is computed as they are read, if that is cheap. A contraction that finds no neighbours stays what it was: a
kernel of its own.
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
"""The target "cuda" where no library multiplies."""
TARGETS: frozenset[str] = frozenset({ALONE})
"""The targets whose products with neighbours are as fast as those that they have without."""
HALVES = ("f16", "bf16")
HALVING: frozenset[str] = frozenset({"cuda", ALONE})
"""Those that multiply numbers of 16 bits several times as fast as others, if a product makes float32 of them itself."""
SUMMING: frozenset[str] = frozenset({"cpu"})
"""Those whose products also sum down their columns."""
BATCHES: frozenset[str] = frozenset({"cpu"})
"""Those on which batches of products have neighbours, in kernels of their own (``product_group``): cheap ops before and after,
and reductions along the rows."""
MOST_AFTER = 6
"""So many ops on results of batches share their kernel: sums stay in registers meanwhile."""
MOST_WORK = 8
"""So many cheap ops between memory and an operand are computed each time that it is read; more go through memory."""
Maker = Callable[[Value], Instruction | None]
LEFT, RIGHT = 3, 1
"""How often operands are read, as bits: the left one for each block of columns, the right one once; each once in a batch."""


def carries(i: Instruction, target: str, maker: Maker) -> bool:
    """Whether a contraction in canonical form may share a kernel with others. ``maker(v)``: what makes a value."""
    if not isinstance(i.op, Contract) or i.result.type.dtype not in (F32, F64):
        return False
    if is_batch(i, target):
        return True
    if target not in TARGETS and not is_of_halves(i, target, maker):
        return False
    (left, right), out = split(i.params["spec"])
    return all(k in left and k in right for k in out[:-2]) and out[-2] not in right and out[-1] not in left


def is_of_halves(i: Instruction, target: str, maker: Maker) -> bool:
    """Whether a contraction is of numbers of one type of 16 bits, made float32 as it reads them."""
    if target not in HALVING or not isinstance(i.op, Contract):
        return False
    before = []
    for value in i.operands:
        made = maker(value)
        while made is not None and isinstance(made.op, Reindex) and len(made.operands) == 1:
            made = maker(made.operands[0])
        before.append(made.operands[0].type.dtype.name if made is not None and made.op.name == "cast" else None)
    return before[0] in HALVES and before[0] == before[1]


def often_read(product: Instruction, target: str) -> tuple[int, int]:
    """How often the operands of a contraction are read, as bits."""
    return (RIGHT, RIGHT) if is_batch(product, target) else (LEFT, RIGHT)


def is_batch(i: Instruction, target: str) -> bool:
    """Whether a contraction in canonical form is a batch that has its neighbours in a kernel of its own."""
    return target in BATCHES and "z" in i.params["spec"]


def is_along(i: Instruction, product: Instruction | None) -> bool:
    """Whether an instruction adds up the left operand of a batch of narrow products along its terms, which do not lie side by
    side: that takes a pass over memory, as packing the operand does."""
    if product is None or not isinstance(i.op, Reduce) or i.op.combine != "add" or i.operands[0] is not product.operands[0]:
        return False
    (word, right), _ = split(product.params["spec"])
    if "z" not in word or word[-1] == "k" or tuple(i.params["axes"]) != (word.index("k"),):
        return False
    extents = dict(zip(word + right, (e for v in product.operands for e in v.type.shape), strict=True))
    return i.result.type.dtype is product.result.type.dtype and all(isinstance(extents[k], int) for k in "mn")


def is_near(value: Value, maker: Maker) -> bool:
    """Whether an operand can be computed each time that it is read. ``maker(v)``: what makes a value that need not be stored."""
    work, stack = 0, [value]
    seen: set[Instruction] = set()
    while stack and work <= MOST_WORK:
        made = maker(stack.pop())
        if made is not None and made.result.type.shape and made not in seen:
            seen.add(made)
            work += weight(made)
            stack += made.operands
    return work <= MOST_WORK


def product_phase(cluster: Cluster, product: Instruction, is_inside: bool, target: str) -> int | str:
    """The phase of a contraction in a group; if it cannot be a member, why. ``is_inside``: whether it reads what the group
    computes."""
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
    if not all(_may_be_beside(i, cluster.space, target) for i in cluster.members):
        return f"{name} shares a kernel with elementwise ops and sums down its columns alone"
    return 0


def beside_phase(instruction: Instruction, level: str, phase: int, cluster: Cluster, target: str) -> int | str:
    """The phase of another instruction in a group that has a contraction; if it cannot be a member, why. ``phase``: of what it
    reads."""
    op, space, product = instruction.op, cluster.space, cluster.product
    assert product is not None
    if is_batch(product, target):
        if not _may_follow(instruction, product, cluster):
            return f"{op.name} is none of few cheap ops on results of contract, nor a reduction along their rows"
        return ENDED if isinstance(op, Reduce) else phase
    if not _may_be_beside(instruction, space, target) or level == "row":
        return f"{op.name} is neither elementwise on the results of contract nor down their columns"
    if isinstance(op, Reduce):
        return ENDED
    if level == "scalar":
        return ENDED if phase else f"{op.name} reads nothing that the kernel reduces"
    return phase


def _may_follow(i: Instruction, product: Instruction, cluster: Cluster) -> bool:
    """Whether an instruction can share a kernel with a batch of products: a cheap elementwise one of few, or a reduction along
    the rows. Where the products lie side by side for each term, sums wait in memory, and nothing else is done."""
    (left, right), out = split(product.params["spec"])
    if any("z" in word and word.index("k") < word.index("z") for word in (left, right)):
        return False
    space = cluster.space
    if isinstance(i.op, Reduce):
        is_across = i.operands[0].type.shape == space and tuple(i.params["axes"]) == (len(space) - 1,) and out[-1] == "n"
        return is_across and i.op.combine in COMBINERS and i.result.type.dtype is product.result.type.dtype
    others = sum(k is not product and k is not i for k in cluster.members)
    return isinstance(i.op, Elementwise) and i.op.cheap and i.result.type.shape == space and others < MOST_AFTER


def _may_be_beside(i: Instruction, space: Shape, target: str) -> bool:
    """Whether an instruction can share a kernel with a contraction: an elementwise one, or a reduction down the columns, be it of
    other axes too."""
    if isinstance(i.op, Reduce):
        is_down = i.operands[0].type.shape == space and len(space) - 2 in i.params["axes"]
        return is_down and target in SUMMING and i.op.combine in COMBINERS and i.result.type.dtype in (F32, F64)
    return isinstance(i.op, Elementwise) and i.result.type.shape in (space, ())
