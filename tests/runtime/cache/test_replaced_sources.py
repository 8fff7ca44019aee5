"""The package's files are replaced under a running process: no process stores or loads code of another version.

Processes run a copy of the sources, in which `sin` has the right derivative and value or, by an edit that leaves the size,
wrong ones.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pullback.runtime.cache import source_stamp
from tests.support.paths import ROOT

FOLDERS = ("pullback", "tracer", "ir", "codegen", "runtime")
# The rule is imported with pullback, the values by the first compile: a module that a program in the folder does not need.
SINE = 'sin = _analytic("sin", lambda b, ct, out, x: b.mul(ct, b.cos(x)), parity="odd", finite=True)'
RULE = ("ir/ops/elementwise/elementwise.py", SINE, "b.cos(x)", "b.sin(x)")
VALUE = ("codegen/math/table.py", '"sin": math_trig.sin,', "math_trig.sin", "math_trig.cos")
BEGIN = "import sys, warnings; warnings.simplefilter('always'); import numpy as np, pullback as pb"
CALLS = {
    RULE: "print(round(float(pb.grad(np.sin)(1.0)), 3))",
    VALUE: "print(round(float(pb.jit(np.sin)(1.0)), 3))",
}
RIGHT, WRONG = {RULE: "0.54", VALUE: "0.841"}, {RULE: "0.841", VALUE: "0.54"}
FIRST = "pb.jit(lambda x: x + 2.0)(np.ones(3))"
SECOND = "pb.jit(lambda x: x * 3.0)(np.ones(3))"
Edit = tuple[str, str, str, str]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources with their compiled files."""
    tree = tmp_path_factory.mktemp("copied")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    run(tree, tree / "cache", BEGIN, CALLS[RULE], CALLS[VALUE])
    shutil.rmtree(tree / "cache")
    return tree


@pytest.fixture
def tree(copied: Path, tmp_path: Path) -> Path:
    shutil.copytree(copied, tmp_path / "tree")
    return tmp_path / "tree"


