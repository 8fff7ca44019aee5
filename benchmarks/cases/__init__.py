"""Every case, by workload, in the order of the table."""

from benchmarks.case import Case
from benchmarks.cases import (
    convolutions,
    elementwise,
    index,
    loops,
    matrices,
    pairs,
    products,
    regression,
    rows,
    small,
    steps,
)

MODULES = (elementwise, rows, matrices, products, pairs, loops, index, small, steps, convolutions, regression)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
SETS = ("table", "regression")
WORKLOADS: tuple[str, ...] = tuple(dict.fromkeys(case.workload for case in CASES))
