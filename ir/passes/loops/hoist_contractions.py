"""Hoist products out of scans: the part that does not depend on carried values is computed once, before the loop.

    z = x_t @ w for each t                  ->    einsum("tbi,ij->tbj", x, w), of which an iteration reads a row
    z = concat(x_t, h) @ w for each t       ->    a row of einsum("tbi,ij->tbj", x, w[:i]), and h @ w[i:]
    (z @ w)[:, a:], and no other use        ->    z @ w[:, a:]

``x`` is a sequence of the scan and ``w`` a capture. One large product reads ``w`` once, not in every iteration. A recurrent
step keeps only the product that depends on the step before, and its gradient only the matching part.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, walk, with_contents, with_regions
from pullback.ir.core.types import F32, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, others, split
from pullback.ir.ops.array.reindex import concat
from pullback.ir.ops.control.loops import Scan
from pullback.ir.passes.editing.loop_editor import Input, draft_of
from pullback.ir.shapes.extents import definers, nominal_bytes

MOST_GROWTH = 16
"""Largest ratio of the bytes of a hoisted product's row to the bytes of the row that it is computed from."""


def beforehand(function: Function) -> Function:
    """Hoist products out of scans of known length, including scans in regions.

    Requires: a func without transform instructions; other kinds are returned unchanged. Keeps: results up to the order of sums
    over the axis of a concat.
    """
    if function.kind != "func" or not any(isinstance(i.op, Scan) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    instructions: list[Instruction] = []
    for old in block.instructions:
        i = with_regions(old, map(_block, old.regions))
        if isinstance(i.op, Scan) and i.params["length"] and not definers(i.regions[0].instructions):
            instructions += _Body(i).run()
        else:
            instructions.append(i)
    return with_contents(block, instructions, block.results)


class _Body:
    """The body of a scan. ``rows``, ``held``: the sequences and captures by their parameters in the body; ``added``: the
    slices and captures added so far."""

    def __init__(self, scan: Instruction) -> None:
        self.draft = draft_of(scan)
        (body,) = self.draft.bodies
        self.before = Builder(scan.loc)
        self.inside = Builder(scan.loc)
        self.rows = {t.parameters[0]: t.operand for t in self.draft.sequences}
        self.held = {t.parameters[0]: t.operand for t in self.draft.captures}
        self.definitions = {v: i for i in body for v in i.results}
        self.reads = Counter([v for i in body for v in i.operands] + self.draft.yielded(0))
        self.added: dict[Any, Value] = {}

    def run(self) -> list[Instruction]:
        """Return the instructions before the scan, and the scan."""
        (body,) = self.draft.bodies
        names: dict[Value, Value] = {}
        for i in body:
            renamed = with_regions(i, i.regions, [names.get(v, v) for v in i.operands])
            new = self.product(renamed) if isinstance(i.op, Contract) else self.sliced(renamed) if i.op is OPS["slice"] else None
            if new is None:
                self.inside.append(renamed)
            else:
                names[i.result] = new
        self.draft.bodies = [self.inside.instructions]
        self.draft.substitute(0, names)
        return [*self.before.instructions, self.draft.done()]

    # products of rows

    def product(self, i: Instruction) -> Value | None:
        """Return the replacement of a product of a row, or of a concat with rows, and a capture; None if there is none."""
        (left, right), out = split(i.params["spec"])
        for k, word in enumerate((left, right)):
            x, w = i.operands[k], i.operands[1 - k]
            if w not in self.held or set(word) <= set(out):
                continue
            if x in self.rows:
                return self.row_of(self.sequence_product(i, k, x, self.held[w]), i) if _is_profitable(i, x) else None
            concatenation = self.definitions.get(x)
            if concatenation is not None and concatenation.op is concat and word[concatenation.params["axis"]] not in out:
                return self.concat_product(i, k, concatenation, w)
        return None

    def sequence_product(self, i: Instruction, k: int, x: Value, w: Value) -> Value:
        """Emit, before the scan, the product of an entire sequence."""
        (left, right), out = split(i.params["spec"])
        letter = next(c for c in string.ascii_letters if c not in i.params["spec"])
        words = (letter + left, right) if k == 0 else (left, letter + right)
        operands = (self.rows[x], w) if k == 0 else (w, self.rows[x])
        b = self.before.at(i.loc, i.result.name)
        product: Value = b.contract(*operands, spec=f"{words[0]},{words[1]}->{letter}{out}", **others(i.params))
        return product

    def row_of(self, sequence: Value, i: Instruction) -> Value:
        row = Value(i.result.type, i.result.name)
        self.draft.sequences.append(Input(sequence, [row]))
        return row

    def concat_product(self, i: Instruction, k: int, cat: Instruction, w: Value) -> Value | None:
        """Return the sum of the products of the parts of the concat ``cat``, all but one of which are rows; None if that is
        not the case."""
        words = split(i.params["spec"])[0]
        axis, dtype = cat.params["axis"], i.result.type.dtype
        at = words[1 - k].index(words[k][axis])
        parts = [(x, {at: (start, 1, x.type.shape[axis])}) for x, start in zip(cat.operands, cat.params["starts"], strict=True)]
        other_parts = [part for part in parts if not (part[0] in self.rows and _is_profitable(i, part[0]))]
        if len(other_parts) != 1 or len(parts) == 1 or (dtype.is_float and dtype.bytes < F32.bytes):
            return None
        ((x, span),) = other_parts
        before, inside = (b.at(i.loc, i.result.name) for b in (self.before, self.inside))
        hoisted = [self.sequence_product(i, k, row, self.slice_capture(w, part)) for row, part in parts if row is not x]
        held = self.capture(self.slice_capture(w, span))
        product = inside.contract(*((x, held) if k == 0 else (held, x)), **i.params)
        total: Value = inside.add(product, self.row_of(reduce(before.add, hoisted), i))
        return total

    # slices of products

    def sliced(self, i: Instruction) -> Value | None:
        """Return the replacement of a slice of a product, if it is the only use of the product and slices a capture; else
        None."""
        producer = self.definitions.get(i.operands[0])
        if producer is None or not isinstance(producer.op, Contract) or self.reads[producer.result] != 1:
            return None
        words, out = split(producer.params["spec"])
        params, full_shape = i.params, producer.result.type.shape
        spans = list(zip(params["start"], params["step"], i.result.type.shape, strict=True))
        cut = {out[n]: span for n, span in enumerate(spans) if span[0] is not None and span != (0, 1, full_shape[n])}
        for k in (0, 1):
            w = producer.operands[k]
            if w in self.held and set(cut) <= set(words[k]) and cut.keys().isdisjoint(words[1 - k]):
                part = self.capture(self.slice_capture(w, {words[k].index(letter): span for letter, span in cut.items()}))
                operands = (part, producer.operands[1]) if k == 0 else (producer.operands[0], part)
                product: Value = self.inside.at(producer.loc, i.result.name).contract(*operands, **producer.params)
                return product
        return None

    # captures

    def slice_capture(self, w: Value, spans: Mapping[int, tuple[Extent, int, Extent]]) -> Value:
        """Emit a slice of a capture, before the scan. ``spans``: start, step and extent by axis."""
        axes = range(w.type.rank)
        by_axis = [spans.get(a, (None, 1, w.type.shape[a])) for a in axes]
        start, step, shape = zip(*by_axis, strict=True)
        slice_key = (w, start, step, shape)
        if slice_key not in self.added:
            self.added[slice_key] = self.before.slice(self.held[w], start=start, step=step, shape=shape)
        return self.added[slice_key]

    def capture(self, value: Value) -> Value:
        """Return the parameter for a captured value."""
        if value not in self.added:
            self.added[value] = Value(value.type, value.name)
            self.draft.captures.append(Input(value, [self.added[value]]))
        return self.added[value]


def _is_profitable(i: Instruction, x: Value) -> bool:
    """Return whether the product of an entire sequence is not much larger than the sequence."""
    return nominal_bytes(i.result.type) <= MOST_GROWTH * nominal_bytes(x.type)
