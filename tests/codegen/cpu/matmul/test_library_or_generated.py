"""Who does plain matrix products: classes of shapes, what is remembered of a measurement, pinned, shown. Times are made up."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.cli import tune as tuning
from pullback.cli.main import main
from pullback.codegen.cpu.matmul import shape_classes
from pullback.codegen.cpu.matmul.library_or_generated import owned
from pullback.codegen.cpu.matmul.shape_classes import (
    ALL,
    CLASSES,
    LIBRARY,
    OURS,
    STATIC,
    Shape,
    class_of,
    has_choice,
    static_choice,
)
from pullback.codegen.targets import Target
from pullback.ir import OPS, Builder, Function
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import DTYPES, I64, RefType
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_function
from pullback.runtime.cache import cache as cache_cache
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.choices import matmul as choices_matmul
from pullback.runtime.choices.choices import VARIABLE, Unmeasurable, choices
from pullback.runtime.choices.matmul import generated_mask, settled
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program import tune_matmul

EDGES = (1, 4, 8, 9, 16, 17, 32, 33, 64, 65, 128, 181, 1024, 2048, 4096, 1 << 21)
LARGE = len(CLASSES) - 1
MIDDLE = next(k for k, each in enumerate(CLASSES) if each.name == "middle")


@pytest.fixture(autouse=True)
def unsettled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own, and nothing settled."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(cache_cache, "_default", KernelCache(folder))
    monkeypatch.delenv(VARIABLE, raising=False)
    forget()
    yield folder
    forget()


def forget() -> None:
    choices_matmul.forget()
    choices.forget()


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels for this machine have both ways."""
    target = default_engine().host().target
    if not target.has_fma:
        pytest.skip("the processor has no multiply-add, and kernels of ours are for those that have")
    monkeypatch.setattr(shape_classes, "REGISTER", target.vector_bytes)


def made_up(monkeypatch: pytest.MonkeyPatch, faster: dict[str, str]) -> list[Shape]:
    """Measurements by which these classes are faster so by far, and all others as usual; the shapes that were measured."""
    asked: list[Shape] = []

    def times(dtype: str, shape: Shape) -> dict[str, float]:
        asked.append(shape)
        position = next(k for k, c in enumerate(CLASSES) if shape in c.examples)
        who = faster.get(CLASSES[position].name, choices_matmul.default_of(dtype, position))
        return {name: 1e-6 if name == who else 2e-6 for name in (OURS, LIBRARY)}

    monkeypatch.setattr(tune_matmul, "times", times)
    return asked


def tuned(dtype: str) -> int:
    result = list(tune_matmul.tuned(dtype))
    return sum(1 << k for k, each in enumerate(result) if each.chosen == OURS)


# classes


def test_examples_are_of_their_classes() -> None:
    for (k, each), dtype in itertools.product(enumerate(CLASSES), choices_matmul.DTYPES):
        assert {class_of(shape, DTYPES[dtype].part.bytes) for shape in each.examples} == {k}
    assert str(CLASSES[LARGE]) == "all others" and len({c.name for c in CLASSES}) == len(CLASSES)
    assert str(CLASSES[1]) == "at most 64 rows, at most 512 bytes of columns, at least 2,048 terms, at least 6 results"
    assert str(CLASSES[3]) == "at most 8 rows"
    assert str(CLASSES[4]) == "at most 64 rows, at least 2,097,152 elements on the right"
    assert all(names <= {c.name for c in CLASSES} for names in STATIC.values())


def plain(dtype: str) -> Function:
    """The kernel of a product that is all it does."""
    text = f"kernel k(%x: &{dtype}[s0,s1], %y: &{dtype}[s1,s2], %o: &{dtype}[s0,s2]) -> () {{\n"
    return parse_function(text + "  gemm %x, %y, %o {transpose_a=false, transpose_b=false}\n  return\n}")


