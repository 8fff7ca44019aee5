"""The page of mistakes: each program of ``mistakes.py`` is run, and its error is what the page says; ``--bless`` writes it."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

import pullback as pb
from pullback.tracer import current
from tests.support.paths import ROOT
from tests.tables.mistakes import MISTAKES, Mistake

PAGE = ROOT / "docs" / "mistakes.md"
HEAD = """# Mistakes and their messages

This page lists programs that cannot be compiled, or that are wrong in NumPy too, each with its error. Every program is a
file `model.py`. `tests/repository/test_mistakes.py` runs all of them and compares their messages with this page.
[Tracing](tracing.md#errors) describes the parts of a message and the attributes of a `TraceError`.
"""
# Python and NumPy word some of their own errors by version.
WORDED_BY_VERSION = re.compile(r"(?<=maximum recursion depth exceeded).*|(?<=too many values to unpack).*|\. Did you mean.*")


def error_of(mistake: Mistake, folder: Path) -> Exception:
    """The error that a program ends in, run as ``model.py`` in a folder."""
    path = folder / "model.py"
    path.write_text(mistake.code)
    spec = importlib.util.spec_from_file_location("model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["model"] = module
    with pytest.raises(Exception) as caught:
        spec.loader.exec_module(module)
    return caught.value


def message_of(error: Exception) -> str:
    """An error as Python prints it below the traceback, and above it the last place in the user's file if it says none."""
    text = "".join(traceback.format_exception_only(error)).rstrip()
    if not isinstance(error, pb.TraceError):
        position = next(f for f in reversed(traceback.extract_tb(error.__traceback__)) if f.filename.endswith("model.py"))
        text = f"model.py:{position.lineno}, in {position.name}\n    {position.line}\n{text}"
    return WORDED_BY_VERSION.sub("", text)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning", "ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: f"{m.section}: {m.title}")
def test_a_mistake_is_told(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "model", sys)
    error = error_of(mistake, tmp_path)
    assert type(error).__name__ == mistake.kind
    message = message_of(error)
    assert message.count("model.py:")
    frames = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    if "used after its trace" not in message:
        assert not [name for name in frames if "site-packages" in name or "/tracer/" in name or "/pullback/" in name]
    if isinstance(error, pb.TraceError):
        assert error.hint
        assert error.file == str(tmp_path / "model.py")
        assert mistake.code.splitlines()[error.line - 1].strip() == error.source.splitlines()[0]
    assert current() is None
    messages = request.config.stash.setdefault(MESSAGES, {})
    messages[mistake.title] = message
    if request.config.getoption("--bless"):
        return
    assert section(mistake, message) in PAGE.read_text()


@pytest.mark.parametrize("mistake", [m for m in MISTAKES if m.section == "As in NumPy"], ids=lambda m: m.title)
def test_errors_of_numpy_are_those_of_the_plain_program(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "model", sys)
    result = error_of(mistake, tmp_path)
    plain = error_of(replace(mistake, code=mistake.code.replace("@pb.jit", "")), tmp_path)
    assert isinstance(plain, type(result))
    assert mistake.title in WORDED_OTHERWISE or str(result) == str(plain)
    places = [traceback.extract_tb(e.__traceback__)[-1] for e in (result, plain)]
    assert places[0].lineno == places[1].lineno or "numpy" in places[1].filename


# A traced value has another type's name, a cast does not know its ufunc, and einsum is read by np.einsum_path.
WORDED_OTHERWISE = {
    "floats into an array of ints",
    "a scalar unpacked",
    "None in arithmetic",
    "a string in arithmetic",
    "one subscript too many",
}
MESSAGES: pytest.StashKey[dict[str, str]] = pytest.StashKey()


def section(mistake: Mistake, message: str) -> str:
    return f"### {mistake.title}\n\n```python\n{mistake.code}```\n```\n{message}\n```\n"


def page(messages: dict[str, str]) -> str:
    """The page, from the messages by title."""
    parts = [HEAD]
    for name in dict.fromkeys(m.section for m in MISTAKES):
        parts.append(f"## {name}\n")
        parts += [section(m, messages[m.title]) for m in MISTAKES if m.section == name]
    return "\n".join(parts)


def test_the_page_has_every_mistake_and_no_other(bless: bool, request: pytest.FixtureRequest) -> None:
    assert len({m.title for m in MISTAKES}) == len(MISTAKES) >= 60
    if bless:
        PAGE.write_text(page(request.config.stash[MESSAGES]))
    titles = re.findall(r"^### (.*)$", PAGE.read_text(), re.MULTILINE)
    assert titles == [m.title for m in MISTAKES]
