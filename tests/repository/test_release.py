"""What a release consists of: one version everywhere, files that fit the schemas of public services, a package page without dead
links, and archives that are whole, reproducible and accepted by the checks of the package index."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import pullback as pb
from tests.support.paths import ROOT

SETUP = runpy.run_path(str(ROOT / "setup.py"))
EXAMPLE = "https://example.org/pullback"
"""Stands for the project's address, which its owner sets."""
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/workflows/*.yml": "github-workflows",
    ".github/ISSUE_TEMPLATE/[!c]*.yml": "github-issue-forms",
    ".github/ISSUE_TEMPLATE/config.yml": "github-issue-config",
}
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml"))


@pytest.mark.parametrize("pattern", SCHEMAS)
def test_files_of_services_fit_their_schemas(pattern: str) -> None:
    files = sorted(map(str, ROOT.glob(pattern)))
    assert files
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{SCHEMAS[pattern]}", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_issue_forms_demand_what_doctor_prints(form: Path) -> None:
    text = form.read_text()
    assert "pullback doctor" in text and "required: true" in text.partition("id: doctor")[2]


def test_the_version_is_one() -> None:
    version = pb.__version__
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n  version: {version}\n" in (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    releases = re.findall(r"^## (\d+\.\d+\.\d+) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == version and len(set(releases)) == len(releases)


def test_the_recipe_has_the_same_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text().partition("  run:")[2].partition("\ntests:")[0]
    listed = {line.strip(" -").replace(" ", "") for line in recipe.splitlines() if line.strip()}
    assert listed == {*project["dependencies"], f"python{project['requires-python']}"}


def test_links_of_the_package_page() -> None:
    """With an address every relative link goes to a file that there is; without one, none is left."""
    text = (ROOT / "README.md").read_text()
    relative = [target for _, _, target in SETUP["RELATIVE"].findall(text)]
    assert relative
    with_address = SETUP["page"](text, EXAMPLE)
    assert not SETUP["RELATIVE"].search(with_address) and not SETUP["RELATIVE"].search(SETUP["page"](text, ""))
    for path in re.findall(rf"\({EXAMPLE}/(?:blob|raw)/main/([^)#]*)", with_address):
        assert (ROOT / path).exists(), path
    page = SETUP["page"]("a [`b` c](docs/d.md#e), ![f](g.png), [h](https://i.org), [j](#k)", EXAMPLE)
    assert page == f"a [`b` c]({EXAMPLE}/blob/main/docs/d.md#e), ![f]({EXAMPLE}/raw/main/g.png), [h](https://i.org), [j](#k)"
    assert SETUP["page"]("a [`b` c](docs/d.md), ![f](g.png).", "") == "a `b` c, ."


def test_the_address_is_nowhere_else() -> None:
    """It is one constant: workflows, forms and the recipe name no repository."""
    files = [ROOT / "CITATION.cff", ROOT / "pyproject.toml", *(ROOT / ".github").rglob("*.*"), *(ROOT / "packaging").rglob("*.*")]
    for path in files:
        assert not re.search(r"github\.com/(?!actions/)\w", path.read_text()), path


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """The sdist and the wheel, built twice from copies of the sources with an address and a contact."""
    builds = []
    for k in range(2):
        source = tmp_path_factory.mktemp("source") / f"copy{k}"
        ignored = shutil.ignore_patterns(".venv", ".git", "build", "__pycache__", "*.egg-info", ".*_cache", ".hypothesis", ".whl")
        shutil.copytree(ROOT, source, ignore=ignored)
        version = source / "pullback" / "version.py"
        text = version.read_text().replace('ADDRESS = ""', f'ADDRESS = "{EXAMPLE}"')
        version.write_text(text.replace('CONTACT = ""', 'CONTACT = "someone@example.org"'))
        output = tmp_path_factory.mktemp("dist")
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), str(source)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": "1764460800"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        builds.append(sorted(output.iterdir()))
    return builds


@pytest.mark.long
def test_archives_are_accepted_and_reproducible(archives: list[list[Path]]) -> None:
    (wheel, sdist), (again, _) = archives
    assert wheel.suffix == ".whl" and wheel.read_bytes() == again.read_bytes()
    twine = [sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(twine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    rated = subprocess.run([sys.executable, "-m", "pyroma", "-f", str(sdist)], capture_output=True, text=True, check=False)
    rating = re.search(r"Final rating: (\d+)/10", rated.stdout + rated.stderr)
    assert rating is not None and int(rating[1]) >= 9, rated.stdout


def files_of_the_release() -> list[str]:
    """Return the files that the repository tracks or, in an unpacked sdist, those that its builder listed."""
    if not (ROOT / ".git").exists():
        return (ROOT / "pullback.egg-info" / "SOURCES.txt").read_text().splitlines()
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.long
def test_the_sdist_has_what_its_tests_read(archives: list[list[Path]], tmp_path: Path) -> None:
    _, sdist = archives[0]
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    listed = files_of_the_release()
    assert "tests/conftest.py" in listed and len(listed) > 1000
    assert [name for name in listed if not (folder / name).exists()] == []
    names = set(zipfile.ZipFile(archives[0][0]).namelist())
    assert not any(name.startswith(("tests/", "docs/", "benchmarks/")) for name in names)
