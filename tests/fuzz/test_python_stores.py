"""Random programs with stores and effects against plain Python: values, the whole state, texts, errors, and gradients."""

from __future__ import annotations

import pytest

import pullback as pb
from tests.fuzz.store_checks import gradients_differ, interpreted, stores_differ

DEFAULT, LONG, PARTS = 300, 20_000, 40
"""Numbers of programs in the default run and behind the long mark, and the parts of the latter."""
CALLS = 4
"""Calls of one program, with other arguments."""
COMPILED, DERIVED = 30, 10
"""One program in ``COMPILED`` is compiled, the others are interpreted; one in ``DERIVED`` is differentiated."""
MOST_REFUSED = 0.06
"""Greatest share of the programs that may be refused."""


def check(seeds: range) -> None:
    """Check programs. At most a share of them may be refused."""
    refused = []
    for seed in seeds:
        if seed % COMPILED == 0:
            difference, reason = stores_differ(seed, pb.jit, CALLS)
        else:
            with interpreted():
                difference, reason = stores_differ(seed, pb.jit, CALLS)
        assert not difference, difference
        refused += [reason] if reason else []
    assert len(refused) <= MOST_REFUSED * len(seeds), refused


def check_gradients(seeds: range) -> None:
    """Check gradients. At most a share of the programs may be refused."""
    outcomes = [gradients_differ(seed, CALLS) for seed in seeds]
    assert [difference for difference, _ in outcomes if difference] == []
    assert sum(bool(reason) for _, reason in outcomes) <= 2 * MOST_REFUSED * len(seeds)


def test_programs_leave_what_plain_python_leaves() -> None:
    check(range(DEFAULT))


def test_gradients_store_and_print_once() -> None:
    check_gradients(range(DEFAULT // DERIVED))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_many_programs_leave_what_plain_python_leaves(part: int) -> None:
    count = LONG // PARTS
    check(range(10_000 + part * count, 10_000 + (part + 1) * count))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_gradients_of_many_programs_store_and_print_once(part: int) -> None:
    count = LONG // PARTS // DERIVED
    check_gradients(range(10_000 + part * count, 10_000 + (part + 1) * count))