def asked(dtype: str) -> tuple[list[Instruction], Value]:
    """What a kernel computes before it goes one way or the other, and the condition of the library's way."""
    kernel = owned(plain(dtype), Target(64))
    at = next(k for k, i in enumerate(kernel.instructions) if i.op is OPS["if"])
    return list(kernel.instructions[:at]), kernel.instructions[at].operands[0]


def is_library(dtype: str, chosen: int, shape: Shape) -> bool:
    """What a kernel decides."""
    built, condition = asked(dtype)
    b = Builder()
    for i in built:
        if i.op is OPS["tuned"]:
            assert i.params["extents"] == ("s0", "s1", "s2")
            b.append(Instruction(OPS["const"], (), i.results, {"value": chosen, "dtype": I64}))
        else:
            b.append(i)
    out = Value(RefType(DTYPES["bool"], ()), "out")
    b.store(condition, out)
    hit, sizes = np.zeros((), bool), dict(zip(("s0", "s1", "s2"), shape, strict=True))
    interpret(Function("k", Block((out,), tuple(b.instructions), ()), "kernel"), hit, sizes=sizes)
    return bool(hit)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_kernels_know_the_classes(dtype: str) -> None:
    random = np.random.default_rng(0)
    shapes = [tuple(map(int, random.choice(EDGES, 3))) for _ in range(80)]
    met = set()
    for shape in [*shapes, *(s for c in CLASSES for s in c.examples)]:
        k = class_of(shape, DTYPES[dtype].bytes)
        met.add(k)
        assert not is_library(dtype, 1 << k, shape) and is_library(dtype, ALL ^ (1 << k), shape), shape
    assert met == set(range(len(CLASSES)))


def test_machines_without_wide_registers_have_no_choice() -> None:
    kernel = plain("f64")
    for machine in (Target(16), Target(32, has_fma=False), Target(64, has_fma=False)):
        assert not has_choice(machine) and owned(kernel, machine) is kernel
        names = [i.op.name for i in owned(kernel, machine, always=True).instructions]
        assert "product" in names and "gemm" not in names and "tuned" not in names
    assert has_choice(Target(64)) and has_choice(Target(32))


def test_the_table_goes_by_what_kernels_the_library_has() -> None:
    assert static_choice("f64", MIDDLE, "SkylakeX", 64) == static_choice("f64", MIDDLE, "", 64) == LIBRARY
    assert static_choice("f64", MIDDLE, "Haswell", 64) == static_choice("f64", MIDDLE, "Zen", 64) == OURS
    assert {static_choice("f32", k, "SkylakeX", 32) for k in range(len(CLASSES))} == {LIBRARY}
    assert static_choice("f32", LARGE, "Haswell", 32) == OURS


# what is settled


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_without_a_measurement_the_table_decides(dtype: str, unsettled: Path) -> None:
    result = settled(dtype)
    assert [each.how for each in result] == ["default"] * len(CLASSES)
    assert [each.chosen for each in result] == [choices_matmul.default_of(dtype, k) for k in range(len(CLASSES))]
    assert not KernelCache(unsettled).entries()


@pytest.mark.parametrize(("text", "expected"), [("gemm=ours", ALL), ("library", 0), ("gemm=library,ours", 0)])
def test_the_environment_pins_all_classes(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, text)
    assert generated_mask("f32") == generated_mask("f64") == expected and settled("f32")[0].how == "pinned"


@pytest.mark.usefixtures("both_ways")
def test_what_was_measured_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = generated_mask("f64")
    other = {c.name: LIBRARY if usual >> k & 1 else OURS for k, c in enumerate(CLASSES)}
    shapes = made_up(monkeypatch, other)
    assert tuned("f64") == ALL ^ usual and shapes == [s for c in CLASSES for s in (*c.examples, *c.examples)]
    assert generated_mask("f64") == usual, "what is settled stays while the process lives"
    forget()
    assert generated_mask("f64") == ALL ^ usual and {each.how for each in settled("f64")} == {"remembered"}
    monkeypatch.setenv(VARIABLE, "gemm=static")
    forget()
    assert generated_mask("f64") == usual


