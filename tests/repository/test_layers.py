"""The way of the imports: one direction between the packages, nothing heavy before it is needed, no cycles; the size of folders.

Read from the sources by `ast`, so that a forbidden import is found whether or not it ever runs.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.support.paths import ROOT, TESTS

FOLDERS = {"pullback": "pullback", **{f"pullback.{p}": p for p in ("tracer", "ir", "codegen", "runtime")}}

# Each layer and the layers that it may import.
LAYERS = {
    "pullback": {"pullback", "tracer", "ir", "codegen", "runtime"},
    "tracer": {"tracer", "ir"},
    "runtime": {"runtime", "codegen", "ir"},
    "codegen": {"codegen", "ir"},
    "ir": {"ir"},
}
# Third-party packages that each layer may import, within functions where they are heavy.
LIBRARIES = {
    "pullback": {"numpy", "scipy", "ml_dtypes", "torch", "dask", "distributed"},
    "tracer": {"numpy", "scipy", "ml_dtypes"},
    "runtime": {"numpy", "scipy", "ml_dtypes", "llvmlite", "pycuda"},
    "codegen": {"numpy"},
    "ir": {"numpy", "scipy", "ml_dtypes"},
}
HEAVY = {"scipy", "llvmlite", "ml_dtypes", "pycuda", "torch", "dask", "distributed"}
# Modules that are themselves loaded late, and the heavy libraries that they may import at their top.
LATE = {
    "pullback.torch": {"torch", "ml_dtypes"},
    "pullback.distributed.cluster": {"dask", "distributed"},
    "pullback.distributed.embedded": {"distributed"},
    "pullback.distributed.lazy": {"dask"},
    "pullback.programs.logger": {"logging"},
}


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported module name, where it stands, and under what."""

    source: str
    line: int
    target: str
    level: int
    in_function: bool
    for_types: bool

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}: {self.target}"


def modules() -> dict[str, Path]:
    """Every source file by the name under which it is installed."""
    result = {}
    for package, folder in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = path.relative_to(ROOT / folder).with_suffix("").parts
            parts = inner[:-1] if inner[-1] == "__init__" else inner
            result[".".join([package, *parts])] = path
    return result


