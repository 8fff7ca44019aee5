"""Rewrite ``match`` statements as branches.

    match x:                        subject = x
        case 0 | 1: a = 1           if subject == 0 or subject == 1: a = 1
        case (p, q): a = p    ->    elif sequence(subject, 2): p, q = subject[0], subject[1]; a = p
        case _: a = 2               else: a = 2

Patterns of classes and mappings, stars, and guards that read what their pattern binds stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from pullback.tracer.syntax.scopes import SCOPES
from pullback.tracer.syntax.table import PREFIX

SUBJECT = "subject:"
"""The first characters of the variable that holds the subject of a statement."""


class Patterns(ast.NodeTransformer):
    """Rewrites the ``match`` statements of one function, whose functions are rewritten by themselves."""

    def __init__(self) -> None:
        self.count = 0

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        if isinstance(node, (*SCOPES, ast.expr)):
            return node
        result: ast.AST | list[ast.stmt] = super().visit(node)
        return result

    def visit_Match(self, node: ast.Match) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not all(map(_is_branch, node.cases)):
            return node
        self.count += 1
        name = f"{SUBJECT}{self.count}"
        store = ast.Assign([ast.Name(name, ast.Store())], node.subject)
        out: list[ast.stmt] = [ast.copy_location(store, node)]
        orelse: list[ast.stmt] = []
        for case in node.cases[::-1]:
            test, bound = _translated(case.pattern, ast.Name(name, ast.Load()))
            binds: list[ast.stmt] = [ast.copy_location(ast.Assign([ast.Name(n, ast.Store())], x), case.pattern) for n, x in bound]
            tests = [*test, *([] if case.guard is None else [case.guard])]
            if not tests:
                orelse = [*binds, *case.body]
                continue
            condition = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
            branch = ast.If(ast.copy_location(condition, case.pattern), [*binds, *case.body], orelse)
            orelse = [ast.copy_location(branch, case.pattern)]
        return [ast.fix_missing_locations(s) for s in [*out, *orelse]]


def _is_branch(case: ast.match_case) -> bool:
    """Return whether a case can be a branch."""
    binds = any(isinstance(n, ast.MatchAs) and n.name is not None for n in ast.walk(case.pattern))
    kinds = (ast.MatchClass, ast.MatchMapping, ast.MatchStar)
    if any(isinstance(n, kinds) for n in ast.walk(case.pattern)) or (binds and case.guard is not None):
        return False
    inside = [n for choice in ast.walk(case.pattern) if isinstance(choice, ast.MatchOr) for n in ast.walk(choice)]
    return not any(isinstance(n, ast.MatchAs) and n.name for n in inside)


def _translated(pattern: ast.pattern, subject: ast.expr) -> tuple[list[ast.expr], Sequence[tuple[str, ast.expr]]]:
    """Return the tests that hold if a pattern matches an expression, and the names that it binds with their values."""
    match pattern:
        case ast.MatchValue(value=value):
            return [_compared(subject, ast.Eq(), value, pattern)], ()
        case ast.MatchSingleton(value=value):
            return [_compared(subject, ast.Is(), ast.Constant(value), pattern)], ()
        case ast.MatchOr(patterns=patterns):
            parts = [_translated(p, subject)[0] for p in patterns]
            if not all(parts):
                return [], ()
            whole = [p[0] if len(p) == 1 else ast.BoolOp(ast.And(), p) for p in parts]
            return [ast.copy_location(ast.BoolOp(ast.Or(), whole), pattern)], ()
        case ast.MatchSequence(patterns=patterns):
            count = ast.Constant(len(patterns))
            tests: list[ast.expr] = [ast.Call(ast.Name(f"{PREFIX}sequence", ast.Load()), [subject, count], [])]
            bound: list[tuple[str, ast.expr]] = []
            for k, inner in enumerate(patterns):
                more, names = _translated(inner, ast.Subscript(subject, ast.Constant(k), ast.Load()))
                tests += more
                bound += names
            return [ast.copy_location(t, pattern) for t in tests], bound
        case ast.MatchAs(pattern=inner, name=name):
            own = [] if name is None else [(name, subject)]
            if inner is None:
                return [], own
            tests, names = _translated(inner, subject)
            return tests, [*names, *own]
    raise AssertionError(pattern)


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr, at: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Compare(left, [op], [right]), at)
