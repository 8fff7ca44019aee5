"""The LLVM engine: texts become addresses, bad ones become errors, and stored objects are found again."""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pullback.codegen.cpu.llvm.text import OPTIMISED, TIERED, calls_optimised, quick_form
from pullback.runtime.cache.cache import KernelCache, key
from pullback.runtime.compile.engine import Engine
from pullback.runtime.compile.machine import find_host
from pullback.runtime.compile.object_files import object_symbols
from pullback.runtime.compile.validation import CompileError
from pullback.runtime.process import counters

_numbers = itertools.count()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine()


def axpy(name: str, scale: float = 2.5) -> str:
    """Return LLVM text of y[i] = scale * x[i] + 1.5, four at a time, for n a multiple of four: constants are in .rodata."""
    return f"""
define i32 @{name}(ptr noalias %x, ptr noalias %y, i64 %n) nounwind {{
entry:
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %px = getelementptr double, ptr %x, i64 %i
  %a = load <4 x double>, ptr %px, align 8
  %b = fmul <4 x double> %a, splat (double {scale!r})
  %c = fadd <4 x double> %b, <double 1.5, double 1.5, double 1.5, double -1.5>
  %py = getelementptr double, ptr %y, i64 %i
  store <4 x double> %c, ptr %py, align 8
  %next = add i64 %i, 4
  br label %head
done:
  ret i32 7
}}
"""


def run_axpy(address: int, n: int = 8) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    x, y = np.arange(float(n)), np.empty(n)
    function = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    assert function(x.ctypes.data, y.ctypes.data, n) == 7
    return y


def expected_axpy(scale: float = 2.5, n: int = 8) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.arange(float(n)) * scale + np.tile([1.5, 1.5, 1.5, -1.5], n // 4)


@pytest.mark.parametrize("passes", ["none", "light", "full"])
def test_compiles_and_runs(engine: Engine, passes: str) -> None:
    result = engine.load(axpy(f"f_{passes}"), symbols=[f"f_{passes}"], passes=passes)  # type: ignore[arg-type]
    np.testing.assert_array_equal(run_axpy(result[f"f_{passes}"]), expected_axpy())


@pytest.mark.parametrize("level", ["baseline", "avx2", "avx512", "native"])
def test_levels(level: str) -> None:
    try:
        engine = Engine(level=level)
    except ValueError as error:
        pytest.skip(str(error))
    result = engine.load(axpy("f"), symbols=["f"])
    np.testing.assert_array_equal(run_axpy(result["f"]), expected_axpy())
    used = engine.assembly(axpy("f"))
    assert ("ymm" in used) == (engine.host().vector_bytes >= 32)


def test_level_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_CPU", "baseline")
    assert (find_host().cpu, find_host().vector_bytes) == ("x86-64-v2", 16)
    monkeypatch.setenv("PULLBACK_CPU", "486")
    with pytest.raises(ValueError, match="PULLBACK_CPU=486"):
        find_host()


def test_stored_objects_are_loaded_again(tmp_path: Path) -> None:
    first, text = Engine(KernelCache(tmp_path)), axpy("stored")
    start = counters.snapshot()
    first.load(text, symbols=["stored"], meta={"stage": "test"})
    first.load(text, symbols=["stored"])
    taken = counters.snapshot() - start
    assert (taken.compiles, taken.disk_hits, taken.hits) == (1, 0, 1)
    second = Engine(KernelCache(tmp_path))
    start = counters.snapshot()
    result = second.load(text, symbols=["stored"])
    taken = counters.snapshot() - start
    assert (taken.compiles, taken.disk_hits, taken.hits) == (0, 1, 0)
    np.testing.assert_array_equal(run_axpy(result["stored"]), expected_axpy())
    (entry,) = KernelCache(tmp_path).entries()
    assert entry.meta["symbols"] == ["stored"] and entry.meta["stage"] == "test"


@pytest.mark.long
def test_another_process_finds_them(tmp_path: Path) -> None:
    program = (
        "import sys; from pullback.runtime.compile import engine; from pullback.runtime.process import counters\n"
        "assert engine.default_engine().load(sys.argv[1], symbols=['shared'])['shared']\n"
        "c = counters.snapshot(); print(c.compiles, c.disk_hits)"
    )
    command = [sys.executable, "-c", program, axpy("shared")]
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "c")}
    seen = [subprocess.run(command, env=environ, capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.strip() for run in seen] == ["1 0", "0 1"]


def test_an_object_that_does_not_load_is_compiled_again(tmp_path: Path) -> None:
    engine, text = Engine(KernelCache(tmp_path)), axpy("broken")
    other = engine.compile(axpy("other"))
    for payload in (b"", b"garbage", other, other[:400]):
        store = KernelCache(tmp_path)
        store.put(engine.key(text), payload, kind="object")
        result = Engine(store).load(text, symbols=["broken"])
        np.testing.assert_array_equal(run_axpy(result["broken"]), expected_axpy())
        assert KernelCache(tmp_path).get(engine.key(text)) not in (None, payload)


def test_the_key_depends_on_text_target_and_passes(engine: Engine) -> None:
    texts = {engine.key(axpy("f")), engine.key(axpy("g")), engine.key(axpy("f"), passes="none")}
    baseline = Engine(level="baseline")
    assert len(texts | {baseline.key(axpy("f"))}) == 4
    assert baseline.key(axpy("f")) == Engine(level="baseline").key(axpy("f"))
    with pytest.raises(ValueError, match="passes"):
        engine.key("", passes="fast")  # type: ignore[arg-type]


def test_more_symbols_of_a_loaded_text(engine: Engine) -> None:
    text = "define i32 @one() {\n  ret i32 1\n}\ndefine i32 @two() {\n  ret i32 2\n}\n"
    one = engine.load(text, symbols=["one"])
    both = engine.load(text, symbols=["one", "two"])
    assert list(one) == ["one"] and list(both) == ["one", "two"]
    assert [ctypes.CFUNCTYPE(ctypes.c_int32)(at)() for at in both.values()] == [1, 2]


FMA = """
declare double @llvm.fma.f64(double, double, double)
define double @plain(double %a, double %b, double %c) {
  %m = fmul double %a, %b
  %s = fadd double %m, %c
  ret double %s
}
define double @fused(double %a, double %b, double %c) {
  %s = call double @llvm.fma.f64(double %a, double %b, double %c)
  ret double %s
}
"""


@pytest.mark.parametrize("passes", ["none", "light", "full"])
def test_no_contraction(engine: Engine, passes: str) -> None:
    plain, fused = engine.assembly(FMA, passes=passes).split("fused:")  # type: ignore[arg-type]
    assert "vfmadd" not in plain and "mulsd" in plain
    result = engine.load(FMA, symbols=["plain", "fused"], passes=passes)  # type: ignore[arg-type]
    call = [ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_double] * 3)(at) for at in result.values()]
    a, c = 1 + 2.0**-30, -1 - 2.0**-29
    assert call[0](a, a, c) == 0.0
    if "vfmadd" in fused:
        assert call[1](a, a, c) == 2.0**-60