@pytest.mark.usefixtures("both_ways")
def test_what_is_about_as_fast_stays_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = generated_mask("f32")

    def times(dtype: str, shape: Shape) -> dict[str, float]:
        position = next(k for k, c in enumerate(CLASSES) if shape in c.examples)
        return {who: 1.0 if choices_matmul.default_of(dtype, position) == who else 0.95 for who in (OURS, LIBRARY)}

    monkeypatch.setattr(tune_matmul, "times", times)
    assert tuned("f32") == usual


@pytest.mark.usefixtures("both_ways")
def test_what_cannot_be_measured_is_as_usual(monkeypatch: pytest.MonkeyPatch, unsettled: Path) -> None:
    def times(dtype: str, shape: Shape) -> dict[str, float]:
        raise Unmeasurable("no memory")

    monkeypatch.setattr(tune_matmul, "times", times)
    usual = generated_mask("f32")
    assert tuned("f32") == usual and not KernelCache(unsettled).entries()


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("payload", [b"", b"{", b'{"chosen": "nobody", "seconds": {}}', b'{"chosen": "ours"}'])
def test_a_damaged_entry_is_none(payload: bytes, monkeypatch: pytest.MonkeyPatch, unsettled: Path) -> None:
    usual = generated_mask("f64")
    made_up(monkeypatch, {"large": LIBRARY if usual >> LARGE & 1 else OURS})
    tuned("f64")
    cache = KernelCache(unsettled)
    for entry in cache.entries():
        cache.put(entry.key, payload, kind="choice")
    monkeypatch.setattr(cache_cache, "_default", KernelCache(unsettled))
    forget()
    assert generated_mask("f64") == usual and {each.how for each in settled("f64")} == {"default"}


@pytest.mark.usefixtures("both_ways")
def test_a_damaged_file_is_none(monkeypatch: pytest.MonkeyPatch, unsettled: Path) -> None:
    usual = generated_mask("f64")
    made_up(monkeypatch, {"large": LIBRARY if usual >> LARGE & 1 else OURS})
    tuned("f64")
    for path in (p for p in unsettled.rglob("*") if p.is_file()):
        path.write_bytes(path.read_bytes()[:-3])
    monkeypatch.setattr(cache_cache, "_default", KernelCache(unsettled))
    forget()
    assert generated_mask("f64") == usual


@pytest.mark.usefixtures("both_ways")
def test_measurements_that_disagree_say_nothing(monkeypatch: pytest.MonkeyPatch, unsettled: Path) -> None:
    result = itertools.cycle([{OURS: 1.0, LIBRARY: 2.0}, {OURS: 3.0, LIBRARY: 2.0}])
    monkeypatch.setattr(tune_matmul.Comparison, "total", lambda race: next(result))
    assert {each.how for each in tune_matmul.tuned("f32")} == {"default"} and not KernelCache(unsettled).entries()


SECOND = "from pullback.runtime.choices.matmul import generated_mask; print(generated_mask('f32'), generated_mask('f64'))"


@pytest.mark.usefixtures("both_ways")
def test_processes_with_one_cache_agree(monkeypatch: pytest.MonkeyPatch, unsettled: Path) -> None:
    made_up(monkeypatch, {c.name: OURS for c in CLASSES})
    assert tuned("f32") == tuned("f64") == ALL
    result = []
    for environ in ({}, {VARIABLE: "gemm=static"}, {"PULLBACK_CACHE_DIR": "off"}):
        environ = {**os.environ, "PULLBACK_CACHE_DIR": str(unsettled), **environ}
        done = subprocess.run([sys.executable, "-c", SECOND], env=environ, capture_output=True, text=True, check=True)
        result.append(done.stdout.split())
    usual = [str(sum(1 << k for k in range(len(CLASSES)) if choices_matmul.default_of(d, k) == OURS)) for d in ("f32", "f64")]
    assert result == [[str(ALL)] * 2, usual, usual]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("both_ways")
