"""Archives of cache entries, and the commands that show and move the cache."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from pullback.cli import cache as cache_command
from pullback.cli.main import main
from pullback.runtime.cache import entry_format, usage
from pullback.runtime.cache.archive import BadArchive, read_archive, write_archive
from pullback.runtime.cache.cache import KernelCache, key

PAYLOADS = {key(f"kernel {n}"): bytes([n]) * (1000 * n + 1) for n in range(5)}
FIRST = next(iter(PAYLOADS))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """What the commands work on."""
    store = KernelCache(tmp_path / "kernels")
    for name, payload in PAYLOADS.items():
        store.put(name, payload, kind="object", meta={"symbols": ["f"], "cpu": "znver5"})
    monkeypatch.setattr(cache_command, "default_cache", lambda: store)
    return store


def test_an_archive_takes_the_entries_elsewhere(cache: KernelCache, tmp_path: Path) -> None:
    assert write_archive(cache, tmp_path / "kernels.tar") == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernels", "kernels.tar"]
    other = KernelCache(tmp_path / "other")
    assert read_archive(other, tmp_path / "kernels.tar") == 5
    again = KernelCache(tmp_path / "other")
    assert {name: again.get(name) for name in PAYLOADS} == PAYLOADS
    assert [entry.meta for entry in again.entries()] == [{"symbols": ["f"], "cpu": "znver5"}] * 5
    assert again.verify() == (5, 0, 0)


def test_damaged_and_newer_entries_are_not_exported(cache: KernelCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = next((tmp_path / "kernels").rglob(f"{FIRST}*"))
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    monkeypatch.setattr(entry_format, "FORMAT_VERSION", entry_format.FORMAT_VERSION + 1)
    cache.put(key("newer"), b"n", kind="object")
    monkeypatch.undo()
    assert write_archive(cache, tmp_path / "kernels.tar") == 4


def member(name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """An archive of one entry that is whole, then this member."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for each, content, sort in ((FIRST + entry_format.SUFFIX, encoded(FIRST), tarfile.REGTYPE), (name, data, kind)):
            info = tarfile.TarInfo(each)
            info.type, info.size = sort, len(content) if sort == tarfile.REGTYPE else 0
            info.linkname = "/etc/passwd" if sort in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def encoded(name: str) -> bytes:
    return entry_format.encode(name, b"payload", "object", {})


OTHER = key("another")
NEWER = encoded(OTHER)[:8] + b"\x63\0" + encoded(OTHER)[10:]
BAD = {
    "a path": member(f"../{OTHER}.kernel", encoded(OTHER)),
    "a folder in the name": member(f"ab/{OTHER}.kernel", encoded(OTHER)),
    "a folder": member("ab", b"", tarfile.DIRTYPE),
    "a link": member(f"{OTHER}.kernel", b"", tarfile.SYMTYPE),
    "a hard link": member(f"{OTHER}.kernel", b"", tarfile.LNKTYPE),
    "a pipe": member(f"{OTHER}.kernel", b"", tarfile.FIFOTYPE),
    "another file": member("setup.py", b"print()"),
    "another key": member(f"{OTHER}.kernel", encoded(key("third"))),
    "damaged": member(f"{OTHER}.kernel", encoded(OTHER)[:-1] + b"?"),
    "cut short": member(f"{OTHER}.kernel", encoded(OTHER)[:-1]),
    "newer": member(f"{OTHER}.kernel", NEWER),
    "empty": b"",
    "no archive": b"PK\x03\x04" + bytes(600),
    "truncated": member(f"{OTHER}.kernel", bytes(4000))[:2000],
}


@pytest.mark.parametrize("name", BAD)
def test_an_archive_that_holds_anything_else_is_refused_whole(name: str, tmp_path: Path) -> None:
    (tmp_path / "bad.tar").write_bytes(BAD[name])
    store = KernelCache(tmp_path / "kernels")
    with pytest.raises(BadArchive, match=r"bad\.tar"):
        read_archive(store, tmp_path / "bad.tar")
    assert not store.entries() and store.get(FIRST) is None


