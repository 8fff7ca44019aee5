"""A two-layer network in plain NumPy learns to read 1,797 handwritten digits, trained by compiled gradients.

`loss` is plain NumPy; `step` adds one `pb.value_and_grad` and one `pb.jit`. The same training is done by
hand-written NumPy gradients on the same batches, in turn; the two must agree, or the program ends with an
error.

Run it twice: the second run compiles nothing.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import pullback as pb

DATA = Path(__file__).parent / "data" / "digits.npz"
TRAINED_ON, HIDDEN, BATCH, EPOCHS, MOMENTUM = 1437, 32, 64, 60, 0.9
FLOOR = 0.96
Array = Any


class Network(NamedTuple):
    w1: Array
    b1: Array
    w2: Array
    b2: Array


def scores(w1: Array, b1: Array, w2: Array, b2: Array, x: Array) -> Array:
    return np.tanh(x @ w1 + b1) @ w2 + b2


def loss(w1: Array, b1: Array, w2: Array, b2: Array, x: Array, y: Array) -> Array:
    """Cross entropy: images x (n, 64), one-hot labels y (n, 10), both float64, to one number."""
    z = scores(w1, b1, w2, b2, x)
    z = z - np.max(z, axis=1, keepdims=True)
    log_p = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return -np.mean(np.sum(y * log_p, axis=1))


@pb.jit
def step(
    network: Network, velocity: Network, x: Array, y: Array, rate: float
) -> tuple[Network, Network, Array]:
    """One step of stochastic gradient descent with momentum, compiled whole: loss, gradients and update."""
    value, gradients = pb.value_and_grad(loss, argnums=(0, 1, 2, 3))(*network, x, y)
    velocity = Network(*[MOMENTUM * v - rate * g for v, g in zip(velocity, gradients)])
    network = Network(*[w + v for w, v in zip(network, velocity)])
    return network, velocity, value


def step_by_hand(
    network: Network, velocity: Network, x: Array, y: Array, rate: float
) -> tuple[Network, Network, Array]:
    """The same step with the gradients worked out on paper."""
    n = len(x)
    h = np.tanh(x @ network.w1 + network.b1)
    z = h @ network.w2 + network.b2
    z -= np.max(z, axis=1, keepdims=True)
    e = np.exp(z)
    total = np.sum(e, axis=1, keepdims=True)
    value = -np.sum(y * (z - np.log(total))) / n
    dz = (e / total - y) / n
    dh = (dz @ network.w2.T) * (1.0 - h * h)
    gradients = (x.T @ dh, np.sum(dh, axis=0), h.T @ dz, np.sum(dz, axis=0))
    velocity = Network(*[MOMENTUM * v - rate * g for v, g in zip(velocity, gradients)])
    network = Network(*[w + v for w, v in zip(network, velocity)])
    return network, velocity, value


def initial(rng: np.random.Generator) -> Network:
    """Weights of variance 1 / (number of inputs); biases of zero."""
    return Network(
        w1=rng.normal(size=(64, HIDDEN)) / np.sqrt(64),
        b1=np.zeros(HIDDEN),
        w2=rng.normal(size=(HIDDEN, 10)) / np.sqrt(HIDDEN),
        b2=np.zeros(10),
    )


def load() -> tuple[Array, Array]:
    """Images as (1797, 64) float64 from 0 to 1, and labels as (1797,) integers, in one fixed order."""
    with np.load(DATA) as file:
        images, labels = file["images"], file["labels"]
    order = np.random.default_rng(0).permutation(len(images))
    return images.reshape(-1, 64)[order] / 16.0, labels[order].astype(np.int64)


def batches(x: Array, y: Array, rng: np.random.Generator) -> Iterator[tuple[Array, Array]]:
    """One epoch in random order; the last batch is the smaller rest."""
    order = rng.permutation(len(x))
    for start in range(0, len(x), BATCH):
        chosen = order[start : start + BATCH]
        yield x[chosen], y[chosen]


def example() -> tuple[Array, ...]:
    """Arguments for `loss`, for `pullback dump examples/digits.py:loss --example example`."""
    x, labels = load()
    return (*initial(np.random.default_rng(1)), x[:BATCH], np.eye(10)[labels[:BATCH]])


def accuracy(network: Network, x: Array, labels: Array) -> float:
    """The share read rightly; `scores` is called here as the plain NumPy function that it is."""
    return float(np.mean(np.argmax(scores(*network, x), axis=1) == labels))


class Learner:
    """A network in training, its step function and the seconds spent in it; the first step is timed separately."""

    def __init__(self, step: Callable[..., tuple[Network, Network, Array]]) -> None:
        self.step = step
        self.network = initial(np.random.default_rng(1))
        self.velocity = Network(*[np.zeros_like(w) for w in self.network])
        self.first = 0.0
        self.seconds = 0.0
        self.steps = 0

    def epoch(self, work: list[tuple[Array, Array]], rate: float) -> float:
        """Takes one step for each batch; returns the mean loss."""
        total = 0.0
        for x, y in work:
            start = time.perf_counter()
            self.network, self.velocity, value = self.step(self.network, self.velocity, x, y, rate)
            elapsed = time.perf_counter() - start
            if self.steps == 0:
                self.first = elapsed
            else:
                self.seconds += elapsed
            self.steps += 1
            total += float(value) * len(x)
        return total / sum(len(x) for x, _ in work)

    def step_us(self) -> float:
        return 1e6 * self.seconds / (self.steps - 1)


def picture(images: Array, labels: Array, guesses: Array) -> str:
    """A row of digits drawn with shades, the label guessed for each below it and a mark at the wrong ones."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    shades = np.array(list(" ░▒▓█" if unicode else " .+#@"))
    ink = shades[np.minimum((images.reshape(-1, 8, 8) * 5).astype(int), 4)]
    rows = ["  " + "   ".join("".join(cell * 2 for cell in image[r]) for image in ink) for r in range(8)]
    marks = [f"{g}" if g == t else f"{g} (is {t})" for g, t in zip(guesses, labels)]
    return "\n".join([*rows, "  " + "   ".join(mark.center(16) for mark in marks)])


