"""Variables that hold lists of their own: whenever such a variable is read, its list has no other name.

    run = []                    each list that ``run`` holds is made where it is bound, and every read of the variable is one of
    for i in range(n):          the elements (``run.append(i)``, ``len(run)``, ``run[0]``, ``for k in run``), or the last one of
        if x[i] > 0:            the list (``runs.append(run)``, after which ``run`` is bound anew)
            run.append(i)
        else:
            run = []

So one list whose contents are chosen may stand for the lists that such a variable holds on several paths.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pullback.tracer.syntax.liveness import Liveness
from pullback.tracer.syntax.scopes import bindings, declared, own_nodes, parameters, reads
from pullback.tracer.syntax.table import operator

METHODS = frozenset(("append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"))
"""The methods of lists, none of which returns the list or keeps it."""
READERS = frozenset(("all", "any", "bool", "len", "list", "max", "min", "print", "repr", "set", "sorted", "str", "sum", "tuple"))
"""The builtins that read the elements of a list and do not keep it."""
LAZY_READERS = frozenset(("enumerate", "reversed", "zip"))
"""The builtins whose iterators keep a list."""
LIBRARIES = frozenset(("math", "np", "numpy"))
"""The usual names of modules whose functions do not keep a list."""


class Names(tuple[str, ...]):
    """The names that a statement binds; ``sole``: those of variables that hold lists of their own."""

    sole: frozenset[str] = frozenset()


@operator("names")
def names_with_sole(names: tuple[str, ...], sole: tuple[str, ...]) -> Names:
    """Return names of which some are of variables that hold lists of their own."""
    result = Names(names)
    result.sole = frozenset(sole)
    return result


def sole_names(function: ast.FunctionDef, liveness: Liveness) -> set[str]:
    """Return the variables of a function that hold lists of their own."""
    fresh, others = _bindings(function)
    names = fresh - others - liveness.captured - set(parameters(function))
    names -= declared(function, ast.Global) | declared(function, ast.Nonlocal)
    if not names:
        return names
    around = {id(child): node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}
    for node in own_nodes(function.body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
            if not _reads_elements(node, around) and not _is_last_read(node, around, liveness):
                names.discard(node.id)
    return names


def _bindings(function: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """Return the names that are bound to list displays, and those that are bound in another way than to these or by ``+=``."""
    fresh: set[str] = set()
    usual: set[int] = set()
    for node in own_nodes(function.body):
        match node:
            case ast.Assign(targets=[ast.Name() as target], value=ast.List() | ast.ListComp()):
                fresh.add(target.id)
                usual.add(id(target))
            case ast.AnnAssign(target=ast.Name() as target, value=ast.List() | ast.ListComp() | None):
                fresh.add(target.id)
                usual.add(id(target))
            case ast.AugAssign(target=ast.Name() as target, op=ast.Add()):
                usual.add(id(target))
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
                for part, value in zip(targets, values, strict=True):
                    if isinstance(part, ast.Name) and isinstance(value, ast.List | ast.ListComp):
                        fresh.add(part.id)
                        usual.add(id(part))
    return fresh, {name for node, name in bindings(function.body) if id(node) not in usual}


Around = dict[int, ast.AST]
"""The node around each node, by its id."""


def _is_last_read(node: ast.Name, around: Around, liveness: Liveness) -> bool:
    """Return whether the variable is not read after a statement that reads it, before it is bound anew."""
    statement = around[id(node)]
    while not isinstance(statement, ast.stmt):
        if isinstance(statement, ast.GeneratorExp):
            return False  # it reads the variable later
        statement = around[id(statement)]
    if isinstance(statement, ast.Return):
        return not any(node.id in reads(s.finalbody) for s in _try_statements(statement, around))
    return isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) and (
        node.id not in liveness.after[id(statement)]
    )


def _try_statements(node: ast.AST, around: Around) -> Iterator[ast.Try | ast.TryStar]:
    """Yield the ``try`` statements around a node."""
    while not isinstance(node, ast.FunctionDef):
        if isinstance(node, ast.Try | ast.TryStar):
            yield node
        node = around[id(node)]


def _reads_elements(node: ast.Name, around: Around) -> bool:
    """Return whether a read of a variable leaves its list without another name."""
    parent = around[id(node)]
    match parent:
        case ast.Attribute(attr=attribute):
            call = around[id(parent)]
            return attribute in METHODS and isinstance(call, ast.Call) and call.func is parent
        case ast.Subscript(value=value) if value is node:
            return True
        case ast.Call(func=function) if function is not node:
            is_read = isinstance(function, ast.Name) and (
                function.id in READERS or (function.id in LAZY_READERS and _is_iterated(parent, around))
            )
            return is_read or _root(function) in LIBRARIES
        case ast.Compare(ops=operators):
            return not any(isinstance(op, ast.Is | ast.IsNot) for op in operators)
        case ast.BinOp(op=ast.Add() | ast.Mult()) | ast.Starred() | ast.FormattedValue():
            return True
        case ast.AugAssign(op=ast.Add(), value=value) if value is node:
            return True
    return _is_iterated(node, around) or _is_tested(node, around)


def _root(node: ast.expr) -> str:
    """Return the name of the object of which a function is an attribute, or of one of its attributes; "" for others."""
    is_attribute = isinstance(node, ast.Attribute)
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if is_attribute and isinstance(node, ast.Name) else ""


def _is_iterated(node: ast.expr, around: Around) -> bool:
    """Return whether a loop runs over what an expression gives, before anything else does."""
    parent = around[id(node)]
    if isinstance(parent, ast.For):
        return parent.iter is node
    if not isinstance(parent, ast.comprehension) or parent.iter is not node:
        return False
    whole = around[id(parent)]
    if not isinstance(whole, ast.GeneratorExp):
        return True
    call = around[id(whole)]
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in READERS


def _is_tested(node: ast.expr, around: Around) -> bool:
    """Return whether an expression is read for its truth alone."""
    parent = around[id(node)]
    match parent:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return test is node
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.BoolOp():
            return _is_tested(parent, around)
    return False
