"""beforehand: what products in a scan have in common is computed once, before it.

    z = x_t @ w for each t                  ->    einsum("tbi,ij->tbj", x, w), of which a run takes a row
    z = concat(x_t, h) @ w for each t       ->    a row of einsum("tbi,ij->tbj", x, w[:i]), and h @ w[i:]
    (z @ w)[:, a:], and no other part       ->    z @ w[:, a:]

``x`` is a sequence of the scan and ``w`` one of its captures. One large product reads ``w`` once, not once a run; a recurrent
step is left with the product that does depend on the step before, and its gradient with the part that goes there.
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
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import F32, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, others, split
from pullback.ir.ops.array.reindex import concat
from pullback.ir.ops.control.loops import Scan
from pullback.ir.passes.editing.loop_editor import Taken, drafted
from pullback.ir.shapes.extents import nominal_bytes

MOST_GROWTH = 16
"""What a run takes of such a product is at most so many times as large as what it is computed from."""


def beforehand(function: Function) -> Function:
    """Move products out of scans of a known length, those in regions too.

    Requires: a func without instructions of transforms; other kinds are returned as they are. Keeps: results but for the order
    of sums over what was joined.
    """
    if function.kind != "func" or not any(isinstance(i.op, Scan) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    made: list[Instruction] = []
    for old in block.instructions:
        i = replace(old, regions=tuple(map(_block, old.regions))) if old.regions else old
        if isinstance(i.op, Scan) and i.params["length"]:
            made += _Body(i).run()
        else:
            made.append(i)
    return Block(block.parameters, tuple(made), block.results)


class _Body:
    """The body of a scan. ``rows``, ``held``: what its parameters are rows of, or are; ``known``: the captures that it got."""

    def __init__(self, scan: Instruction) -> None:
        self.draft = drafted(scan)
        (body,) = self.draft.bodies
        self.before = Builder(scan.loc)
        self.inside = Builder(scan.loc)
        self.rows = {t.parameters[0]: t.operand for t in self.draft.sequences}
        self.held = {t.parameters[0]: t.operand for t in self.draft.captures}
        self.made = {v: i for i in body for v in i.results}
        self.reads = Counter([v for i in body for v in i.operands] + self.draft.yielded(0))
        self.known: dict[Any, Value] = {}

    def run(self) -> list[Instruction]:
        """What stands before the scan, and the scan."""
        (body,) = self.draft.bodies
        names: dict[Value, Value] = {}
        for i in body:
            again = replace(i, operands=tuple(names.get(v, v) for v in i.operands))
            found = self.product(again) if isinstance(i.op, Contract) else self.part(again) if i.op is OPS["slice"] else None
            if found is None:
                self.inside.append(again)
            else:
                names[i.result] = found
        self.draft.bodies = [self.inside.instructions]
        self.draft.substitute(0, names)
        return [*self.before.instructions, self.draft.done()]

    # products of rows

    def product(self, i: Instruction) -> Value | None:
        """What stands for a product of a row, or of what is partly rows, and something held."""
        (left, right), out = split(i.params["spec"])
        for k, word in enumerate((left, right)):
            x, w = i.operands[k], i.operands[1 - k]
            if w not in self.held or set(word) <= set(out):
                continue
            if x in self.rows:
                return self.row_of(self.whole(i, k, x, self.held[w]), i) if _is_worth(i, x) else None
            joined = self.made.get(x)
            if joined is not None and joined.op is concat and word[joined.params["axis"]] not in out:
                return self.joined(i, k, joined, w)
        return None

    def whole(self, i: Instruction, k: int, x: Value, w: Value) -> Value:
        """The product of a whole sequence."""
        (left, right), out = split(i.params["spec"])
        letter = next(c for c in string.ascii_letters if c not in i.params["spec"])
        words = (letter + left, right) if k == 0 else (left, letter + right)
        given = (self.rows[x], w) if k == 0 else (w, self.rows[x])
        b = self.before.at(i.loc, i.result.name)
        found: Value = b.contract(*given, spec=f"{words[0]},{words[1]}->{letter}{out}", **others(i.params))
        return found

    def row_of(self, sequence: Value, i: Instruction) -> Value:
        row = Value(i.result.type, i.result.name)
        self.draft.sequences.append(Taken(sequence, [row]))
        return row

    def joined(self, i: Instruction, k: int, made: Instruction, w: Value) -> Value | None:
        """The sum of what the parts of ``made`` give, of which all but one are rows."""
        words = split(i.params["spec"])[0]
        axis, dtype = made.params["axis"], i.result.type.dtype
        at = words[1 - k].index(words[k][axis])
        parts = [(x, {at: (start, 1, x.type.shape[axis])}) for x, start in zip(made.operands, made.params["starts"], strict=True)]
        rest = [part for part in parts if not (part[0] in self.rows and _is_worth(i, part[0]))]
        if len(rest) != 1 or len(parts) == 1 or (dtype.is_float and dtype.bytes < F32.bytes):
            return None
        ((x, place),) = rest
        before, inside = (b.at(i.loc, i.result.name) for b in (self.before, self.inside))
        wholes = [self.whole(i, k, row, self.cut(w, part)) for row, part in parts if row is not x]
        held = self.capture(self.cut(w, place))
        product = inside.contract(*((x, held) if k == 0 else (held, x)), **i.params)
        total: Value = inside.add(product, self.row_of(reduce(before.add, wholes), i))
        return total

    # parts of products

    def part(self, i: Instruction) -> Value | None:
        """What stands for a part of a product, if it is all that is read and depends on a part of something held."""
        made = self.made.get(i.operands[0])
        if made is None or not isinstance(made.op, Contract) or self.reads[made.result] != 1:
            return None
        words, out = split(made.params["spec"])
        params, whole = i.params, made.result.type.shape
        places = list(zip(params["start"], params["step"], i.result.type.shape, strict=True))
        cut = {out[n]: place for n, place in enumerate(places) if place[0] is not None and place != (0, 1, whole[n])}
        for k in (0, 1):
            w = made.operands[k]
            if w in self.held and set(cut) <= set(words[k]) and cut.keys().isdisjoint(words[1 - k]):
                part = self.capture(self.cut(w, {words[k].index(letter): place for letter, place in cut.items()}))
                given = (part, made.operands[1]) if k == 0 else (made.operands[0], part)
                found: Value = self.inside.at(made.loc, i.result.name).contract(*given, **made.params)
                return found
        return None

    # what is held

    def cut(self, w: Value, places: Mapping[int, tuple[Extent, int, Extent]]) -> Value:
        """A part of a capture, before the scan: where it starts along some axes, its step and its extent."""
        axes = range(w.type.rank)
        found = [places.get(a, (None, 1, w.type.shape[a])) for a in axes]
        start, step, shape = zip(*found, strict=True)
        known = (w, start, step, shape)
        if known not in self.known:
            self.known[known] = self.before.slice(self.held[w], start=start, step=step, shape=shape)
        return self.known[known]

    def capture(self, value: Value) -> Value:
        """The parameter for something held."""
        if value not in self.known:
            self.known[value] = Value(value.type, value.name)
            self.draft.captures.append(Taken(value, [self.known[value]]))
        return self.known[value]


def _is_worth(i: Instruction, x: Value) -> bool:
    """Whether the product of a whole sequence is not much larger than the sequence."""
    return nominal_bytes(i.result.type) <= MOST_GROWTH * nominal_bytes(x.type)
