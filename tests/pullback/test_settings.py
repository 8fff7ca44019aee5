"""Environment variables: what is not allowed in one is an error that says what is, by one mechanism for all of them."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pullback.codegen.cpu.matmul.shape_classes import SUBJECT
from pullback.ir.core import environment as settings
from pullback.runtime.cache import cache
from pullback.runtime.choices import choices
from pullback.runtime.compile import machine
from pullback.runtime.fastcall import abi
from pullback.runtime.memory import result_arrays
from pullback.runtime.threads import threads
from tests.support.paths import ROOT

FOLDERS = ("pullback", "tracer", "ir", "codegen", "runtime")
OF_TESTS = {"PULLBACK_CUDA"}

BAD = [
    ("PULLBACK_CACHE_DIR", "~nobody-of-this-name/c", settings.CACHE_DIR.expected),
    ("PULLBACK_NUM_THREADS", "abc", "a number of threads, 1 to 256,"),
    ("PULLBACK_NUM_THREADS", "0", "a number of threads, 1 to 256,"),
    ("PULLBACK_NUM_THREADS", "257", "a number of threads, 1 to 256,"),
    ("PULLBACK_NUM_THREADS", "٣", "a number of threads, 1 to 256,"),
    ("PULLBACK_POOL_BYTES", "abc", "a number of bytes, 0 to 4611686018427387903,"),
    ("PULLBACK_POOL_BYTES", "-1", "a number of bytes, 0 to 4611686018427387903,"),
    ("PULLBACK_POOL_BYTES", "1GB", "a number of bytes, 0 to 4611686018427387903,"),
    ("PULLBACK_POOL_BYTES", "9" * 5000, "a number of bytes, 0 to 4611686018427387903,"),
    ("PULLBACK_CALL_PATH", "fast", "native, fused, plain or auto"),
    ("PULLBACK_CPU", "486", "native, baseline, avx2 or avx512"),
    ("PULLBACK_CHOICES", "gemm=mine", "ours, library or static, for all or as in gemm=ours,"),
    ("PULLBACK_CHOICES", "library, gemm ours", "ours, library or static, for all or as in gemm=ours,"),
    ("PULLBACK_DISABLE_JIT", "true", "0 or 1"),
    ("PULLBACK_TRACEBACK", "ful", "users or full"),
    ("PULLBACK_VERIFY", "yes", "0 or 1"),
    ("PULLBACK_STRICT", "yes", "0 or 1"),
    ("PULLBACK_LOG", "loud", "off, info or debug"),
]
GOOD = [
    ("PULLBACK_CACHE_DIR", "off"), ("PULLBACK_CACHE_DIR", f"off{os.pathsep}/a/folder"), ("PULLBACK_CACHE_DIR", "~/c"),
    ("PULLBACK_NUM_THREADS", "256"), ("PULLBACK_NUM_THREADS", " 2 "), ("PULLBACK_POOL_BYTES", "0"),
    ("PULLBACK_CPU", "avx2"), ("PULLBACK_CHOICES", "static"), ("PULLBACK_CHOICES", " , gemm = ours, getrf=library"),
    ("PULLBACK_TRACEBACK", "full"), ("PULLBACK_VERIFY", "0"), ("PULLBACK_CALL_PATH", "auto"), ("PULLBACK_LOG", "debug"),
]  # fmt: skip


@pytest.mark.long
def test_every_variable_that_is_read_is_among_them() -> None:
    """No other module reads an environment variable of ours by itself, and each has a bad value above."""
    named = set()
    for path in (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                if re.fullmatch("PULLBACK_[A-Z_]+", node.value):
                    named.add((path.relative_to(ROOT).as_posix(), node.value))
    others = {name for path, name in named if path != "ir/core/environment.py"}
    assert others == {"PULLBACK_CACHE_DIR"}, "which the selftest sets for its child"
    known = {setting.name for setting in settings.SETTINGS}
    assert known == {name for path, name in named if path == "ir/core/environment.py"} == {name for name, *_ in BAD}
    listed = set(re.findall(r"`(PULLBACK_[A-Z_]+)`", (ROOT / "docs" / "reference" / "command-line.md").read_text()))
    assert known == listed - OF_TESTS


@pytest.mark.parametrize(("name", "text", "expected"), BAD, ids=lambda text: text[:24])
def test_what_is_not_allowed_is_an_error(name: str, text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(ValueError, match=re.escape(f"{name}={text}: {expected} is expected")):
        settings.check()


@pytest.mark.parametrize(("name", "text"), GOOD)
def test_what_is_allowed_is_none(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, text)
    settings.check()


def test_who_reads_one_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    readers = {
        "PULLBACK_CACHE_DIR": cache.default_folders, "PULLBACK_NUM_THREADS": threads._from_environment,
        "PULLBACK_POOL_BYTES": result_arrays._limit, "PULLBACK_CALL_PATH": abi.wanted, "PULLBACK_CPU": machine.find_host,
        "PULLBACK_CHOICES": lambda: choices.pinned(SUBJECT), "PULLBACK_VERIFY": settings.is_verified,
        "PULLBACK_STRICT": settings.is_strict,
    }  # fmt: skip
    for name, text, _ in BAD:
        if name in readers:
            monkeypatch.setenv(name, text)
            with pytest.raises(ValueError, match=f"^{name}="):
                readers[name]()
            monkeypatch.delenv(name)


def test_the_words_are_those_of_who_reads_them() -> None:
    assert {"native", *machine.LEVELS} == set(settings.CPU_LEVELS)
    assert {*abi.NATIVE, "plain", "auto"} == set(settings.CALL_PATHS)


@pytest.mark.parametrize(("name", "text"), [("PULLBACK_POOL_BYTES", "abc"), ("PULLBACK_TRACEBACK", "ful")])
def test_a_process_stops_at_once(name: str, text: str) -> None:
    command = [sys.executable, "-c", "import pullback"]
    done = subprocess.run(command, env={**os.environ, name: text}, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines()[-1].startswith(f"ValueError: {name}={text}: ")


SET_LATER = """
import os, numpy as np, pullback as pb
f = pb.jit(lambda x: x + 1.0)
os.environ["PULLBACK_POOL_BYTES"] = "abc"
try: f(np.ones(2))
except ValueError as error: print(error)
os.environ["PULLBACK_POOL_BYTES"] = "0"
print(f(np.ones(2)))
"""


def test_one_that_is_set_before_the_first_call(tmp_path: Path) -> None:
    environment = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "c")}
    done = subprocess.run([sys.executable, "-c", SET_LATER], env=environment, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("PULLBACK_POOL_BYTES=abc: ") and second == "[2. 2.]"


@pytest.mark.parametrize("text", ["lots", "0", "2,", "-3", "2 3"])
def test_a_number_of_openmp_that_is_none_is_warned_of(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is another's, which says so too, and goes on without it."""
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    monkeypatch.setenv(threads.OTHER_VARIABLE, text)
    with pytest.warns(RuntimeWarning, match=f"OMP_NUM_THREADS={text}: numbers of threads are expected"):
        assert threads._from_environment() == min(threads._processors(), threads.MOST_THREADS)
