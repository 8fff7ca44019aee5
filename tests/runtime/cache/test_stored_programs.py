"""Programs in the cache: a known one starts from one file, with no pass run, and is what the passes would have made."""

from __future__ import annotations

import gc
import json
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm import shared_functions
from pullback.ir import OPS, OWN_OPS
from pullback.programs import pipeline
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.compile.engine import Engine, default_engine
from pullback.runtime.compile.machine import find_host
from pullback.runtime.process import counters
from pullback.runtime.program import serialize as program_serialize
from pullback.runtime.program.executable import is_unwritten
from pullback.runtime.program.serialize import Unreadable, decoded, encoded
from tests.support.paths import TESTS
from tests.support.stored_programs import CALLS, X, dense

SCRIPT = TESTS / "support" / "stored_programs.py"
PASSES = {"grad", "simplify", "fuse", "lower", "schedule", "compile", "parse text", "optimise", "emit object"}


def run(cache: Path, *names: str, **environment: str) -> dict[str, Any]:
    """What a new process found and counted."""
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(cache), "PULLBACK_VERIFY": "0", **environment}
    command = [sys.executable, str(SCRIPT), *names]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every program in a process that finds nothing, and in the next one."""
    cache = tmp_path_factory.mktemp("stored") / "cache"
    return run(cache), run(cache)


@pytest.mark.parametrize("name", CALLS)
def test_a_known_program_runs_no_pass_and_gives_the_same_bits(name: str, runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    cold, warm = (result[name] for result in runs)
    assert warm["found"] == cold["found"] and warm["printed"] == cold["printed"]
    assert cold["templates_loaded"] == 0
    assert warm["templates_built"] == warm["compiles"] == 0
    assert not PASSES & set(warm["ran"])
    assert warm["templates_loaded"] == cold["templates_built"]


def test_failures_are_met(runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    """So that the test above compares them."""
    assert "LinAlgError" in runs[0]["not positive"]["found"] and "stored_programs.py" in runs[0]["not positive"]["found"]
    assert "IndexError" in runs[0]["out of range"]["found"]
    assert "LinAlgError" in runs[0]["failing loop"]["found"]
    assert runs[0]["print"]["printed"] and runs[0]["print in a loop"]["printed"].count("row") == 12


@pytest.mark.long
def test_another_processor_is_a_miss(tmp_path: Path) -> None:
    first = run(tmp_path / "c", "gradient")["gradient"]
    other = run(tmp_path / "c", "gradient", PULLBACK_CPU="baseline")["gradient"]
    assert first["compiles"] and other["compiles"] and other["templates_built"] == 1
    assert run(tmp_path / "c", "gradient", PULLBACK_CPU="baseline")["gradient"]["templates_loaded"] == 1


def test_other_features_and_versions_are_other_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    host = find_host()
    engine = Engine(KernelCache(), host=host)
    changed = [replace(host, features=f"{host.features},-sse4a"), replace(host, cpu="x86-64")]
    for other in (Engine(KernelCache(), host=h) for h in changed):
        assert other.program_key("p") != engine.program_key("p") and other.key("text") != engine.key("text")
    assert engine.program_key("p", "q") != engine.program_key("pq")
    monkeypatch.setenv("PULLBACK_VERIFY", "0")
    before = program_serialize.key_of(b"template")
    assert before is not None and before != program_serialize.key_of(b"another")
    monkeypatch.setattr(np, "__version__", "9.9.9")
    assert program_serialize.key_of(b"template") != before


PRODUCTS = """
import sys
import numpy as np, pullback as pb
f = pb.jit(lambda x, y: np.maximum(x @ y, 0.1))
for m, k, n in [(20, 20, 20), (150, 200, 170), (20, 3000, 8)]:
    x, y = np.arange(m * k, dtype=float).reshape(m, k) % 7 - 3, np.arange(k * n, dtype=float).reshape(k, n) % 5 - 2
    np.testing.assert_allclose(f(x, y), np.maximum(x @ y, 0.1))
    if FIRST:
        break