MODULES = modules()


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imports_of(path: Path) -> Iterator[Import]:
    """All imports of one file; `from package import module` counts as the module if there is one."""
    source = str(path.relative_to(ROOT))
    work: list[tuple[ast.AST, bool, bool]] = [(ast.parse(path.read_text()), False, False)]
    while work:
        node, in_function, for_types = work.pop()
        targets: list[tuple[str, int]] = []
        if isinstance(node, ast.Import):
            targets = [(alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            inner = [f"{base}.{alias.name}" for alias in node.names]
            targets = [(name if name in MODULES else base, node.level) for name in inner]
        for target, level in targets:
            line = node.lineno  # type: ignore[attr-defined]
            yield Import(
                source=source,
                line=line,
                target=target,
                level=level,
                in_function=in_function,
                for_types=for_types,
            )
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typed = for_types or is_type_checking(node)
        work.extend((child, inside, typed) for child in ast.iter_child_nodes(node))


IMPORTS = {name: list(imports_of(path)) for name, path in MODULES.items()}


def layer(module: str) -> str:
    """The layer of one of our modules: `pullback.ir.text` is of `ir`, `pullback.transforms.api` of `pullback`."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LAYERS else "pullback"


def is_ours(target: str) -> bool:
    return target.split(".")[0] == "pullback"


def found_in(chosen: str) -> list[tuple[str, Import]]:
    return [(name, i) for name, result in IMPORTS.items() if layer(name) == chosen for i in result]


@pytest.mark.parametrize("chosen", LAYERS)
def test_a_layer_imports_only_the_layers_below_it(chosen: str) -> None:
    wrong = [i.place for _, i in found_in(chosen) if is_ours(i.target) and layer(i.target) not in LAYERS[chosen]]
    assert not wrong


@pytest.mark.parametrize("chosen", LAYERS)
def test_a_layer_imports_only_its_libraries(chosen: str) -> None:
    allowed = LIBRARIES[chosen] | set(sys.stdlib_module_names) | {"pullback"}
    wrong = [i.place for _, i in found_in(chosen) if not i.level and i.target.split(".")[0] not in allowed]
    assert not wrong


@pytest.mark.parametrize("chosen", LAYERS)
def test_imports_are_absolute(chosen: str) -> None:
    assert not [i.place for _, i in found_in(chosen) if i.level]


@pytest.mark.parametrize("chosen", LAYERS)
def test_our_imports_name_modules_that_exist(chosen: str) -> None:
    assert not [i.place for _, i in found_in(chosen) if is_ours(i.target) and i.target not in MODULES]


@pytest.mark.parametrize("chosen", LAYERS)
def test_heavy_libraries_and_no_others_are_imported_within_functions(chosen: str) -> None:
    """A module of `runtime` that is itself loaded late may import llvmlite at its top."""
    early = HEAVY - ({"llvmlite"} if chosen == "runtime" else set())
    wrong = []
    for name, i in found_in(chosen):
        library = i.target.split(".")[0]
        if i.for_types or library in LATE.get(name, ()):
            continue
        if library in early if not i.in_function else library not in HEAVY:
            wrong.append(i.place)
    assert not wrong


def test_no_cycles_between_modules() -> None:
    """Imports for type checkers alone do not count: they never run."""
    graph = {
        name: {i.target for i in result if is_ours(i.target) and not i.for_types and i.target != name}
        for name, result in IMPORTS.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of two or more nodes that reach each other."""
    reached: dict[str, set[str]] = {}
    for node in graph:
        seen, work = set(), [node]
        while work:
            for target in graph.get(work.pop(), set()) - seen:
                seen.add(target)
                work.append(target)
        reached[node] = seen
    together = {frozenset({n, *(m for m in reached[n] if n in reached[m])}) for n in graph if n in reached[n]}
    return [set(circle) for circle in together if len(circle) > 1]


def one_way(name: str) -> set[str]:
    """Return the modules that a module imports, at any time and for types too; packages, which hand names on, left out."""
    inside = {i.target for i in IMPORTS[name] if i.target in MODULES and i.target != name}
    return {target for target in inside if MODULES[target].name != "__init__.py"}


def test_files_import_one_way_for_types_too() -> None:
    graph = {name: one_way(name) for name, path in MODULES.items() if path.name != "__init__.py"}
    assert not circles(graph)


def folder_of(module: str) -> str:
    """Return the folder of a module. A public module at the top, as ``pullback.tree``, counts as a folder of its own."""
    folder = module.rpartition(".")[0]
    return module if folder == "pullback" else folder


def test_folders_import_one_way_for_types_too() -> None:
    graph: dict[str, set[str]] = {}
    for name, path in MODULES.items():
        if path.name != "__init__.py":
            folder = folder_of(name)
            graph.setdefault(folder, set()).update({folder_of(t) for t in one_way(name)} - {folder})
    assert not circles(graph)


@pytest.mark.parametrize("name", MODULES)
def test_what_is_imported_at_its_first_use_is_imported_for_types_too(name: str) -> None:
    """So that the rules above hold for it."""
    calls = [n for n in ast.walk(ast.parse(MODULES[name].read_text())) if isinstance(n, ast.Call)]
    result = {ast.literal_eval(n.args[0]) for n in calls if isinstance(n.func, ast.Name) and n.func.id == "later"}
    assert result <= {i.target for i in IMPORTS[name] if i.for_types}


def test_every_package_is_in_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert set(settings["packages"]) == packages
    assert settings["package-dir"] == FOLDERS
    without = {path.parent for path in MODULES.values() if not (path.parent / "__init__.py").exists()}
    assert not without, "folders of modules without __init__.py"


def test_import_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys, pullback; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert "pullback" in loaded
    assert not loaded & (HEAVY | {"jax", "autograd", "numba", "pytest"})


def test_import_compiles_no_methods_of_unused_classes() -> None:
    """The standard library's dataclasses compile their methods when they are defined; ours, when they are first used."""
    code = """if True:
        import sys, numpy
        texts = []
        sys.addaudithook(lambda event, args: texts.append(bytes(args[0] or b"")) if event == "compile" else None)
        import pullback
        def methods():  # Python 3.13 compiles one text a class, which may define none
            return sum(b"def __create_fn__" in text and b"\\n def " in text for text in texts)
        print(methods(), sum(b"def create(" in text for text in texts))
        from dataclasses import dataclass
        dataclass(type("Example", (), {"__annotations__": {"x": int}}))
        print(methods())
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    of_import, of_records, with_dataclass = map(int, done.stdout.split())
    assert of_import == 0 and of_records < 90 and with_dataclass > 0


def test_import_loads_few_modules() -> None:
    """A measure of its time that no machine changes, and the modules of the standard library that few processes need."""
    code = "import numpy, sys; before = set(sys.modules); import pullback; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    ours = [name for name in loaded if is_ours(name)]
    assert len(ours) <= MOST_MODULES
    assert len(loaded) - len(ours) <= MOST_OTHERS
    seldom = {"ctypes.util", "email", "html", "importlib.metadata", "logging", "secrets", "shutil", "subprocess", "tempfile"}
    assert not loaded & seldom


def test_dataclasses_are_those_that_compile_nothing() -> None:
    """Of all modules, since most are loaded by the first call of a process."""
    home = MODULES["pullback.ir.core.records"]
    named = re.compile(r"^from dataclasses import .*\bdataclass\b|^\s*@dataclasses\.dataclass", re.MULTILINE)
    assert not [name for name, path in MODULES.items() if path != home and named.search(path.read_text())]


def test_import_loads_no_pass_and_no_code_generation() -> None:
    code = "import sys, pullback; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    late = {
        "codegen.fuse.fuse", "codegen.cpu.llvm.kernel", "ir.passes.transforms.expand", "ir.passes.pipeline", "inspection.reports",
        "transforms.autograd", "transforms.solvers",
    }  # fmt: skip
    assert not {f"pullback.{name}" for name in late} & set(done.stdout.split())


MOST_MODULES, MOST_OTHERS = 420, 40
"""Modules of ours and others beyond NumPy's that ``import pullback`` loads at most. It takes 0.5 ms of CPU a module."""
MOST_FILES = 30
"""Files that a folder of sources or tests has at most, so that a reader sees its names at once."""
LARGE = {
    "tests/cuda_host": "the C++ of the stand-in driver, one library, and its tests",
    "tests/golden/cuda/resources": "data: a file for each program whose kernels are compiled",
    "tests/tables/derivatives": "data: a file for each op",
}
"""The folders of tests that have more files, and why."""
PROGRAMS = "tests/typing"
"""A folder of programs that type checkers read as their users' files; it is no package."""


def test_a_folder_has_few_files() -> None:
    counts: dict[Path, int] = {}
    for path in MODULES.values():
        counts[path.parent] = counts.get(path.parent, 0) + (path.name != "__init__.py")
    assert not {str(folder.relative_to(ROOT)): n for folder, n in counts.items() if n > MOST_FILES}


def files_of_tests() -> list[Path]:
    return [path for path in TESTS.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_a_folder_of_tests_has_few_files() -> None:
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in files_of_tests() if path.name != "__init__.py")
    assert {folder for folder, n in counts.items() if n > MOST_FILES} == set(LARGE)


def test_every_folder_of_tests_is_a_package() -> None:
    """Files of one name may stand in two folders, and imports are absolute."""
    files = [path for path in files_of_tests() if path.suffix == ".py"]
    folders = {path.parent for path in files if not (path.parent / "__init__.py").exists()}
    assert {folder.relative_to(ROOT).as_posix() for folder in folders} == {PROGRAMS}
    assert not [i.place for path in files for i in imports_of(path) if i.level]


def test_the_page_on_architecture_lists_the_folders_of_tests() -> None:
    """With the first line of what the folder's ``__init__.py`` says."""
    rows = dict(re.findall(r"^\| `(tests/[a-z_/]*)/` \| (.+?) \|$", (ROOT / "docs/architecture.md").read_text(), re.MULTILINE))
    assert set(rows) == {f"tests/{path.relative_to(TESTS).parts[0]}" for path in files_of_tests() if path.parent != TESTS}
    for folder, text in rows.items():
        if (path := ROOT / folder / "__init__.py").exists():
            assert text == (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0], folder


def test_the_page_on_architecture_lists_every_folder() -> None:
    """With the first line of what its ``__init__.py`` says, and a file to open first that is there."""
    text = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(r"^\| `([a-z_/]+)/` \| (.+?) \| (?:`(.+?)`)? ?\|$", text, re.MULTILINE)
    listed = {folder: (text, first) for folder, text, first in rows if (ROOT / folder / "__init__.py").exists()}
    for path in MODULES.values():
        folder = str(path.parent.relative_to(ROOT))
        if path.name == "__init__.py" and folder not in FOLDERS.values():
            text = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
            assert listed[folder][0] == text, folder
            assert not listed[folder][1] or (path.parent / listed[folder][1]).exists(), folder


def test_questions_on_the_page_are_answered_by_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text().split("Twenty questions", 1)[1].split("\n## ", 1)[0]
    rows = [row for row in text.splitlines() if row.startswith("| ") and "?" in row]
    assert len(rows) >= 20
    for path in re.findall(r"`([a-z_/]+\.py)`", "\n".join(rows)):
        assert (ROOT / path).exists(), path


def test_import_registers_all_functions_and_ops() -> None:
    """Modules that fill a table when they are imported are imported with the package."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, pullback; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    fills = re.compile(r"^@(hook|implements|register_method|composition|twin)\(|^[a-z0-9_]+ = [A-Z]\w+\(\s*name=", re.MULTILINE)
    layers = ("pullback.tracer.", "pullback.ir.ops.")
    tables = {name for name, path in MODULES.items() if name.startswith(layers) and fills.search(path.read_text())}
    assert len(tables) > 60
    assert not tables - set(done.stdout.split())


def test_a_circle_is_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [{"b", "c"}]
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})
