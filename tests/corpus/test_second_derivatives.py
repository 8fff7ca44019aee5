"""The second derivatives of the programs of the corpus, along one direction, or the refusals that refused.txt lists."""

import pytest

from tests.corpus.checks import assessed, check_second
from tests.corpus.refused import expect
from tests.corpus.registry import CASES


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.argnums])
def test_second_derivative(name: str) -> None:
    result = assessed(lambda: check_second(CASES[name], CASES[name].size))
    expect("second", name, result.status, result.detail)