found = pb.cache_info()
print(found.templates_built, found.templates_loaded, "pullback.codegen.cpu.matmul.expand" in sys.modules)
"""


@pytest.mark.long
def test_functions_that_nobody_needed_are_made_later(tmp_path: Path) -> None:
    """An entry has no text of those: another process makes it of the kernel's IR, when sizes reach them, and keeps it."""
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "cache"), "PULLBACK_VERIFY": "0"}
    environ["PULLBACK_CHOICES"] = "gemm=ours"
    result = []
    for first in ("True", "False", "False"):
        code = PRODUCTS.replace("FIRST", first)
        done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
        result.append(done.stdout.split())
    assert result == [["1", "0", "True"], ["0", "1", "True"], ["0", "1", "False"]]


def test_what_a_later_call_needed_is_kept(tmp_path: Path) -> None:
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "cache"), "PULLBACK_VERIFY": "0"}
    environ["PULLBACK_CHOICES"] = "gemm=ours"
    code = PRODUCTS.replace("FIRST", "False")
    result = [
        subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert result == [["1", "0", "True"], ["0", "1", "False"]]


def test_texts_are_the_same_whenever_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_functions, "_TEXTS", {})  # texts that other tests needed are written already

    def function(x: Any, y: Any) -> Any:
        of_batch = np.einsum("zij,zkj->zik", x, x), np.sum(np.square(x @ y.T), axis=-1)
        return y @ x[0].T, np.maximum(y @ y.T, 0.1), y.T @ np.exp(y), *of_batch

    f = pb.jit(function)
    f(np.ones((2, 3, 4)), np.ones((3, 4)))
    checked = 0
    for (entry,) in f._entries.by_key.values():
        built = entry.program.template.executable
        payload = encoded(built)
        assert payload is not None
        again = decoded(payload, "memory", lambda kernel: pipeline.scheduled_kernel(kernel, "cpu"))
        for name, kernel in built.kernels.items():
            before, after = kernel.slots, again.kernels[name].slots
            checked += sum(map(is_unwritten, after))
            assert [(*s[:2], *s[3:]) for s in before] == [(*s[:2], *s[3:]) for s in after]
            pairs = [(s[2], t[2]) for s, t in zip(before, after, strict=True) if s[0] == "shared"]
            assert all(str(one) == str(other) for one, other in pairs)
    assert checked


SLOPE = "\n" * 3 + "def slope(a):\n    return np.sum(np.linalg.cholesky(a))\n"


def test_a_failure_is_placed_in_the_function_at_hand(tmp_path: Path) -> None:
    """Two functions of the same text at other lines share a program, and not their places."""
    code = (
        "import sys, numpy as np, pullback as pb, traceback\nsys.path.insert(0, sys.argv[1])\nimport model\n"
        "try:\n    pb.jit(model.slope)(-np.eye(3))\nexcept np.linalg.LinAlgError as error:\n"
        "    print(error.__notes__, traceback.extract_tb(error.__traceback__)[-1].lineno, pb.cache_info().templates_loaded)\n"
    )
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "cache"), "PULLBACK_VERIFY": "0"}
    result = []
    for k, lines in enumerate((3, 40)):
        folder = tmp_path / f"user{k}"
        folder.mkdir()
        (folder / "model.py").write_text("import numpy as np\n" + SLOPE.replace("\n" * 3, "\n" * lines))
        done = subprocess.run([sys.executable, "-c", code, str(folder)], env=environ, capture_output=True, text=True, check=True)
        result.append(done.stdout.strip())
    assert result[0].endswith(" 6 0") and "model.py:6," in result[0]
    assert result[1].endswith(" 43 1") and "model.py:43," in result[1]


def test_no_place_of_the_users_is_kept(tmp_path: Path) -> None:
    run(tmp_path / "cache", "not positive", "failing loop", "out of range")
    entries = KernelCache(tmp_path / "cache").entries()
    programs = [e for e in entries if e.kind == "program"]
    assert len(programs) == 3
    for entry in entries:
        payload = KernelCache(tmp_path / "cache").get(entry.key)
        assert payload is not None and b"stored_programs" not in payload
        assert "stored_programs" not in json.dumps(entry.meta)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Programs are kept and read in this process, which has none in memory."""
    monkeypatch.setenv("PULLBACK_VERIFY", "0")
    monkeypatch.setattr(pipeline, "templates", pipeline.Templates())
    yield
    gc.collect()


def again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the templates of this process."""
    monkeypatch.setattr(pipeline, "templates", pipeline.Templates())