def test_memory_functions_are_resolved(engine: Engine) -> None:
    text = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @moves(ptr %y, ptr %x, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %x, i8 3, i64 %n, i1 false)
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %x, i64 %n, i1 false)
  ret void
}
"""
    assert object_symbols(engine.compile(text)) == ({"moves"}, {"memcpy", "memset"})
    x, y = np.zeros(1000, np.uint8), np.zeros(1000, np.uint8)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function(engine.load(text, symbols=["moves"])["moves"])(y.ctypes.data, x.ctypes.data, 990)
    assert (y[:990] == 3).all() and (y[990:] == 0).all()


BAD = {
    "syntax": ("define garbage", "expected type"),
    "types": (
        "define double @f(double %x) {\n  %y = fadd float %x, %x\n  ret double %x\n}",
        "expected 'float'",
    ),
    "dominance": (
        "define double @f(double %x) {\n  %y = fneg double %z\n  %z = fneg double %x\n  ret double %y\n}",
        "does not dominate",
    ),
    "outside": (
        "declare void @system(ptr)\ndefine void @f() {\n  call void @system(ptr null)\n  ret void\n}",
        "system",
    ),
    "frem": ("define double @f(double %x) {\n  %y = frem double %x, 3.0\n  ret double %y\n}", "fmod"),
    "no such function": ("define void @g() {\n  ret void\n}", "defines no f"),
    "unknown intrinsic": (
        "declare double @llvm.nosuch(double)\ndefine double @f(double %x) {\n"
        "  %y = call double @llvm.nosuch(double %x)\n  ret double %y\n}",
        "llvm.nosuch is not accepted",
    ),
    "intrinsic of one CPU": (
        "declare <4 x double> @llvm.x86.avx.addsub.pd.256(<4 x double>, <4 x double>)\n"
        "define <4 x double> @f(<4 x double> %x) {\n"
        "  %y = call <4 x double> @llvm.x86.avx.addsub.pd.256(<4 x double> %x, <4 x double> %x)\n"
        "  ret <4 x double> %y\n}",
        "llvm.x86.avx.addsub.pd.256 is not accepted",
    ),
    "assembly": ('define void @f() {\n  call void asm sideeffect "nop", ""()\n  ret void\n}', "asm"),
    "module assembly": ('module asm "nop"', "asm"),
    "collector": ('define void @f() gc "nosuch" {\n  ret void\n}', "gc"),
    "ppc_fp128": (
        "define ppc_fp128 @f(ppc_fp128 %x) {\n  %y = fadd ppc_fp128 %x, %x\n  ret ppc_fp128 %y\n}",
        "ppc_fp128",
    ),
    "x86_fp80": ("define void @f(x86_fp80 %x) {\n  ret void\n}", "x86_fp80"),
    "scalable": ("define void @f(<vscale x 2 x double> %x) {\n  ret void\n}", "vscale"),
    "triple": ('target triple = "aarch64-apple-macos"\ndefine void @f() {\n  ret void\n}', "target triple"),
    "features": ('define void @f() "target-features"="-sse2" {\n  ret void\n}', "target-features"),
    "zero byte": ("define void @f() {\n\0  ret void\n}", "zero byte"),
    "empty": ("", "defines no f"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_text_is_an_error(engine: Engine, name: str) -> None:
    text, message = BAD[name]
    with pytest.raises(CompileError, match=message) as raised:
        engine.load(text, symbols=["f"])
    assert raised.value.text.count("\n") == text.count("\n")
    assert message in raised.value.reason


def test_the_error_points_at_the_line(engine: Engine) -> None:
    lines = axpy("f").splitlines()
    at = next(n for n, line in enumerate(lines) if "fmul" in line)
    lines[at] = lines[at].replace("fmul <4", "fmul <3")
    with pytest.raises(CompileError) as raised:
        engine.load("\n".join(lines), symbols=["f"])
    marked = [line for line in str(raised.value).splitlines() if line.startswith("->")]
    assert marked == [f"-> {at + 1:5} {lines[at]}"]


def test_refused_words_in_comments_are_harmless(engine: Engine) -> None:
    text = axpy("commented").replace("entry:", 'entry: ; gc "x" asm "y" @llvm.x86.foo')
    assert engine.load(text, symbols=["commented"])


def test_optimised_inlines_and_drops(engine: Engine) -> None:
    text = (
        "define internal double @twice(double %x) alwaysinline {\n"
        "  %y = fadd double %x, %x\n  ret double %y\n}\n"
        "define double @f(double %x) {\n  %y = call double @twice(double %x)\n  ret double %y\n}\n"
    )
    assert "call" not in engine.optimised(text) and "@twice" not in engine.optimised(text)
    assert "call" in engine.optimised(text, passes="none")


def test_equal_names_in_two_texts_do_not_meet(engine: Engine) -> None:
    result = [engine.load(axpy("same", scale), symbols=["same"])["same"] for scale in (2.0, 3.0)]
    for address, scale in zip(result, (2.0, 3.0)):
        np.testing.assert_array_equal(run_axpy(address), expected_axpy(scale))


def test_many_modules_from_many_threads(engine: Engine) -> None:
    failures: list[object] = []

    def work(part: int) -> None:
        try:
            for n in range(60):
                scale = 1.0 + (n + part) % 70
                address = engine.load(axpy("thread", scale), symbols=["thread"])["thread"]
                np.testing.assert_array_equal(run_axpy(address), expected_axpy(scale))
        except BaseException as error:
            failures.append(error)

    start = counters.snapshot()
    threads = [threading.Thread(target=work, args=(10 * part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = counters.snapshot() - start
    assert not failures
    assert taken.hits + taken.compiles == 240 and taken.compiles <= 70


def test_a_thousand_stored_objects_load(tmp_path: Path) -> None:
    engine, store = Engine(KernelCache(tmp_path)), KernelCache(tmp_path)
    payload = engine.compile(axpy("many"))
    texts = [f"; {n}\n{axpy('many')}" for n in range(1000)]
    for text in texts:
        store.put(engine.key(text), payload, kind="object")
    engine = Engine(store)
    start = counters.snapshot()
    addresses = [engine.load(text, symbols=["many"])["many"] for text in texts]
    taken = counters.snapshot() - start
    assert taken.compiles == 0 and len(set(addresses)) == 1000
    for address in addresses[::50]:
        np.testing.assert_array_equal(run_axpy(address), expected_axpy())


def test_code_outlives_its_engine() -> None:
    def address() -> int:
        return Engine().load(axpy("orphan"), symbols=["orphan"])["orphan"]

    np.testing.assert_array_equal(run_axpy(address()), expected_axpy())


FORKS = """
import os, threading
from pullback.runtime.compile.engine import default_engine
text = "define i32 @f() {\\n  ret i32 %d\\n}"
engine = default_engine()
done = threading.Event()
def work():
    n = 1000
    while not done.wait(0.001):
        engine.load(text % (n := n + 1), symbols=["f"])