def test_a_forked_child_does_as_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = generated_mask("f64")
    made_up(monkeypatch, {c.name: LIBRARY if usual >> k & 1 else OURS for k, c in enumerate(CLASSES)})
    tuned("f64")
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write, str(generated_mask("f64")).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(read, 100)) == usual
    os.close(read)
    os.close(write)


# what is computed


def product(x: Any, w: Any) -> Any:
    return x @ w


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(40, 50, 60), (130, 129, 128), (9, 1200, 1100), (600, 700, 5), (300, 20, 400), (200, 210, 99)])
def test_both_ways_are_right(shape: Shape, dtype: str) -> None:
    rows, terms, columns = shape
    random = np.random.default_rng(1)
    x, w = random.standard_normal((rows, terms)).astype(dtype), random.standard_normal((terms, columns)).astype(dtype)
    exact = x.astype(np.longdouble) @ w.astype(np.longdouble)
    bound = 2 * terms * np.finfo(dtype).eps * (abs(x).astype(np.longdouble) @ abs(w).astype(np.longdouble))
    name = {"float32": "f32", "float64": "f64"}[dtype]
    for chosen in (0, ALL):
        out = np.full((rows, columns), np.nan, dtype)
        tune_matmul.product_call(name, [x, w, out], chosen)()
        assert (abs(out - exact) <= bound).all()


@pytest.mark.usefixtures("both_ways")
def test_calls_are_done_as_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(2).standard_normal((300, 301))
    result = []
    for pin in (OURS, LIBRARY):
        monkeypatch.setenv(VARIABLE, f"gemm={pin}")
        forget()
        f = pb.jit(lambda x: (x.T @ x) * 1.5)
        result.append(f(x))
        (line,) = f.explain(x).choices
        assert line == f"gemm of f64, 301x300 by 300x301, large (all others): {pin} (pinned)"
    np.testing.assert_allclose(result[0], result[1], rtol=1e-9, atol=1e-9)


# what is shown


@pytest.mark.usefixtures("both_ways")
def test_the_schedule_says_who_and_why() -> None:
    x = np.ones((300, 200), np.float32)
    text = pb.jit(product).stages(x, np.ones((200, 100), np.float32))["schedule"]
    who = choices_matmul.default_of("f32", LARGE)
    assert f"  # gemm of f32, 300x200 by 200x100, large (all others): {who} (default)\n  launch" in text


@pytest.mark.usefixtures("both_ways")
def test_the_command_measures(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    made_up(monkeypatch, {"small": OURS})
    monkeypatch.setattr(tuning, "load", lambda: 0.0)
    assert main(["tune"]) == 0
    out = capsys.readouterr().out
    assert "gemm of f32, small (at most 262,144 multiplications): ours (measured; library 8.0 us, ours 4.0 us)\n" in out
    assert out.count("measured") == len(choices_matmul.DTYPES) * len(CLASSES) and out.endswith("in their last bits\n")
    forget()
    assert main(["doctor"]) == 0
    assert "products   as measured by `pullback tune`" in (text := capsys.readouterr().out) and "f32 small ours" in text
    assert main(["cache", "list"]) == 0 and "gemm, f32, small" in capsys.readouterr().out
    monkeypatch.setenv(VARIABLE, "gemm=static")
    monkeypatch.setattr(tuning, "load", lambda: 2.0)
    assert main(["tune"]) == 0 and "says static: the written table goes first" in (out := capsys.readouterr().out)
    assert "other processes are at work (load 2.0)" in out


def test_the_command_says_where_nothing_is_to_be_chosen(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(shape_classes, "REGISTER", 128)
    assert main(["tune"]) == 0 and "here all are the library's" in capsys.readouterr().out
    assert main(["doctor"]) == 0 and "products   all are the library's" in capsys.readouterr().out
    monkeypatch.setattr(cache_cache, "_default", KernelCache())
    assert main(["tune"]) == 1 and "nothing can be remembered" in capsys.readouterr().out