def key_of(function: Any, *args: Any) -> str:
    call = pb.jit(function).examine(args, {})
    result = pipeline.templated(call.trace.function)
    layouts = pipeline.layouts_of(call.trace, call.leaves, len(result.constants))
    key = program_serialize.key_of(pipeline.template_key(result, layouts, "cpu"))
    assert key is not None
    return key


@pytest.mark.usefixtures("kept")
def test_explain_and_stages_of_a_stored_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def curve(x: Any) -> Any:
        return np.sum(np.tanh(x) * 0.125 + np.cosh(x))

    texts = dict(pb.jit(curve).stages(X))
    assert pb.jit(curve).explain(X).template == "new"
    expected = pb.jit(curve)(X)
    again(monkeypatch)

    def renamed(y: Any) -> Any:
        return np.sum(np.tanh(y) * 0.125 + np.cosh(y))

    same = pb.jit(renamed)
    assert same.explain(X).template == "stored" and "in the cache folder" in str(same.explain(X))
    assert same(X) == expected
    assert same.explain(X).template == "loaded" and "no pass ran" in str(same.explain(X))
    assert list(same.stages(X)) == list(texts) and same.stages(X)["llvm"] == texts["llvm"]
    info = same.cache_info()
    assert (info.templates_loaded, info.templates_built, info.compiles) == (1, 0, 0)
    assert info.hits + info.disk_hits >= 1 and info.seconds["load program"] > 0 and "fuse" not in info.seconds


