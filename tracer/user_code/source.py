"""The user's source at a position: the line, the running expression, and the values of its names."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import warnings
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from pullback.ir.core.notebook_cells import cell_name
from pullback.ir.core.records import dataclass
from pullback.tracer.user_code.syntax_trees import undisturbed

MAX_ORIGINS = 3
"""Largest number of values that an error describes."""
MOST_TEXT = 60
"""Longest source line shown in messages, in characters."""


class Described:
    """A value that errors can describe, with its origin."""

    __slots__ = ()

    def described(self, name: str, line: tuple[str, int]) -> str:
        """Return a one-line description of the value, called ``name`` at ``line`` (file and line number) of the source."""
        raise NotImplementedError

    @property
    def static_name(self) -> str:
        """The name of the argument that would have to be static for this value to be static; empty if there is none."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """A position in the user's source. ``path`` are the syntax nodes there, innermost first, if they are known.

    ``is_test``: the truth of the expression is needed. ``frame`` is the frame that runs there.
    """

    file: str = ""
    line: int = 0
    path: Sequence[ast.AST] = ()
    is_test: bool = False
    frame: FrameType | None = None

    @property
    def node(self) -> ast.AST | None:
        """The running expression or statement."""
        return self.path[0] if self.path else None

    @property
    def marked(self) -> str:
        """The line without indentation, with carets below the expression unless that is the full line."""
        text = linecache.getline(self.file, self.line).rstrip()
        line = text.strip()
        node: Any = self.node
        if not isinstance(node, ast.expr) or node.lineno != self.line:
            return line
        encoded, indent = text.encode(), len(text) - len(text.lstrip())
        end = node.end_col_offset if node.end_lineno == node.lineno else len(encoded)
        before, marked = encoded[: node.col_offset].decode(), encoded[node.col_offset : end].decode()
        return line if marked == line else f"{line}\n{' ' * (len(before) - indent)}{'^' * len(marked)}"

    @property
    def named(self) -> dict[str, Described]:
        """The values named in the expression that errors can describe, by their source text."""
        values: dict[str, Described] = {}
        if self.node is not None and self.frame is not None:
            _named_values(self.node, self.frame, values)
        return values

    def origins(self) -> Iterator[str]:
        """Yield a description of each traced value named in the expression."""
        for name, value in [*self.named.items()][:MAX_ORIGINS]:
            yield value.described(name, (self.file, self.line))


def site_of(frame: FrameType) -> Site:
    """Return the currently running position in a frame."""
    code = frame.f_code
    file, line = code.co_filename, frame.f_lineno
    span = next(iter([*code.co_positions()][frame.f_lasti // 2 :][:1]), (None,) * 4)
    if None in span:
        return Site(file=file, line=line, frame=frame)
    path = _within(_parsed(_text(file)), span)
    is_test = _is_test(code, frame.f_lasti)
    if is_test and path and isinstance(path[0], ast.If | ast.While | ast.Assert):
        path.insert(0, path[0].test)
    while is_test and len(path) > 1 and isinstance(path[1], ast.BoolOp | ast.UnaryOp):
        del path[0]
    while len(path) > 1 and isinstance(path[0], ast.Constant | ast.FormattedValue) and _is_text(path[1]):
        del path[0]
    node: Any = path[0] if path else None
    line = node.lineno if isinstance(node, ast.expr) else line
    return Site(file=file, line=line, path=path, is_test=is_test, frame=frame)


def site_at(file: str, line: int) -> Site:
    """Return the position of a source line."""
    return Site(file=file, line=line)


def function_at(file: str, line: int) -> str:
    """Return the name of the function around a source line; "<module>" if there is none."""
    name, first = "<module>", 0
    for node in ast.walk(_parsed(_text(file))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if first <= node.lineno <= line <= (node.end_lineno or 0):
            name, first = getattr(node, "name", "<lambda>"), node.lineno
    return name


def nodes_at(file: str, line: int) -> list[ast.stmt]:
    """Return the statements around a line, innermost first."""
    nodes = [n for n in ast.walk(_parsed(_text(file))) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)]
    return sorted(nodes, key=lambda n: (n.end_lineno or 0) - n.lineno)


def line_text(file: str, line: int) -> str:
    """Return a line of the source, shortened; empty if there is none."""
    text = linecache.getline(file, line).strip()
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."


def shown(file: str) -> str:
    """Return a file's display name: relative to the current folder if it is inside it; a notebook cell's number."""
    cell = cell_name(file)
    if cell:
        return cell
    try:
        inside = os.path.relpath(file)
    except (OSError, ValueError):
        return file
    return file if file.startswith("<") or inside.startswith(os.pardir) else inside


def _text(file: str) -> str:
    return "".join(linecache.getlines(file))


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> ast.AST:
    """Return the syntax tree of a file's text; an empty module if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return undisturbed(lambda: ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def _within(node: ast.AST, span: Sequence[Any]) -> list[ast.AST]:
    """Return the nodes that cover a span (line, end line, column, end column), innermost first."""
    line, end_line, column, end_column = span
    for child in ast.iter_child_nodes(node):
        located: Any = child if hasattr(child, "lineno") else None
        if located is not None:
            starts = (located.lineno, located.col_offset) <= (line, column)
            if not starts or (located.end_lineno, located.end_col_offset) < (end_line, end_column):
                continue
        inner = _within(child, span)
        if inner or located is not None:
            return [*inner, child]
    return []


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.FormattedValue)


def _is_test(code: CodeType, at: int) -> bool:
    name = dis.opname[code.co_code[at]]
    return "JUMP" in name or name in ("TO_BOOL", "UNARY_NOT", "COMPARE_OP")


def _named_values(node: ast.AST, frame: FrameType, values: dict[str, Described]) -> None:
    """Collect the values named in an expression that errors can describe, by their source text."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        value = _value(node, frame)
        if issubclass(type(value), Described):
            values[ast.unparse(node)] = value
            return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            _named_values(child, frame, values)


def _value(node: ast.AST, frame: FrameType) -> Any:
    """Return the value of a name, attribute or container item in a frame, if it can be read without running code."""
    match node:
        case ast.Name(id=name):
            seen = getattr(frame.f_globals, "resolved", {})
            return frame.f_locals.get(name, seen.get(name))
        case ast.Attribute(value=inner, attr=name):
            return _held(_value(inner, frame)).get(name)
        case ast.Subscript(value=inner, slice=ast.Constant(value=key)):
            owner = _value(inner, frame)
            if type(owner) is dict:
                return owner.get(key)
            if type(owner) in (list, tuple) and isinstance(key, int) and -len(owner) <= key < len(owner):
                return owner[key]
    return None


def _held(owner: Any) -> Any:
    """Return the attributes of an object, or those already read through a stand-in for one."""
    for name in ("_found", "__dict__"):
        try:
            held = object.__getattribute__(owner, name)
        except AttributeError:
            continue
        if isinstance(held, dict):
            return held
    return {}
