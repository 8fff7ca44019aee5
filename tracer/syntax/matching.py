"""The rewritten code of a user's function, from source that is proved to be the function's.

The text of the statement of the module in which the function is, or else of its file, is compiled as it is; only if the result
has a code object equal to the function's (instructions, constants, names, positions) is the text the source. Stale files,
other lambdas of a line and generated code are excluded so.
"""

from __future__ import annotations
import __future__

import ast
import dis
import functools
import itertools
import linecache
import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import CodeType

from pullback.tracer.syntax.rewriting import CONTAINERS, Rewriter, Truths
from pullback.tracer.syntax.table import PREFIX
from pullback.tracer.syntax.texts import FUNCTIONS, METHODS
from pullback.tracer.user_code.syntax_trees import undisturbed


def rewritten(code: CodeType, rewriter: Callable[[], ast.NodeTransformer] = Rewriter) -> CodeType | None:
    """Return the code of a function with its control flow rewritten, the code itself if it has none; None if its source is not
    at hand. With the rewriter ``Truths``: with its tests of identity and of classes rewritten."""
    if not (has_flow if rewriter is Rewriter else tests_truths)(code):
        return code
    file = code.co_filename
    text = "".join(linecache.getlines(file))
    is_source, result = _rewritten(code, file, text, rewriter)
    if not is_source:
        linecache.checkcache(file)  # which a reload of the module does not do
        current = "".join(linecache.getlines(file))
        result = result if current == text else _rewritten(code, file, current, rewriter)[1]
    return result


@functools.lru_cache(maxsize=1024)
def _rewritten(code: CodeType, file: str, text: str, rewriter: Callable[[], ast.NodeTransformer]) -> tuple[bool, CodeType | None]:
    """Return whether a text is the source of code, and the rewritten code. Code objects of different files may be equal."""
    flags, key = code.co_flags & _FUTURES, _key(code)
    for part in (_statement_at(text, code.co_firstlineno), text):
        plain = _compiled(part, file, flags)
        if not any(k == key and c == code for k, c in plain):
            continue
        changed = _changed(part, file, flags, rewriter, code.co_firstlineno)
        if changed is None:
            return False, None
        originals = dict(plain)
        _originals.update({c: originals[k] for k, c in changed if k in originals and c != originals[k]})
        return True, next((c for k, c in changed if k == key and c != code), code)
    return False, None


@functools.lru_cache(maxsize=4096)
def has_flow(code: CodeType) -> bool:
    """Return whether code, or a function in it, has instructions that the rewriter may change: jumps, ``not``, ``is``, ``in``,
    ``raise``, f-strings, lists, sets, dicts, calls with a key or default, items at indices that are computed."""
    if not _FLOW.isdisjoint(code.co_code[::2]) or not _NAMES.isdisjoint(code.co_names):
        return True
    if any(isinstance(c, tuple) and not _KEYWORDS.isdisjoint(c) for c in code.co_consts):
        return True
    return _has_computed_index(code) or any(map(has_flow, _nested(code)))


def _has_computed_index(code: CodeType) -> bool:
    """Return whether code reads or stores an item whose index is no constant, slice or tuple."""
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    return any(
        (i.opname in _SUBSCRIPTS or (i.opname == "BINARY_OP" and i.argrepr == "[]")) and before.opname not in _CONSTANT_INDICES
        for before, i in itertools.pairwise(instructions)
    )


_SUBSCRIPTS = ("BINARY_SUBSCR", "STORE_SUBSCR")
_CONSTANT_INDICES = ("LOAD_CONST", "LOAD_SMALL_INT", "BUILD_SLICE", "BUILD_TUPLE")


_FLOW = frozenset((*dis.hasjrel, *dis.hasjabs, *getattr(dis, "hasjump", ())))
_FLOW |= {dis.opmap[name] for name in ("UNARY_NOT", "IS_OP", "CONTAINS_OP", "RAISE_VARARGS")}
_FLOW |= {dis.opmap[name] for name in ("BUILD_LIST", "BUILD_SET", "BUILD_MAP")}
_FLOW |= {dis.opmap[name] for name in ("BUILD_CONST_KEY_MAP",) if name in dis.opmap}
_FLOW |= {dis.opmap[name] for name in ("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC") if name in dis.opmap}
"""The opcodes of control flow, of ``not``, of tests that may be of values of several cases, of errors, of f-strings, and of
lists, sets and dicts."""


_NAMES = frozenset((*FUNCTIONS, *METHODS, "sort", "remove", *CONTAINERS))
"""The functions and methods that make texts, the methods of lists that compare elements, and the classes of containers."""
_KEYWORDS = frozenset(("key", "default"))
"""The keywords with which ``max`` and ``min`` compare elements."""

Key = tuple[str, int, int]

_FUTURES = functools.reduce(int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names))
"""The bits of ``co_flags`` that say which future features code was compiled with."""


def _statement_at(text: str, line: int) -> str:
    """Return a text with all lines empty but those of the statement of the module in which a line seems to be, by the lines that
    are not indented."""
    lines = text.split("\n")
    first = max((k for k in range(min(line, len(lines))) if _begins(lines[k])), default=0)
    last = first
    if lines[first].startswith("@"):
        last = next((k for k in range(first, len(lines)) if lines[k].startswith(("def ", "class ", "async "))), first)
    end = next((k for k in range(last + 1, len(lines)) if _begins(lines[k])), len(lines))
    return "\n" * first + "\n".join(lines[first:end]) + "\n"