thread = threading.Thread(target=work)
thread.start()
children = []
for n in range(10):
    child = os.fork()
    if child == 0:
        os._exit(0 if engine.load(text % n, symbols=["f"])["f"] else 1)
    children.append(child)
done.set()
thread.join()
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_children_compile(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "c")}
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=20)
    assert (run.stdout.strip(), run.stderr) == (str([0] * 10), "")


def improve(engine: Engine, is_done: Callable[[], object]) -> None:
    """Start the optimised compile of tiered texts, and wait for it."""
    engine.improve()
    deadline = time.monotonic() + 60
    while not is_done() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_tiered_texts_are_compiled_twice(tmp_path: Path) -> None:
    """The first compile is quick, for the waiting caller; an optimised compile follows and serves later requests."""
    engine, text = Engine(KernelCache(tmp_path)), TIERED + axpy("f_tiered")
    first = engine.kernel(text, symbols=["f_tiered"])
    assert engine.where(text) is None and engine.where(quick_form(text)) == "memory"
    assert engine.kernel(text, symbols=["f_tiered"]) is first
    improve(engine, lambda: engine.where(text))
    second = engine.kernel(text, symbols=["f_tiered"])
    assert second is not first
    for kernel in (first, second, Engine(KernelCache(tmp_path)).kernel(text, symbols=["f_tiered"])):
        np.testing.assert_array_equal(run_axpy(kernel.addresses["f_tiered"]), expected_axpy())
    assert len(engine.object_code(engine.key(text)) or b"") < len(engine.object_code(engine.key(quick_form(text))) or b"")