def test_import_runs_foreign_code_and_says_so(cache: KernelCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = str(tmp_path / "kernels.tar")
    assert main(["cache", "export", archive]) == 0
    assert main(["cache", "clear"]) == 0 and not cache.entries()
    assert main(["cache", "import", archive]) == 2
    error = capsys.readouterr().err
    assert "machine code" in error and "--trust" in error and not cache.entries()
    assert main(["cache", "import", archive, "--trust"]) == 0
    assert "5 entries imported" in capsys.readouterr().err and len(cache.entries()) == 5
    (tmp_path / "bad.tar").write_bytes(BAD["another file"])
    assert main(["cache", "import", str(tmp_path / "bad.tar"), "--trust"]) == 1
    assert "setup.py" in capsys.readouterr().err
    assert main(["cache", "import", str(tmp_path / "absent.tar"), "--trust"]) == 1
    assert main(["cache", "export", str(tmp_path / "absent" / "x.tar")]) == 1


def test_import_needs_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(cache_command, "default_cache", KernelCache)
    (tmp_path / "a.tar").write_bytes(b"")
    assert main(["cache", "import", str(tmp_path / "a.tar"), "--trust"]) == 1
    assert "no cache folder" in capsys.readouterr().err


def test_verify_says_what_it_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("own", "shared"):
        KernelCache(tmp_path / folder).put(FIRST, b"payload", kind="object")
        file = next((tmp_path / folder).rglob("*.kernel"))
        file.write_bytes(file.read_bytes()[:-1])
    store = KernelCache(tmp_path / "own", [tmp_path / "shared"])
    monkeypatch.setattr(cache_command, "default_cache", lambda: store)
    assert main(["cache", "verify"]) == 1
    bad = "1 damaged or of an older format"
    assert capsys.readouterr().out == f"0 good, {bad} and removed\n0 good, {bad} in {tmp_path / 'shared'}\n"
    assert main(["cache", "info"]) == 0
    assert f"read too   {tmp_path / 'shared'}: 1 entries" in capsys.readouterr().out


def test_list_and_show(cache: KernelCache, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache.put(OTHER, b"x", kind="program", meta={"program": "loss", "kernels": 3, "cpu": "znver5", "seconds": 0.25})
    used = time.time() - 3 * 3600 - 10
    os.utime(next((tmp_path / "kernels").rglob(f"{FIRST}*")), (used, used))
    assert main(["cache", "list"]) == 0
    lines = {line[:16]: line for line in capsys.readouterr().out.splitlines()}
    assert len(lines) == 6 and "znver5" in lines[OTHER[:16]] and "loss, kernels: 3" in lines[OTHER[:16]]
    assert "3 h" in lines[FIRST[:16]] and "object" in lines[FIRST[:16]]
    assert main(["cache", "show", FIRST[:12]]) == 0
    out = capsys.readouterr().out
    assert FIRST in out and "3 h ago" in out and "znver5" in out
    assert main(["cache", "show", FIRST[:3]]) == 2
    assert main(["cache", "show", "0" * 64]) == 1
    assert "no entries" in capsys.readouterr().err
    assert main(["cache", "show", OTHER]) == 1, "no program is in it"


def test_show_prints_the_ir_of_a_program(tmp_path: Path) -> None:
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path), "PULLBACK_VERIFY": "0"}
    code = "import numpy as np, pullback as pb\ndef curve(x): return np.sum(np.sin(x) ** 2)\npb.grad(curve)(np.ones(9))"
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    (entry,) = (e for e in KernelCache(tmp_path).entries() if e.kind == "program")
    command = [sys.executable, "-m", "pullback", "cache"]
    shown = subprocess.run([*command, "show", entry.key], env=environ, capture_output=True, text=True, check=True).stdout
    assert "program curve(%x: &f64[n0]" in shown and "launch %x" in shown
    about = subprocess.run([*command, "info"], env=environ, capture_output=True, text=True, check=True).stdout
    assert "1 built" in about and "processes  1 in" in about


def test_use_is_counted_over_processes(tmp_path: Path) -> None:
    environ = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "c"), "PULLBACK_VERIFY": "0"}
    code = "import numpy as np, pullback as pb; f = pb.jit(lambda x: np.sin(x) * 2.0); f(np.ones(3)); f(np.ones(4))"
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code], env=environ, check=True)
    result = usage.uses_of(tmp_path / "c")
    assert result.processes == 3 and time.time() - result.since < 600
    assert [result.counts[f"templates_{how}"] for how in ("built", "loaded", "instantiated")] == [1, 2, 3]
    assert result.counts["compiles"] and result.counts["compiles"] * 2 == result.counts["disk_hits"]
    assert result.seconds["compile"] > 0 and result.seconds["load program"] > 0


def test_lines_of_use_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    assert usage.uses_of(tmp_path).processes == 0
    good = {"at": 100, "counts": {"hits": 2}, "seconds": {"compile": 0.5}}
    others = [json.dumps({**good, "counts": 3}), json.dumps({**good, "seconds": {"compile": "x"}})]
    bad = ["", "x", "7", "null", '{"at": 1}', *others]
    (tmp_path / usage.FILE).write_text("\n".join([*bad, json.dumps(good), json.dumps({**good, "at": 50})]) + "\n")
    result = usage.uses_of(tmp_path)
    assert (result.processes, result.since, result.counts["hits"], result.seconds["compile"]) == (2, 50.0, 4, 1.0)
    (tmp_path / usage.FILE).chmod(0o666)
    assert usage.uses_of(tmp_path).processes == 0


def test_the_file_of_use_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_BYTES", 300)
    usage.counters.count("hits")
    for _ in range(20):
        usage.note(tmp_path)
    assert 0 < (tmp_path / usage.FILE).stat().st_size < 700
    assert (tmp_path / usage.FILE).stat().st_mode & 0o777 == 0o600
