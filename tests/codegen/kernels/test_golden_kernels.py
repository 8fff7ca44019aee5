"""Golden kernels (tests/golden/kernels): a func, the schedule of its group, and the kernels in the text of the last
stage. Each is also run with that schedule and compared with the interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pullback.codegen.fuse import matmul_fusion
from pullback.codegen.kernels.groups import registry
from pullback.ir import Module
from pullback.ir.interpret import interpret
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.shapes.extents import rename
from pullback.ir.text import parse_module, print_module
from tests.support.forced_strategies import always
from tests.support.golden_files import argument_sets, assert_same
from tests.support.paths import GOLDEN
from tests.support.targets import Compiled, compiled

PATHS = sorted((GOLDEN / "kernels").glob("*.ir"))
MODERATE = 1e6
"""Whether sums of products of larger numbers are finite depends on the order of the terms."""
SEPARATOR = "# =>\n"


def text_of(result: Compiled) -> str:
    return print_module(Module(result.scheduled.functions[1:]))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_kernels(path: Path, bless: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, _, expected = path.read_text().partition(SEPARATOR)
    monkeypatch.setattr(matmul_fusion, "FUSING_TARGETS", frozenset({"cpu"}))
    forced = re.search(r"^# schedule: *(\w+)$", inputs, re.MULTILINE)
    if forced:
        monkeypatch.setattr(registry, "pick", always(forced[1]))
    (function,) = parse_module(inputs).functions
    lie = re.search(r"^# layouts: *(.+)$", inputs, re.MULTILINE)
    layouts = lie[1].split(",") if lie else ()
    result = compiled(function, layouts=layouts)
    if bless:
        expected = text_of(result)
        path.write_text(f"{inputs.rstrip()}\n{SEPARATOR}{expected}")
    assert text_of(result) == expected
    multiplies = any(isinstance(i.op, Contract) for i in function.instructions)
    for arguments in argument_sets(function)[::3]:
        if multiplies and any(not (np.abs(a) < MODERATE).all() for a in arguments):
            continue
        pairs = zip(function.parameters, arguments, strict=True)
        sizes = {e: n for v, a in pairs for e, n in zip(v.type.shape, a.shape, strict=True) if isinstance(e, str)}
        concrete = rename(function, sizes)
        arguments = [np.asfortranarray(a) if lie else a for a in arguments]
        run = compiled(concrete, layouts=layouts).run
        try:
            expected_results = interpret(concrete, *arguments)
        except CheckFailed as failed:
            with pytest.raises(CheckFailed, match=re.escape(str(failed))):
                run(arguments)
        else:
            assert_same(run(arguments), expected_results, bitwise=False)


def test_every_schedule_has_one() -> None:
    named = {m[1] for path in PATHS for m in re.finditer(r"^# schedule: *(\w+)$", path.read_text(), re.MULTILINE)}
    assert named == {s.name for s in registry.SCHEDULES if "cpu" in s.targets}
