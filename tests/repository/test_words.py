"""The words of the sources and of the pages: names that say nothing and private terms do not come back (docs/glossary.md)."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGES = ("pullback", "tracer", "ir", "codegen", "runtime")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TESTS = sorted(
    path for folder in ("tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)
)

NAMES = frozenset({
    "found", "made", "given", "place", "number",
    "apart", "asked", "beside", "crew", "lies", "lying", "nobody", "ours", "said", "spell", "spelled", "theirs", "told", "turned",
})  # fmt: skip
"""Names that do not say what a thing is, and those of private terms."""
PUBLIC = {
    ("pullback/checking/divergence.py", "found"): "a field of the error that users read",
    ("pullback/checking/verification.py", "found"): "a field of the error that users read",
    ("pullback/debugging/check_grad.py", "found"): "a field of the report that users read",
    ("pullback/debugging/check_jacobian.py", "found"): "a field of the report that users read",
    ("pullback/debugging/finite_differences.py", "found"): "a field of the report that users read",
    ("runtime/threads/threads.py", "number"): "a parameter of pb.set_num_threads",
    ("tracer/functions/numpy/put.py", "place"): "NumPy's function",
    ("tracer/functions/python/builtins.py", "number"): "the parameter of Python's round",
}
"""Names of that kind that belong to others or to the public interface."""
TERMS = {
    r"told|tells": "passed, called back, says",
    r"lies|lie|lying": "is, is stored, is in place",
    r"beside": "next to, in addition to, adjacent",
    r"side by side": "contiguous, adjacent, interleaved",
    r"apart": "stride, distance, separate",
    r"nobody|whoever|somebody|anybody": "no caller, the user, a program",
    r"so many|so few": "the count by its name",
    r"spell|spells|spelled|spelling|spellings": "lower, expand, write as; lowering, text",
    r"(first|second) cache": "L1, L2",
    r"asks?|asked": "requests, requires, queries; prefetches",
    r"entrance": "fast call, entry point",
    r"crew": "worker pool",
    r"turned(?! (into|off|on|out)\b)": "transposed",
}
"""Terms with a private sense, and what the field says."""
ANY_TERM = re.compile(rf"\b({'|'.join(TERMS)})\b")
QUOTED = re.compile(r"```.*?```|``.*?``|`[^`\n]*`|\[[^\]\n]*\]\([^)\n]*\)|\"[^\"\n]{1,80}\"", re.DOTALL)
"""Code, links and quotations, in which any word may stand."""


def names_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every identifier of a file with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.keyword(arg=str(name)) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.alias(name=name, asname=asname):
                yield node.lineno, asname or name.rpartition(".")[2]


def prose_of(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a source, or the paragraphs of a page, each with its first line; none if no text of the
    file has a term."""
    text = path.read_text()
    if not ANY_TERM.search(text):
        return
    if path.suffix == ".md":
        blank = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), text, flags=re.DOTALL)
        yield from enumerate(blank.split("\n"), 1)
        return
    for node in ast.walk(ast.parse(text)):
        for statement in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(words))):
                    yield statement.lineno, words
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def retired(words: str) -> list[str]:
    bare = QUOTED.sub(" ", words)
    return [f"{hit[0]!r} (say: {instead})" for term, instead in TERMS.items() for hit in re.finditer(rf"\b({term})\b", bare)]


def test_names_say_what_a_thing_is() -> None:
    wrong, used = [], set()
    for path in SOURCES:
        file = str(path.relative_to(ROOT))
        for line, name in names_of(ast.parse(path.read_text())):
            if name in NAMES and (file, name) not in PUBLIC:
                wrong.append(f"{file}:{line}: {name}")
            used.add((file, name))
    assert wrong == []
    assert set(PUBLIC) <= used, "a public name is listed that is there no more"


@pytest.mark.parametrize(
    "paths", [pytest.param(SOURCES, id="sources"), pytest.param(PAGES, id="pages"), pytest.param(TESTS, id="tests")]
)
def test_private_terms_stay_away(paths: list[Path]) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {hit}" for path in paths for line, words in prose_of(path) for hit in retired(words)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("The operand is turned and lies beside the panel.", 3),
        ("The value is turned into an array.", 0),
        ("`lies` is an old name, and so is ``told``.", 0),
        ("In the first cache", 1),
        ("It asks for so many rows.", 2),
    ],
)
def test_terms_are_found(words: str, count: int) -> None:
    assert len(retired(words)) == count


def test_names_are_found() -> None:
    text = "import a as made\ndef place(given, *, found=1):\n x.number = f(number=2)\n match x:\n  case [*found]: pass\n"
    assert sorted(name for _, name in names_of(ast.parse(text)) if name in NAMES) == sorted(
        ["made", "place", "given", "found", "number", "number", "found"]
    )
