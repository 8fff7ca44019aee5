"""All cases of the corpus by name, and those that are refused today."""

from collections import Counter
from importlib import import_module

from tests.corpus.case import Case

NAMES = (
    "bounds_and_errors",
    "dense_algebra",
    "dynamic_programming",
    "filters",
    "finance",
    "grids",
    "interpolation",
    "iterative_algebra",
    "learning",
    "optimisation",
    "rarer_forms",
    "regimes",
    "scalar_solvers",
    "series",
    "signals",
    "simulations",
    "time_stepping",
)
MODULES = [import_module(f"tests.corpus.{name}") for name in NAMES]
CASES: dict[str, Case] = {case.name: case for module in MODULES for case in module.CASES}

_counts = Counter(case.name for module in MODULES for case in module.CASES)
assert max(_counts.values()) == 1, _counts.most_common(3)
