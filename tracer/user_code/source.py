"""What the user's source says at a place: the line, the expression that runs there, and what its names stand for."""

from __future__ import annotations

import ast
import dis
import functools
import linecache
import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from pullback.ir.core.notebook_cells import cell_name

MOST_ORIGINS = 3
MOST_TEXT = 60


class Described:
    """A value of which errors say what it is and where it came from."""

    __slots__ = ()

    def described(self, name: str, line: tuple[str, int]) -> str:
        """One line on the value that is called ``name`` at ``line`` (file and number) of the source."""
        raise NotImplementedError

    @property
    def static_name(self) -> str:
        """The name of the argument that could be static for this value to be known; empty if there is none."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """A place in the user's source. ``path`` are the nodes there, innermost first, if they are known.

    ``is_test``: the truth of the expression is being asked. ``frame`` is what runs there.
    """

    file: str = ""
    line: int = 0
    path: Sequence[ast.AST] = ()
    is_test: bool = False
    frame: FrameType | None = None

    @property
    def node(self) -> ast.AST | None:
        """The expression, or statement, that runs."""
        return self.path[0] if self.path else None

    @property
    def marked(self) -> str:
        """The line without its indentation, and below it carets under the expression unless it is all of the line."""
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
        """The values that errors can describe among those that the expression names, by their text."""
        found: dict[str, Described] = {}
        if self.node is not None and self.frame is not None:
            _named_values(self.node, self.frame, found)
        return found

    def origins(self) -> Iterator[str]:
        """A line on each traced value that the expression names."""
        for name, value in [*self.named.items()][:MOST_ORIGINS]:
            yield value.described(name, (self.file, self.line))


def site_of(frame: FrameType) -> Site:
    """The place that runs in a frame."""
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
    placed: Any = path[0] if path else None
    line = placed.lineno if isinstance(placed, ast.expr) else line
    return Site(file=file, line=line, path=path, is_test=is_test, frame=frame)


def site_at(file: str, line: int) -> Site:
    """The place that is a line of the source."""
    return Site(file=file, line=line)


def function_at(file: str, line: int) -> str:
    """The name of the function whose source a line belongs to; "<module>" if there is none."""
    name, first = "<module>", 0
    for node in ast.walk(_parsed(_text(file))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if first <= node.lineno <= line <= (node.end_lineno or 0):
            name, first = getattr(node, "name", "<lambda>"), node.lineno
    return name


def nodes_at(file: str, line: int) -> list[ast.stmt]:
    """The statements around a line, innermost first."""
    nodes = [n for n in ast.walk(_parsed(_text(file))) if isinstance(n, ast.stmt) and n.lineno <= line <= (n.end_lineno or 0)]
    return sorted(nodes, key=lambda n: (n.end_lineno or 0) - n.lineno)


def line_text(file: str, line: int) -> str:
    """A line of the source, shortened; empty if there is none."""
    text = linecache.getline(file, line).strip()
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 3] + "..."


def shown(file: str) -> str:
    """A file's name as messages show it: relative to the current folder if it is inside; a cell's number."""
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
    """The syntax tree of a file's text; empty if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module(body=[], type_ignores=[])


def _within(node: ast.AST, span: Sequence[Any]) -> list[ast.AST]:
    """The nodes that cover a span (line, end line, column, end column), innermost first."""
    line, end_line, column, end_column = span
    for child in ast.iter_child_nodes(node):
        place: Any = child if hasattr(child, "lineno") else None
        if place is not None:
            starts = (place.lineno, place.col_offset) <= (line, column)
            if not starts or (place.end_lineno, place.end_col_offset) < (end_line, end_column):
                continue
        inner = _within(child, span)
        if inner or place is not None:
            return [*inner, child]
    return []


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.FormattedValue)


def _is_test(code: CodeType, at: int) -> bool:
    name = dis.opname[code.co_code[at]]
    return "JUMP" in name or name in ("TO_BOOL", "UNARY_NOT", "COMPARE_OP")


def _named_values(node: ast.AST, frame: FrameType, found: dict[str, Described]) -> None:
    """The described values that an expression names, by their text."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        value = _value(node, frame)
        if issubclass(type(value), Described):
            found[ast.unparse(node)] = value
            return
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt):
            _named_values(child, frame, found)


def _value(node: ast.AST, frame: FrameType) -> Any:
    """What a name, an attribute or an item of a container is in a frame, if that can be told without running anything."""
    match node:
        case ast.Name(id=name):
            seen = getattr(frame.f_globals, "found", {})
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
    """The attributes of an object, or those that were read of a stand-in for one."""
    for name in ("_found", "__dict__"):
        try:
            held = object.__getattribute__(owner, name)
        except AttributeError:
            continue
        if isinstance(held, dict):
            return held
    return {}
