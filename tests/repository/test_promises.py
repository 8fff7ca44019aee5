"""What is promised: the names of the API, their types, their signatures, and what is in the wheel."""

import inspect
import json
import os
import pydoc
import re
import shutil
import subprocess
import sys
import typing
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.paths import ROOT, TESTS

PACKAGES = ("pullback", "tracer", "ir", "codegen", "runtime")
PROGRAMS = TESTS / "typing"


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sources."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet", "-w", str(built), str(source)]
    done = run(*pip)
    assert done.returncode == 0, done.stderr
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("installed")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def test_the_wheel_is_pure_and_whole(wheel: Path, installed: Path) -> None:
    assert wheel.name == f"pullback-{pb.__version__}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        "/".join(["pullback", *path.relative_to(ROOT).parts[folder == "pullback" :]])
        for folder in PACKAGES
        for path in (ROOT / folder).rglob("*.py")
    }
    page = {f"pullback/view/page/{path.name}" for path in (ROOT / "pullback/view/page").iterdir()}
    expected = sources | page | {"pullback/py.typed"}
    assert expected <= names and "pullback/view/page/page.html" in page
    assert not {n for n in names - expected if not n.startswith("pullback-")}
    code = "import pullback; print(pullback.__file__, pullback.jit(lambda x: x + 1)(1.0))"
    done = run(sys.executable, "-P", "-c", code, cwd=installed, env=os.environ | {"PYTHONPATH": str(installed)})
    assert done.stdout.split() == [str(installed / "pullback" / "__init__.py"), "2.0"], done.stderr


def test_the_wheel_tests_itself(installed: Path, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = run(sys.executable, "-P", "-m", "pullback", "doctor", "--selftest", cwd=tmp_path, env=environment)
    assert done.returncode == 0 and "all ok" in done.stdout, done.stdout + done.stderr


def mypy(programs: Sequence[Path], installed: Path, folder: Path) -> set[tuple[str, int]]:
    """The programs and lines at which mypy finds something to say."""
    options = ("--strict", "--follow-imports=silent", "--cache-dir", str(folder))
    environment = os.environ | {"MYPYPATH": str(installed)}
    done = run(sys.executable, "-m", "mypy", *options, *map(str, programs), cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {(name, int(line)) for name, line in re.findall(r"(\w+\.py):(\d+): error", done.stdout)}


def pyright(programs: Sequence[Path], installed: Path, folder: Path) -> set[tuple[str, int]]:
    """The programs and lines at which pyright finds something to say."""
    for program in programs:
        shutil.copy(program, folder)
    settings = {"extraPaths": [str(installed)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = (sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder))
    done = run(*command, cwd=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    result = json.loads(done.stdout)["generalDiagnostics"]
    assert json.loads(done.stdout)["summary"]["filesAnalyzed"] == len(programs)
    return {(Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in result if d["severity"] == "error"}


@pytest.mark.parametrize("checker", [pytest.param(mypy, marks=pytest.mark.long), pyright])
def test_users_programs_are_typed(checker: Any, installed: Path, tmp_path: Path) -> None:
    programs = [PROGRAMS / f"{name}.py" for name in ("user_program", "user_mistakes")]
    lines = [(p.name, k, line) for p in programs for k, line in enumerate(p.read_text().splitlines(), 1)]
    assert checker(programs, installed, tmp_path) == {(name, k) for name, k, line in lines if line.endswith("# error")}


def test_the_page_names_the_api() -> None:
    table = re.search(r"## What is public.*?\n\n\|.*?\n\n", (ROOT / "docs" / "stability.md").read_text(), re.DOTALL)
    assert table is not None
    cells = [line.split("|")[1] for line in table[0].splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`pb\.(\w+)`", " ".join(cells))) == set(pb.__all__)
    assert all(hasattr(pb, name) for name in pb.__all__)


@pytest.mark.parametrize("name", [n for n in pb.__all__ if not n.startswith("_")])
def test_public_names_are_documented(name: str) -> None:
    assert inspect.getdoc(getattr(pb, name))


def scaled(x: float, n: int = 2, *, by: float = 1.0) -> float:
    """Doc of scaled."""
    return x * n * by


class Model:
    """A user's class."""

    @pb.jit
    def plain(self, x: float, n: int = 2) -> float:
        """Doc of plain."""
        return x * n

    @pb.grad
    def slope(self, x: float) -> float:
        """Doc of slope."""
        return x * x

    @staticmethod
    @pb.jit
    def static(x: float) -> float:
        """Doc of static."""
        return x

    @classmethod
    @pb.jit
    def of_class(cls, x: float) -> float:
        """Doc of of_class."""
        return x


SHOWN: list[tuple[Any, str, str]] = [
    (pb.jit(scaled), "scaled", "(x: float, n: int = 2, *, by: float = 1.0) -> float"),
    (pb.grad(scaled), "scaled", "(x: float, n: int = 2, *, by: float = 1.0)"),
    (pb.jit(pb.value_and_grad(scaled)), "scaled", "(x: float, n: int = 2, *, by: float = 1.0)"),
    (Model.plain, "plain", "(self, x: float, n: int = 2) -> float"),
    (Model().plain, "plain", "(x: float, n: int = 2) -> float"),
    (Model().slope, "slope", "(x: float)"),
    (Model().static, "static", "(x: float) -> float"),
    (Model().of_class, "of_class", "(x: float) -> float"),
    (Model.of_class, "of_class", "(x: float) -> float"),
]


@pytest.mark.parametrize("function, name, signature", SHOWN)
def test_a_transformed_function_shows_as_what_it_was_made_from(function: Any, name: str, signature: str) -> None:
    assert function.__name__ == name
    assert str(inspect.signature(function)) == signature
    assert function.__doc__ == f"Doc of {name}."
    assert f"{name}{signature}" in pydoc.plain(pydoc.render_doc(function))
    assert f"Doc of {name}." in pydoc.plain(pydoc.render_doc(function))


def test_a_gradient_has_not_the_type_of_the_value() -> None:
    assert "return" in typing.get_type_hints(pb.jit(scaled))
    assert "return" not in typing.get_type_hints(pb.grad(scaled))
    assert "return" in typing.get_type_hints(scaled)


def test_methods_still_work() -> None:
    model = Model()
    assert (model.plain(2.0), model.slope(3.0), model.static(4.0), Model.of_class(5.0)) == (4.0, 6.0, 4.0, 5.0)
    assert np.isfinite(Model.plain(model, 2.0))
