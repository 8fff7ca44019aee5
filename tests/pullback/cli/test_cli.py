"""The command line: every stage of a function prints, parses back, runs and agrees; mistakes are one message and a code."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.cli import cache as cache_command
from pullback.cli.main import main
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module, print_module
from pullback.programs.pipeline import SHARED_STAGES, TARGET_STAGES
from pullback.runtime.cache.cache import KernelCache, default_cache
from pullback.runtime.compile.platforms import python_support, support
from tests.support.paths import EXAMPLES

DIGITS = EXAMPLES / "digits.py"
MODULE = '''
"""Functions to be dumped."""
from typing import NamedTuple
import numpy as np
import pullback as pb

SCALE = 1.75

class Pair(NamedTuple):
    a: object
    b: object

def f(x, y, power=2.0, *, shift=0.0):
    return np.sum(np.sin(x) * y ** power * SCALE) + shift

def by_rows(x):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)

def of_pair(p, n):
    return p.a * p.b[:n]

@pb.jit
@pb.grad
def slope(x):
    return np.mean(np.tanh(x) ** 2)

class Box:
    def area(w, h):
        return w * h

class Spring:
    def __init__(self, stiffness):
        self.stiffness = stiffness

    def force(self, x):
        return -self.stiffness * x

class Oscillator:
    mass = 2.0

    def energy(self, v):
        return np.sum(0.5 * self.mass * v ** 2)

    @pb.grad
    def momentum(self, v):
        return np.sum(0.5 * self.mass * v ** 2)

spring = Spring(3.0)

def of_tree(params, pair, *, lam, mode):
    total = np.sum(params["w"] @ params["layers"][0]) + pair[0].sum() * pair[1]
    return total * lam if mode == "full" else total

def many(n: int, mode, x: np.ndarray[tuple[int], np.dtype[np.float32]], A, params, other=1, *rest, lam, scale=1):
    return x
@pb.jit(loops="unroll")
def branch(x):
    if x > 0:
        return x
    return -x

def example():
    return np.linspace(0.0, 1.0, 5), np.ones(5)

def with_keywords():
    return (np.ones(3), np.ones(3)), {"shift": 2.0}

def pair():
    return Pair(np.ones(4), np.arange(6.0)), 4

def fails():
    raise ValueError("no data here")

def one_array():
    return np.ones((2, 3))

NOT_A_FUNCTION = 3

def of_mode(x, mode="mean"):
    return x.sum() if mode == "total" else x.mean() * 2
'''


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "functions_to_dump.py"
    path.write_text(MODULE)
    return path


def call(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str, str]:
    """The exit code, output and messages of a command."""
    capsys.readouterr()
    try:
        code = main([str(w) for w in words])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def result_of(path: Path) -> list[Any]:
    """The results of the first function of a file on its saved inputs."""
    result = parse_module(path.read_text())
    with np.load(path.parent / "inputs.npz") as inputs:
        return list(interpret(result.functions[0], *(inputs[p.name] for p in result.functions[0].parameters), module=result))


def ir_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.ir"))


# dump


def test_every_stage_of_the_demos_loss_runs_and_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--example", "example", "--grad", "--argnums", "0,1,2,3"]
    code, out, err = call(capsys, "dump", f"{DIGITS}:loss", *words, "--out", tmp_path)
    assert code == 0, err
    assert out.split() == [str(p) for p in sorted(tmp_path.iterdir())]
    names = [p.stem for p in sorted(tmp_path.iterdir()) if p.stem != "inputs"]
    assert names == [f"{k:02}-{stage}" for k, stage in enumerate((*SHARED_STAGES, *TARGET_STAGES["cpu"]))]
    digits: dict[str, Any] = {"__file__": str(DIGITS), "__name__": "digits"}
    exec(compile(DIGITS.read_text(), str(DIGITS), "exec"), digits)
    value, gradients = pb.value_and_grad(digits["loss"], argnums=(0, 1, 2, 3))(*digits["example"]())
    np.testing.assert_allclose(value, digits["loss"](*digits["example"]()), rtol=1e-12)
    for path in ir_files(tmp_path)[1:]:
        text = path.read_text()
        assert print_module(parse_module(text)) == re.sub(r"(?m)^ *#.*\n", "", text)
        got = result_of(path)
        assert len(got) == 5
        for a, b in zip(got, (value, *gradients), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)
    for path in ir_files(tmp_path):
        code, out, err = call(capsys, "run", path)
        assert code == 0, err
        assert float(out.splitlines()[0].split("= ")[1]) == pytest.approx(float(value), rel=1e-12)
    assert "tanh" in (tmp_path / "00-trace.ir").read_text()


def test_dump_to_the_screen(module: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "dump", f"{module}:by_rows", "f32[4,6]", "--stage", "trace")
    assert code == 0, err
    assert out == print_module(parse_module(out)) and "%x: f32[4,6]" in out
    code, out, _ = call(capsys, "dump", f"{module}:by_rows", "f32[4,6]", "--stage", "all")
    assert code == 0
    shown = [line.removeprefix("# stage: ") for line in out.splitlines() if line.startswith("# stage: ")]
    assert shown == [*SHARED_STAGES, *TARGET_STAGES["cpu"]]
    code, out, _ = call(capsys, "dump", f"{module}:by_rows", "f64[4,6]", "--stage", "grad", "--locations")
    assert f"@{module.name}:17" in out


@pytest.mark.parametrize(
    ("name", "words", "shown"),
    [
        ("f", ["f64[5]", "f64[5]"], "%y: f64[5], %SCALE: f64[])"),
        ("f", ["f64[5]", "f64[5]", "3.5", "shift=-1.5"], "%power: f64[]"),
        ("f", ["f64[]", "2"], "%x: f64[]"),
        ("slope", ["f64[3]"], "gradient"),
        ("Box.area", ["2.0", "i32[2]"], "%h: i32[2]"),
        ("of_pair", ["--example", "pair", "--static", "n"], "%p_a: f64[4]"),
        ("f", ["--example", "with_keywords"], "%shift: f64[]"),
        ("f", ["float64[5]", "np.float32[5]", "--grad", "shift=f64[]"], "%y: f32[5], %shift: f64[]"),
        ("f", ["double[5]", "bool[5]", "-2", "shift=-inf"], "%y: bool[5], %power: i64[]"),
        ("spring.force", ["f64[2]"], "%x: f64[2]"),
        ("Oscillator.energy", ["f64[2]", "--grad"], "gradient %v"),
        ("Oscillator.momentum", ["f64[2]"], "gradient %v"),
        (
            "of_tree",
            ["{'w': float64[4,3], 'layers': [f64[3]]}", "(f64[3], 2)", "lam=0.1", "mode='full'"],
            "%params_w: f64[4,3], %params_layers_0: f64[3], %pair_0: f64[3], %pair_1: i64[], %lam: f64[]",
        ),
        ("of_mode", ["f64[4]", "mode=total"], "sum %x"),
        ("of_mode", ["f64[4]", "total"], "sum %x"),
        ("by_rows", ["--example", "one_array"], "%x: f64[2,3]"),
    ],
)
def test_arguments(module: Path, capsys: pytest.CaptureFixture[str], name: str, words: list[str], shown: str) -> None:
    code, out, err = call(capsys, "dump", f"{module}:{name}", *words, "--stage", "trace")
    assert code == 0, err
    assert shown in out


def test_random_arrays_of_a_dump_and_of_a_run_agree(module: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["dump", f"{module}:by_rows", "f64[3,4]", "--seed", "7", "--out", tmp_path / "out"]
    assert call(capsys, *arguments)[0] == 0
    _, beside, err = call(capsys, "run", tmp_path / "out" / "02-simplify.ir")
    assert "inputs from" in err
    (tmp_path / "out" / "inputs.npz").rename(tmp_path / "moved.npz")
    _, drawn, err = call(capsys, "run", tmp_path / "out" / "02-simplify.ir", "--seed", "7")
    _, inputs, _ = call(capsys, "run", tmp_path / "out" / "02-simplify.ir", "--inputs", tmp_path / "moved.npz")
    _, other, _ = call(capsys, "run", tmp_path / "out" / "02-simplify.ir", "--seed", "8")
    assert beside == drawn == inputs != other and not err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nothing"], 2, ":NAME was expected, as model.py:loss or package.module:Class.method"),
        (["some/folder:f"], 2, ":NAME was expected, as model.py:loss or package.module:Class.method"),
        (["absent.py:f"], 2, "there is no file absent.py"),
        (["FOLDER/function_to_dump.py:f"], 2, "did you mean FOLDER/functions_to_dump.py?"),
        (["absent_package.module:f"], 2, "there is no module absent_package.module"),
        (["MODULE:absent"], 2, "has no absent; it has Pair, f, by_rows"),
        (["MODULE:by_row"], 2, "has no by_row; did you mean by_rows?"),
        (["MODULE:Box.aera"], 2, "Box has no aera; did you mean area?"),
        (["MODULE:Spring.force", "f64[]"], 2, "an instance of Spring needs arguments"),
        (["MODULE:NOT_A_FUNCTION"], 2, "is a int, not a function"),
        (["MODULE:f", "g64[3]"], 2, "there is no dtype g64; did you mean"),
        (["MODULE:f", "f64"], 2, "f64 is a dtype; write f64[3]"),
        (["MODULE:f", "f64[n]"], 2, "extents are numbers from 0 on, as in f64[64,32]"),
        (["MODULE:f", "f64[-1]"], 2, "extents are numbers from 0 on"),
        (["MODULE:f", "full"], 2, "full is no value; an array such as f64[64,32]"),
        (["MODULE:f", "full"], 2, "for the string, write \"'full'\""),
        (["MODULE:f", "f64[3"], 2, "an array such as f64[64,32]"),
        (["MODULE:f", "{'w': f64[3], **x}"], 2, "an array such as f64[64,32]"),
        (["MODULE:f", "np.zeros(3)"], 2, "an array such as f64[64,32]"),
        (["MODULE:f", "shift=1.0", "f64[3]"], 2, "positions come before keywords"),
        (["MODULE:f", "f64[3]", "--example", "example"], 2, "either arguments or --example"),
        (["MODULE:f", "--example", "fails"], 1, "functions_to_dump.py:73: ValueError: no data here"),
        (["MODULE:f"], 2, "f(x, y, power=2.0, *, shift=0.0): missing a required argument: 'x'"),
        (["MODULE:f", "f64[3]"], 2, "for example\n  pullback dump MODULE:f f64[3] f64[3]"),
        (["MODULE:f", "f64[3]", "f64[3]", "shfit=1.0"], 2, "unexpected keyword argument 'shfit'"),
        (["MODULE:many"], 2, "MODULE:many 3 \"'text'\" f32[3] f64[4,3] \"{'w': f64[3], 'b': f64[]}\" lam=0.5"),
        (["MODULE:f", "f64[3]", "f64[4]"], 1, "functions_to_dump.py:14"),
        (["MODULE:branch", "f64[]"], 1, "functions_to_dump.py:59: a Python branch"),
        (["MODULE:by_rows", "f64[3,3]", "--grad"], 1, "shape (3, 3)"),
        (["MODULE:f", "f64[3]", "f64[3]", "--argnums", "0"], 2, "--argnums goes with --grad"),
        (["MODULE:f", "f64[3]", "f64[3]", "--static", "q"], 1, "static_argnames ['q'] are no parameters"),
    ],
)
def test_mistakes_in_a_dump(module: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str) -> None:
    def whole(text: str) -> str:
        return text.replace("MODULE", str(module)).replace("FOLDER", str(module.parent))

    got, _, err = call(capsys, "dump", *map(whole, words), "--stage", "trace")
    assert (got, "Traceback" in err) == (code, False), err
    assert err.startswith("pullback: ") and whole(message) in err


def test_a_file_that_cannot_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, message in (("import absent_module_1", "ModuleNotFoundError"), ("def f(:", "SyntaxError"), ("exit(3)", "exit")):
        path = tmp_path / "broken_to_dump.py"
        path.write_text(text)
        code, _, err = call(capsys, "dump", f"{path}:f")
        assert code == 1 and message in err and str(path) in err


# run and opt

FILE = """pullback-ir 2

