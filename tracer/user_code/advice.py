"""Advice for errors: what to write instead of code that needs a traced value during tracing, derived from its source."""

from __future__ import annotations

import ast
import copy
import functools
from collections.abc import Callable, Sequence
from typing import TypeGuard

from pullback.tracer.user_code.source import Site

MOST_TEXT = 72
"""Longest suggested expression, in characters."""
BRANCH = "choose with np.where(condition, a, b), which computes both, or pb.cond, which runs one"
LOOP = "loop a fixed number of times, and keep what is finished by np.where(condition, new, old)"
WHILE = "write pb.while_loop(condition, body, state), which is compiled with its end"
COUNTED = "write pb.fori_loop(0, n, body, state), whose n may be traced"
GUARDS = "; or follow it by pb.jit(guards=True)"
SHAPE = "a shape cannot depend on values: keep all elements"

# Calls that need the truth of values, and their equivalents for traced values.
_CALLS = {
    "any": "np.any({})", "all": "np.all({})", "sorted": "np.sort({})", "max": "np.max({})", "min": "np.min({})",
    "bool": "{} != 0", "filter": "np.where(condition, value, 0)",
}  # fmt: skip
_LIST_METHODS = ("sort", "index", "remove", "count")


def describe_branch(site: Site) -> str:
    """Describe what needs the truth of a traced value at ``site``."""
    return f"a Python branch ({_construct(site)}) on a traced value"


def _construct(site: Site) -> str:
    node, outer = site.node, site.path[1] if len(site.path) > 1 else None
    if isinstance(node, ast.Call) and not site.is_test:
        return f"in {ast.unparse(node.func)}()"
    match outer:
        case ast.If():
            return "if"
        case ast.While():
            return "while"
        case ast.Assert():
            return "assert"
        case ast.IfExp():
            return "if ... else"
        case ast.comprehension():
            return "if in a comprehension"
        case ast.MatchValue():
            return "match"
    match node:
        case ast.BoolOp(op=op):
            return "and" if isinstance(op, ast.And) else "or"
        case ast.UnaryOp(op=ast.Not()):
            return "not"
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            return "in"
        case ast.Compare():
            return "a chained comparison"
    return "if, while, and, or, not"


def instead_of_branch(site: Site) -> str:
    """Return what to write instead of taking the truth of a traced value."""
    node, outer = site.node, site.path[1] if len(site.path) > 1 else None
    if isinstance(node, ast.Call) and not site.is_test:
        return _instead_of_call(node)
    if isinstance(outer, ast.MatchValue):
        return "choose with np.select(conditions, values), which computes all" + otherwise(site)
    if not isinstance(node, ast.expr):
        return BRANCH + otherwise(site)
    if isinstance(outer, ast.If | ast.IfExp) and _recurs(site):
        return "write a loop, as pb.while_loop: a recursion cannot end by a traced value" + otherwise(site)
    test = _text(_Elementwise().visit(copy.deepcopy(node)))
    match outer:
        case ast.IfExp() as chosen if chosen.test is node:
            return f"write {_where(test, chosen.body, chosen.orelse)}, which computes both{otherwise(site)}"
        case ast.If() as statement if statement.test is node:
            if any(isinstance(n, ast.Break | ast.Continue) for s in statement.body for n in ast.walk(s)):
                return LOOP + GUARDS
            if any(isinstance(n, ast.Raise) for s in statement.body for n in ast.walk(s)):
                return "leave the check out, or make it after the call, on the result"
            return f"write {_of_if(statement, test, site.path[2:])}, which computes both{otherwise(site)}"
        case ast.While():
            return f"{WHILE}{GUARDS}"
        case ast.Assert():
            return "leave the assertion out, or make it after the call, on the result"
        case ast.comprehension():
            return "keep all elements, and weigh them by np.where(condition, value, 0)"
    return (f"write {test}" if test != ast.unparse(node) else BRANCH) + otherwise(site)


def _recurs(site: Site) -> bool:
    """Return whether a branch calls the function in which it stands."""
    name = next((n.name for n in site.path if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)), None)
    calls = [n.func for n in ast.walk(site.path[1]) if isinstance(n, ast.Call)]
    return name is not None and any(isinstance(f, ast.Name) and f.id == name for f in calls)


def _instead_of_call(node: ast.Call) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name), args=[argument]) if name in _CALLS:
            known = isinstance(argument, ast.Name | ast.Attribute | ast.Subscript | ast.Compare | ast.Call | ast.BinOp)
            text = _text(argument) if known else "values"
            return f"write {_CALLS[name].format(text)}"
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=[a, b]):
            return f"write np.{name}imum({_text(a)}, {_text(b)})"
        case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
            return f"write {_CALLS[name].format('values')}"
        case ast.Call(func=ast.Attribute(attr=name)) if name in _LIST_METHODS:
            return "use NumPy functions of an array instead of methods of a list"
    return BRANCH


