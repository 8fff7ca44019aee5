"""Loops that return a list that they make: they end first, and the statement after them returns it.

    for i in range(n):                  left = 0
        x = step(x)                     for i in range(n):
        history.append(x)         ->        ...
        if abs(x) < tol:                    if abs(x) < tol:
            return x, history                   left = 1
    return None                                 break
                                        if left == 1:
                                            return x, history
                                        return None

The list then is one that the loop changes, and not also what some paths return. This is the same where nothing runs between the
end of the loop and the return, as in ``with`` and ``try`` statements, and where no other name holds the list (``sole_names``).
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from pullback.tracer.syntax.liveness import Liveness
from pullback.tracer.syntax.scopes import SCOPES, own_nodes
from pullback.tracer.syntax.sole_names import sole_names
from pullback.tracer.syntax.table import PREFIX

_Loop = ast.For | ast.While


def end_loops_before_returns(function: ast.FunctionDef) -> None:
    """Move the ``return`` statements of lists with one name out of the loops of a function."""
    loops = [n for n in own_nodes(function.body) if isinstance(n, _Loop)]
    if not any(isinstance(n, ast.Return) for loop in loops for n in own_nodes(loop.body)):
        return
    names = sole_names(function, Liveness(function))
    if names:
        function.body = _Returns(names).statements(function.body)


class _Returns:
    """Moves the statements that return one of the lists in variables called ``names``. ``count``: the loops that it ends."""

    def __init__(self, names: Collection[str]) -> None:
        self.names, self.count = names, 0

    def statements(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return statements in which loops end before they return a list."""
        result: list[ast.stmt] = []
        for s in statements:
            for part in ("body", "orelse", "finalbody"):
                if not isinstance(s, SCOPES) and isinstance(getattr(s, part, None), list):
                    setattr(s, part, self.statements(getattr(s, part)))
            for inner in (*getattr(s, "handlers", ()), *getattr(s, "cases", ())):
                inner.body = self.statements(inner.body)
            result += self.loop(s) if isinstance(s, _Loop) else [s]
        return result

    def loop(self, loop: ast.For | ast.While) -> list[ast.stmt]:
        """Return the statements of a loop, whose inner loops are done."""
        moved: list[ast.Return] = []
        flag = f"{PREFIX}left{self.count}"
        loop.body = self.ended(loop.body, flag, moved)
        if not moved:
            return [loop]
        self.count += 1
        tests: list[ast.stmt] = []
        for k, s in enumerate(moved):
            test = ast.Compare(ast.Name(flag, ast.Load()), [ast.Eq()], [ast.Constant(k + 1)])
            tests.append(_at(s, ast.If(test, [s], [])))
        return [_at(loop, ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(0))), loop, *tests]

    def ended(self, statements: Sequence[ast.stmt], flag: str, moved: list[ast.Return]) -> list[ast.stmt]:
        """Return statements of the body of a loop, with ``break`` in place of each ``return`` of a list; these are added to
        ``moved``, and their numbers are assigned to ``flag``."""
        result: list[ast.stmt] = []
        for s in statements:
            if isinstance(s, ast.Return) and self.returns_list(s):
                moved.append(s)
                result += [_at(s, ast.Assign([ast.Name(flag, ast.Store())], ast.Constant(len(moved)))), _at(s, ast.Break())]
                continue
            if isinstance(s, ast.If):
                s.body, s.orelse = self.ended(s.body, flag, moved), self.ended(s.orelse, flag, moved)
            result.append(s)
        return result

    def returns_list(self, s: ast.Return) -> bool:
        """Return whether a statement returns a list, alone or in a tuple."""
        values = s.value.elts if isinstance(s.value, ast.Tuple) else [s.value]
        return any(isinstance(v, ast.Name) and v.id in self.names for v in values)


def _at(node: ast.stmt, new: ast.stmt) -> ast.stmt:
    """Return a new statement at the position of another one."""
    for inner in ast.walk(new):
        if not hasattr(inner, "lineno") and isinstance(inner, ast.stmt | ast.expr):
            ast.copy_location(inner, node)
    return new
