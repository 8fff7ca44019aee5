"""Random programs over every dtype and kind of number do what NumPy does: values, types and exceptions, at each of several calls.

``python -m tests.fuzz --kind value --programs 5000`` runs many.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pullback.ir import OPS, Function
from pullback.ir.passes import pipeline
from pullback.programs import pipeline as programs_pipeline
from tests.fuzz.kinds import KINDS
from tests.support.outcomes import Mismatch

SOME = {"value": 60, "call": 4, "gradient": 6, "control": 3}
"""So many programs of each kind run in every run of the tests."""
KEPT: dict[str, tuple[int, ...]] = {
    "value": (
        6053,
        6067,
        6157,
        6187,
        6239,
        6261,
        6354,
        6363,
        6388,
        6419,
        6534,
        6583,
        6603,
        6752,
        640,
        1459,
        2888,
        3217,
        3800,
        3864,
        4180,
        4231,
        4526,
        4851,
        20034,
        21451,
        21495,
        21550,
        21731,
        22489,
        22619,
        22836,
        22876,
        100411,
        100625,
        101379,
        101419,
        101537,
        102303,
        102633,
    ),
    "call": (
        41,
        47,
        65,
        79,
        86,
        87,
        105,
        147,
        167,
        199,
        208,
        223,
        234,
        251,
        303,
        394,
        406,
        411,
        542,
        573,
        626,
        690,
        692,
        741,
        751,
        889,
        1194,
        1275,
        1669,
        1788,
        2175,
        2368,
        2584,
        3568,
        4140,
        4290,
        4399,
        100392,
        100399,
    ),
    "gradient": (100,),
}
"""Programs that failed once."""


@pytest.mark.parametrize(("kind", "first"), [(kind, k) for kind, many in SOME.items() for k in range(0, many, 10)])
def test_programs(kind: str, first: int) -> None:
    for count in range(first, min(first + 10, SOME[kind])):
        assert KINDS[kind](count) in ("passed", "refused", "nothing")


@pytest.mark.parametrize(("kind", "count"), [(kind, count) for kind, numbers in KEPT.items() for count in numbers])
def test_what_failed_once(kind: str, count: int) -> None:
    assert KINDS[kind](count) in ("passed", "refused")


@pytest.mark.long
@pytest.mark.parametrize("first", range(100_000, 105_000, 250))
@pytest.mark.parametrize("kind", ["value", "call", "gradient", "control"])
def test_many_programs(kind: str, first: int) -> None:
    """5,000 of each."""
    for count in range(first, first + 250):
        KINDS[kind](count)


def test_a_wrong_op_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparisons by a wrong pass: the fuzzers say so, and how it is called."""

    def wrong(function: Function) -> Function:
        body = function.body
        kept = tuple(replace(i, op=OPS["gt"]) if i.op.name == "lt" else i for i in body.instructions)
        return replace(function, body=replace(body, instructions=kept))

    monkeypatch.setattr(programs_pipeline, "templates", programs_pipeline.Templates())
    monkeypatch.setattr(pipeline, "OPTIMIZE", [*pipeline.OPTIMIZE, wrong])
    failed = []
    for count in range(60):
        try:
            KINDS["value"](count)
        except Mismatch as error:
            failed.append(str(error))
    assert any("less" in text or "<" in text for text in failed)
    assert all("def f(a0" in text for text in failed)
