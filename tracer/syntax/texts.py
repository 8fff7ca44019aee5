"""Rewrite expressions that make texts, which may show traced values, as calls of operators (``tracer/statements/texts.py``).

    f"r = {r:.3f}"            ->    text("r = {r:.3f}", "r = ", (r, -1, ".3f"))
    "r = %g" % r              ->    texted("'r = %g' % r", "mod", "r = %g", r)
    "r = {}".format(r)        ->    texted("'r = {}'.format(r)", "format", "r = {}", r)
    str(r)                    ->    texted("str(r)", str, r)
    raise E(r)                ->    raise error(E, r)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from pullback.tracer.syntax.table import PREFIX

FUNCTIONS = ("str", "repr", "ascii", "format")
METHODS = ("format", "join")
RETURN_TEXTS = ("__str__", "__repr__", "__format__")
"""The methods that must return a text of Python's, whose expressions stay as they are."""


def keep(nodes: Iterable[ast.AST]) -> None:
    """Mark expressions that stay as they are."""
    for node in nodes:
        node.is_kept = True  # type: ignore[attr-defined]


def makes_text(node: ast.AST) -> bool:
    """Return whether an expression or statement becomes a call of an operator for texts."""
    if getattr(node, "is_kept", False):
        return False
    match node:
        case ast.JoinedStr():
            return any(isinstance(part, ast.FormattedValue) for part in node.values)
        case ast.BinOp():
            return isinstance(node.op, ast.Mod) and _is_text(node.left)
        case ast.Call():
            return bool(text_function(node))
        case ast.Raise(exc=ast.Call()):
            return True
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def text_function(node: ast.Call) -> list[ast.expr]:
    """Return what the operator is passed for the function of a call that makes a text; empty for another call."""
    match node.func:
        case ast.Name(id=name) if name in FUNCTIONS and node.args:
            return [node.func]
        case ast.Attribute(value=ast.Constant(value=str()) as text, attr=name) if name in METHODS:
            return [ast.Constant(name), text]
    return []


def joined(node: ast.JoinedStr, source: str, at: ast.expr) -> ast.expr:
    """Return an f-string as a call of an operator; ``source`` is its text."""
    parts: list[ast.expr] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            spec: ast.expr = part.format_spec or ast.Constant("")
            parts.append(ast.Tuple([part.value, ast.Constant(part.conversion), spec], ast.Load()))
        else:
            parts.append(part)
    return ast.copy_location(ast.Call(ast.Name(f"{PREFIX}text", ast.Load()), [ast.Constant(source), *parts], []), at)


def source_of(node: ast.JoinedStr) -> str:
    """Return the text of an f-string, in which expressions stand in braces."""
    texts = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            conversion = "" if part.conversion == -1 else f"!{chr(part.conversion)}"
            spec = f":{source_of(part.format_spec)}" if isinstance(part.format_spec, ast.JoinedStr) else ""
            texts.append(f"{{{ast.unparse(part.value)}{conversion}{spec}}}")
        elif isinstance(part, ast.Constant):
            texts.append(str(part.value))
    return "".join(texts)
