"""docs/gradient-policy.md: every row, compiled and interpreted, at orders 1 and 2, in reverse and forward mode.

``--bless`` writes the page; where rows or versions have changed it runs the peers, if they are installed.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.transforms.expand import grad
from pullback.tracer import trace, unflatten
from tests.tables import policy

FORMULAS = {formula.name: formula for formula in policy.formulas()}
ROWS = [(formula.name, k) for formula in FORMULAS.values() for k in range(len(formula.rows))]
NAMES = ("jax", "autograd")

FORWARD_DIFFERS = {
    "np.log(x)[1:].sum() at [0, 1]": "forward mode has no cotangent to multiply",
    "np.sum(x / np.linalg.norm(x)) at [0, 0]": "the function has no value",
    **dict.fromkeys(
        (
            f"{f} at [[2, 0], [0, 2]]"
            for f in (
                *("np.linalg.eigh(x)[1][0, 0]", "np.sum(np.linalg.eigh(x)[1] ** 2)"),
                *("np.sum(np.linalg.eigvals(x).real)", "np.linalg.svd(x, compute_uv=False).sum()", "np.linalg.svd(x)[0][0, 0]"),
            )
        ),
        "forward mode does not know what becomes of the vectors",
    ),
    "np.linalg.norm(x, 2) at [[1, 0], [0, 1]]": "forward mode does not know what becomes of the vectors",
    "np.mean(x[:0]) at [1, 2]": "the function has no value",
    "x**y at 0, 0": "the mixed derivative is infinite",
    "x**y at 0, 1": "the mixed derivative is infinite",
    "np.sum(np.linalg.pinv(x)) at [[1, 0], [0, 0]]": "it has no second derivative across ranks",
    **dict.fromkeys((f"np.{f}(x) at 1" for f in ("arcsin", "arccos", "arccosh", "arctanh")), "the second derivative is infinite"),
}


@functools.cache
def compiled(name: str) -> Any:
    rows = FORMULAS[name].rows
    return pb.jit(policy.ours(rows))(*(row.point() for row in rows))


@functools.cache
def interpreted(name: str) -> Any:
    rows = FORMULAS[name].rows
    points = [row.point() for row in rows]
    result = trace(policy.ours(rows), points)
    inputs = result.arguments(points)
    assert inputs is not None
    function = run(result.function, [*BEFORE_GRAD, grad, *OPTIMIZE])
    with np.errstate(all="ignore"):
        results = interpret(function, *inputs)
    return unflatten(result.out_tree, results[: len(result.returned)])


@pytest.mark.parametrize("target", [compiled, interpreted], ids=lambda f: f.__name__)
@pytest.mark.parametrize(("name", "k"), ROWS, ids=[FORMULAS[name].rows[k].key for name, k in ROWS])
def test_row(name: str, k: int, target: Any) -> None:
    row = FORMULAS[name].rows[k]
    first, second, along, again = target(name)[k]
    assert policy.agrees(first, row.first), policy.shown(first)
    assert policy.agrees(second, row.second), policy.shown(second)
    if row.key not in FORWARD_DIFFERS:
        np.testing.assert_allclose(along, np.sum(first * policy.directions(row.point())), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(again, second, rtol=1e-9, atol=1e-12)


def test_no_row_comes_twice() -> None:
    keys = [FORMULAS[name].rows[k].key for name, k in ROWS]
    assert len(set(keys)) == len(keys)
    assert FORWARD_DIFFERS.keys() <= set(keys)


def test_the_page_shows_these_rows(bless: bool) -> None:
    if bless:
        if all(importlib.util.find_spec(name) for name in NAMES) and not is_stored():
            policy.PEERS.write_text(json.dumps(asked(), indent=1) + "\n")
        policy.PAGE.write_text(policy.page(policy.stored()))
    assert policy.page(policy.stored()) == policy.PAGE.read_text()


@pytest.mark.long
def test_the_peers_still_say_so() -> None:
    for name in NAMES:
        pytest.importorskip(name, reason=f"{name} is not installed; the bench extra has it")
    result, known = asked(), policy.stored()
    if result["versions"] == known["versions"]:
        assert result == known


def is_stored() -> bool:
    known = policy.stored()
    keys = [FORMULAS[name].rows[k].key for name, k in ROWS]
    return known["versions"] == versions() and list(known["rows"]) == keys


def versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in NAMES}


def asked() -> dict[str, Any]:
    """Return the peers' results for all rows."""
    rows = [row for formula in FORMULAS.values() for row in formula.rows]
    result = {name: policy.of_peer(name, rows) for name in NAMES}
    return {"versions": versions(), "rows": {row.key: {name: result[name][row.key] for name in NAMES} for row in rows}}
