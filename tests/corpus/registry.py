"""All cases of the corpus by name, and those that are refused today."""

from collections import Counter

from tests.corpus import (
    bounds_and_errors,
    dense_algebra,
    dynamic_programming,
    filters,
    finance,
    grids,
    interpolation,
    iterative_algebra,
    learning,
    optimisation,
    rarer_forms,
    regimes,
    scalar_solvers,
    series,
    signals,
    simulations,
    time_stepping,
)
from tests.corpus.case import Case

MODULES = (
    bounds_and_errors,
    dense_algebra,
    dynamic_programming,
    filters,
    finance,
    grids,
    interpolation,
    iterative_algebra,
    learning,
    optimisation,
    rarer_forms,
    regimes,
    scalar_solvers,
    series,
    signals,
    simulations,
    time_stepping,
)
CASES: dict[str, Case] = {case.name: case for module in MODULES for case in module.CASES}

_counts = Counter(case.name for module in MODULES for case in module.CASES)
assert max(_counts.values()) == 1, _counts.most_common(3)
