"""The cases of the corpus that are refused today, by check and name, with the class of the reason."""

from __future__ import annotations

import re
from pathlib import Path

PATH = Path(__file__).with_name("refused.txt")
BRANCH = re.compile(r"a Python branch \((.*?)\) on a traced value")


def reason_class(message: str) -> str:
    """Return the class of a TraceError's first line: the construct for a branch, else the message without names."""
    if branch := BRANCH.search(message):
        return f"{branch[1]} on a value"
    if "range() of a traced value" in message:
        return "range of a value"
    return re.sub(r"^.*?\.py:\d+: ", "", message)


def read() -> dict[tuple[str, str], str]:
    rows = [line.split(None, 2) for line in PATH.read_text().splitlines()]
    return {(kind, name): reason for kind, name, reason in rows}


def write(refused: dict[tuple[str, str], str]) -> None:
    PATH.write_text("".join(f"{kind:8} {name:28} {reason}\n" for (kind, name), reason in sorted(refused.items())))


REFUSED = read() if PATH.exists() else {}


def expect(kind: str, name: str, status: str, detail: str) -> None:
    """Assert that a check passed, or, if it is listed, that it was refused."""
    if (kind, name) in REFUSED:
        assert status != "ok", f"{name}: the {kind} is right now: remove its line from tests/corpus/refused.txt"
        assert status == "refused", detail
    else:
        assert status == "ok", f"{status}: {detail}"
