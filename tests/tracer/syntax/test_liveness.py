"""The variables of loops that no other iteration and no later statement reads."""

from __future__ import annotations

import ast
import textwrap

import pytest

from pullback.tracer.syntax.liveness import Liveness

CASES = {
    "a target and what is bound before it is read": ("for i in x:\n    y = i\n    z = y", "i y z"),
    "carried": ("for i in x:\n    y = y + i", "i"),
    "added in place": ("for i in x:\n    y += i", "i"),
    "read after the loop": ("for i in x:\n    y = i\nreturn y", "i"),
    "bound anew after the loop": ("for i in x:\n    y = i\ny = 2\nreturn y", "i y"),
    "bound before a branch binds it": ("for i in x:\n    y = 0\n    if i:\n        y = 1\n    f(y)", "i y"),
    "bound in a branch alone": ("for i in x:\n    if i:\n        y = 1\n    f(y)", "i"),
    "the target of an inner loop": ("for i in x:\n    for j in x:\n        f(i, j)", "i j"),
    "read after an inner loop": ("for i in x:\n    for j in x:\n        f(i)\n    f(j)", "i"),
    "read in the test of a while loop": ("while y:\n    y = f(y)\n    z = y", "z"),
    "read after a break": ("y = 0\nfor i in x:\n    if f(y):\n        break\n    y = 0\nreturn 0", "i"),
    "carried to a break": ("for i in x:\n    y = i\n    if i:\n        break\nelse:\n    y = 0\nreturn y", "i"),
    "read by an inner function": ("for i in x:\n    y = i\n    g = lambda: y", "i g"),
    "read by a handler": ("try:\n    for i in x:\n        y = i\n    y = f()\nexcept E:\n    return y\nreturn 0", "i"),
    "read after a handler": ("try:\n    for i in x:\n        y = i\n    y = f()\nexcept E:\n    pass\nreturn y", "i"),
    "read at the end": ("try:\n    for i in x:\n        y = i\n    y = 1\nfinally:\n    f(y)", "i"),
    "in a body that is tried": ("for i in x:\n    try:\n        y = f(i)\n    except E as e:\n        y = 0\n    f(y)", "e i y"),
    "not bound where it fails": ("for i in x:\n    try:\n        y = f(i)\n    except E:\n        pass\n    f(y)", "i"),
    "read by a handler after a loop": ("try:\n    for i in x:\n        y = i\nexcept E:\n    return y\nreturn 0", "i"),
    "suppressed": ("for i in x:\n    with f() as g:\n        y = f(i)\n    f(y)", "i g"),
    "in a context": ("with f():\n    for i in x:\n        y = i\n        f(y)", "i y"),
    "bound by a pattern": ("for i in x:\n    match i:\n        case [y, z]:\n            f(y)", "i y z"),
    "bound by some patterns": ("for i in x:\n    match i:\n        case [y, z]:\n            f(z)\n    f(y)", "i z"),
    "deleted": ("for i in x:\n    y = i\n    del y\nfor i in x:\n    del z", "i y"),
    "deleted before it is bound": ("for i in x:\n    del y\n    y = i", "i"),
    "in a comprehension": ("for i in x:\n    y = [f(i) for i in x]\n    f(y)", "i y"),
    "bound in a test": ("for i in x:\n    if (y := f(i)):\n        f(y)", "i"),
}


@pytest.mark.parametrize("case", CASES)
def test_temporaries(case: str) -> None:
    text, names = CASES[case]
    function = ast.parse(f"def function(x):\n{textwrap.indent(text, '    ')}").body[0]
    assert isinstance(function, ast.FunctionDef)
    loop = next(n for n in ast.walk(function) if isinstance(n, ast.For | ast.While))
    assert Liveness(function).temporaries(loop) == set(names.split())