func f(%x: f64[n], %y: f64[n]) -> (f64[]) {
  %0: f64[n] = mul %x, %y
  %1: f64[n] = mul %x, %y
  %2: f64[n] = add %0, %1
  %3: f64[] = sum %2 {axes=[0]}
  return %3
}

func g(%x: f64[]) -> (f64[], bool[]) {
  %0: f64[] = sqrt %x
  %1: bool[] = lt %x, %x
  return %0, %1
}
"""


@pytest.mark.parametrize("command", ["run", "opt"])
def test_a_file_of_format_version_1(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.ir"
    path.write_text(FILE.replace("pullback-ir 2", "pullback-ir 1"))
    code, out, err = call(capsys, command, path, *(["--passes", "simplify"] if command == "opt" else []))
    assert (code, out) == (1, "") and f"{path}: line 1: format version 1, this version reads 2: names of ops changed" in err


def test_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.ir"
    path.write_text(FILE)
    np.savez(tmp_path / "x.npz", x=np.arange(4.0), y=np.ones(4))
    code, out, _ = call(capsys, "run", path, "--size", "n=4", "--inputs", tmp_path / "x.npz")
    assert code == 0 and out == "0: f64[] = 12.\n"
    code, out, _ = call(capsys, "run", path, "--function", "g")
    assert code == 0 and len(out.splitlines()) == 2 and out.splitlines()[1] == "1: bool[] = False"
    assert call(capsys, "run", path, "--function", "g")[1] == out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "give --size n=N"),
        (["--size", "n=few"], 2, "NAME=N"),
        (["--function", "h"], 2, "no function h; it has f, g"),
        (["--size", "n=3", "--inputs", "FOLDER/x.npz"], 1, "%x is f64[3], got shape (4,)"),
        (["--size", "n=4", "--inputs", "FOLDER/z.npz"], 2, "has no array x; it has z"),
        (["--size", "n=4", "--inputs", "FOLDER/file.ir"], 1, "not a file of arrays"),
        (["--size", "n=4", "--inputs", "FOLDER/absent.npz"], 1, "absent.npz"),
    ],
)
def test_mistakes_in_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, message: str) -> None:
    path = tmp_path / "file.ir"
    path.write_text(FILE)
    np.savez(tmp_path / "x.npz", x=np.arange(4.0), y=np.ones(4))
    np.savez(tmp_path / "z.npz", z=np.ones(1))
    got, _, err = call(capsys, "run", path, *(w.replace("FOLDER", str(tmp_path)) for w in words))
    assert got == code and message in err, err


def file_of(instruction: str, result: str = "f64[2]") -> str:
    """A file whose one instruction stands in its third line."""
    return f"pullback-ir 2\nfunc f(%x: f64[2]) -> ({result}) {{\n  %0: {result} = {instruction}\n  return %0\n}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected the header"),
        ("func f() -> () {\n", "line 1"),
        (file_of("sine %x"), "line 3: there is no op sine"),
        (file_of("sin %x", "f64[3]"), "sin has type"),
        (file_of("sin %y"), "line 3: expected a value"),
        (file_of("sum %x"), "axes"),
        (file_of("sum %x {axes=[4]}"), "sum"),
        ("\0\xff", "line 1"),
    ],
)
def test_files_that_are_not_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    path = tmp_path / "file.ir"
    path.write_text(text)
    for command in (["run", path], ["opt", path, "--passes", "dce"]):
        code, _, err = call(capsys, *command)
        assert code == 1 and message in err, err


def test_a_check_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.ir"
    path.write_text(
        "pullback-ir 2\nfunc f(%x: f64[]) -> () {\n  %0: bool[] = gt %x, %x\n"
        '  check %0 {error="ValueError", message="too small"}\n  return\n}\n'
    )
    code, _, err = call(capsys, "run", path)
    assert code == 1 and "too small" in err


def test_opt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.ir"
    path.write_text(FILE)
    code, out, _ = call(capsys, "opt", path, "--passes", "cse,dce")
    assert code == 0 and out.count("mul %x, %y") == 1
    assert out == print_module(parse_module(out))
    code, _, err = call(capsys, "opt", path, "--passes", "cse,absent")
    first = "index_ranges, exit_selects, loop_versions, element_carries, rolls, cuts, write_through, parts, simplify"
    assert code == 2 and f"there is no pass absent; there are {first}" in err


# cache, doctor, and the program itself


def test_cache(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = KernelCache(tmp_path / "kernels")
    monkeypatch.setattr(cache_command, "default_cache", lambda: cache)
    assert cache.path is not None
    key = "ab" * 32
    cache.put(key, b"payload", kind="text", meta={"symbols": ["somewhere"]})
    code, out, _ = call(capsys, "cache", "info")
    assert code == 0 and str(cache.path) in out
    code, out, _ = call(capsys, "cache", "list")
    assert code == 0 and key[:16] in out and "somewhere" in out
    code, out, _ = call(capsys, "cache", "verify")
    assert code == 0 and "0 damaged" in out
    file = next(cache.path.rglob(f"{key}*"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    code, out, _ = call(capsys, "cache", "verify")
    assert code == 1 and "1 damaged or of an older format and removed" in out
    code, out, _ = call(capsys, "cache", "clear")
    assert code == 0 and "removed" in out
    assert not cache.entries()
    assert call(capsys, "cache", "burn")[0] == 2


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "doctor")
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert {"pullback", "numpy", "scipy", "llvmlite", "processor", "threads", "cache", "calls", "cuda"} <= set(lines)
    assert f"{pb.get_num_threads()} used" in lines["threads"]
    assert lines["calls"].split()[1] in ("native", "plain")
    assert np.__version__ in lines["numpy"] and pb.__version__ in lines["pullback"]
    assert str(default_cache().path) in lines["cache"]
    assert support() in lines["system"] and python_support() in lines["python"]


def test_the_program(module: Path) -> None:
    environment = {**os.environ, "PULLBACK_CACHE_DIR": "off"}

    def command(words: str) -> subprocess.CompletedProcess[str]:
        line = f"{sys.executable} -m pullback {words}"
        return subprocess.run(line, shell=True, capture_output=True, text=True, env=environment, check=False)

    shown = command(f"dump {module}:slope 'f64[3]' --stage grad")
    assert shown.returncode == 0, shown.stderr
    assert parse_module(shown.stdout).functions[0].name == "slope"
    assert command("--version").stdout == f"pullback {pb.__version__}\n"
    wrong = command("polish")
    assert wrong.returncode == 2 and "invalid choice" in wrong.stderr
    cut = command(f"dump {module}:slope 'f64[3]' | head -1")
    assert cut.stdout == "# stage: trace\n" and "Traceback" not in cut.stderr


def test_dump_of_the_cuda_target(capsys: pytest.CaptureFixture[str]) -> None:
    """The same program for the GPU: CUDA C, with the user's lines; no GPU is needed."""
    wave = EXAMPLES / "wave.py"
    options = ["--grad", "--device", "cuda", "--stage", "cuda", "--locations"]
    assert main(["dump", f"{wave}:loss", "f64[10]", "f64[10]", *options]) == 0
    text = capsys.readouterr().out
    assert "__global__" in text and "pullback(sin)" in text
