"""Names that statements bind in the scope of the function in which they stand."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes below ``nodes``, including these, that run in the scope of ``nodes``: not the bodies of functions and
    classes, but comprehensions, in which ``:=`` binds names of the function around them."""
    stack = list(nodes)[::-1]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, SCOPES):
            outside = [*getattr(node, "decorator_list", ()), *getattr(node, "bases", ())]
            defaults = getattr(node, "args", None)
            outside += [] if defaults is None else [d for d in (*defaults.defaults, *defaults.kw_defaults) if d is not None]
            stack += outside[::-1]
        else:
            stack += _children(node)[::-1]


def _children(node: ast.AST) -> list[ast.AST]:
    """Return the nodes directly below a node, which names and constants do not have."""
    children: list[ast.AST] = []
    if isinstance(node, ast.Name | ast.Constant):
        return children
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            if not isinstance(value, ast.expr_context | ast.operator):
                children.append(value)
        elif isinstance(value, list):
            children += [x for x in value if isinstance(x, ast.AST)]
    return children


def bindings(nodes: Sequence[ast.AST]) -> Iterator[tuple[ast.AST, str]]:
    """Yield what binds or deletes a name in the scope of statements, and the name, in order of appearance."""
    listed = list(own_nodes(nodes))
    inside = {id(n) for node in listed if isinstance(node, COMPREHENSIONS) for n in ast.walk(node)}
    for node in listed:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if id(node) not in inside:
                yield node, name
            case ast.NamedExpr(target=ast.Name(id=name)):
                yield node, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node, name
            case ast.alias(name=name, asname=asname):
                yield node, asname or name.partition(".")[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node, name
            case ast.MatchMapping(rest=str(name)):
                yield node, name


def bound_names(nodes: Sequence[ast.AST]) -> list[str]:
    """Return the names that statements bind in their scope, in order of appearance."""
    return list(dict.fromkeys(name for _, name in bindings(nodes)))


def declared(function: ast.FunctionDef, kind: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    """Return the names that a function declares global or nonlocal."""
    return {name for node in own_nodes(function.body) if isinstance(node, kind) for name in node.names}


def parameters(function: Function) -> list[str]:
    """Return the names of a function's parameters."""
    a = function.args
    listed = [*a.posonlyargs, *a.args, *a.kwonlyargs, *([a.vararg] if a.vararg else ()), *([a.kwarg] if a.kwarg else ())]
    return [p.arg for p in listed]


def leaves(statements: Sequence[ast.stmt]) -> bool:
    """Return whether statements hold a ``return``, or a ``break`` or ``continue`` of a loop around them."""
    stack: list[tuple[ast.AST, bool]] = [(s, False) for s in statements]
    while stack:
        node, in_loop = stack.pop()
        if isinstance(node, ast.Return) or (isinstance(node, ast.Break | ast.Continue) and not in_loop):
            return True
        if isinstance(node, ast.For | ast.While):
            stack += [(s, True) for s in node.body] + [(s, in_loop) for s in node.orelse]
        elif not isinstance(node, (*SCOPES, ast.expr)):
            stack += [(child, in_loop) for child in ast.iter_child_nodes(node)]
    return False


def falls_through(statements: Sequence[ast.stmt]) -> bool:
    """Return whether control may reach the end of statements."""
    last = statements[-1] if statements else None
    if isinstance(last, ast.If):
        return falls_through(last.body) or falls_through(last.orelse)
    return not isinstance(last, ast.Return | ast.Raise | ast.Break | ast.Continue)


def reads(nodes: Iterable[ast.AST]) -> Counter[str]:
    """Return how often nodes read each name, in functions and classes inside them too."""
    return Counter(n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
