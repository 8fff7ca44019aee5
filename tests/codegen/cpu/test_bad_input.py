"""Bad input: special values, sizes around the vectors', arrays anywhere in memory, in every kernel and schedule, give what the
interpreter gives, the same bits on one thread and on two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.loops import parallelize
from pullback.codegen.kernels.groups import registry
from pullback.ir.interpret import interpret
from pullback.ir.passes.algebra.norms import norms
from pullback.ir.passes.editing.cse import cse
from pullback.ir.passes.pipeline import run
from pullback.ir.passes.transforms.expand import grad
from pullback.programs import pipeline
from pullback.tracer import flatten, trace
from tests.support.forced_strategies import always, at_random
from tests.support.targets import assert_close
from tests.tables.bad_input import (
    KINDS,
    LAYOUTS,
    LOSSES,
    MATRICES,
    NOT_EMPTY,
    VECTORS,
    Array,
    Call,
    elements,
    extremes_of_rows,
    laid_out,
    rows,
    shapes,
    totals,
    truths,
    values,
    whole_numbers,
)

SIZES = (0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 65, 130)
NAMES = [s.name for s in registry.SCHEDULES]
EXACT = (
    "elements", "totals", "places", "scans", "orders", "line", "extremes", "rows", "columns", "extremes_of_rows", "grid",
    "whole_numbers", "truths",
)  # fmt: skip


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are compiled anew in each test, in chunks however short their loops are."""
    before = pb.get_num_threads()
    monkeypatch.setattr(pipeline, "templates", pipeline.Templates())
    monkeypatch.setattr(parallelize, "LEAST_COST", 1)
    yield
    pb.set_num_threads(before)


class Sweep:
    """A comparison of a compiled program with the interpreter. ``differentiated``: the program is the value and all gradients."""

    def __init__(self, function: Call, differentiated: bool) -> None:
        count = 4 if function in MATRICES else 2
        self.plain = pb.value_and_grad(function, tuple(range(count))) if differentiated else function
        self.differentiated = differentiated
        self.compiled = pb.jit(lambda *given: self.plain(*given))
        self.ulps = 0 if function.__name__ in EXACT and not differentiated else 2.0**9

    def check(self, arguments: Sequence[Array], note: object) -> None:
        inputs = tuple(arguments)
        with np.errstate(all="ignore"):
            traced = trace(lambda *inputs: self.plain(*inputs), inputs, {})
            leaves = traced.arguments(flatten((inputs, {}))[0])
            assert leaves is not None
            function = run(traced.function, [cse, norms]) if self.differentiated else traced.function
            expected = interpret(grad(function), *leaves)
        result = []
        for threads in (1, 2):
            pb.set_num_threads(threads)
            result.append([np.asarray(leaf) for leaf in flatten(self.compiled(*inputs))[0]])
        for first, second in zip(*result, strict=True):
            assert first.tobytes() == second.tobytes(), f"another result on two threads: {note}"
        for k, (a, e) in enumerate(zip(result[0], expected, strict=True)):
            floor = _greatest(e) if self.ulps and e.dtype.kind == "f" else 0.0
            if self.differentiated and k == 0:
                # A sum whose terms cancel is as exact as its terms are, which are about arguments times gradients.
                with np.errstate(all="ignore"):
                    terms = (x * g for x, g in zip(inputs, expected[1:], strict=True) if x.dtype.kind == "f")
                    floor = max(floor, *map(_greatest, terms))
            assert_close(a, e, self.ulps if e.dtype.kind == "f" else 0, floor, f"result {k}: {note}")


def _greatest(x: Array) -> Any:
    """The size of the largest finite element."""
    return np.max(np.abs(x), where=np.isfinite(x), initial=0.0)


def sweep(function: Call, differentiated: bool, dtype: Any, seed: int, rounds: int) -> None:
    """Each kind of values and each layout several times, in combinations of chance."""
    rng = np.random.default_rng(seed)
    under_test = Sweep(function, differentiated)
    for count in range(rounds):
        kind, n, m = KINDS[count % len(KINDS)], *rng.choice(SIZES, 2)
        layout = LAYOUTS[rng.integers(1, len(LAYOUTS))] if count % 2 else "dense"
        if function in NOT_EMPTY:
            n, m = max(n, 1), max(m, 1)
        if kind == "huge" and differentiated:
            kind = "large"
        kinds = [kind, kind, *[kind if kind not in ("huge", "large") else "plain"] * 2]
        arguments = [laid_out(values(*drawn, dtype, rng), layout) for drawn in zip(kinds, shapes(function, n, m))]
        under_test.check(arguments, (kind, layout, n, m))
        if count % 10 == 9:
            under_test.check(overlapping(arguments, rng), ("overlapping", n, m))


def overlapping(arguments: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """Return arguments of the same shapes that share memory: the second starts at the first or one element after it."""
    x, _, *others = arguments
    whole = values("mixed", (x.size + 1,), x.dtype.newbyteorder("="), rng)
    last = whole[int(rng.integers(2)) :][: x.size].reshape(x.shape)
    return [whole[: x.size].reshape(x.shape), last, *others]


PROGRAMS = [*((f, f in LOSSES) for f in (*VECTORS, *MATRICES)), *((f, False) for f in LOSSES)]
IDS = [f"{'gradient_of_' if differentiated else ''}{f.__name__}" for f, differentiated in PROGRAMS]
FEW = len(PROGRAMS) - len(LOSSES)


@pytest.mark.parametrize("k", range(FEW), ids=IDS[:FEW])
def test_some(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program in a schedule of chance, in one precision."""
    monkeypatch.setattr(registry, "pick", at_random(k))
    sweep(*PROGRAMS[k], (np.float64, np.float32)[k % 2], k, len(KINDS))


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("schedule", NAMES)
@pytest.mark.parametrize("k", range(len(PROGRAMS)), ids=IDS)
def test_every(k: int, schedule: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program in every schedule that fits some of it."""
    met = set()

    def pick(space: Any, choices: Any) -> Any:
        met.update(s.name for s in choices)
        return always(schedule)(space, choices)

    monkeypatch.setattr(registry, "pick", pick)
    sweep(*PROGRAMS[k], dtype, 1000 + k, 1)
    if schedule not in met:
        pytest.skip("fits nothing of it")
    sweep(*PROGRAMS[k], dtype, k, 30)


OTHERS = [
    *((whole_numbers, d) for d in ("i1", "u1", "i4", "i8", "u8")), (truths, "?"),
    *((f, "f2") for f in (elements, totals, rows, extremes_of_rows)),
]  # fmt: skip


@pytest.mark.parametrize(("function", "dtype"), OTHERS, ids=lambda x: getattr(x, "__name__", x))
def test_other_dtypes(function: Call, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers at both ends of their ranges, bools, and half precision."""
    monkeypatch.setattr(registry, "pick", at_random(len(dtype)))
    rng = np.random.default_rng(3)
    under_test = Sweep(function, False)
    for count in range(10):
        n, m = (max(int(e), int(function is not elements)) for e in rng.choice(SIZES, 2))
        layout = LAYOUTS[count % len(LAYOUTS)]
        drawn = [values(KINDS[count % len(KINDS)], shape, np.dtype(dtype), rng) for shape in shapes(function, n, m)]
        under_test.check([laid_out(x, layout) for x in drawn], (layout, n, m))
