"""Rewrite ``match`` statements as branches.

    match x:                        subject = x
        case 0 | 1: a = 1           if subject == 0 or subject == 1: a = 1
        case (p, q): a = p    ->    elif sequence(subject, 2): p, q = subject[0], subject[1]; a = p
        case _: a = 2               else: a = 2

A guard that reads what its pattern binds is a branch in the branch, whose ``else`` holds the cases after it once more.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

from pullback.tracer.syntax.scopes import SCOPES
from pullback.tracer.syntax.table import PREFIX

MOST_REPEATED = 3
"""Largest number of cases with guards after which the other cases are repeated: each doubles them."""
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
        repeated = [c for c in node.cases if c.guard is not None and _binds(c.pattern) and not _is_any(c.pattern)]
        if not all(map(_is_branch, node.cases)) or len(repeated) > MOST_REPEATED:
            return node
        self.count += 1
        name = f"{SUBJECT}{self.count}"
        store = ast.Assign([ast.Name(name, ast.Store())], node.subject)
        out: list[ast.stmt] = [ast.copy_location(store, node)]
        orelse: list[ast.stmt] = []
        for case in node.cases[::-1]:
            test, bound = _translated(case.pattern, ast.Name(name, ast.Load()))
            binds: list[ast.stmt] = [ast.copy_location(ast.Assign([ast.Name(n, ast.Store())], x), case.pattern) for n, x in bound]
            if binds and case.guard is not None:
                inner = ast.copy_location(ast.If(case.guard, case.body, orelse), case.pattern)
                if not test:
                    orelse = [*binds, inner]
                    continue
                case.body, case.guard, orelse = [inner], None, copy.deepcopy(orelse)
            tests = [*test, *([] if case.guard is None else [case.guard])]
            if not tests:
                orelse = [*binds, *case.body]
                continue
            condition = tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests)
            branch = ast.If(ast.copy_location(condition, case.pattern), [*binds, *case.body], orelse)
            orelse = [ast.copy_location(branch, case.pattern)]
        return [ast.fix_missing_locations(s) for s in [*out, *orelse]]


def _binds(pattern: ast.pattern) -> bool:
    """Return whether a pattern binds names."""
    kinds = (ast.MatchAs, ast.MatchStar)
    inside = list(ast.walk(pattern))
    return any((isinstance(n, kinds) and n.name) or (isinstance(n, ast.MatchMapping) and n.rest) for n in inside)


def _is_any(pattern: ast.pattern) -> bool:
    """Return whether a pattern matches everything."""
    return isinstance(pattern, ast.MatchAs) and (pattern.pattern is None or _is_any(pattern.pattern))


def _is_branch(case: ast.match_case) -> bool:
    """Return whether a case can be a branch: alternatives in it bind no names."""
    return not any(isinstance(n, ast.MatchOr) and any(map(_binds, n.patterns)) for n in ast.walk(case.pattern))


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
        case ast.MatchSequence() | ast.MatchMapping() | ast.MatchClass():
            test, inside = _parts(pattern, subject)
            tests: list[ast.expr] = [test]
            bound: list[tuple[str, ast.expr]] = []
            for inner, part in inside:
                if isinstance(inner, str):
                    bound.append((inner, part))
                    continue
                more, names = _translated(inner, part)
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


Parts = list[tuple[ast.pattern | str, ast.expr]]


def _parts(pattern: ast.MatchSequence | ast.MatchMapping | ast.MatchClass, subject: ast.expr) -> tuple[ast.expr, Parts]:
    """Return the test of a pattern with patterns inside, and these, or names that it binds itself, each with what it is of."""
    parts: Parts = []
    match pattern:
        case ast.MatchSequence(patterns=patterns):
            star = next((k for k, p in enumerate(patterns) if isinstance(p, ast.MatchStar)), None)
            for k, inner in enumerate(patterns):
                if isinstance(inner, ast.MatchStar):
                    end = k + 1 - len(patterns)
                    if inner.name is not None:
                        parts.append((inner.name, _called("starred", subject, ast.Constant(k), ast.Constant(end))))
                    continue
                at = k if star is None or k < star else k - len(patterns)
                parts.append((inner, ast.Subscript(subject, _index(at), ast.Load())))
            count = len(patterns) - (star is not None)
            return _called("sequence", subject, ast.Constant(count), ast.Constant(star is not None)), parts
        case ast.MatchMapping(keys=keys, patterns=patterns, rest=rest):
            parts += [(inner, ast.Subscript(subject, key, ast.Load())) for key, inner in zip(keys, patterns, strict=True)]
            if rest is not None:
                parts.append((rest, _called("rest", subject, *keys)))
            return _called("mapping", subject, *keys), parts
        case ast.MatchClass(cls=kind, patterns=patterns, kwd_attrs=names, kwd_patterns=keyword):
            parts += [(p, _called("positional", subject, kind, ast.Constant(k))) for k, p in enumerate(patterns)]
            parts += [(p, ast.Attribute(subject, name, ast.Load())) for name, p in zip(names, keyword, strict=True)]
            return _called("instance", subject, kind, ast.Constant(len(patterns)), *map(ast.Constant, names)), parts
    raise AssertionError(pattern)


def _called(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(f"{PREFIX}{name}", ast.Load()), list(arguments), [])


def _index(k: int) -> ast.expr:
    return ast.Constant(k) if k >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-k))


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr, at: ast.AST) -> ast.expr:
    return ast.copy_location(ast.Compare(left, [op], [right]), at)
