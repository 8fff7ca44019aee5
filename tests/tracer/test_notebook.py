"""Code that is in no file: notebooks, shells, doctests, executed strings. Errors and dumps name the cell and show its line."""

from __future__ import annotations

import doctest
import linecache
import re
import subprocess
import sys
import textwrap
import types
from typing import Any

import nbclient
import nbformat
import numpy as np
import pytest

import pullback as pb

DATA = """
import numpy as np, pullback as pb
from pullback import cache_info

rng = np.random.default_rng(0)
X = rng.normal(size=(50, 3))
y = (X @ [1.0, -2.0, 0.5] > 0).astype(float)
lam = 0.1
w = np.zeros(3)
"""
MODEL = """
def loss(w):
    z = X @ w
    return np.mean(np.logaddexp(0, z) - y * z) + lam * w @ w

value_and_slope = pb.value_and_grad(loss)
"""
FIT = """
def plain(w):
    p = 1 / (1 + np.exp(-X @ w))
    return X.T @ (p - y) / len(y) + 2 * lam * w

v, g = value_and_slope(w + 1)
np.testing.assert_allclose(g, plain(w + 1))
print(round(float(v), 6))
g
"""
AGAIN = """
before = cache_info()
"""
COUNTED = """
after = cache_info()
print(after.compiles - before.compiles, after.templates_built - before.templates_built)
"""
WRONG = """
@pb.jit(loops="unroll")
def bad(w):
    if w.sum() > 0:
        return w @ w
    return lam * (w @ w)

pb.grad(bad)(w)
"""
DUMP = """
print(value_and_slope.stages(w)["trace"].count("gradient"))
print(pb.jit(loss).explain(w).function)
from pullback.tracer import trace
from pullback.ir.text import print_function
print(print_function(trace(loss, (w,)).function, locations=True))
"""
PARALLEL = """
import joblib
found = joblib.Parallel(2)(joblib.delayed(value_and_slope)(w + k) for k in range(4))
print([bool(np.allclose(g, plain(w + k))) for k, (v, g) in enumerate(found)])
"""


def text_of(cell: Any) -> str:
    return "".join(o.get("text", "") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)


@pytest.mark.long
def test_a_notebook(tmp_path: Any) -> None:
    sources = [DATA, MODEL, FIT, AGAIN, MODEL, FIT, COUNTED, "lam = 0.5", FIT, "X = 2 * X", FIT, WRONG, DUMP, PARALLEL]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source.strip()) for source in sources])
    client = nbclient.NotebookClient(notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    cells = notebook.cells
    errors = [(k, o.ename, o.evalue) for k, c in enumerate(cells) for o in c.outputs if o.output_type == "error" and k != 11]
    assert not errors
    values = [float(text_of(cells[k]).split()[0]) for k in (2, 5, 8, 10)]
    assert values[0] == values[1] and len(set(values)) == 3
    assert "array([" in text_of(cells[2])
    assert text_of(cells[6]) == "0 0\n"
    (error,) = (o for o in cells[11].outputs if o.output_type == "error")
    assert error.ename == "TraceError" and error.evalue.startswith("In[12]:3: ")
    assert "if w.sum() > 0:" in error.evalue
    plain = "\n".join(error.traceback)
    assert "function.py" not in plain and "In[12]" in plain
    assert text_of(cells[12]).startswith("1\nloss\n") and "@In[5]:2" in text_of(cells[12])
    assert text_of(cells[13]) == "[True, True, True, True]\n"


def refusal(function: Any) -> str:
    with pytest.raises(pb.TraceError) as caught:
        pb.jit(function, loops="unroll")(np.ones(3))
    return str(caught.value)


CODE = "def f(w):\n    return 1.0 if w.sum() > 0 else 2.0\n"


@pytest.mark.parametrize("has_source", [True, False])
@pytest.mark.parametrize(
    "file, name",
    [
        ("<ipython-input-7-0123456789ab>", "In[7]"),
        ("<stdin>", "<stdin>"),
        ("<python-input-3>", "<python-input-3>"),
        ("<string>", "<string>"),
        ("<doctest test.f[0]>", "<doctest test.f[0]>"),
        ("/tmp/ipykernel_1/2.py", "/tmp/ipykernel_1/2.py"),
    ],
)
def test_the_place_of_code_in_no_file(file: str, name: str, has_source: bool) -> None:
    names: dict[str, Any] = {}
    exec(compile(CODE, file, "exec"), names)
    if has_source:
        linecache.cache[file] = (len(CODE), None, CODE.splitlines(True), file)
    try:
        text = refusal(names["f"])
    finally:
        linecache.cache.pop(file, None)
    assert text.startswith(f"{name}:2: ")
    assert ("    return 1.0 if w.sum() > 0 else 2.0" in text) == has_source


def test_cells_as_a_kernel_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is that of the cell's last run."""
    numbers = {"/tmp/ipykernel_1/2.py": 4}
    compiler = types.SimpleNamespace(format_code_name=lambda name: ("Cell", f"In[{numbers[name]}]") if name in numbers else None)
    shell = types.SimpleNamespace(compile=compiler)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    names: dict[str, Any] = {"np": np}
    exec(compile(CODE + "def g(w):\n    return np.sin(w)\n", "/tmp/ipykernel_1/2.py", "exec"), names)
    assert refusal(names["f"]).startswith("In[4]:2: ")
    numbers["/tmp/ipykernel_1/2.py"] = 9
    assert refusal(names["f"]).startswith("In[9]:2: ")
    assert "In[9]:4" in str(pb.jit(names["g"]).cost(np.ones(3)))
    monkeypatch.setattr(shell, "compile", None)
    assert refusal(names["f"]).startswith("/tmp/ipykernel_1/2.py:2: ")


def test_an_interactive_interpreter() -> None:
    """Typed line by line, as into a terminal."""
    lines = """
        import numpy as np, pullback as pb
        def f(w):
            return np.sum(w * w) * k

        k = 2.0
        pb.grad(f)(np.ones(2)).tolist()
        k = 3.0
        pb.grad(f)(np.ones(2)).tolist()
        pb.grad(pb.jit(lambda w: w.sum() if w[0] > 0 else 0.0, loops="unroll"))(np.ones(2))
    """
    text = textwrap.dedent(lines).lstrip()
    done = subprocess.run([sys.executable, "-i", "-q"], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split("\n")[:2] == ["[4.0, 4.0]", "[6.0, 6.0]"]
    assert re.search(r"TraceError: <(stdin>(-\d+)?|python-input-\d+>):1: ", done.stderr)


def documented(w: Any) -> Any:
    """
    >>> def g(w):
    ...     return documented(w) + np.sin(w)
    >>> pb.grad(g)(0.0).item()
    1.0
    >>> pb.jit(lambda w: 1.0 if w > 0 else 2.0, loops="unroll")(3.0)
    Traceback (most recent call last):
    pullback.TraceError: <doctest documented[2]>:1: ...
    """
    return w * w


def test_a_doctest() -> None:
    names = {"pb": pb, "np": np, "documented": documented}
    test = doctest.DocTestFinder().find(documented, "documented", globs=names)[0]
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    out: list[str] = []
    runner.run(test, out=out.append)
    assert not out
