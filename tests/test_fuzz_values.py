"""Random programs over every dtype and kind of number do what NumPy does: values, types and exceptions, at each of several calls.

``python tests/fuzz.py --kind value --programs 5000`` runs many.
"""

from __future__ import annotations

import pytest
from fuzz_kinds import KINDS

SOME = {"value": 4, "call": 4, "gradient": 6, "control": 3}
"""So many programs of each kind run in every run of the tests."""
KEPT: dict[str, tuple[int, ...]] = {"value": (), "call": (), "gradient": (), "control": ()}
"""Programs that failed once."""


@pytest.mark.parametrize(("kind", "first"), [(kind, k) for kind, many in SOME.items() for k in range(0, many, 10)])
def test_programs(kind: str, first: int) -> None:
    for number in range(first, min(first + 10, SOME[kind])):
        assert KINDS[kind](number) in ("passed", "refused", "nothing")
