"""The folders that tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ROOT / "tests"
GOLDEN = TESTS / "golden"
TABLES = TESTS / "tables"
EXAMPLES = ROOT / "examples"
