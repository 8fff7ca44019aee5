"""What decides code is in its key, and what is in no key decides none."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.codegen.targets import Target
from pullback.ir.text import parse_function, print_module
from pullback.ir.verify import verify
from pullback.programs import pipeline
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.compile import engine, key_inputs, machine
from pullback.runtime.compile.engine import Engine
from pullback.runtime.compile.machine import Host
from pullback.runtime.program import serialize as program_serialize

TEXT = "define i64 @f(ptr %p) { ret i64 0 }"
HOST = Host(triple="x86_64-unknown-linux-gnu", cpu="x86-64-v3", features="", vector_bytes=32, has_fma=True)
FIELDS: list[dict[str, Any]] = [
    {"triple": "aarch64-unknown-linux-gnu", "cpu": "generic"}, {"cpu": "x86-64-v2"}, {"features": "+avx2"}, {"vector_bytes": 16},
    {"has_fma": False}, {"cache": 1 << 18},
]  # fmt: skip


def keys(host: Host = HOST) -> tuple[str, str]:
    """Those of a program and of a kernel."""
    built = Engine(KernelCache(), host=host)
    return built.program_key("a template"), built.key(TEXT)


@pytest.mark.parametrize("change", FIELDS, ids=lambda change: " ".join(change))
def test_each_property_of_the_machine_decides(change: dict[str, Any]) -> None:
    assert {field for each in FIELDS for field in each} == {field.name for field in dataclasses.fields(Host)}
    program, kernel = keys(dataclasses.replace(HOST, **change))
    assert program != keys()[0]
    goes_by_the_text = not {"triple", "cpu", "features"} & change.keys()
    assert (kernel == keys()[1]) is goes_by_the_text


def test_each_property_of_a_target_is_of_the_host() -> None:
    """What the generator knows of a machine is all that a host says of it."""
    host = dataclasses.replace(HOST, vector_bytes=64, has_fma=False, cpu="icelake-server", cache=1 << 19)
    assert host.target == Target(64, False, "icelake-server", 1 << 19)
    assert [field.name for field in dataclasses.fields(Target)] == ["vector_bytes", "has_fma", "cpu", "cache"]


def test_each_thing_that_constants_are_computed_with_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = [keys()]

    def differs() -> None:
        program, kernel = keys()
        assert program not in [each for each, _ in seen] and kernel == seen[0][1]
        seen.append((program, kernel))

    monkeypatch.setattr(key_inputs, "_c_library_version", lambda: "another libc")
    differs()
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX512F")
    differs()
    for library, file in key_inputs._VERSION_FILES.items():
        (tmp_path / library).mkdir()
        (tmp_path / library / "__init__.py").write_text("")
        (tmp_path / library / file).write_text("version = 'of another time'")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, library, raising=False)
        differs()


def test_sources_llvm_and_its_level_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys()
    for name, value in {"generator_stamp": lambda: "other", "llvm_version": lambda: "LLVM 99", "CODEGEN_LEVEL": 1}.items():
        with monkeypatch.context() as patch:
            patch.setattr(engine, name, value)
            assert not {*keys()} & {*before}


def test_the_versions_are_those_that_are_imported() -> None:
    import ml_dtypes
    import scipy

    words = dict(word.split(" ", 1) for word in key_inputs.deciders(HOST) if word.startswith(("scipy ", "ml_dtypes ")))
    assert f'"{scipy.__version__}"' in words["scipy"] and ml_dtypes.__version__ in words["ml_dtypes"]


PRODUCT = """\
func product(%a: f64[700,700], %b: f64[700,700]) -> (f64[700,700]) {
  %c: f64[700,700] = contract %a, %b {spec="ij,jk->ik"}
  %d: f64[700,700] = sin %c
  return %d
}"""


def test_the_second_cache_decides_code() -> None:
    """So it belongs into the key: a product is cut by it."""
    module = lower(fuse(verify(parse_function(PRODUCT))))
    texts = [print_module(pipeline.scheduled(module, "cpu", Target(32, True, "x86-64-v3", size))) for size in (1 << 18, 1 << 21)]
    assert texts[0] != texts[1]


SCRIPT = """
import numpy as np, pullback as pb
x = np.linspace(0.0, 1.0, 40_000).reshape(200, 200)
pb.value_and_grad(lambda w, x: np.mean(np.tanh(x @ w) ** 2))(x, x)
pb.jit(lambda x: np.sort(np.exp(x), axis=0).sum(axis=1))(x)
pb.jit(lambda a, b: np.linalg.solve(a + 300 * np.eye(200), b))(x, x)
pb.jit(lambda x: pb.fori_loop(0, 9, lambda k, c: np.sin(c) + x[k], 0.0))(x[0])
"""
ELSEWHERE = {
    "PULLBACK_NUM_THREADS": "1", "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "1", "PULLBACK_POOL_BYTES": "0",
    "PULLBACK_CALL_PATH": "plain", "PULLBACK_TRACEBACK": "full", "PYTHONHASHSEED": "7",
    "PYTHONOPTIMIZE": "2", "LC_ALL": "C", "TZ": "Asia/Tokyo", "HOME": "/nowhere", "COLUMNS": "20",
}  # fmt: skip


def test_what_is_in_no_key_decides_nothing(tmp_path: Path) -> None:
    """Two processes whose settings differ in what is in no key keep the same programs, with the same code. PULLBACK_CHOICES is
    not among them: it decides which functions of a program a call needs, so how much of it is written at first."""
    kept = []
    for name, settings in {"a": {"PYTHONHASHSEED": "1"}, "b": ELSEWHERE}.items():
        environment = {**os.environ, "PULLBACK_VERIFY": "0", **settings, "PULLBACK_CACHE_DIR": str(tmp_path / name)}
        subprocess.run([sys.executable, "-c", SCRIPT], env=environment, check=True, timeout=120)
        store = KernelCache(tmp_path / name)
        kept.append({entry.key: store.get(entry.key) for entry in store.entries() if entry.kind == "program"})
    assert len(kept[0]) == 4 and kept[0] == kept[1]


def test_a_program_of_another_second_cache_is_not_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PULLBACK_VERIFY", "0")
    result = set()
    for size in (machine.LEAST_CACHE, machine.MOST_CACHE):
        monkeypatch.setattr(machine, "l2_bytes", lambda size=size: size)
        built = Engine(KernelCache(tmp_path))
        monkeypatch.setattr(program_serialize, "default_engine", lambda built=built: built)
        result.add(program_serialize.key_of(b"a template"))
    assert len(result) == 2 and None not in result
