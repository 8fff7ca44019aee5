"""Rules for contractions. tests/golden/passes holds one example of each, under its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import others, split
from pullback.ir.passes.simplify.rewrite import Rewriter, constant_like, rule
from pullback.ir.passes.simplify.rules_array import Axes, broadcast_axes, narrow, spread


@rule("sum")
def sum_of_contract(b: Rewriter, x: Value, axes: Axes, **_: Any) -> Value | None:
    """Applies to gradients only: it changes the order of additions, and infinities may cancel differently than in the user's
    program. The sum of an operand may overflow where the sum of the products does not; in half precision it often does, so
    it is excluded."""
    # sum einsum("ij,jk->ik", x, y) over i = einsum("j,jk->k", sum x, y); sum (neg einsum) = 0 - sum einsum, as no sum is -0
    negated = b.operand(x, "neg")
    producer = b.producer(x if negated is None else negated, "contract")
    is_half = x.type.dtype.kind == "f" and x.type.dtype.bytes < 4
    if producer is None or is_half or b.reads.get(x) != 1 or b.reads.get(producer.result) != 1:
        return None
    if not producer.loc.note.startswith("pullback"):
        return None
    (left, right), out = split(producer.params["spec"])
    summed = [out[a] for a in axes if (out[a] in left) != (out[a] in right)]
    if not summed or any(x.type.shape[a] == 0 for a in axes):
        return None
    operands, words = [], []
    for value, word in zip(producer.operands, (left, right), strict=True):
        own = tuple(k for k, letter in enumerate(word) if letter in summed)
        operands.append(b.sum(value, axes=own) if own else value)
        words.append("".join(letter for letter in word if letter not in summed))
    kept = "".join(letter for letter in out if letter not in summed)
    product = b.contract(*operands, spec=spec(words[0], words[1], kept), **others(producer.params))
    remaining = tuple(k for k, letter in enumerate(kept) if out.index(letter) in axes)
    total = b.sum(product, axes=remaining) if remaining else product
    return total if negated is None else b.sub(constant_like(b, 0, total), total)


def spec(left: Sequence[str], right: Sequence[str], out: Sequence[str]) -> str:
    """Join the subscripts of a contraction."""
    return f"{''.join(left)},{''.join(right)}->{''.join(out)}"


@rule("contract")
def contract_to_mul(b: Rewriter, x: Value, y: Value, spec: str, **_: Any) -> Value | None:
    # einsum("ij,ij->ij", x, y) = x * y
    (left, right), out = split(spec)
    return b.mul(x, y) if left == right == out else None


@rule("contract")
def contract_with_scalar(b: Rewriter, x: Value, y: Value, spec: str, **_: Any) -> Value | None:
    # einsum(",ij->ji", x, y) = x * transpose y, and the same with the operands swapped
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
    first, second = b.producer(x, "transpose"), b.producer(y, "transpose")
    if first is None and second is None:
        return None
    if first is not None:
        x, left = first.operands[0], _before(left, first.params["perm"])
    if second is not None:
        y, right = second.operands[0], _before(right, second.params["perm"])
    return b.contract(x, y, spec=spec(left, right, out), **others(params))


def _before(letters: str, perm: Axes) -> str:
    """Return the letters of a value whose transpose has ``letters``."""
    return "".join(letters[list(perm).index(k)] for k in range(len(perm)))


@rule("transpose")
def transpose_of_contract(b: Rewriter, x: Value, perm: Axes, **_: Any) -> Value | None:
    # transpose einsum("ij,jk->ik", x, y) = einsum("ij,jk->ki", x, y) if the product is not read otherwise
    producer = b.producer(x, "contract")
    if producer is None or b.reads.get(x) != 1:
        return None
    (left, right), out = split(producer.params["spec"])
    return b.contract(*producer.operands, spec=spec(left, right, [out[p] for p in perm]), **others(producer.params))


@rule("contract")
def contract_of_broadcast(b: Rewriter, x: Value, y: Value, **params: Any) -> Value | None:
    # einsum("ij,jk->ik", broadcast x {axes=[0]}, y) = broadcast einsum("j,jk->k", x, y). A new axis that is summed stays
    letters, out = split(params["spec"])
    operands, words = [x, y], list(letters)
    for position, value in enumerate((x, y)):
        removed = [a for a in broadcast_axes(b, value) if letters[position][a] in out]
        if removed:
            operands[position] = narrow(b, value, removed)
            words[position] = "".join(letter for k, letter in enumerate(letters[position]) if k not in removed)
    if words == list(letters):
        return None
    lost = [k for k, letter in enumerate(out) if letter not in words[0] + words[1]]
    kept = "".join(letter for letter in out if letter in words[0] + words[1])
    product = b.contract(*operands, spec=spec(words[0], words[1], kept), **others(params))
    shape = tuple(_extent(letter, letters, (x, y)) for letter in out)
    return spread(b, product, lost, shape)


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
    product: Value = b.contract(x, y, spec=spec(left, right, out), **others(params))
    return product
