"""Programs for CUDA in the cache: a known one starts without a pass and without a compiler, and gives the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pullback.cli.main import main
from pullback.ir.text import canonical, parse_module
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.cuda.program import serialize as cuda_serialize
from pullback.runtime.cuda.program.build import parts_of
from pullback.runtime.cuda.program.serialize import Parts, decoded, encoded
from pullback.runtime.program.program_bytes import SIZE, Unreadable
from tests import cuda_host
from tests.support.cuda.host_programs import scheduled
from tests.support.cuda.stored_programs import CALLS
from tests.support.paths import GOLDEN, ROOT, TESTS

SCRIPT = TESTS / "support" / "cuda" / "stored_programs.py"
FILES = sorted([*(GOLDEN / "cuda").glob("*.ir"), *(GOLDEN / "kernels").glob("*.ir")])
PASSES = {"grad", "simplify", "fuse", "lower", "schedule", "compile"}


def run(cache: Path) -> dict[str, Any]:
    """What a new process found and counted."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(cache), "PULLBACK_VERIFY": "0", "PYTHONPATH": path}
    done = subprocess.run([sys.executable, str(SCRIPT)], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cuda_host.activate()
    return tmp_path_factory.mktemp("stored") / "cache"


@pytest.fixture(scope="module")
def runs(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Every program in a process that finds nothing, and in the next one."""
    return run(folder), run(folder)


@pytest.mark.parametrize("name", CALLS)
def test_a_known_program_runs_no_pass_and_no_compiler(name: str, runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    cold, warm = (result[name] for result in runs)
    assert warm["found"] == cold["found"]
    assert warm["templates_built"] == warm["compiles"] == 0
    assert warm["templates_loaded"] == cold["templates_built"]
    assert not PASSES & set(warm["ran"])
    assert "compile" in cold["ran"] or name == "an index beyond"


def test_an_error_names_the_line_of_the_trace_at_hand(runs: tuple[dict[str, Any], dict[str, Any]]) -> None:
    for result in runs:
        assert "stored_programs.py" in " ".join(result["an index beyond"]["found"])


def test_entries_are_listed_and_shown(
    folder: Path, runs: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    cache = KernelCache(folder)
    entry = next(e for e in cache.entries() if e.kind == "program" and e.meta["program"] == "loop" and e.meta["cpu"] == "sm_90")
    monkeypatch.setattr("pullback.cli.cache.default_cache", lambda: cache)
    assert main(["cache", "show", entry.key]) == 0
    assert "program loop(" in capsys.readouterr().out


def parts(path: Path) -> Parts:
    """A program with code that is none."""
    (function, *_) = parse_module(path.read_text().partition("# =>\n")[0]).functions
    result, _ = parts_of(scheduled(function)[0], lambda kernel, device: kernel)
    return replace(result, code=b"code")


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}_{path.stem}")
def test_what_is_read_is_what_was_written(path: Path) -> None:
    written = parts(path)
    payload = encoded(written)
    assert payload is not None
    read = decoded(payload)
    assert canonical(read.program) == canonical(written.program)
    assert (read.kernels, read.written, read.code) == (written.kernels, written.written, written.code)
    assert [(canonical(k), why) for k, why in read.plain.values()] == [(canonical(k), why) for k, why in written.plain.values()]


def test_what_is_not_whole_is_unreadable() -> None:
    payload = encoded(parts(FILES[0]))
    assert payload is not None
    for wrong in (b"", payload[:-1], payload + b"?", payload[:20], payload.replace(b'"Launch"', b'"Lunch!"')):
        with pytest.raises(Unreadable):
            decoded(wrong)


@pytest.mark.parametrize("version", [1, 3])
def test_ir_of_another_format_version_is_unreadable(version: int) -> None:
    """Entries of version 1 do not say it."""
    payload = encoded(parts(FILES[0]))
    assert payload is not None
    (size,) = SIZE.unpack_from(payload)
    data, code = json.loads(payload[SIZE.size : SIZE.size + size]), payload[SIZE.size + size :]
    assert data.pop("ir") == 2
    text = json.dumps(data if version == 1 else {**data, "ir": version}).encode()
    with pytest.raises(Unreadable, match=f"^its IR has format version {version}, this version reads 2$"):
        decoded(SIZE.pack(len(text)) + text + code)


def test_what_text_cannot_hold_is_not_kept() -> None:
    result = parts(FILES[0])
    name, kernel = next(iter(result.kernels.items()))
    launch = replace(kernel.launches[0], slots=(("pointer", object()),))
    assert encoded(replace(result, kernels={name: replace(kernel, launches=(launch,))})) is None


def test_nothing_is_kept_under_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULLBACK_VERIFY", "1")
    assert cuda_serialize.key_of(b"template", "sm_90") is None
