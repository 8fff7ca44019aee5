"""The functions of ``beyond.txt``: how many are accepted, and that those of SciPy have SciPy's values and right gradients.

Those of NumPy are held by the calls behind docs/numpy.md.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.spatial.transform

import pullback as pb
from tests.support.paths import ROOT, TABLES
from tests.tables.beyond_calls import MISSING, NO_GRADIENT, ROWS, Row, law
from tests.tables.floor import check_reverse, check_value

LINES = [line for line in (TABLES / "beyond.txt").read_text().splitlines() if not line.startswith("#")]
OF_SCIPY = [line for line in LINES if line.startswith("scipy.")]


def row(line: str) -> Row:
    return ROWS[line] if line in ROWS else law(line)


@pytest.mark.parametrize("line", [line for line in OF_SCIPY if line not in MISSING])
def test_scipy(line: str) -> None:
    call, arguments = row(line)
    check_value(call, arguments)
    if line not in NO_GRADIENT:
        wanted = [k for k, a in enumerate(arguments) if np.asarray(a).dtype == np.float64]

        def of_floats(*xs: Any) -> Any:
            inputs = list(arguments)
            for k, x in zip(wanted, xs):
                inputs[k] = x
            return call(*inputs)

        check_reverse(of_floats, [np.asarray(arguments[k]) for k in wanted])


@pytest.mark.parametrize("line", MISSING)
def test_what_is_missing_says_so(line: str) -> None:
    name = line.rpartition(".")[2]
    calls: dict[str, Any] = {
        "minimize": lambda x: scipy.optimize.minimize(lambda v: np.sum(v * x), np.ones(3)).x,
        "Rotation": lambda x: scipy.spatial.transform.Rotation.from_rotvec(x).as_matrix(),
        "Slerp": lambda x: scipy.spatial.transform.Slerp(x, scipy.spatial.transform.Rotation.random(3))(0.5),
    }
    with pytest.raises(pb.TraceError, match=name):
        pb.jit(calls[name])(np.arange(3.0))


def test_shares() -> None:
    """Of NumPy's at least 95 in 100 are accepted, by the page of docs; of SciPy's as many."""
    sections = re.split(r"^## ", (ROOT / "docs" / "numpy.md").read_text(), flags=re.M)[1:]
    accepted = {
        f"{section.splitlines()[0]}.{name}"
        for section in sections
        for name in re.findall(r"^\| `([^`]+)` \| (?:yes|partly)", section, re.M)
    }
    of_numpy = [line for line in LINES if line.startswith("numpy.")]
    assert sum(line in accepted for line in of_numpy) >= 0.95 * len(of_numpy)
    assert len(OF_SCIPY) - len(MISSING) >= 0.95 * len(OF_SCIPY)
