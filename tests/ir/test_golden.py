"""Results of passes over IR (tests/golden/passes), and the verifier's errors for ill-formed IR (tests/golden/verify)."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.text import parse_module, print_module
from pullback.ir.verify import VerifyError, verify, verify_module
from tests.support.golden_files import argument_sets, assert_same, read_golden, run_targets
from tests.support.paths import GOLDEN

PASSES = sorted((GOLDEN / "passes").rglob("*.ir"))
ILL_FORMED = sorted((GOLDEN / "verify").glob("*.ir"))


@pytest.mark.parametrize("path", PASSES, ids=lambda path: path.stem)
def test_pass_gives_expected_text(path: Path, bless: bool) -> None:
    golden = read_golden(path)
    verify_module(parse_module(golden.given))
    if bless:
        golden.bless()
        golden = read_golden(path)
    assert print_module(golden.found()) == golden.expected


@pytest.mark.parametrize("path", PASSES, ids=lambda path: path.stem)
def test_pass_changes_nothing_the_second_time(path: Path) -> None:
    golden = read_golden(path)
    again = replace(golden, given=golden.expected)
    assert print_module(again.found()) == golden.expected


@pytest.mark.parametrize("path", PASSES, ids=lambda path: path.stem)
def test_pass_keeps_values(path: Path) -> None:
    golden = read_golden(path)
    if "grad" in golden.passes:
        before = [golden.found()[f.name] for f in parse_module(golden.given).functions]
    else:
        before = list(parse_module(golden.given).functions)
    after = parse_module(golden.expected)
    for function in before:
        for arguments in argument_sets(function):
            with np.errstate(all="ignore"):
                try:
                    expected = interpret(function, *arguments, sizes=golden.sizes)
                except CheckFailed as failure:
                    with pytest.raises(CheckFailed, match=f"^{failure}$"):
                        run_targets(after[function.name], arguments, golden.sizes)
                    continue
                for results in run_targets(after[function.name], arguments, golden.sizes).values():
                    assert_same(results, expected, golden.bitwise)


@pytest.mark.parametrize("path", ILL_FORMED, ids=lambda path: path.stem)
def test_verifier_names_the_guilty_line(path: Path) -> None:
    texts = re.split(r"^(?=func|kernel|program)", path.read_text(), flags=re.MULTILINE)[1:]
    functions = parse_module(path.read_text()).functions
    assert len(texts) == len(functions) > 0
    for text, function in zip(texts, functions, strict=True):
        (guilty,) = [line for line in text.split("\n") if "# error: " in line]
        code, _, message = guilty.partition("# error: ")
        with pytest.raises(VerifyError) as raised:
            verify(function)
        first, *listing = str(raised.value).split("\n")
        assert message.strip() in first
        marked = [line[2:].strip() for line in listing if line.startswith("->")]
        assert marked == [code.strip()]
