"""The command ``pullback view``: the file that it writes, and what it refuses."""

from __future__ import annotations

import webbrowser
from pathlib import Path

import pytest

from pullback.cli.main import VIEWED, main
from tests.pullback.view import programs
from tests.pullback.view.test_page import contents_in

FILE = programs.__file__


def test_a_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    code = main(["view", f"{FILE}:network", "--example", "network_example", "--grad", "--stage", "fuse", "--out", str(path)])
    assert code == 0 and capsys.readouterr().out == f"{path}\n"
    contents = contents_in(path.read_text(encoding="utf-8"))
    assert (contents["title"], contents["stage"]) == ("value_and_grad(network)", "fuse") and contents["time"]["frames"]


def test_the_file_has_the_name_of_the_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["view", f"{FILE}:hostile", "f64[5]", "größe=3.0", "--no-profile"]) == 0
    assert capsys.readouterr().out == "hostile.html\n"
    contents = contents_in((tmp_path / "hostile.html").read_text(encoding="utf-8"))
    assert not contents["time"]["frames"] and contents["time"]["note"] == "calls were not timed"


def test_a_function_that_cannot_be_traced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.html"
    assert main(["view", f"{FILE}:called", "f64[5]", "--stage", "llvm", "--out", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == f"{path}\n" and "a Python branch (if) on a traced value" in err
    assert contents_in(path.read_text(encoding="utf-8"))["error"]["kind"] == "TraceError"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--stage", "mlir"], f"there is no stage mlir; there are {', '.join(VIEWED)}"),
        (["--stage", "llvm", "--device", "cuda"], "there is no stage 'llvm' of this call; there are trace, grad, simplify"),
    ],
)  # fmt: skip
def test_unknown_stages_are_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    assert main(["view", f"{FILE}:hostile", "f64[5]", "--no-profile", "--out", str(path), *options]) == 2
    assert message in capsys.readouterr().err and not path.exists()


def test_a_browser_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    path = tmp_path / "page.html"
    assert main(["view", f"{FILE}:hostile", "f64[5]", "--no-profile", "--open", "--out", str(path)]) == 0
    assert path.exists() and "no browser could be started" in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "missing" / "page.html"
    assert main(["view", f"{FILE}:hostile", "f64[5]", "--no-profile", "--out", str(path)]) == 1
    assert f"{path}: No such file or directory" in capsys.readouterr().err
