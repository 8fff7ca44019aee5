"""Random functions with Python's own control flow against plain Python, bit for bit, and their derivatives."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import pullback as pb
from tests.fuzz.python_checks import Interpreted, derivatives_differ, difference, rows_differ
from tests.fuzz.python_control import function_of

DEFAULT, LONG, PARTS = 300, 20_000, 40
"""Numbers of programs in the default run and behind the long mark, and the parts of the latter."""
CALLS = 3
"""Sets of arguments for one program."""
COMPILED, FOLLOWED, VERIFIED, DERIVED = 30, 30, 30, 10
"""One program in ``COMPILED`` is compiled, one in ``FOLLOWED`` with guards where values decide what has no common type, one in
``VERIFIED`` with ``verify=``, and one in ``DERIVED`` is differentiated; the others are interpreted."""


def check(seeds: range) -> None:
    """Check programs. At most a share of them may be refused."""
    refused = 0
    for seed in seeds:
        function, _ = function_of(seed)
        ways = [pb.jit(function, guards=False) if seed % COMPILED == 0 else Interpreted(function)]
        ways += [pb.jit(function)] if seed % FOLLOWED == 5 else []
        ways += [pb.jit(function, guards=False, verify=CALLS)] if seed % VERIFIED == 15 else []
        for compiled in ways:
            result = difference(seed, compiled, CALLS)
            refused += result == "refused"
            assert result in ("", "refused"), result
    assert refused < 0.45 * len(seeds)


def check_derivatives(seeds: range) -> None:
    """Check derivatives. At most a share of the programs may be refused."""
    results = [derivatives_differ(seed) for seed in seeds]
    assert [r for r in results if r not in ("", "refused")] == []
    assert results.count("refused") < 0.6 * len(seeds)


def test_a_seed_is_of_one_program() -> None:
    """Texts do not depend on the order of sets, which differs from process to process."""
    script = "from tests.fuzz.python_control import function_of; print([function_of(seed)[1] for seed in range(200)])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


def check_rows(seeds: range) -> None:
    """Check programs under ``pb.vmap``. At most a share of them may be refused."""
    results = [rows_differ(seed) for seed in seeds]
    assert [r for r in results if r not in ("", "refused")] == []
    assert results.count("refused") < 0.6 * len(seeds)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
def test_programs_are_plain_pythons_to_the_bit() -> None:
    check(range(DEFAULT))


def test_derivatives_agree() -> None:
    check_derivatives(range(DEFAULT // DERIVED))


def test_rows_agree() -> None:
    check_rows(range(DEFAULT // DERIVED))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("part", range(PARTS))
def test_many_programs_are_plain_pythons_to_the_bit(part: int) -> None:
    count = LONG // PARTS
    check(range(10_000 + part * count, 10_000 + (part + 1) * count))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_derivatives_of_many_programs_agree(part: int) -> None:
    count = LONG // PARTS // DERIVED
    check_derivatives(range(10_000 + part * count, 10_000 + (part + 1) * count))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_rows_of_many_programs_agree(part: int) -> None:
    count = LONG // PARTS // DERIVED
    check_rows(range(10_000 + part * count, 10_000 + (part + 1) * count))
