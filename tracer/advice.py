"""What to write instead of code that needs a traced value now, from the source at the place that asks for it."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Sequence

from pullback.tracer.source import Site

MOST_TEXT = 72
BRANCH = "choose with np.where(condition, a, b), which computes both"
STATIC = "or name the argument in static_argnames if it is a Python value"

# Builtins that ask for the truth or the order of values, and what does the same for traced ones.
_BUILTINS = {
    "max": "np.maximum(a, b), or np.max of an array",
    "min": "np.minimum(a, b), or np.min of an array",
    "any": "np.any of an array",
    "all": "np.all of an array",
    "sorted": "np.sort of an array",
    "bool": "a comparison, which is an array of bools already",
    "filter": "np.where(condition, value, 0)",
}
_LIST_METHODS = ("sort", "index", "remove", "count")


def instead_of_branch(site: Site) -> str:
    """What to write instead of asking for the truth of a traced value."""
    node = site.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILTINS:
        return f"use {_BUILTINS[node.func.id]}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LIST_METHODS:
        return "use NumPy functions of an array instead of methods of a list"
    if not isinstance(node, ast.expr):
        return f"{BRANCH}, {STATIC}"
    test = _text(_Elementwise().visit(copy.deepcopy(node)))
    match site.path[1] if len(site.path) > 1 else None:
        case ast.IfExp() as chosen if chosen.test is node:
            return f"write {_where(test, chosen.body, chosen.orelse)}, which computes both, {STATIC}"
        case ast.If() as statement if statement.test is node:
            return f"write {_of_if(statement, test, site.path[2:])}, which computes both, {STATIC}"
        case ast.While():
            return (
                "loop a fixed number of times, and keep what is finished by np.where(condition, new, old); "
                "a loop until a traced condition cannot be compiled"
            )
        case ast.Assert():
            return "leave the assertion out, or make it after the call, on the result"
        case ast.comprehension():
            return "keep all elements and weigh them by np.where(condition, value, 0)"
    return f"write {test}, {STATIC}" if test != ast.unparse(node) else f"{BRANCH}, {STATIC}"


class _Elementwise(ast.NodeTransformer):
    """Puts NumPy's functions in place of the operators that ask for truth."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        first, *rest = (self.visit(v) for v in node.values)
        return functools.reduce(lambda a, b: _call(name, a, b), rest, first)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        return _call("logical_not", operand) if isinstance(node.op, ast.Not) else ast.UnaryOp(node.op, operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        operands = [self.visit(e) for e in (node.left, *node.comparators)]
        parts = [_compared(op, a, b) for op, a, b in zip(node.ops, operands, operands[1:])]
        return functools.reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b), parts)


def _compared(op: ast.cmpop, a: ast.expr, b: ast.expr) -> ast.expr:
    match op:
        case ast.In():
            return _call("any", ast.Compare(b, [ast.Eq()], [a]))
        case ast.NotIn():
            return _call("all", ast.Compare(b, [ast.NotEq()], [a]))
    return ast.Compare(a, [op], [b])


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name("np"), name), list(args), [])


def _of_if(statement: ast.If, test: str, outside: Sequence[ast.AST]) -> str:
    """The assignment or return that does the same as an if statement, where its branches are one of these."""
    otherwise = statement.orelse or _after(statement, outside)
    match statement.body, otherwise:
        case [ast.Return(value=a)], [ast.Return(value=b), *_] if a is not None and b is not None:
            return f"return {_where(test, a, b)}"
        case [ast.Assign(targets=[ast.Name(id=x)], value=a)], [ast.Assign(targets=[ast.Name(id=y)], value=b)] if x == y:
            return f"{x} = {_where(test, a, b)}" if statement.orelse else f"np.where({test}, a, b)"
        case [ast.Assign(targets=[ast.Name(id=x)], value=a)], _ if not statement.orelse:
            return f"{x} = {_where(test, a, ast.Name(x))}"
        case [ast.AugAssign(target=ast.Name(id=x), op=op, value=a)], _ if not statement.orelse:
            return f"{x} = {_where(test, ast.BinOp(ast.Name(x), op, a), ast.Name(x))}"
    return f"np.where({test}, a, b)"


def _after(statement: ast.stmt, outside: Sequence[ast.AST]) -> list[ast.stmt]:
    """The statements that follow one in its block."""
    body: list[ast.stmt] = getattr(outside[0], "body", []) if outside else []
    return body[body.index(statement) + 1 :] if statement in body else []


def _where(test: str, a: ast.expr, b: ast.expr) -> str:
    made = f"np.where({test}, {_text(a)}, {_text(b)})"
    return made if len(made) <= MOST_TEXT else f"np.where({test}, a, b)"


def _text(node: ast.expr) -> str:
    return ast.unparse(ast.fix_missing_locations(node))