def describe_integer(site: Site) -> str:
    """Describe what needs an integer during tracing."""
    match site.node:
        case ast.Subscript(slice=index) if any(isinstance(part, ast.Slice) for part in _parts(index)):
            return "a slice with a traced bound"
        case ast.Subscript(value=owner) if ast.unparse(owner) in site.named:
            return "a Python integer from a traced value, in an index"
        case ast.Subscript():
            return "an index of a list that is a traced value"
        case ast.Call(func=ast.Name(id="range")):
            return "range() of a traced value"
    return "a Python integer (a shape, a count, an axis) from a traced value"


def instead_of_integer(site: Site) -> str:
    """Return what to write instead of needing an integer during tracing."""
    match site.node:
        case ast.Subscript(value=owner, slice=ast.Slice(lower=None, upper=stop, step=None)) if stop is not None:
            x, n = _text(owner), _text(stop)
            return f"{SHAPE}, as by np.where(np.arange(len({x})) < {n}, {x}, 0){static_names(site)}"
        case ast.Subscript(value=owner, slice=ast.Tuple(elts=parts)) if any(map(_is_head, parts)):
            at, head = next((k, part) for k, part in enumerate(parts) if _is_head(part))
            array = _text(ast.Subscript(owner, ast.Tuple([ast.Slice() if _is_head(part) else part for part in parts])))
            head_text = _text(head).removeprefix(":")
            return f"{SHAPE}, as by np.where(np.arange({_text(owner)}.shape[{at}]) < {head_text}, {array}, 0){static_names(site)}"
        case ast.Subscript(slice=index) if any(isinstance(part, ast.Slice) for part in _parts(index)):
            return f"{SHAPE} and choose with np.where{static_names(site)}"
        case ast.Subscript(value=owner, slice=index):
            return f"index an array instead of a list: np.array({_text(owner)})[{_text(index)}]{static_names(site)}"
        case ast.Call(func=ast.Name(id="range")):
            return f"{COUNTED}{otherwise(site)}"
    return f"take it from the shape of an array, or from a Python number{otherwise(site)}"


def _parts(index: ast.expr) -> Sequence[ast.expr]:
    """Return the items of an index."""
    return index.elts if isinstance(index, ast.Tuple) else (index,)


def _is_head(part: ast.expr) -> bool:
    return isinstance(part, ast.Slice) and part.lower is None and part.step is None and part.upper is not None


def describe_number(kind: str) -> Callable[[Site], str]:
    """Return a function that describes what needs a Python number of type ``kind``."""

    def words(site: Site) -> str:
        inside = f", in {_name(site.node)}()" if _is_other_call(site.node) else ""
        return f"{kind}() of a traced value{inside}"

    return words


def _is_other_call(node: ast.AST | None) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and _name(node) not in ("float", "int", "complex")


def _name(node: ast.Call) -> str:
    return ast.unparse(node.func)


def instead_of_number(site: Site) -> str:
    """Return what to write instead of converting to a Python number."""
    if _is_other_call(site.node):
        return f"call {_name(site.node)} outside, on the values that a call returns{otherwise(site)}"
    match site.node:
        case ast.Call(func=ast.Name(id="int"), args=[argument]):
            return f"write np.trunc({_text(argument)}), or .astype(int) of an array{otherwise(site)}"
        case ast.BinOp(op=ast.Mod()):
            return "return the value and format it after the call"
    return f"keep it as it is: operators and NumPy functions take it{otherwise(site)}"


def instead_of_key(site: Site) -> str:
    """Return what to write instead of looking up a traced value."""
    return f"put the values in an array and index it, or choose with np.select{otherwise(site)}"


def otherwise(site: Site) -> str:
    """Advise to make scalar arguments in the expression static, or to guard its value."""
    return static_names(site) + GUARDS


def static_names(site: Site) -> str:
    """Advise to make scalar arguments in the expression static; empty if there are none."""
    names = [v.static_name for v in site.named.values() if v.static_name]
    return f"; or name {' and '.join(dict.fromkeys(names))} in static_argnames" if names else ""


class _Elementwise(ast.NodeTransformer):
    """Replaces operators that need the truth of their operands by NumPy's functions."""

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        first, *others = (self.visit(v) for v in node.values)
        return functools.reduce(lambda a, b: _call(name, a, b), others, first)

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
            return _call("any", _call("equal", b, a))
        case ast.NotIn():
            return _call("all", _call("not_equal", b, a))
    return ast.Compare(a, [op], [b])


def _call(name: str, *args: ast.expr) -> ast.expr:
    return ast.Call(ast.Attribute(ast.Name("np"), name), list(args), [])


def _of_if(statement: ast.If, test: str, outside: Sequence[ast.AST]) -> str:
    """Return the ``np.where`` assignment or return equivalent to an if statement, if its branches are one of these."""
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
    """Return the statements that follow one in its block."""
    body: list[ast.stmt] = getattr(outside[0], "body", []) if outside else []
    return body[body.index(statement) + 1 :] if statement in body else []


def _where(test: str, a: ast.expr, b: ast.expr) -> str:
    text = f"np.where({test}, {_text(a)}, {_text(b)})"
    return text if len(text) <= MOST_TEXT else f"np.where({test}, a, b)"


def _text(node: ast.expr) -> str:
    return ast.unparse(ast.fix_missing_locations(node))