def environment(tree: Path, cache: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PULLBACK_", "PYTHON"))}
    return {**kept, "PYTHONPATH": str(tree), "PULLBACK_CACHE_DIR": str(cache)}


def run(tree: Path, cache: Path, *lines: str) -> list[str]:
    """Run lines in a process over these sources and return the words it prints."""
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, env=environment(tree, cache), capture_output=True, text=True, cwd=tree.parent, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


class Running:
    """A process over these sources that executes the lines sent to it, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def do(self, line: str) -> str:
        """Execute a line and return the text it prints."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        result = []
        for answer in self.process.stdout:
            if answer == "done\n":
                return "".join(result).strip()
            result.append(answer)
        raise AssertionError("the process has ended")


LOOP = f"""{BEGIN}
print("done", flush=True)
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""


@contextmanager
def running(tree: Path, cache: Path) -> Iterator[Running]:
    """Run a process that has imported pullback; its error stream is written to a file next to the cache."""
    with open(cache.with_suffix(".errors"), "w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", LOOP], env=environment(tree, cache), cwd=tree.parent, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
        try:
            assert process.stdout is not None and process.stdout.readline() == "done\n"
            yield Running(process)
        finally:
            process.communicate()
    assert process.returncode == 0


def warned(cache: Path) -> bool:
    return "neither read nor written any more" in cache.with_suffix(".errors").read_text()


def spoil(text: str, edit: Edit) -> str:
    """The text of the module with the wrong rule or value: of the same length."""
    _, line, right, wrong = edit
    assert text.count(line) == 1 and len(right) == len(wrong)
    return text.replace(line, line.replace(right, wrong))


def in_place(path: Path, text: str) -> None:
    """Replace the text as an editor does that truncates the file and restores its time."""
    times = path.stat()
    path.write_text(text)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def renamed(path: Path, text: str) -> None:
    """Replace the file as ``rsync -t`` does, by another file of the same time."""
    new = path.with_suffix(".new")
    new.write_text(text)
    times = path.stat()
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(new, path)


def plainly(path: Path, text: str) -> None:
    """Replace the file as ``git checkout`` does."""
    path.unlink()
    path.write_text(text)


def entries(cache: Path) -> set[str]:
    return {path.name for path in cache.rglob("*.kernel")}


def replaced(tree: Path, edit: Edit, how: Callable[[Path, str], None], text: str) -> None:
    """Replaces the module, and has Python forget what it has compiled of it."""
    path = tree / edit[0]
    how(path, text)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


@pytest.mark.parametrize("is_mended", [True, False], ids=["wrong, then right", "right, then wrong"])
@pytest.mark.parametrize(
    ("moment", "edit", "how"),
    [
        ("before the first compile", RULE, in_place),
        ("before the first compile", VALUE, plainly),
        ("between the first call and an import", VALUE, renamed),
        ("after a compile", RULE, renamed),
    ],
    ids=["rule, early", "value, early", "value, late", "rule, late"],
)
def test_no_version_meets_code_of_another(
    tree: Path, tmp_path: Path, moment: str, edit: Edit, how: Callable[[Path, str], None], is_mended: bool
) -> None:
    cache, call = tmp_path / "cache", CALLS[edit]
    right = (tree / edit[0]).read_text()
    wrong = spoil(right, edit)
    before, after = ((wrong, WRONG), (right, RIGHT)) if is_mended else ((right, RIGHT), (wrong, WRONG))
    replaced(tree, edit, in_place, before[0])
    if moment == "between the first call and an import":
        run(tree, cache, BEGIN, FIRST)
    with running(tree, cache) as process:
        if moment != "before the first compile":
            process.do(FIRST)
            is_lazy = edit is VALUE
            assert process.do("print('pullback.codegen.math.table' in sys.modules)") == str(not is_lazy)
        known = entries(cache)
        replaced(tree, edit, how, after[0])
        time.sleep(2 * source_stamp.INTERVAL)
        process.do(SECOND)
        answer = process.do(call)
        if edit is RULE:
            assert answer == before[1][edit], "what was imported runs on"
        assert entries(cache) == known
    assert warned(cache)
    assert run(tree, cache, BEGIN, call) == [after[1][edit]]
    replaced(tree, edit, how, before[0])
    assert run(tree, cache, BEGIN, call) == [before[1][edit]]


def linked(tree: Path) -> None:
    """Link the files into another environment, as an installer does with the files of its cache."""
    other = tree.parent / "other environment"
    for each in tree.rglob("*.py"):
        target = other / each.relative_to(tree)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(each, target)


def unlinked(tree: Path) -> None:
    """Remove that environment, as an installer does."""
    shutil.rmtree(tree.parent / "other environment")


def with_other_modes(tree: Path) -> None:
    for each in tree.rglob("*.py"):
        each.chmod(0o640)


def touched(tree: Path) -> None:
    (tree / RULE[0]).touch()


def spoiled(tree: Path) -> None:
    path = tree / RULE[0]
    in_place(path, spoil(path.read_text(), RULE))


def spoiled_for_a_while(tree: Path) -> None:
    """Each text with the times of modification of the other."""
    path = tree / VALUE[0]
    right = path.read_text()
    in_place(path, spoil(right, VALUE))
    in_place(path, right)


@pytest.mark.parametrize(
    ("changes", "goes_on"),
    [([linked], True), ([linked, unlinked], True), ([with_other_modes], True), ([touched], False), ([linked, spoiled], False)],
    ids=["linked", "unlinked", "modes", "touched", "linked, then spoiled"],
)
@pytest.mark.parametrize("is_known", [True, False], ids=["known files", "new files"])
def test_files_with_another_name_or_mode_are_the_same(
    tree: Path, tmp_path: Path, changes: list[Callable[[Path], None]], goes_on: bool, is_known: bool
) -> None:
    """A running process goes on to use its cache where the content is what it has imported, and does not where that differs."""
    cache, call = tmp_path / "cache", CALLS[RULE]
    if is_known:
        time.sleep(source_stamp.RESOLUTION / 1e9)
        run(tree, cache, BEGIN, FIRST)
    with running(tree, cache) as process:
        process.do(FIRST)
        assert process.do(call) == RIGHT[RULE]
        for count, change in enumerate(changes, 2):
            known = entries(cache)
            change(tree)
            time.sleep(2 * source_stamp.INTERVAL)
            process.do(f"pb.jit(lambda x: {' - '.join(['x'] * count)})(np.ones(3))")
        assert (entries(cache) > known) == goes_on
    assert warned(cache) != goes_on
    run(tree, cache, BEGIN, call)


def test_a_module_imported_while_its_file_was_another_is_no_part_of_the_version(tree: Path, tmp_path: Path) -> None:
    """A file's content between two checks is unknown: if it changed, and its module was imported, between them, nothing is
    stored under the stamp, even if the file is as before."""
    cache = tmp_path / "cache"
    run(tree, cache, BEGIN, FIRST)
    with running(tree, cache) as process:
        process.do(FIRST)
        assert process.do("print('pullback.codegen.math.table' in sys.modules)") == "False"
        known = entries(cache)
        spoiled_for_a_while(tree)
        process.do("import pullback.codegen.math.table")
        process.do(CALLS[VALUE])
        assert entries(cache) == known
    assert warned(cache)


@pytest.mark.long
def test_what_is_known_of_the_files_is_kept_and_no_more_than_that(tree: Path, tmp_path: Path) -> None:
    """The stamp of a tree is the same in all its processes and copies, and another one for each text of a module."""
    cache, path = tmp_path / "cache", tree / RULE[0]
    for compiled in list(tree.rglob("__pycache__")):
        shutil.rmtree(compiled)
    ask = ("import pullback", "from pullback.runtime.cache.cache import generator_stamp", "print(generator_stamp())")
    right = path.read_text()
    first = run(tree, cache, *ask)
    time.sleep(source_stamp.RESOLUTION / 1e9)
    assert run(tree, cache, *ask) == run(tree, cache, *ask) == first
    assert entries(cache)
    replaced(tree, RULE, in_place, spoil(right, RULE))
    assert run(tree, cache, *ask) != first
    replaced(tree, RULE, plainly, right)
    assert run(tree, cache, *ask) == first == run(tree, tmp_path / "another", *ask)
    shutil.copytree(tree, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    assert run(tmp_path / "copy", cache, *ask) == first


def test_a_compiled_file_older_than_its_source_is_no_sign_of_it(tree: Path, tmp_path: Path) -> None:
    """A module of the same size and time is replaced, and Python runs what it has compiled of the old one: under its own key."""
    cache, path, call = tmp_path / "cache", tree / RULE[0], CALLS[RULE]
    right = path.read_text()
    replaced(tree, RULE, in_place, spoil(right, RULE))
    assert run(tree, tmp_path / "other", BEGIN, call) == [WRONG[RULE]]  # writes the compiled file
    in_place(path, right)
    assert run(tree, cache, BEGIN, call) == [WRONG[RULE]], "so Python has it"
    Path(importlib.util.cache_from_source(str(path))).unlink()
    assert run(tree, cache, BEGIN, call) == [RIGHT[RULE]]


@pytest.mark.long
def test_files_whose_times_alone_changed_are_known_by_who_saw_them_before(tree: Path, tmp_path: Path) -> None:
    """A tree with its compiled files, unpacked elsewhere, finds what was made before, and not with one that is not its own."""
    cache, path = tmp_path / "cache", tree / RULE[0]
    for compiled in list(tree.rglob("__pycache__")):
        shutil.rmtree(compiled)
    ask = ("import pullback", "from pullback.runtime.cache.cache import generator_stamp", "print(generator_stamp())")
    for _ in range(2):
        first = run(tree, cache, *ask, "import pullback.codegen.math.table")
        time.sleep(source_stamp.RESOLUTION / 1e9)
    assert run(tree, cache, *ask) == first
    for each in tree.rglob("*.py"):
        each.chmod(0o640)
    assert run(tree, cache, *ask) == first != run(tree, tmp_path / "empty", *ask)
    in_place(path, spoil(path.read_text(), RULE))
    assert run(tree, cache, *ask) != first


@pytest.mark.long
def test_in_an_archive_and_without_sources(tree: Path, tmp_path: Path) -> None:
    """Sources in an archive, and compiled modules without sources, have stamps of their own."""
    ask = ("import pullback", "from pullback.runtime.cache.cache import generator_stamp", "print(generator_stamp())")
    plain = run(tree, tmp_path / "cache", *ask)
    archive = shutil.make_archive(str(tmp_path / "all"), "zip", tree)
    zipped = run(Path(archive), tmp_path / "cache", *ask)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", *FOLDERS], cwd=tree, check=True)
    for each in tree.rglob("*.py"):
        each.unlink()
    compiled = run(tree, tmp_path / "cache", *ask)
    assert all(len(stamp) == 64 for (stamp,) in (plain, zipped, compiled))
    assert len({*plain, *zipped, *compiled}) == 3
    assert run(tree, tmp_path / "cache", BEGIN, CALLS[RULE]) == [RIGHT[RULE]]
