"""Twins are there whatever was imported or touched before: none is registered by a module that is imported later, but those whose
module is imported when the first of them is met. Each of these is tried in a process that touched nothing else."""

import os
import subprocess
import sys

import pytest

HEAD = """
import os, sys
import pullback as pb
from pullback.tracer.arrays import tables, replacements as twins

def names():
    late = {f"{m}.{n}" for table in (twins._late, twins._late_kinds) for m, group in table.items() for n in group}
    here = {f"{v.__module__}.{getattr(v, '__name__', v)}" for v, _ in twins.TWINS.values() if hasattr(v, "__module__")}
    here |= {f"{kind.__module__}.{kind.__name__}" for kind in twins.KINDS}
    functions = {f"{getattr(f, '__module__', '')}.{getattr(f, '__name__', f)}" for f in tables.FUNCTIONS}
    return late | here | functions | set(tables.METHODS) | set(tables.HOOKS)
"""

ALL_ARE_REGISTERED = """
import importlib, pathlib
import pullback.tracer

before = names()
adapters = ("torch", "distributed.cluster", "distributed.embedded", "distributed.lazy")  # import what may import SciPy
for folder in {os.path.dirname(pullback.tracer.__file__), os.path.dirname(pb.__file__)}:
    for path in pathlib.Path(folder).rglob("*.py"):
        name = path.relative_to(folder).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        package = "pullback" if folder == os.path.dirname(pb.__file__) else "pullback.tracer"
        if name not in ("__init__", "__main__", *adapters):
            importlib.import_module(f"{package}.{name}")
assert names() == before, sorted(names() ^ before)
print("checked", len(before))
"""

EACH = """
import numpy as np

def odeint(y0):
    import scipy.integrate
    return scipy.integrate.odeint(lambda y, t: -y, y0, np.linspace(0.0, 1.0, 3))[-1].sum()

def aliased(y0):
    from scipy.integrate import odeint as solve
    return solve(lambda y, t: -y, y0, np.linspace(0.0, 1.0, 3))[-1].sum()

CASES = {"scipy.integrate.odeint": (odeint, aliased)}
declared = {f"{m}.{n}" for m, group in twins._late.items() for n, v in group.items() if isinstance(v, twins._LateTwin)}
assert declared == set(CASES), declared
done = 0
for name, functions in CASES.items():
    module = twins._late[name.rpartition(".")[0]][name.rpartition(".")[2]].module
    for function in functions:
        child = os.fork()
        if not child:
            assert module not in sys.modules
            value, slope = pb.value_and_grad(function)(1.5)
            assert module in sys.modules
            np.testing.assert_allclose([value, slope], [1.5 * np.exp(-1), np.exp(-1)], rtol=1e-6)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        done += 1
print("checked", done)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="without fork a process of its own for each twin takes seconds")
@pytest.mark.parametrize("program", [ALL_ARE_REGISTERED, EACH], ids=["all", "each"])
def test_twins_need_nothing_touched_before(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    word, count = done.stdout.split()
    assert word == "checked" and int(count)
