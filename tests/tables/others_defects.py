"""Cases in which other systems' hand-written gradients are or were wrong: the program, the right formula, and theirs.

Each case says what distinguishes the two: a cotangent that is not uniform, a rank above 2, several axes, an index twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special

Arrays = Sequence[Any]
Formula = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Defect:
    """``right`` and ``wrong`` are called with the arguments and the cotangent and give the gradients by the arguments at ``wrt``.
    ``has_second``: whether there are second derivatives to look at."""

    program: Callable[..., Any]
    arguments: Arrays
    wrong: Formula
    right: Formula | None = None
    wrt: tuple[int, ...] = (0,)
    has_second: bool = True


@dataclass(frozen=True)
class Entry:
    system: str
    where: str
    what: str
    make: Callable[[np.random.Generator], Defect]

    @property
    def name(self) -> str:
        return self.make.__name__


ENTRIES: list[Entry] = []


def defect(system: str, where: str, what: str) -> Callable[[Callable[[np.random.Generator], Defect]], None]:
    def register(make: Callable[[np.random.Generator], Defect]) -> None:
        ENTRIES.append(Entry(system, where, what, make))

    return register


def differences(program: Callable[..., Any], arguments: Arrays, wrt: Sequence[int], ct: Any, step: float = 1e-6) -> list[Any]:
    """Central differences of the program's result, times a cotangent."""
    result = []
    for position in wrt:
        x = arguments[position]
        gradient = np.zeros(x.shape)
        for location in np.ndindex(x.shape):
            sides = []
            for sign in (1, -1):
                moved = [np.array(a) for a in arguments]
                moved[position][location] += sign * step
                sides.append(np.sum(ct * program(*moved)))
            gradient[location] = (sides[0] - sides[1]) / (2 * step)
        result.append(gradient)
    return result


def by_differences(program: Callable[..., Any], wrt: Sequence[int]) -> Formula:
    """The gradient of another program, the one that a system had in mind."""
    return lambda *given: differences(program, given[:-1], wrt, given[-1])


