"""The kernel of a group with a contraction: a matrix product that computes its operands and its neighbours as it goes.

The op ``product`` (``ir/ops/product.py``) with its three regions, in loops over the batch axes. What the operands are computed from is
evaluated in the first two regions, at the place that they are asked for; what is stored, in the third. How a target runs it, its
``schedule`` says.

Cost: operands and results each move once, and each term of a sum is a multiplication and an addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.collapse import Space
from pullback.codegen.cost import Cost, Schedule, elements, moved_once, work
from pullback.codegen.draft import Draft
from pullback.codegen.elements import Elements
from pullback.ir.extents import nominal_bytes
from pullback.ir.op import OPS
from pullback.ir.ops.contract import split
from pullback.ir.structure import Block, Value
from pullback.ir.types import BOOL, I64, ArrayType, DType


class _ProductKernel(Elements):
    def run(self) -> Draft:
        b, made = self.b, self.space.product
        assert made is not None
        (left, right), out = split(made.params["spec"])
        x, y = made.operands
        extents = dict(zip(left + right, x.type.shape + y.type.shape, strict=True))
        batch, row, column = out[:-2], out[-2], out[-1]
        (term,) = set(left) - set(out)
        b.place = made.loc
        counts = [b.extent_of(extents[k]) for k in (row, column, term)]
        outer = [(b.open("z"), b.extent_of(extents[k])) for k in batch]
        at = dict(zip(batch, (index for index, _ in outer), strict=True))

        def operand(value: Value, letters: str, here: Mapping[str, Value]) -> Value:
            return self.element(value, tuple(here[k] for k in letters))

        regions = (
            self.region_of({row: "i", term: "p"}, None, lambda here, _: [operand(x, left, at | here)]),
            self.region_of({term: "p", column: "j"}, None, lambda here, _: [operand(y, right, at | here)]),
            self.region_of({row: "i", column: "j"}, x.type.dtype, lambda here, total: self.each(made.result, at | here, out, total)),
        )
        b.place = made.loc
        b.put(len(b.levels) - 1, OPS["product"], counts, {}, regions)
        for index, count in reversed(outer):
            b.close(index, count)
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes())

    def region_of(
        self, names: Mapping[str, str], total: DType | None, body: Callable[[Mapping[str, Value], Value | None], list[Value]]
    ) -> Block:
        """A region that takes a position for each of two letters, and a sum if ``total`` is its dtype."""
        b = self.b
        b.enter()
        here = {letter: b.bound(I64, name) for letter, name in names.items()}
        given = None if total is None else b.bound(total, "sum")
        yielded = body(here, given)
        parameters = (*here.values(), *(() if given is None else (given,)))
        return Block(parameters, tuple(b.levels.pop()), tuple(yielded))

    def each(self, product: Value, at: Mapping[str, Value], out: str, total: Value | None) -> list[Value]:
        """All that is stored of an element, whose product is known. Everything is read before anything is written."""
        assert total is not None
        index = tuple(at[k] for k in out)
        self.memo[(product, index, None)] = total
        found = [(self.element(value, index), place) for value, place in self.copies]
        for value, place in found:
            self.write(value, place, index)
        return []


def _cost(space: Space) -> Cost:
    made = space.product
    assert made is not None
    (letters, _), out = split(made.params["spec"])
    terms = next(nominal_bytes(ArrayType(BOOL, (e,))) for k, e in zip(letters, made.operands[0].type.shape, strict=True) if k not in out)
    others = [i for i in space.region.instructions if i is not made]
    return Cost(bytes=moved_once(space), near=moved_once(space), flops=2 * terms * elements(space) + work(others))


PRODUCT = Schedule(
    name="product",
    fits=lambda space, layouts: None if space.product is not None else "nothing is a matrix product",
    cost=_cost,
    draft=lambda *given: _ProductKernel(*given).run(),
)
