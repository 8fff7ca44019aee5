"""The variables whose lists have no other name."""

from __future__ import annotations

import ast
import textwrap

import pytest

from pullback.tracer.syntax.liveness import Liveness
from pullback.tracer.syntax.sole_names import sole_names

CASES = {
    "only elements are read": (
        "a = []\nfor i in x:\n    a.append(i)\n"
        "    if a and len(a) > 2 and a[0] < i:\n        a = []\nreturn sum(a)",
        "a",
    ),
    "a comprehension": ("a = [i for i in x]\na[0] = 1\nreturn a", "a"),
    "appended whole, then bound anew": (
        "a = []\nfor i in x:\n    if i:\n"
        "        b.append(a)\n        a = []\n    a.append(i)",
        "a",
    ),
    "appended whole, then changed": ("a = []\nfor i in x:\n    if i:\n        b.append(a)\n    a.append(i)", ""),
    "appended whole after the loop": ("a = []\nfor i in x:\n    a.append(i)\nb.append(a)\nreturn b", "a"),
    "another name": ("a = []\nb = a\na.append(1)\nreturn b", ""),
    "another name of the last list": ("a = []\nb = a\na = []\na.append(1)\nreturn a, b", "a"),
    "an element of another list": ("a = []\nb = [a]\na.append(1)\nreturn b", ""),
    "read by an inner function": ("a = []\nf = lambda: a\na.append(1)", ""),
    "passed to a function": ("a = []\nf(a)\na.append(1)", ""),
    "passed to NumPy": ("a = []\ny = np.mean(a)\na.append(y)", "a"),
    "passed to a method": ("a = []\nb.append(len(a))\na.append(1)", "a"),
    "a method that is kept": ("a = []\nf = a.append\na.append(1)", ""),
    "bound to what a function returns": ("a = []\na = f()\na.append(1)", ""),
    "bound to a slice": ("a = []\na = b[:]\na.append(1)", ""),
    "lengthened in place": ("a = []\na += x\na += [1]\nreturn a", "a"),
    "a target of a loop": ("a = []\nfor a in b:\n    a.append(1)", ""),
    "a target of an unpacking": ("a = []\na, b = b, []\na.append(1)", ""),
    "a tuple is unpacked": ("a, b = [], 0\na.append(1)\nb, a = a[0], []\na.append(b)", "a"),
    "deleted": ("a = []\ndel a\na = []", ""),
    "a parameter": ("x = []\nx.append(1)", ""),
    "global": ("global a\na = []\na.append(1)", ""),
    "compared by identity": ("a = []\nb = a is c\na.append(1)", ""),
    "compared": ("a = []\nb = a == [1] or 1 in a\na.append(1)", "a"),
    "an operand of or": ("a = []\nb = a or [1]\na.append(1)", ""),
    "an operand of or in a test": ("a = []\nif not (a or b):\n    a.append(1)", "a"),
    "iterated": ("a = []\nfor i, v in enumerate(a):\n    f(v)\nb = [v for v in a]\na.append(1)", "a"),
    "an iterator that is kept": ("a = []\nb = enumerate(a)\na.append(1)", ""),
    "a generator that is kept": ("a = []\nb = (v for v in a)\na.append(1)", ""),
    "a generator that is consumed": ("a = []\nb = sum(v for v in a)\na.append(1)", "a"),
    "returned from a branch": ("a = []\nfor i in x:\n    if i:\n        return a\n    a.append(i)", "a"),
    "returned before a clause reads it": ("a = []\ntry:\n    return a\nfinally:\n    a.append(1)", ""),
    "returned twice": ("a = []\nreturn a, a", "a"),
    "bound by walrus": ("a = []\nf(a := [])\na.append(1)", ""),
    "an exception's name": ("a = []\ntry:\n    f()\nexcept E as a:\n    pass", ""),
}


@pytest.mark.parametrize(("body", "expected"), CASES.values(), ids=CASES)
def test_sole_names(body: str, expected: str) -> None:
    (function,) = ast.parse(f"def f(x, b, c):\n{textwrap.indent(body, '    ')}\n").body
    assert isinstance(function, ast.FunctionDef)
    assert sorted(sole_names(function, Liveness(function))) == expected.split()
