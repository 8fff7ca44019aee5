"""Splits by blocks of rows: their texts (tests/golden/rows), and their values, by the interpreter, for ops and losses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.distributed.plan import Rows, _by_rows
from pullback.ir import OPS, Builder, Function, Module, Op, Value
from pullback.ir.interpret import interpret
from pullback.ir.passes.rows.rules import ROWS, Coupled
from pullback.ir.passes.rows.split import Split, blocks_in_order, evaluate, split_rows
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.shapes.extents import rename
from pullback.ir.text import parse_module, print_function, print_module
from pullback.ir.verify import verify
from pullback.programs.pipeline import split_outcomes
from pullback.tracer import signature
from tests.support.golden_files import SEPARATOR
from tests.support.op_cases import Case, cases, covered_ops
from tests.support.paths import GOLDEN

GOLDENS = sorted((GOLDEN / "rows").glob("*.ir"))
Bounds = Sequence[int]


def text_of(split: Split) -> str:
    """The parts of a split, with the slots that they read and write."""
    lines = []
    for k, (outer, block) in enumerate(split.rounds):
        for title, part in (("once", outer), ("each block", block)):
            if part is None:
                continue
            lines.append(f"# round {k}, {title}: {list(part.inputs)} -> {list(part.outputs)}")
            if block is part and block is not None:
                lines.append(f"# reduced: {[name for name, _ in block.reductions]}, kept along {list(block.kept)}")
            lines.append(print_function(part.function))
    return "\n".join([*lines, f"# results: {list(split.results)}"]) + "\n"


def by_blocks(function: Function, arguments: Sequence[Any], bounds: Bounds) -> list[Any]:
    """The results of a function by blocks, by the interpreter."""
    split = split_rows(function)
    for pair in split.rounds:
        for part in pair:
            if part is not None:
                verify(part.function)
    return evaluate(
        split,
        arguments,
        lambda part, values: interpret(part.function, *values),
        blocks_in_order(
            split,
            bounds,
            lambda part, values, rows: interpret(rename(part.function, {ROWS: rows}), *values),
            lambda x, axis, start, stop: np.take(x, range(start, stop), axis),
        ),
    )


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_split_gives_expected_text(path: Path, bless: bool) -> None:
    given, _, expected = path.read_text().partition(SEPARATOR)
    (function,) = parse_module(given).functions
    try:
        text = text_of(split_rows(verify(function)))
    except Coupled as error:
        text = f"# refused: {error}\n"
    if bless:
        path.write_text(f"{given.rstrip()}\n{SEPARATOR}{text}")
    else:
        assert text == expected


ROW_COUNT = 5
BATCHED = [op for op in covered_ops() if "func" in op.vocabularies and any(case.types for case in cases(op))]
NOT_BY_ROWS = {"print", "callback"}


def batched(case: Case, positions: Sequence[int]) -> Function:
    """An op for each row of the operands at these positions."""
    b = Builder()
    inside = [Value(t, f"q{k}") for k, t in enumerate(case.types)]
    region = b.block(inside, case.emit(b, inside))
    b = Builder()
    types = [t.with_shape((ROWS, *t.shape)) if k in positions else t for k, t in enumerate(case.types)]
    parameters = [Value(t, f"p{k}") for k, t in enumerate(types)]
    results = b.emit(OPS["vmap"], parameters, {"batched": tuple(positions), "fixed": ()}, [region])
    return verify(grad(b.function("f", parameters, results)))


@pytest.mark.parametrize("op", BATCHED, ids=lambda op: op.name)
def test_the_batch_of_an_op_is_computed_by_blocks(op: Op) -> None:
    """What maps each row couples no rows, whatever op it is."""
    if op.name in NOT_BY_ROWS:
        pytest.skip("it runs in Python")
    rng = np.random.default_rng(1)
    for case in [case for case in cases(op) if case.types]:
        for positions in [list(range(len(case.types))), *([k] for k in range(len(case.types)) if len(case.types) > 1)]:
            function = batched(case, positions)
            drawn = [case.arguments(rng) for _ in range(ROW_COUNT)]
            if op.name == "roll_by":
                drawn = [[x, abs(count)] for x, count in drawn]  # a number of positions, which is not negative
            arguments = [np.stack([row[k] for row in drawn]) if k in positions else drawn[0][k] for k in range(len(case.types))]
            whole = interpret(rename(function, {ROWS: ROW_COUNT}), *arguments)
            for value, expected in zip(by_blocks(function, arguments, [0, 2, 2, ROW_COUNT]), whole, strict=True):
                assert value.dtype == expected.dtype
                is_narrow = value.dtype.kind in "fc" and np.finfo(value.dtype).bits < 64
                tolerance = 1e-4 if is_narrow else 1e-12
                np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance, err_msg=f"{case} by {positions}")


def cross_entropy(w: Any, x: Any, y: Any, k: Any) -> Any:
    z = x @ w
    z = z - z.max(axis=1, keepdims=True)
    logits = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return -np.mean(logits[np.arange(len(k)), k])


def rmse(w: Any, x: Any, y: Any, k: Any) -> Any:
    return np.sqrt(np.mean((x @ w[:, 0] - y) ** 2)) + 0.1 * np.sum(w**2)


def log_sum_exp(w: Any, x: Any, y: Any, k: Any) -> Any:
    z = (x @ w).sum(axis=1)
    top = np.max(z)
    return top + np.log(np.sum(np.exp(z - top)))


def centred(w: Any, x: Any, y: Any, k: Any) -> Any:
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.mean((x @ w[:, 0] - y) ** 2)


def levels(w: Any, x: Any, y: Any, k: Any) -> Any:
    return np.mean((w[k, 0] - y) ** 2)


def weighted(w: Any, x: Any, y: Any, k: Any) -> Any:
    weights = np.where(y > 0, 1.0, 0.0)
    return np.sum(weights * np.tanh(x @ w[:, 1])) / np.sum(weights)


def correlation(w: Any, x: Any, y: Any, k: Any) -> Any:
    z = x @ w[:, 0]
    return np.sum((z - z.mean()) * (y - y.mean())) / np.sqrt(np.sum((z - z.mean()) ** 2) * np.sum((y - y.mean()) ** 2))


def recurrent(w: Any, x: Any, y: Any, k: Any) -> Any:
    state = np.zeros(len(x))
    for step in range(x.shape[1]):
        state = np.tanh(state * w[step, 0] + x[:, step])
    return np.mean((state - y) ** 2)


def whitened(w: Any, x: Any, y: Any, k: Any) -> Any:
    moments = x.T @ x / x.shape[0] + np.eye(x.shape[1])
    return np.mean((np.linalg.solve(moments, x.T).T @ w[:, 0] - y) ** 2)


LOSSES = [cross_entropy, rmse, log_sum_exp, centred, levels, weighted, correlation, recurrent, whitened]
ORDERS: dict[str, Callable[[Any], Any]] = {"value": pb.jit, "gradient": pb.value_and_grad, "hessian": pb.hessian}


def of_rows(function: Any, arguments: Sequence[Any], over: dict[int, int]) -> tuple[Function, list[Any]]:
    """The function by rows of a call, and its arguments."""
    compiled = function if hasattr(function, "_trace") else pb.jit(function)
    call = signature(compiled._parameters, arguments, {})
    traced = compiled._trace(call, arguments, {})
    count = next(arguments[k].shape[axis] for k, axis in over.items())
    plain, _ = split_outcomes(traced)
    values = traced.arguments(call.leaves)
    typed = [np.asarray(v, p.type.dtype.numpy) for v, p in zip(values, plain.parameters, strict=True)]
    return _by_rows(plain, Rows(axes=over, count=count, titles={})), typed


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_losses(loss: Any, order: str) -> None:
    rng = np.random.default_rng(0)
    rows = 11
    arguments = (rng.normal(size=(4, 4)), rng.normal(size=(rows, 4)), rng.normal(size=rows), rng.integers(0, 4, rows))
    function, values = of_rows(ORDERS[order](loss), arguments, {1: 0, 2: 0, 3: 0})
    expected = interpret(rename(function, {ROWS: rows}), *values)
    for bounds in ([0, rows], [0, 1, 5, 5, 10, rows], range(rows + 1)):
        results = by_blocks(function, values, list(bounds))
        for a, b in zip(results, expected, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


KEPT: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: np.exp(x - x.max(axis=0)) / np.exp(x - x.max(axis=0)).sum(axis=0),
    "ranks": lambda x: (np.argmax(x[:, 0]), np.argmin(x[:, 1]), x.max(), np.prod(x, axis=0), np.any(x > 2), np.all(x > -9)),
    "counts": lambda x: (x.shape[0] * x, len(x), x.var(), np.arange(len(x)) @ x),
    "products": lambda x: (x.T @ x, np.einsum("ij,ik->ijk", x, x), np.median(x, axis=1), np.cumsum(x, axis=1)),
    "shapes": lambda x: (x.reshape(len(x), 2, 2), x.T, x[:, None, ::-1], np.concatenate([x, 2 * x], axis=1), x[:, 1:]),
    "indices": lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1),
    "nothing by rows": lambda x: np.ones(len(x)).sum() + np.sum(x),
}


@pytest.mark.parametrize("name", KEPT)
def test_results_of_all_kinds(name: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 4))
    function, values = of_rows(KEPT[name], (x,), {0: 0})
    expected = interpret(rename(function, {ROWS: 9}), *values)
    for bounds in ([0, 9], [0, 0, 4, 8, 8, 9], range(10)):
        for a, b in zip(by_blocks(function, values, list(bounds)), expected, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_extremes_with_nan_and_ties() -> None:
    """The first of equal extremes, and the first NaN, as of all rows."""
    nan, inf = np.nan, np.inf
    for column in ([1.0, 3.0, 3.0, 2.0], [nan, 1.0, nan, 0.0], [-inf] * 4, [0.0, -0.0, 0.0, 0.0], [1.0, 2.0, nan, 5.0]):
        x = np.array(column)
        function, values = of_rows(lambda x: (np.argmax(x), np.argmin(x), np.max(x), np.min(x)), (x,), {0: 0})
        expected = interpret(rename(function, {ROWS: 4}), *values)
        for bounds in ([0, 1, 2, 3, 4], [0, 2, 4], [0, 3, 4]):
            for a, b in zip(by_blocks(function, values, bounds), expected, strict=True):
                np.testing.assert_array_equal(a, b)
                np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sort": (lambda x: np.sort(x, axis=0), "ordered by their values"),
    "cumsum": (lambda x: np.cumsum(x, axis=0), "the rows before it"),
    "pairs": (lambda x: x @ x.T, "each pair of rows"),
    "neighbours": (lambda x: np.diff(x, axis=0), "a part of the rows"),
    "reversed": (lambda x: x[::-1], "change their order"),
    "roll": (lambda x: np.roll(x, 1, axis=0), "change their order"),
    "flat": (lambda x: x.ravel(), "part of another axis"),
    "fft": (lambda x: np.fft.fft(x, axis=0), "each frequency"),
    "qr": (lambda x: np.linalg.qr(x), "axis of its matrices"),
    "selected": (lambda x: x[np.array([3, 1])], "selected by indices"),
    "joined": (lambda x: np.concatenate([x, x]), "joined to others"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_couples_rows_is_refused_with_its_line(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(Coupled, match=message) as raised:
        split_rows(of_rows(function, (np.arange(36.0).reshape(9, 4),), {0: 0})[0])
    assert raised.value.loc.file == __file__


def counting(x: Any) -> Any:
    def step(k: Any, total: Any) -> Any:
        return total + k * np.arange(len(x)) * x[:, 0]

    return pb.fori_loop(0, 3, step, np.zeros(len(x)))


def test_positions_of_rows_within_loops() -> None:
    """They are computed outside of the loop, where they count from the first row of all, or refused."""
    x = np.arange(36.0).reshape(9, 4)
    try:
        function, values = of_rows(counting, (x,), {0: 0})
        results = by_blocks(function, values, [0, 4, 9])
    except Coupled as error:
        assert "positions of rows" in str(error)
    else:
        np.testing.assert_allclose(results[0], 3 * np.arange(9) * x[:, 0])


def test_texts_of_parts_are_parsed_again() -> None:
    arguments = (np.ones((4, 4)), np.ones((9, 4)), np.ones(9), np.zeros(9, int))
    split = split_rows(of_rows(pb.value_and_grad(centred), arguments, {1: 0, 2: 0, 3: 0})[0])
    for pair in split.rounds:
        for part in pair:
            if part is not None:
                text = print_module(Module((part.function,)), locations=True)
                assert print_module(parse_module(text), locations=True) == text