def train(epochs: int) -> tuple[Learner, Learner]:
    """Trains both ways on the same batches, epoch by epoch in turn, and prints the way down."""
    x, labels = load()
    y = np.eye(10)[labels]
    ours, by_hand = Learner(step), Learner(step_by_hand)
    rng = np.random.default_rng(2)
    shown = {1, 2, 5, *range(10, epochs, 10), epochs}
    print("  epoch     loss   read rightly, of the digits learnt from")
    for epoch in range(1, epochs + 1):
        work = list(batches(x[:TRAINED_ON], y[:TRAINED_ON], rng))
        rate = 0.1 * (1.0 - (epoch - 1) / epochs)
        mean = ours.epoch(work, rate)
        by_hand.epoch(work, rate)
        if epoch in shown:
            right = accuracy(ours.network, x[:TRAINED_ON], labels[:TRAINED_ON])
            bar = ("#" * int(40 * right)).ljust(40, ".")
            print(f"  {epoch:5d} {mean:8.4f}   {right:6.1%} {bar}", flush=True)
    return ours, by_hand


def report(ours: Learner, by_hand: Learner) -> int:
    """Prints what came out; returns 1 if the accuracy is too low or the two ways disagree."""
    x, labels = load()
    x, labels = x[TRAINED_ON:], labels[TRAINED_ON:]
    guesses = np.argmax(scores(*ours.network, x), axis=1)
    wrong = np.flatnonzero(guesses != labels)
    shown = np.concatenate([np.flatnonzero(guesses == labels)[:3], wrong[:1]])
    print("\n" + picture(x[shown], labels[shown], guesses[shown]) + "\n")
    right = accuracy(ours.network, x, labels)
    gap = max(float(np.max(np.abs(a - b))) for a, b in zip(ours.network, by_hand.network))
    info = pb.cache_info()
    print(f"  test accuracy      {right:.1%}: {len(x) - len(wrong)} of {len(x)} digits that it never saw")
    print(f"  same result        largest difference of a weight from hand-written gradients: {gap:.1e}")
    print(f"  one step           {ours.step_us():6.1f} us compiled")
    print(
        f"                     {by_hand.step_us():6.1f} us hand-written NumPy"
        f"   ({by_hand.step_us() / ours.step_us():.1f} times as long)"
    )
    print(f"  first step         {ours.first:.2f} s, with tracing, gradient and compiling")
    print(f"  kernels            {info.compiles} compiled, {info.disk_hits} from disk, {info.hits} in memory")
    print(f"                     the last batch of an epoch, {TRAINED_ON % BATCH} digits, used the same ones")
    if info.compiles:
        print("                     (run it again: nothing is compiled twice)")
    if right < FLOOR:
        print(f"  FAILED: the accuracy is below {FLOOR:.0%}")
    if not gap < 1e-6:
        print("  FAILED: compiled and hand-written gradients disagree")
    return int(right < FLOOR or not gap < 1e-6)


WHERE_NEXT = """
  Where to look next (stages: trace, grad, simplify, fuse, lower, llvm, asm, all):
    {command} dump examples/digits.py:loss --example example --grad --stage trace
    {command} dump examples/digits.py:loss --example example --grad --stage all --out stages
    {command} cache info
    {command} doctor
  docs/architecture.md follows one function through every stage.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="train a digit reader by compiled NumPy gradients")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    epochs = max(1, parser.parse_args().epochs)
    print(f"pullback {pb.__version__}: handwritten digits, 64 -> {HIDDEN} -> 10, plain NumPy, float64")
    print(f"  {TRAINED_ON:,} digits to learn from, {BATCH} at a time, and 360 to be tested on\n")
    failed = report(*train(epochs))
    in_venv = Path(sys.prefix) == Path.cwd() / ".venv"
    print(WHERE_NEXT.format(command=".venv/bin/pullback" if in_venv else "pullback"))
    return failed


if __name__ == "__main__":
    sys.exit(main())