@pytest.mark.usefixtures("kept")
def test_a_bad_program_is_a_miss_and_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def new() -> Any:
        def curve(x: Any) -> Any:
            return np.sum(np.tanh(x) * 0.25 + np.sinh(x))

        return curve

    expected = pb.jit(new())(X)
    cache, key = default_engine().cache, key_of(new(), X)
    good = cache.get(key)
    assert good is not None
    (size,) = struct.unpack_from("<I", good)
    data = json.loads(good[4 : 4 + size])

    def changed(**parts: Any) -> bytes:
        text = json.dumps({**data, **parts}).encode()
        return struct.pack("<I", len(text)) + text + good[4 + size :]

    bad = [b"", good[:3], good[: 4 + size // 2], good[:-1], good + b"x", struct.pack("<I", 1 << 31) + good[4:]]
    bad += [changed(program="program f("), changed(program=7), changed(kernels=[["k0"]]), changed(kernels=None)]
    bad += [changed(kernels=[]), changed(program=data["program"].replace("program ", "func ", 1)), changed(driver=7)]
    old = json.dumps({name: part for name, part in data.items() if name != "ir"}).encode()
    bad += [changed(ir=1), changed(ir=3), struct.pack("<I", len(old)) + old + good[4 + size :]]
    bad += [changed(driver={"name": "d"}), good[:4] + b"[" * 40, good[: 4 + size] + bytes(len(good) - 4 - size)]
    for payload in bad:
        monkeypatch.setattr(default_engine(), "_loaded", WeakValueDictionary())
        with pytest.raises(Unreadable):
            decoded(payload, "disk", lambda kernel: kernel)
        cache.put(key, payload, kind="program")
        again(monkeypatch)
        before = counters.snapshot()
        assert pb.jit(new())(X) == expected
        taken = counters.snapshot() - before
        assert (taken.templates_built, taken.templates_loaded) == (1, 0)
        assert cache.get(key) == good


@pytest.mark.long
def test_nothing_is_kept_where_passes_are_verified_or_the_disk_is_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert os.environ["PULLBACK_VERIFY"] == "1" and program_serialize.key_of(b"t") is None
    result = run(tmp_path / "c", "gradient", PULLBACK_VERIFY="1")["gradient"]
    assert result["templates_built"] == 1
    assert {e.kind for e in KernelCache(tmp_path / "c").entries()} == {"object", "text"}, "and what the sources are"
    assert run(Path("off"), "gradient")["gradient"]["templates_built"] == 1
    shared = run(Path(os.pathsep.join(["off", str(tmp_path / "c")])), "gradient")["gradient"]
    assert shared["compiles"] < result["compiles"] and shared["templates_built"] == 1


def test_a_program_of_a_folder_that_is_only_read(tmp_path: Path) -> None:
    first = run(tmp_path / "shared", "gradient", "scan")
    several = Path(os.pathsep.join([str(tmp_path / "own"), str(tmp_path / "shared")]))
    second = run(several, "gradient", "scan")
    for name in ("gradient", "scan"):
        assert second[name]["found"] == first[name]["found"]
        assert second[name]["templates_loaded"] == 1 and second[name]["compiles"] == 0
    assert not KernelCache(tmp_path / "own").entries()


def test_the_object_code_of_a_kernel_is_shared(monkeypatch: pytest.MonkeyPatch, kept: None) -> None:
    """A program that is loaded takes the kernels that are loaded already."""
    first = pb.jit(lambda x: np.sum(np.tanh(x) * 0.375))
    first(X)
    loaded = default_engine().loaded()
    again(monkeypatch)
    second = pb.jit(lambda x: np.sum(np.tanh(x) * 0.375))
    second(X)
    assert second.cache_info().templates_loaded == 1
    assert default_engine().loaded() == loaded


def test_counts_are_of_the_function(kept: None) -> None:
    first, second = pb.jit(lambda x: np.sum(np.cosh(x) * 0.625)), pb.jit(lambda x: x + 1.0)
    first(X), second(X), second(X[:3]), second(X[:, 0])
    assert first.cache_info().templates_built + first.cache_info().templates_loaded == 1
    assert second.cache_info().templates_instantiated == 1
    assert first.cache_info().seconds["trace"] > 0
    assert "kernels" in str(first.cache_info()) and "trace" in str(first.cache_info())

    class Model:
        @pb.jit
        def value(self, x: Any) -> Any:
            return np.sum(x) * 0.8125

    assert Model().value(X) == Model().value(X)
    assert Model().value.cache_info().templates_built + Model().value.cache_info().templates_loaded == 1


def test_threads_that_ask_at_once_load_a_program_once(monkeypatch: pytest.MonkeyPatch, kept: None) -> None:
    def new() -> Any:
        return pb.grad(lambda x: np.sum(np.tanh(x) * 0.40625 + np.sqrt(1.0 + x * x)))

    expected = new()(X)
    again(monkeypatch)
    function, barrier = new(), threading.Barrier(16)

    def call(_: int) -> Any:
        barrier.wait()
        return function(X)

    with ThreadPoolExecutor(16) as pool:
        for result in pool.map(call, range(16)):
            np.testing.assert_array_equal(result, expected)
    info = function.cache_info()
    assert (info.templates_loaded, info.templates_built, info.templates_instantiated, info.compiles) == (1, 0, 0, 0)


def test_a_program_with_an_op_of_somebody_elses_is_not_kept(monkeypatch: pytest.MonkeyPatch, kept: None) -> None:
    """What the op means may change, and no key knows."""
    result = pipeline.templated(pb.jit(dense).examine((X[:5], X), {}).trace.function)
    assert pipeline.stored_key(b"t", result, "cpu") is not None
    monkeypatch.setattr(pipeline, "OWN_OPS", OWN_OPS - {OPS["tanh"]})
    assert pipeline.stored_key(b"t", result, "cpu") is None and not pipeline.is_stored(result, (), "cpu")


def test_encoding_gives_up_on_what_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    function = pb.jit(dense)
    function(X[:5], X)
    (entry,) = next(iter(function._entries.by_key.values()))
    executable = entry.program.template.executable
    assert encoded(executable) is not None
    monkeypatch.setattr(Engine, "object_code", lambda *_: None)
    assert encoded(executable) is None
