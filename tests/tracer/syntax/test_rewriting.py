"""What control flow is rewritten to, as text; and that rewritten functions are the same in plain Python."""

import ast
import textwrap

import pytest

from pullback.tracer.syntax.liveness import Liveness
from pullback.tracer.syntax.rewriting import Rewriter
from pullback.tracer.syntax.scopes import bound_names, leaves

PAIRS = {
    """
    def f(x):
        if x > 0:
            y = 1
        else:
            y = 2
        return y
    """: """
    def f(x):
        if False:
            y = None

        def pullback:then1():
            nonlocal y
            y = 1

        def pullback:orelse2():
            nonlocal y
            y = 2
        pullback:if(x > 0, pullback:then1, pullback:orelse2, ('y',))
        return y
    """,
    """
    def f(x):
        if x > 0:
            return x
        return -x
    """: """
    def f(x):

        def pullback:rest1():
            return pullback:return(-x)

        def pullback:then2():
            return pullback:return(x)

        def pullback:orelse3():
            return pullback:rest1()
        return pullback:value(pullback:if(x > 0, pullback:then2, pullback:orelse3, ()))
    """,
    """
    def f(x):
        while x > 1:
            x = x / 2
        return x
    """: """
    def f(x):

        def pullback:test1():
            return x > 1

        def pullback:body2():
            nonlocal x
            x = x / 2
        pullback:while(pullback:test1, pullback:body2, None, ('x',), ())
        return x
    """,
    """
    def f(x, n):
        for i in range(n):
            d = x * i
            x += d
        return x
    """: """
    def f(x, n):
        if False:
            d = i = None

        def pullback:body1(pullback:item):
            nonlocal i, d, x
            i = pullback:item
            d = x * i
            x += d
        pullback:for(pullback:items(range, n), pullback:body1, None, ('i', 'd', 'x'), ('d', 'i'))
        return x
    """,
    """
    def f(x, y):
        return (x if 0 < x <= y else y) and not x
    """: """
    def f(x, y):
        return pullback:and(pullback:choose(pullback:compare(0, ('Lt', 'LtE'), lambda: x, lambda: y), lambda: x, lambda: y), \
lambda: pullback:not(x))
    """,
}  # fmt: skip


def rewritten(text: str) -> str:
    return ast.unparse(Rewriter().visit(ast.parse(textwrap.dedent(text))))


@pytest.mark.parametrize(("before", "after"), PAIRS.items())
def test_control_flow_becomes_calls(before: str, after: str) -> None:
    assert rewritten(before).strip() == textwrap.dedent(after).strip()


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    if x: yield x",
        "async def f(x):\n    if x: await x",
        "def f(x):\n    if x: return locals()",
        "def f(self):\n    if self: return super().f()",
        "def f(x):\n    return x + 1",
    ],
)
def test_functions_that_depend_on_where_they_run_are_left(text: str) -> None:
    assert rewritten(text) == ast.unparse(ast.parse(text))


def test_names_that_statements_bind() -> None:
    text = """
    import a.b, c as d
    for e, (f, *g) in []: pass
    with h as i: j: int = 1
    try: pass
    except E as k: del l
    def m(n): o = 1
    p = [q for q in r if (s := q)]
    match t:
        case {"u": v, **w}: pass
    """
    names = bound_names(ast.parse(textwrap.dedent(text)).body)
    assert sorted(names) == ["a", "d", "e", "f", "g", "i", "j", "k", "l", "m", "p", "s", "v", "w"]


def test_statements_that_leave() -> None:
    def of(text: str) -> bool:
        return leaves(ast.parse(textwrap.dedent(text)).body[0].body)  # type: ignore[attr-defined]

    assert of("while x:\n  if y: break")
    assert of("while x:\n  while y: return")
    assert not of("while x:\n  while y: break")
    assert of("while x:\n  while y: pass\n  else: continue")
    assert not of("while x:\n  def f(): return 1")


def test_variables_that_are_not_carried() -> None:
    text = """
    def f(x):
        last = 0
        for i in x:
            d = i + 1
            e = d
            if d: g = 1
            last = e
            h = h + 1
            k = 1
            k += 1
            if e:
                m = k
                if m > 1: n = m
                last = n
            p = 1
            if d: q = 1
            r = 1
            if e: del r
        return last + (lambda: p)()
    """
    function = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(function, ast.FunctionDef)
    loop = function.body[1]
    assert isinstance(loop, ast.For)
    assert Liveness(function).temporaries(loop) == {"i", "d", "e", "g", "k", "m", "q", "r"}
