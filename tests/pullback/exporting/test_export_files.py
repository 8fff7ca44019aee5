"""Exports for other processors, from several threads, and their files; what cannot be exported."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.export import cpuid
from pullback.codegen.export.interface import FIRST_CHECK
from pullback.runtime.compile import linker as compile_linker
from pullback.runtime.program import export
from pullback.tree import leaves
from tests.support.exports import CASES, CC, Array, loss, needs_compiler, needs_linker, normal, same, saving

pytestmark = pytest.mark.usefixtures("our_products")


# processors


@needs_linker
@pytest.mark.parametrize("cpu", ["baseline", "avx2", "x86-64-v3"])
def test_other_processors(cpu: str, tmp_path: Path) -> None:
    if export.platform.machine() != "x86_64" or not {*export.features_of(export.host_of(cpu))} <= {
        *export.features_of(export.host_of("native"))
    }:
        pytest.skip(f"this processor runs no code for {cpu}")
    built = pb.export(pb.value_and_grad(loss), "f64[k]", "f64[n,k]", "f64[n]", path=tmp_path / "model", cpu=cpu)
    loaded = pb.load(str(built.library), trust=True)
    w, x, y = normal(5), normal(70, 5), normal(70)
    for result, expected in zip(leaves(loaded(w, x, y)), leaves(pb.value_and_grad(loss)(w, x, y)), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-13, atol=1e-15)
    assert loaded.cpu.startswith("x86-64")


@needs_linker
def test_a_processor_without_the_instructions_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if export.platform.machine() != "x86_64":
        pytest.skip("only x86-64 is asked")
    monkeypatch.setitem(cpuid.BITS, "another", (0x7FFFFFF0, 0, 0, 0))
    monkeypatch.setattr("pullback.exporting.exporter.features_of", lambda host: ("sse3", "another"))
    built = pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model")
    with pytest.raises(RuntimeError, match="lacks instructions"):
        pb.load(str(built.library), trust=True)
    library = ctypes.CDLL(str(built.library))
    library.model.restype = ctypes.c_int64
    x = np.zeros(3)
    assert library.model(ctypes.c_int64(3), ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(x.ctypes.data)) == 4


def test_unknown_processors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cpu='z80'"):
        pb.export(lambda x: x, "f64[n]", path=tmp_path / "model", cpu="z80")


# threads


@needs_linker
def test_two_threads_call_at_once(tmp_path: Path) -> None:
    function, specs, _ = CASES["solve"]
    loaded = pb.load(str(pb.export(function, *specs, path=tmp_path / "model").library), trust=True)
    inputs = [(normal(n, n), normal(n)) for n in (5, 40, 90)]
    expected = [function(*arguments) for arguments in inputs]
    problems: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for k in range(60):
                same(loaded(*inputs[(first + k) % 3]), expected[(first + k) % 3])
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


@needs_linker
def test_two_models_in_one_process(tmp_path: Path) -> None:
    first = pb.load(str(pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "first").library), trust=True)
    second = pb.load(str(pb.export(lambda x: x + 2, "f64[n]", path=tmp_path / "second").library), trust=True)
    same(first(np.zeros(2)), np.full(2, 1.0))
    same(second(np.zeros(2)), np.full(2, 2.0))


# what cannot be exported


def test_what_needs_python_is_refused(tmp_path: Path) -> None:
    def printing(x: Array) -> Any:
        pb.print("x is {}", x)
        return x.sum()

    def calling(x: Array) -> Any:
        return pb.callback(np.cumsum, x, x)

    for function in (printing, calling):
        with pytest.raises(pb.ExportError, match="which an object without Python cannot"):
            pb.export(function, "f64[3]", path=tmp_path / "model")


def test_writes_into_arguments_are_refused(tmp_path: Path) -> None:
    def writing(x: Array) -> None:
        x[0] = 1

    with pytest.raises(pb.ExportError, match="writes into x: return what it writes"):
        pb.export(writing, "f64[n]", path=tmp_path / "model")


def test_branches_on_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(pb.ExportError, match="follows branches"):
        pb.export(pb.jit(lambda x: x if x.sum() > 0 else -x, guards=True), "f64[3]", path=tmp_path / "model")


def test_bad_specs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no dtype f63"):
        pb.export(lambda x: x, "f63[n]", path=tmp_path / "model")
    with pytest.raises(ValueError, match="an extent is a number or a name"):
        pb.export(lambda x: x, "f64[n+1]", path=tmp_path / "model")
    with pytest.raises(ValueError, match="as C has them"):
        pb.export(lambda x: x, "f64[n]", path=tmp_path / "model", name="a-b")
    with pytest.raises(ValueError, match="C cannot take int"):
        pb.export(lambda x: x, "f64[int]", path=tmp_path / "model")


# files


def test_no_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.warns(pb.ExportWarning, match=r"no linker is on PATH \(cc, gcc, clang, ld\): model.o is written, model.so"):
        built = pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model")
    assert built.library is None and built.object.exists() and built.header.exists()


@pytest.mark.parametrize("linker", [name for name in compile_linker.LINKERS if shutil.which(name)])
def test_each_linker(linker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_linker, "LINKERS", (linker,))
    built = pb.export(pb.value_and_grad(saving), "f64[n]", path=tmp_path / "model")
    same(pb.load(str(built.library), trust=True)(np.ones(3)), pb.value_and_grad(saving)(np.ones(3)))
    assert not list(tmp_path.glob(".*"))


def test_a_linker_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "cc"
    bad.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    bad.chmod(0o755)
    monkeypatch.setattr(compile_linker, "find_linker", lambda: str(bad))
    monkeypatch.setattr("pullback.exporting.export.find_linker", lambda: str(bad))
    with pytest.warns(pb.ExportWarning, match="no room"):
        assert pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model").library is None


@needs_linker
def test_loading_asks_for_trust(tmp_path: Path) -> None:
    built = pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model")
    with pytest.raises(ValueError, match="pass trust=True"):
        pb.load(str(built.library))
    with pytest.raises(OSError):
        pb.load(tmp_path / "nothing.so", trust=True)
    with pytest.raises(OSError):
        pb.load(built.object, trust=True)


@needs_linker
def test_a_file_that_changed_is_loaded_anew(tmp_path: Path) -> None:
    first = pb.load(str(pb.export(lambda x: x + 1, "f64[n]", path=tmp_path / "model").library), trust=True)
    second = pb.load(str(pb.export(lambda x: x + 2, "f64[n]", path=tmp_path / "model").library), trust=True)
    third = pb.load(str(pb.export(lambda x: x + 3, "f64[n]", path=tmp_path / "model").library), trust=True)
    for function, expected in ((first, 1.0), (second, 2.0), (third, 3.0), (first, 1.0)):
        same(function(np.zeros(2)), np.full(2, expected))


@needs_linker
def test_a_loop_is_interrupted(tmp_path: Path) -> None:
    def forever(x: Any) -> Any:
        return pb.while_loop(lambda c: c > 0, lambda c: c * 0.5 + 1, x)

    loaded = pb.load(str(pb.export(forever, "f64[]", path=tmp_path / "model").library), trust=True)

    def stop(count: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            loaded(np.float64(1))
    finally:
        signal.signal(signal.SIGALRM, before)


@needs_compiler
def test_a_foreign_library_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text('const char pullback_exported[] = "x"; const char x_manifest[] = "[]";')
    subprocess.run([str(CC), "-shared", "-fPIC", str(tmp_path / "x.c"), "-o", str(tmp_path / "x.so")], check=True)
    with pytest.raises(ValueError, match=r"was not made by pb\.export"):
        pb.load(tmp_path / "x.so", trust=True)


@needs_linker
def test_a_manifest_is_json_without_code(tmp_path: Path) -> None:
    built = pb.export(loss, "f64[k]", "f64[n,k]", "f64[n]", path=tmp_path / "model")
    library = ctypes.CDLL(str(built.library))
    about = json.loads(ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, "model_manifest"))))
    assert about["title"] == "loss" and about["extents"] == [["k", 0, None], ["n", 0, None]]
    assert about["failures"] == [] and FIRST_CHECK == 6


def test_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        textwrap.dedent("""
        import numpy as np

        def loss(w, x):
            return np.sum((x @ w) ** 2)

        def bad(x):
            return sum(x[k] for k in range(len(x)))
    """)
    )

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        words = (sys.executable, "-m", "pullback", "export", *words)
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=environment)

    done = command("model.py:loss", "f64[k]", "f64[n,k]", "--grad", "--out", "out/model")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:2] == ["out/model.o", "out/model.h"]
    assert "serves k from 0 on, n from 0 on" in done.stdout
    assert (tmp_path / "out" / "model.h").exists()
    done = command("model.py:bad", "f64[n]", "--out", "out/bad")
    assert done.returncode == 1 and "not one program for all sizes" in done.stderr
    done = command("model.py:loss", "f64[k+1]", "f64[3]", "--out", "out/bad")
    assert done.returncode == 2 and "names and numbers" in done.stderr
