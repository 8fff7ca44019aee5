"""Rules of contractions. tests/golden/passes holds one example of each, under its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import others, split
from pullback.ir.passes.simplify.rewrite import Rewriter, rule, spread_like
from pullback.ir.passes.simplify.rules_array import Axes, broadcast_axes, narrow, spread


@rule("sum")
def sum_of_contract(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    """In gradients alone: additions are in another order, and infinities meet others than in the user's program. A sum of an
    operand may be too large where its products with small numbers are not; of halves it often is.
    """
    # sum einsum("ij,jk->ik", x, y) over i = einsum("j,jk->k", sum x, y); sum (neg einsum) = 0 - sum einsum, as no sum is -0
    negated = b.operand(x, "neg")
    made = b.made(x if negated is None else negated, "contract")
    is_half = x.type.dtype.kind == "f" and x.type.dtype.bytes < 4
    if made is None or is_half or b.reads.get(x) != 1 or b.reads.get(made.result) != 1:
        return None
    if not made.loc.note.startswith("pullback"):
        return None
    (left, right), out = split(made.params["spec"])
    gone = [out[a] for a in axes if (out[a] in left) != (out[a] in right)]
    if not gone or any(x.type.shape[a] == 0 for a in axes):
        return None
    operands, words = [], []
    for value, word in zip(made.operands, (left, right), strict=True):
        own = tuple(k for k, letter in enumerate(word) if letter in gone)
        operands.append(b.sum(value, axes=own) if own else value)
        words.append("".join(letter for letter in word if letter not in gone))
    kept = "".join(letter for letter in out if letter not in gone)
    found = b.contract(*operands, spec=spec(words[0], words[1], kept), **others(made.params))
    rest = tuple(k for k, letter in enumerate(kept) if out.index(letter) in axes)
    total = b.sum(found, axes=rest) if rest else found
    return total if negated is None else b.sub(spread_like(b, 0, total), total)


def spec(left: Sequence[str], right: Sequence[str], out: Sequence[str]) -> str:
    return f"{''.join(left)},{''.join(right)}->{''.join(out)}"


@rule("contract")
def contract_to_mul(b: Rewriter, x: Value, y: Value, spec: str, **_: Any) -> Value | None:
    # einsum("ij,ij->ij", x, y) = x * y
    (left, right), out = split(spec)
    return b.mul(x, y) if left == right == out else None


@rule("contract")
def contract_with_scalar(b: Rewriter, x: Value, y: Value, spec: str, **_: Any) -> Value | None:
    # einsum(",ij->ji", x, y) = x * transpose y, and so with the operands swapped
    (left, right), out = split(spec)
    if left and right:
        return None
    factor, other, letters = (x, y, right) if not left else (y, x, left)
    moved = b.transpose(other, perm=tuple(letters.index(letter) for letter in out)) if letters else other
    return b.mul(moved, b.spread(factor, moved.type.shape))


@rule("contract")
def contract_of_transpose(b: Rewriter, x: Value, y: Value, **params: Any) -> Value | None:
    # einsum("ij,jk->ik", transpose x, y) = einsum("ji,jk->ik", x, y)
    (left, right), out = split(params["spec"])
    first, second = b.made(x, "transpose"), b.made(y, "transpose")
    if first is None and second is None:
        return None
    if first is not None:
        x, left = first.operands[0], _before(left, first.params["perm"])
    if second is not None:
        y, right = second.operands[0], _before(right, second.params["perm"])
    return b.contract(x, y, spec=spec(left, right, out), **others(params))


def _before(letters: str, perm: Axes) -> str:
    """The letters of a value whose transpose has ``letters``."""
    return "".join(letters[list(perm).index(k)] for k in range(len(perm)))


@rule("transpose")
def transpose_of_contract(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose einsum("ij,jk->ik", x, y) = einsum("ij,jk->ki", x, y) if the product is not read otherwise
    made = b.made(x, "contract")
    if made is None or b.reads.get(x) != 1:
        return None
    (left, right), out = split(made.params["spec"])
    return b.contract(*made.operands, spec=spec(left, right, [out[p] for p in perm]), **others(made.params))


@rule("contract")
def contract_of_broadcast(b: Rewriter, x: Value, y: Value, **params: Any) -> Value | None:
    # einsum("ij,jk->ik", broadcast x {axes=[0]}, y) = broadcast einsum("j,jk->k", x, y). A new axis that is summed stays
    letters, out = split(params["spec"])
    operands, words = [x, y], list(letters)
    for position, value in enumerate((x, y)):
        gone = [a for a in broadcast_axes(b, value) if letters[position][a] in out]
        if gone:
            operands[position] = narrow(b, value, gone)
            words[position] = "".join(letter for k, letter in enumerate(letters[position]) if k not in gone)
    if words == list(letters):
        return None
    lost = [k for k, letter in enumerate(out) if letter not in words[0] + words[1]]
    kept = "".join(letter for letter in out if letter in words[0] + words[1])
    found = b.contract(*operands, spec=spec(words[0], words[1], kept), **others(params))
    shape = tuple(_extent(letter, letters, (x, y)) for letter in out)
    return spread(b, found, lost, shape)


def _extent(letter: str, letters: tuple[str, str], operands: tuple[Value, Value]) -> int | str:
    for word, value in zip(letters, operands):
        if letter in word:
            return value.type.shape[word.index(letter)]
    raise KeyError(letter)


@rule("contract")
def contract_over_one(b: Rewriter, x: Value, y: Value, **params: Any) -> Value | None:
    # einsum("ij,jk->ik", broadcast x, y) = einsum("i,k->ik", x, squeeze y) where j is new in x and has extent 1
    (left, right), out = split(params["spec"])
    for axis in broadcast_axes(b, x):
        if x.type.shape[axis] == 1 and left[axis] not in out:
            other = right.index(left[axis])
            return _without_letter(b, left[axis], narrow(b, x, [axis]), b.squeeze(y, axes=(other,)), (left, right, out), params)
    for axis in broadcast_axes(b, y):
        if y.type.shape[axis] == 1 and right[axis] not in out:
            other = left.index(right[axis])
            return _without_letter(b, right[axis], b.squeeze(x, axes=(other,)), narrow(b, y, [axis]), (left, right, out), params)
    return None


def _without_letter(b: Rewriter, letter: str, x: Value, y: Value, words: tuple[str, str, str], params: Any) -> Value:
    left, right, out = (word.replace(letter, "") for word in words)
    found: Value = b.contract(x, y, spec=spec(left, right, out), **others(params))
    return found