def _begins(line: str) -> bool:
    """Return whether a line may be the first of a statement of a module."""
    return line[:1].isidentifier() or line.startswith("@")


@functools.lru_cache(maxsize=1024)
def _compiled(text: str, file: str, flags: int) -> list[tuple[Key, CodeType]]:
    """Return the code objects of the functions in a text, with their keys; none if Python does not compile it. ``flags``: the
    future features that the file was compiled with."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = compile(text, file, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [(_key(c), c) for c in _nested(plain)]


@functools.lru_cache(maxsize=1024)
def _changed(
    text: str, file: str, flags: int, rewriter: Callable[[], ast.NodeTransformer], line: int
) -> list[tuple[Key, CodeType]] | None:
    """Return the code objects of the functions in a text, with their keys, of which those at a line are rewritten; None if it
    does not compile. ``flags``: see ``_compiled``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = undisturbed(lambda: ast.parse(text, file))
            _rewrite_at(tree, line, rewriter())
            code = undisturbed(lambda: compile(tree, file, "exec", flags, dont_inherit=True))
    except (SyntaxError, ValueError, RecursionError):
        return None
    return [(_key(c), c) for c in _nested(_titled(code))]


def _span(node: ast.stmt) -> tuple[int, int]:
    """Return the first and last line of a statement, decorators included."""
    lines = [node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))]
    return min(lines), node.end_lineno or node.lineno


def _rewrite_at(tree: ast.Module, line: int, rewriter: ast.NodeTransformer) -> None:
    """Rewrite the function that starts at a line, and what is inside it; not the functions and classes around it."""
    body = tree.body
    while True:
        at_line = [k for k, s in enumerate(body) if _span(s)[0] <= line <= _span(s)[1]]
        inside = body[at_line[0]] if len(at_line) == 1 else None
        if not isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or _span(inside)[0] == line:
            break
        if not any(first <= line <= last for first, last in map(_span, inside.body)):
            break
        body = inside.body
    for k in reversed(at_line):
        new = rewriter.visit(body[k])
        body[k : k + 1] = new if isinstance(new, list) else [new]


_originals: weakref.WeakKeyDictionary[CodeType, CodeType] = weakref.WeakKeyDictionary()
"""The code of functions as they are written, by their rewritten code."""


def with_truths(code: CodeType) -> CodeType:
    """Return code whose tests of identity and of classes are calls of operators, if its source is at hand."""
    return rewritten(code, Truths) or code


def as_written(code: CodeType) -> CodeType:
    """Return the code of a function as it is written, for rewritten code; other code unchanged."""
    return _originals.get(code, code)


@functools.lru_cache(maxsize=4096)
def tests_identity(code: CodeType) -> bool:
    """Return whether code, or a function in it, tests identity or membership, or matches, by Python's own instructions."""
    return any(i.opname in _TESTS for i in dis.get_instructions(code)) or any(map(tests_identity, _nested(code)))


@functools.lru_cache(maxsize=4096)
def tests_truths(code: CodeType) -> bool:
    """Return whether code, or a function in it, tests whether a value is the object True, False or that of a variable, or is of a
    class by a pattern."""
    for before, i in itertools.pairwise(dis.get_instructions(code)):
        is_constant = before.opname == "LOAD_CONST" and type(before.argval) is not bool
        if i.opname == "MATCH_CLASS" or (i.opname == "IS_OP" and not is_constant):
            return True
    return any(map(tests_truths, _nested(code)))


_TESTS = frozenset(dis.opname[k] for k in range(256) if dis.opname[k].startswith(("IS_OP", "CONTAINS_OP", "MATCH_")))
_TESTS |= {name for name in dis.opname if name.startswith("POP_JUMP") and name.endswith("NONE")}


def _nested(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects in the constants of a code object, and in theirs."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)


def _key(code: CodeType) -> Key:
    """Return the name and the position of a function."""
    columns = [c for line, _, c, _ in code.co_positions() if line == code.co_firstlineno and c]
    return code.co_name, code.co_firstlineno, min(columns, default=0) if code.co_name == "<lambda>" else 0


_BLOCKS = re.compile(rf"\b{PREFIX}\w+\.<locals>\.")
"""What stands in the qualified name of a function or class for the blocks that it is in."""


def _titled(code: CodeType, name: str = "", qualified: str = "") -> CodeType:
    """Return code whose blocks have the name of the function that they are blocks of, and whose functions and classes have the
    names that they have in Python."""
    is_block = code.co_name.startswith(PREFIX)
    name, qualified = (name, qualified) if is_block else (code.co_name, _BLOCKS.sub("", code.co_qualname))
    is_class = "__qualname__" in code.co_names
    constants = tuple(
        _titled(c, name, qualified) if isinstance(c, CodeType) else _BLOCKS.sub("", c) if is_class and type(c) is str else c
        for c in code.co_consts
    )
    if not is_block:
        return code.replace(co_consts=constants, co_qualname=qualified)
    return code.replace(co_consts=constants, co_name=name, co_qualname=qualified)