def softmax(z: Any, axis: int) -> Any:
    e = np.exp(z - np.max(z, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


# SystemDS


@defect("SystemDS", "fm.dml", "the factors' gradient takes the last factor for all but the first: wrong from rank 3 on")
def factorization_machine(rng: np.random.Generator) -> Defect:
    def program(v: Any, x: Any) -> Any:
        return 0.5 * np.sum((x @ v) ** 2 - x**2 @ v**2, axis=1)

    def right(v: Any, x: Any, ct: Any) -> Arrays:
        return [x.T @ (ct[:, None] * (x @ v)) - (x**2).T @ ct[:, None] * v]

    def wrong(v: Any, x: Any, ct: Any) -> Arrays:
        taken = v[:, [0, *[v.shape[1] - 1] * (v.shape[1] - 1)]]
        return [x.T @ (ct[:, None] * (x @ taken)) - (x**2).T @ ct[:, None] * taken]

    return Defect(program, [rng.normal(size=(4, 3)), rng.normal(size=(5, 4))], wrong, right)


def _normalised(x: Any, scale: Any, shift: Any) -> Any:
    centred = x - np.mean(x, axis=(0, 2, 3), keepdims=True)
    deviation = np.sqrt(np.mean(centred**2, axis=(0, 2, 3), keepdims=True) + 1e-3)
    return centred / deviation * scale[:, None, None] + shift[:, None, None]


def _mbconv(x: Any, expand: Any, deep: Any, project: Any, inner: Any, outer: Any, last: str = "outer") -> Any:
    def swish(z: Any) -> Any:
        return z / (1 + np.exp(-z))

    h = swish(_normalised(np.einsum("nchw,ec->nehw", x, expand), inner[0], inner[1]))
    padded = np.pad(h, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = h.shape[2:]
    h = np.stack([padded[:, :, i : i + rows, j : j + columns] * deep[:, i, j, None, None] for i in range(3) for j in range(3)])
    h = swish(_normalised(np.sum(h, axis=0), inner[0], inner[1]))
    out = np.einsum("nchw,ec->nehw", h, project)
    if last == "none":
        return out
    scale = outer if last == "outer" else inner[:, : len(project)]
    return _normalised(out, scale[0], scale[1])


def _block(rng: np.random.Generator) -> Arrays:
    shapes = ((2, 2, 3, 3), (4, 2), (4, 3, 3), (2, 4), (2, 4), (2, 2))
    return [rng.normal(size=shape) for shape in shapes]


@defect("SystemDS", "mbconv.dml", "the last normalisation uses the parameters of the depthwise one")
def mbconv(rng: np.random.Generator) -> Defect:
    def theirs(*arguments: Any) -> Any:
        return _mbconv(*arguments, last="inner")

    return Defect(_mbconv, _block(rng), by_differences(theirs, (1, 3)), wrt=(1, 3))


@defect(
    "SystemDS", "mbconv.dml",
    "without a skip connection, the forward part omits the last normalisation and the backward part does not",
)  # fmt: skip
def mbconv_without_skip(rng: np.random.Generator) -> Defect:
    def bare(*arguments: Any) -> Any:
        return _mbconv(*arguments, last="none")

    return Defect(bare, _block(rng), by_differences(_mbconv, (1, 3)), wrt=(1, 3))


@defect(
    "SystemDS",
    "softmax_cross_entropy_loss.dml",
    "(p - y) / N: right only if labels sum to 1; leaves out the epsilon of the forward part",
)
def softmax_cross_entropy(rng: np.random.Generator) -> Defect:
    def program(z: Any, y: Any) -> Any:
        return -np.sum(y * np.log(softmax(z, 1) + 0.05)) / len(z)

    def right(z: Any, y: Any, ct: Any) -> Arrays:
        p = softmax(z, 1)
        g = -ct * y / (p + 0.05) / len(z)
        return [p * (g - np.sum(g * p, axis=1, keepdims=True))]

    def wrong(z: Any, y: Any, ct: Any) -> Arrays:
        return [(softmax(z, 1) - y) / len(z)]

    return Defect(program, [rng.normal(size=(4, 3)), rng.uniform(size=(4, 3))], wrong, right)


@defect("SystemDS", "attention.dml", "the softmax runs over queries and not over keys (the gradient is consistent with it)")
def attention(rng: np.random.Generator) -> Defect:
    def program(q: Any, k: Any, v: Any, axis: int = 1) -> Any:
        return softmax(q @ k.T / np.sqrt(q.shape[1]), axis) @ v

    def right(q: Any, k: Any, v: Any, ct: Any) -> Arrays:
        p = softmax(q @ k.T / np.sqrt(q.shape[1]), 1)
        dp = ct @ v.T
        ds = p * (dp - np.sum(dp * p, axis=1, keepdims=True)) / np.sqrt(q.shape[1])
        return [ds @ k, ds.T @ q, p.T @ ct]

    wrong = by_differences(lambda q, k, v: program(q, k, v, 0), (0, 1, 2))
    return Defect(program, [rng.normal(size=s) for s in ((4, 2), (3, 2), (3, 5))], wrong, right, wrt=(0, 1, 2))


@defect(
    "SystemDS", "max_pool2d.dml",
    "the script gives the full cotangent to each of several tied maxima, the built-in to the first",
)  # fmt: skip
def max_pool_of_ties(rng: np.random.Generator) -> Defect:
    def windows(x: Any) -> Any:
        return np.stack([x[i::2, j::2] for i in (0, 1) for j in (0, 1)])

    def spread(x: Any, ct: Any, share: bool) -> Any:
        is_best = windows(x) == np.max(windows(x), axis=0)
        parts = is_best * ct / (np.sum(is_best, axis=0) if share else 1)
        out = np.zeros(x.shape)
        for part, (i, j) in zip(parts, ((0, 0), (0, 1), (1, 0), (1, 1))):
            out[i::2, j::2] = part
        return out

    x = rng.normal(size=(4, 6))
    x[0, 0], x[1, 1], x[2, 2], x[2, 3] = 9, 9, 8, 8
    return Defect(
        lambda x: np.max(windows(x), axis=0), [x], lambda x, ct: [spread(x, ct, False)], lambda x, ct: [spread(x, ct, True)],
        has_second=False,
    )  # fmt: skip


@defect("SystemDS", "batch_norm2d.dml", "there is no gradient in test mode, where the averages are constants")
def batch_norm_in_test_mode(rng: np.random.Generator) -> Defect:
    def program(x: Any, scale: Any, mean: Any, variance: Any) -> Any:
        return (x - mean) / np.sqrt(variance + 1e-5) * scale

    def right(x: Any, scale: Any, mean: Any, variance: Any, ct: Any) -> Arrays:
        deviation = np.sqrt(variance + 1e-5)
        return [ct * scale / deviation, np.sum(ct * (x - mean) / deviation, axis=0)]

    def wrong(x: Any, scale: Any, mean: Any, variance: Any, ct: Any) -> Arrays:
        deviation = np.sqrt(np.var(x, axis=0) + 1e-5)
        unit = (x - np.mean(x, axis=0)) / deviation
        dx = scale / deviation * (ct - np.mean(ct, axis=0) - unit * np.mean(ct * unit, axis=0))
        return [dx, np.sum(ct * unit, axis=0)]

    arguments = [rng.normal(size=(5, 3)), rng.normal(size=3), rng.normal(size=3), rng.uniform(0.5, 2, 3)]
    return Defect(program, arguments, wrong, right, wrt=(0, 1))


@defect(
    "SystemDS",
    "rnn.dml, lstm.dml until 2017",
    "with only the last output used, the cotangents of the others had D columns a step, not M",
)
def recurrence_of_last_output(rng: np.random.Generator) -> Defect:
    steps, wide, hidden = 4, 2, 3

    def states(x: Any, w: Any) -> list[Any]:
        result = [np.zeros((len(x), hidden))]
        for t in range(steps):
            result.append(np.tanh(np.concatenate([x[:, t * wide : (t + 1) * wide], result[-1]], axis=1) @ w))
        return result

    def back(x: Any, w: Any, arguments: Any) -> Arrays:
        h, dw, dh = states(x, w), np.zeros_like(w), np.zeros((len(x), hidden))
        dx = np.zeros_like(x)
        for t in reversed(range(steps)):
            dz = (dh + arguments[:, t * hidden : (t + 1) * hidden]) * (1 - h[t + 1] ** 2)
            dw += np.concatenate([x[:, t * wide : (t + 1) * wide], h[t]], axis=1).T @ dz
            joined = dz @ w.T
            dx[:, t * wide : (t + 1) * wide], dh = joined[:, :wide], joined[:, wide:]
        return [dx, dw]

    def right(x: Any, w: Any, ct: Any) -> Arrays:
        return back(x, w, np.concatenate([np.zeros((len(x), (steps - 1) * hidden)), ct], axis=1))

    def wrong(x: Any, w: Any, ct: Any) -> Arrays:
        short = np.concatenate([np.zeros((len(x), (steps - 1) * wide)), ct], axis=1)
        return back(x, w, np.pad(short, ((0, 0), (0, steps * hidden - short.shape[1]))))

    arguments = [rng.normal(size=(2, steps * wide)), rng.normal(size=(wide + hidden, hidden))]
    return Defect(lambda x, w: states(x, w)[-1], arguments, wrong, right, wrt=(0, 1))


@defect("SystemDS", "elu.dml", "the slope at 0 is 0, where both limits are 1")
def elu_at_zero(rng: np.random.Generator) -> Defect:
    def slope(x: Any) -> Any:
        return np.where(x > 0, 1.0, np.exp(x))

    return Defect(
        lambda x: np.where(x > 0, x, np.expm1(x)), [np.array([-1.0, 0.0, 2.0, 0.0])],
        lambda x, ct: [ct * np.where(x == 0, 0.0, slope(x))], lambda x, ct: [ct * slope(x)], has_second=False,
    )  # fmt: skip


@defect("SystemDS", "Python Sequential", "the backward function of each layer receives the input of the network")
def sequential(rng: np.random.Generator) -> Defect:
    def back(w1: Any, w2: Any, x: Any, ct: Any, into_second: Any) -> Arrays:
        h = np.tanh(x @ w1)
        dz = ct * (1 - np.tanh(h @ w2) ** 2)
        return [x.T @ ((dz @ w2.T) * (1 - h**2)), into_second.T @ dz]

    return Defect(
        lambda w1, w2, x: np.tanh(np.tanh(x @ w1) @ w2), [rng.normal(size=s) for s in ((3, 3), (3, 3), (4, 3))],
        lambda w1, w2, x, ct: back(w1, w2, x, ct, x), lambda w1, w2, x, ct: back(w1, w2, x, ct, np.tanh(x @ w1)), wrt=(0, 1),
    )  # fmt: skip


# SINGA


@defect("SINGA", "autograd.py, Erf", "the derivative is evaluated at the cotangent, and not multiplied by it")
def erf(rng: np.random.Generator) -> Defect:
    def slope(x: Any) -> Any:
        return 2 / np.sqrt(np.pi) * np.exp(-(x**2))

    return Defect(scipy.special.erf, [rng.normal(size=4)], lambda x, ct: [slope(ct)], lambda x, ct: [ct * slope(x)])


@defect("SINGA", "autograd.py, ReduceSum", "divided by the number of elements summed")
def reduce_sum(rng: np.random.Generator) -> Defect:
    return Defect(
        lambda x: np.sum(x, axis=1), [rng.normal(size=(3, 4))], lambda x, ct: [np.repeat(ct[:, None] / 4, 4, 1)],
        lambda x, ct: [np.repeat(ct[:, None], 4, 1)],
    )  # fmt: skip


@defect("SINGA", "autograd.py, Min and Max", "the cotangent is left out")
def maximum_and_minimum(rng: np.random.Generator) -> Defect:
    return Defect(
        lambda x, y: np.maximum(x, y) + 2 * np.minimum(x, y), [rng.normal(size=5), rng.normal(size=5)],
        lambda x, y, ct: [np.where(x > y, 1, 2), np.where(x > y, 2, 1)],
        lambda x, y, ct: [ct * np.where(x > y, 1, 2), ct * np.where(x > y, 2, 1)], wrt=(0, 1),
    )  # fmt: skip


@defect("SINGA", "autograd.py, SoftMaxCrossEntropy and RankingLoss", "the cotangent is left out, as if the loss came last")
def losses_inside_a_loss(rng: np.random.Generator) -> Defect:
    def program(z: Any, y: Any) -> Any:
        entropy = -np.sum(y * np.log(softmax(z, 1)), axis=1)
        return np.stack([np.mean(entropy), np.mean(np.maximum(0.0, 0.3 - z[:, 0] + z[:, 1]))])

    def right(z: Any, y: Any, ct: Any) -> Arrays:
        dz = ct[0] * (softmax(z, 1) - y) / len(z)
        is_on = (0.3 - z[:, 0] + z[:, 1] > 0) / len(z)
        dz[:, 0] -= ct[1] * is_on
        dz[:, 1] += ct[1] * is_on
        return [dz]

    y = np.eye(3)[rng.integers(0, 3, 4)]
    return Defect(program, [rng.normal(size=(4, 3)), y], lambda z, y, ct: right(z, y, np.ones(2)), right)


@defect(
    "SINGA", "autograd.py, BinaryCrossEntropy",
    "the epsilon has the opposite sign in the backward part; no cotangent of a tensor",
)  # fmt: skip
def binary_cross_entropy(rng: np.random.Generator) -> Defect:
    def slope(x: Any, t: Any, eps: float) -> Any:
        return -t / (x + 0.05) + (1 - t) / (1 - x + eps)

    x = np.array([0.2, 0.6, 0.98, 0.99])
    return Defect(
        lambda x, t: -(t * np.log(x + 0.05) + (1 - t) * np.log(1 - x + 0.05)), [x, rng.uniform(size=4)],
        lambda x, t, ct: [ct * slope(x, t, -0.05)], lambda x, t, ct: [ct * slope(x, t, 0.05)],
    )  # fmt: skip


@defect("SINGA", "autograd.py, Dropout", "the scale is written 1 / 1 - ratio")
def dropout(rng: np.random.Generator) -> Defect:
    return Defect(
        lambda x, keep: np.where(keep > 0.4, x / (1 - 0.4), 0.0), [rng.normal(size=8), rng.uniform(size=8)],
        lambda x, keep, ct: [ct * (keep > 0.4) * (1 / 1 - 0.4)], lambda x, keep, ct: [ct * (keep > 0.4) / 0.6],
    )  # fmt: skip


@defect("SINGA", "autograd.py, Gather", "repeated and unsorted indices lose contributions")
def gather(rng: np.random.Generator) -> Defect:
    index = np.array([3, 0, 3, 1, 3])

    def right(x: Any, ct: Any) -> Arrays:
        out = np.zeros_like(x)
        np.add.at(out, index, ct)
        return [out]

    def wrong(x: Any, ct: Any) -> Arrays:
        out = np.zeros_like(x)
        out[index] = ct
        return [out]

    return Defect(lambda x: x[index], [rng.normal(size=(4, 2))], wrong, right)


@defect("SINGA", "autograd.py, backward", "adds into the first contribution, which Add passed to both of its operands")
def aliased_accumulation(rng: np.random.Generator) -> Defect:
    return Defect(
        lambda a, b: (a + b) * 3 + np.sin(a), [rng.normal(size=4), rng.normal(size=4)],
        lambda a, b, ct: [ct * (3 + np.cos(a))] * 2, lambda a, b, ct: [ct * (3 + np.cos(a)), 3 * ct], wrt=(0, 1),
    )  # fmt: skip


# lamp


@defect("lamp", "Cross", "a cross product with ones, times the cotangent: right only if the cotangent is uniform")
def cross(rng: np.random.Generator) -> Defect:
    return Defect(
        np.cross, [rng.normal(size=(4, 3)), rng.normal(size=(4, 3))],
        lambda a, b, ct: [ct * np.cross(b, np.ones_like(b)), ct * np.cross(np.ones_like(a), a)],
        lambda a, b, ct: [np.cross(b, ct), np.cross(ct, a)], wrt=(0, 1),
    )  # fmt: skip


@defect("lamp", "Inv", "the inverse in place of its transpose: right only if the cotangent is symmetric")
def inverse(rng: np.random.Generator) -> Defect:
    def turned(p: Any, ct: Any) -> Arrays:
        return [-p @ ct @ p]

    x = rng.normal(size=(3, 3)) + 3 * np.eye(3)
    return Defect(
        np.linalg.inv, [x], lambda x, ct: turned(np.linalg.inv(x), ct), lambda x, ct: turned(np.linalg.inv(x).T, ct)
    )  # fmt: skip


def _golub_pereyra(x: Any, ct: Any) -> Arrays:
    p = np.linalg.pinv(x)
    beyond_columns, beyond_rows = np.eye(len(x)) - x @ p, np.eye(x.shape[1]) - p @ x
    return [-p.T @ ct @ p.T + beyond_columns @ ct.T @ p @ p.T + p.T @ p @ ct.T @ beyond_rows]


@defect("lamp", "PInv", "right only for symmetric arguments")
def pseudo_inverse(rng: np.random.Generator) -> Defect:
    return Defect(
        np.linalg.pinv, [rng.normal(size=(3, 3))], lambda x, ct: [-np.linalg.pinv(x) @ ct @ np.linalg.pinv(x)], _golub_pereyra
    )  # fmt: skip


@defect("lamp", "PInv", "a shape error if the argument is not square")
def tall_pseudo_inverse(rng: np.random.Generator) -> Defect:
    def square_alone(x: Any, ct: Any) -> Arrays:
        p = np.linalg.pinv(x)
        return [-p.T @ ct @ p.T]

    return Defect(np.linalg.pinv, [rng.normal(size=(4, 2))], square_alone, _golub_pereyra)


@defect("lamp", "Variance", "over several axes, divided by the sum of their lengths minus 1, not by the product")
def variance_over_axes(rng: np.random.Generator) -> Defect:
    def formula(count: int) -> Formula:
        return lambda x, ct: [2 * (x - np.mean(x, axis=(0, 2), keepdims=True)) * ct[None, :, None] / (count - 1)]

    return Defect(lambda x: np.var(x, axis=(0, 2), ddof=1), [rng.normal(size=(3, 2, 4))], formula(7), formula(12))


def _reduced(name: str, factor: Callable[[Any], Any], reduce: Callable[[Any], Any], shape: tuple[int, int]) -> None:
    def make(rng: np.random.Generator) -> Defect:
        return Defect(
            reduce, [rng.normal(size=shape)], lambda x, ct: [np.resize(ct, x.shape) * factor(x)],
            lambda x, ct: [ct[:, None] * factor(x)],
        )  # fmt: skip

    make.__name__ = name
    defect("lamp", name.split("_")[0].capitalize(), "without keepDim the cotangent is spread along the wrong axis")(make)


for _shape, _kind in (((3, 3), "square"), ((2, 4), "rectangle")):
    _reduced(f"sum_of_{_kind}", np.ones_like, lambda x: np.sum(x, axis=1), _shape)
    _reduced(f"mean_of_{_kind}", lambda x: np.ones_like(x) / x.shape[1], lambda x: np.mean(x, axis=1), _shape)
    _reduced(
        f"norm2_of_{_kind}", lambda x: x / np.linalg.norm(x, axis=1, keepdims=True), lambda x: np.linalg.norm(x, axis=1), _shape
    )


@defect(
    "lamp", "Pow",
    "only the first of several exponents is used; their gradient is a product of sums, not the sum of products",
)  # fmt: skip
def array_of_exponents(rng: np.random.Generator) -> Defect:
    def wrong(x: Any, e: Any, ct: Any) -> Arrays:
        return [ct * e[0] * x ** (e[0] - 1), np.full(e.shape, np.sum(x**e) * np.sum(ct * np.log(x)))]

    return Defect(
        lambda x, e: x**e, [rng.uniform(0.5, 2, 6), rng.normal(size=6)], wrong,
        lambda x, e, ct: [ct * e * x ** (e - 1), ct * x**e * np.log(x)], wrt=(0, 1),
    )  # fmt: skip


@defect("lamp", "IndexSelect", "adds the partial sum once more")
def index_select(rng: np.random.Generator) -> Defect:
    index = np.array([2, 0, 2])

    def formula(times: float) -> Formula:
        def gradient(x: Any, ct: Any) -> Arrays:
            out = times * ct[0] * np.cos(x)
            np.add.at(out, index, ct[1, :3])
            return [out]

        return gradient

    def program(x: Any) -> Any:
        return np.stack([np.sin(x), np.concatenate([x[index], np.zeros(1)])])

    return Defect(program, [rng.normal(size=4)], formula(2), formula(1))


@defect("lamp", "Embedding", "row 0 is treated as padding and never gets a gradient")
def embedding(rng: np.random.Generator) -> Defect:
    words = np.array([[0, 2, 1], [0, 0, 2]])

    def formula(first: float) -> Formula:
        def gradient(table: Any, ct: Any) -> Arrays:
            out = np.zeros_like(table)
            np.add.at(out, words, ct)
            out[0] *= first
            return [out]

        return gradient

    return Defect(lambda table: table[words], [rng.normal(size=(3, 2))], formula(0), formula(1))


# Paddle and MXNet


@defect("Paddle", "issue 11977", "a variable used as both operands of an op loses one contribution")
def same_operand_twice(rng: np.random.Generator) -> Defect:
    def right(x: Any, ct: Any) -> Arrays:
        return [(ct + ct.T) @ x + 2 * x * np.trace(ct) + np.zeros_like(x)]

    return Defect(
        lambda x: x @ x.T + np.eye(3) * np.sum(x * x) + (x - x) @ x.T, [rng.normal(size=(3, 2))],
        lambda x, ct: [ct @ x + x * np.trace(ct)], right,
    )  # fmt: skip


@defect("Paddle", "issue 36618", "the triple gradient read an input that was never set")
def triple_gradient(rng: np.random.Generator) -> Defect:
    """The program is a second derivative already: its gradient is the third."""

    def right(x: Any, ct: Any) -> Arrays:
        y = np.tanh(x)
        return [ct * (1 - y**2) * (6 * y**2 - 2)]

    return Defect(
        lambda x: -2 * np.tanh(x) * (1 - np.tanh(x) ** 2), [rng.normal(size=4)],
        lambda x, ct: [-2 * ct * (1 - np.tanh(x) ** 2)], right,
    )  # fmt: skip


@defect("Paddle", "issue 40850", "the gradient of a sum that keeps its axis changed from run to run")
def sum_that_keeps_its_axis(rng: np.random.Generator) -> Defect:
    return Defect(
        lambda x: np.sum(x * x, axis=1, keepdims=True), [rng.normal(size=(3, 3))], lambda x, ct: [2 * x * ct.T],
        lambda x, ct: [2 * x * ct],
    )  # fmt: skip


@defect("Paddle", "issue 58477", "decomposing one op also affected others with the same parent")
def two_readers_of_one_parent(rng: np.random.Generator) -> Defect:
    def soft(h: Any, ct: Any) -> Any:
        p = softmax(h, 1)
        return p * (ct - np.sum(ct * p, axis=1, keepdims=True))

    def program(h: Any) -> Any:
        return np.stack([softmax(h, 1), np.tanh(h)])

    return Defect(
        program, [rng.normal(size=(3, 4))], lambda h, ct: [soft(h, ct[0]) + soft(h, ct[1])],
        lambda h, ct: [soft(h, ct[0]) + ct[1] * (1 - np.tanh(h) ** 2)],
    )  # fmt: skip


@defect("MXNet", "issue 17989", "if many gradients are added into one buffer, some are lost")
def thousand_readers(rng: np.random.Generator) -> Defect:
    factors = np.arange(1000) / 64 - 3

    def program(x: Any) -> Any:
        total = x * 0.0
        for k in range(1000):
            total = total + x * (k / 64 - 3)
        return total

    return Defect(
        program, [rng.normal(size=3)], lambda x, ct: [ct * np.sum(factors[-8:])], lambda x, ct: [ct * np.sum(factors)],
        has_second=False,
    )  # fmt: skip