@pytest.mark.parametrize("result", ["void", "i64"])
def test_who_has_quick_code_runs_better_code_when_it_is_there(result: str) -> None:
    text = f"""{TIERED}define {result} @f_where(ptr noalias %place, i64 %x, i1 %all) nounwind {{
entry:
  %ours = load i64, ptr %place
  %more = add i64 %ours, %x
  store i64 %more, ptr %place
  ret {result}{" %more" if result == "i64" else ""}
}}
"""
    engine = Engine(KernelCache())
    first = engine.kernel(text, symbols=["f_where"])
    returned = ctypes.c_int64 if result == "i64" else None
    f = ctypes.CFUNCTYPE(returned, ctypes.c_void_p, ctypes.c_int64, ctypes.c_bool)(first.addresses["f_where"])
    position = ctypes.c_int64(5)
    better = ctypes.c_void_p.from_address(first.addresses[OPTIMISED])
    assert f(ctypes.addressof(position), 10, True) == (15 if returned else None) and position.value == 15 and better.value is None
    improve(engine, lambda: better.value)
    second = engine.kernel(text, symbols=["f_where"])
    assert second is not first and better.value == second.addresses["f_where"]
    assert f(ctypes.addressof(position), 20, True) == (35 if returned else None) and position.value == 35
    held = weakref.ref(second)
    del second
    gc.collect()
    assert held() is not None  # by the first one
    del first
    gc.collect()
    assert held() is None


def test_modules_that_keep_something_are_not_replaced() -> None:
    kept = TIERED + "@state = internal global i64 0\n" + axpy("f_kept")
    several = TIERED + axpy("f_one") + axpy("f_two")
    assert (
        calls_optimised(quick_form(TIERED + axpy("f_one")))
        and not calls_optimised(quick_form(kept))
        and not calls_optimised(quick_form(several))
    )


@pytest.mark.parametrize("how", ["begin", "ahead"])
def test_tiered_texts_that_threads_compile(tmp_path: Path, how: str) -> None:
    engine, text = Engine(KernelCache(tmp_path)), TIERED + axpy("f_apart")
    if how == "begin":
        engine.compile_in_background(text)
    else:
        with engine.precompile(1) as add:
            add(text)
    before = counters.snapshot().seconds.get("emit object", 0.0)
    np.testing.assert_array_equal(run_axpy(engine.load(text, symbols=["f_apart"])["f_apart"]), expected_axpy())
    assert engine.where(quick_form(text)) == "memory" and engine.where(text) is None
    assert how == "begin" or counters.snapshot().seconds.get("emit object", 0.0) == before


def test_keys_are_cache_keys(engine: Engine) -> None:
    assert len(engine.key("")) == len(key("")) == 64
