"""Every function that HIPS autograd differentiates: value, dtype, gradient, forward mode and second order; and its tools."""

import pytest

from tests.tables.floor import Line, all_checks, lines


@pytest.mark.parametrize("line", [pytest.param(line, id=f"{line.section}:{line.name}") for line in lines()])
def test_floor(line: Line) -> None:
    for run in all_checks(line).values():
        run()
