"""Choices among candidates: measured once, remembered, pinned, shown. Times are made up."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pullback.cli.main import main
from pullback.runtime.cache import cache as cache_cache
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.choices.choices import VARIABLE, Choices, Key, Measure, Unmeasurable, pinned

KEY = Key(subject="gemm", details=("f64", "512x512 512x512", "a card"))


class Candidates:
    """Candidates that take these seconds; ``asked``: which were measured."""

    def __init__(self, **seconds: float | None) -> None:
        self.seconds = seconds
        self.asked: list[str] = []

    def __call__(self) -> Mapping[str, Measure]:
        return {name: lambda name=name: self.measured(name) for name in self.seconds}  # type: ignore[misc]

    def measured(self, name: str) -> float:
        self.asked.append(name)
        result = self.seconds[name]
        if result is None:
            raise Unmeasurable(name)
        return result


def choices(folder: Path, environ: Mapping[str, str] | None = None) -> Choices:
    cache = KernelCache(folder)
    return Choices(lambda: cache, environ or {})


def test_the_fastest_is_taken_and_remembered(tmp_path: Path) -> None:
    arguments = Candidates(ours=3e-6, library=2e-6)
    built = choices(tmp_path / "cache")
    first = built.choose(KEY, arguments(), "ours")
    assert (first.chosen, first.how, dict(first.seconds)) == ("library", "measured", {"ours": 3e-6, "library": 2e-6})
    assert built.choose(KEY, arguments(), "ours") is first and arguments.asked == ["ours", "library"]
    again = choices(tmp_path / "cache").choose(KEY, arguments(), "ours")
    assert (again.chosen, again.how, again.seconds) == ("library", "remembered", first.seconds)
    assert arguments.asked == ["ours", "library"]
    day = time.strftime("%Y-%m-%d", time.localtime(again.since))
    assert str(again) == f"gemm, f64, 512x512 512x512, a card: library (remembered since {day}; library 2.0 us, ours 3.0 us)"


def test_of_equal_ones_the_default_is_taken(tmp_path: Path) -> None:
    assert choices(tmp_path / "cache").choose(KEY, Candidates(a=1.0, b=1.0)(), "b").chosen == "b"


def test_other_keys_and_other_candidates_are_other_choices(tmp_path: Path) -> None:
    built, arguments = choices(tmp_path / "cache"), Candidates(a=1.0, b=2.0)
    built.choose(KEY, arguments(), "a")
    built.choose(Key(subject="gemm", details=("f32",)), arguments(), "a")
    assert arguments.asked == ["a", "b"] * 2
    assert built.choose(KEY, Candidates(b=2.0, c=1.0)(), "b").chosen == "c"
    assert len(built.in_memory()) == 3


def test_what_cannot_be_measured_is_the_default_and_is_measured_later(tmp_path: Path) -> None:
    built = choices(tmp_path / "cache")
    result = built.choose(KEY, Candidates(a=1.0, b=None)(), "b")
    assert (result.chosen, result.how) == ("b", "default") and not built.in_memory()
    assert built.choose(KEY, Candidates(a=1.0, b=2.0)(), "b").chosen == "a"


def test_one_candidate_is_not_measured(tmp_path: Path) -> None:
    arguments = Candidates(a=1.0)
    assert choices(tmp_path / "cache", {VARIABLE: "b"}).choose(KEY, arguments(), "a").how == "only" and not arguments.asked
    with pytest.raises(ValueError, match="b is none of a"):
        choices(tmp_path / "cache").choose(KEY, arguments(), "b")


@pytest.mark.parametrize(
    ("text", "chosen", "how"),
    [
        ("b", "b", "pinned"), ("gemm=b", "b", "pinned"), ("b, gemm=a", "a", "pinned"), ("gemm=a,b", "a", "pinned"),
        ("getrf=b", "a", "measured"), ("static", "b", "default"), ("gemm=static,a", "b", "default"), ("nobody", "a", "measured"),
        ("", "a", "measured"),
    ],
)  # fmt: skip
def test_the_environment_pins(tmp_path: Path, text: str, chosen: str, how: str) -> None:
    arguments = Candidates(a=1.0, b=2.0)
    result = choices(tmp_path / "cache", {VARIABLE: text}).choose(KEY, arguments(), "b")
    assert (result.chosen, result.how) == (chosen, how) and bool(arguments.asked) is (how == "measured")


def test_nothing_is_pinned_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert pinned("gemm") is None and pinned("gemm", {VARIABLE: " , gemm = ours "}) == "ours"


@pytest.mark.parametrize(
    "payload", [b"", b"[]", b"{}", b'{"chosen": "c", "seconds": {}}', b'{"chosen": "a", "seconds": {"a": "x"}}']
)
def test_what_is_not_a_choice_is_measured_anew(tmp_path: Path, payload: bytes) -> None:
    arguments, cache = Candidates(a=1.0, b=2.0), KernelCache(tmp_path / "cache")
    Choices(lambda: cache, {}).choose(KEY, arguments(), "a")
    (entry,) = cache.entries()
    cache.put(entry.key, payload, kind="choice")
    assert Choices(lambda: cache, {}).choose(KEY, arguments(), "a").how == "measured" and arguments.asked == ["a", "b"] * 2


def test_threads_that_ask_at_once_measure_once(tmp_path: Path) -> None:
    built, arguments = choices(tmp_path / "cache"), Candidates(a=1.0, b=2.0)
    with ThreadPoolExecutor(8) as pool:
        result = list(pool.map(lambda _: built.choose(KEY, arguments(), "b").chosen, range(16)))
    assert set(result) == {"a"} and arguments.asked == ["a", "b"]


def test_without_a_folder_a_choice_holds_for_the_process() -> None:
    cache, arguments = KernelCache(), Candidates(a=1.0, b=2.0)
    built = Choices(lambda: cache, {})
    assert built.choose(KEY, arguments(), "b").chosen == built.choose(
        KEY, arguments(), "b"
    ).chosen == "a" and arguments.asked == ["a", "b"]
    built.forget()
    assert built.choose(KEY, arguments(), "b").how == "remembered"


def test_what_is_known_is_not_measured(tmp_path: Path) -> None:
    built, arguments = choices(tmp_path / "cache"), Candidates(a=1.0, b=2.0)
    result = built.known(KEY, ("a", "b"), "b")
    assert (result.chosen, result.how) == ("b", "default") and not built.in_memory()
    built.choose(KEY, arguments(), "b")
    for other in (built, choices(tmp_path / "cache")):
        assert other.known(KEY, ("a", "b"), "b").chosen == "a"
    assert choices(tmp_path / "cache", {VARIABLE: "gemm=b"}).known(KEY, ("a", "b"), "a").how == "pinned"
    assert choices(tmp_path / "cache", {VARIABLE: "static"}).known(KEY, ("a", "b"), "b").how == "default"
    with pytest.raises(ValueError, match="c is none of a, b"):
        built.known(KEY, ("a", "b"), "c")


def test_what_is_measured_again_takes_the_place_of_what_was(tmp_path: Path) -> None:
    built = choices(tmp_path / "cache", {VARIABLE: "gemm=b"})
    assert built.measure(KEY, Candidates(a=1.0, b=2.0)(), "b", 0.1).chosen == "a"
    assert built.measure(KEY, Candidates(a=2.0, b=1.0)(), "a", 0.1).chosen == "b"
    assert choices(tmp_path / "cache").known(KEY, ("a", "b"), "a").chosen == "b"


@pytest.mark.parametrize(("seconds", "chosen"), [(0.95, "b"), (0.91, "b"), (0.89, "a")])
def test_the_usual_one_stays_unless_another_is_much_faster(tmp_path: Path, seconds: float, chosen: str) -> None:
    result = choices(tmp_path / "cache").measure(KEY, Candidates(a=seconds, b=1.0)(), "b", 0.1)
    assert result.chosen == chosen


def test_what_cannot_be_measured_again_stays_remembered(tmp_path: Path) -> None:
    built = choices(tmp_path / "cache")
    built.measure(KEY, Candidates(a=1.0, b=2.0)(), "b", 0.0)
    assert built.measure(KEY, Candidates(a=None, b=2.0)(), "b", 0.0).how == "default"
    assert choices(tmp_path / "cache").known(KEY, ("a", "b"), "b").chosen == "a"


def test_the_command_shows_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    cache = KernelCache(tmp_path / "cache")
    monkeypatch.setattr(cache_cache, "_default", cache)
    Choices(lambda: cache, {}).choose(KEY, Candidates(a=1.0, b=2.0)(), "b")
    (entry,) = cache.entries()
    assert main(["cache", "list"]) == 0
    assert "choice" in (line := capsys.readouterr().out) and "gemm, f64, 512x512 512x512, a card: a" in line
    assert main(["cache", "show", entry.key[:8]]) == 0
    assert {"chosen     a", "kind       choice"} <= set(capsys.readouterr().out.splitlines())
