"""What every test stands on: a kernel cache of its own, the verifier after every pass, `--bless` and `--schedules`."""

import gc
import importlib.util
import os
import tempfile

import pytest
from forced import at_random

from pullback.codegen import phases, schedules

CACHE = None if "PYTEST_XDIST_WORKER" in os.environ else tempfile.TemporaryDirectory(prefix="pullback-tests-")
"""One for all workers, which are started with the environment of the first process."""
if CACHE is not None:
    os.environ["PULLBACK_CACHE_DIR"] = CACHE.name
os.environ["PULLBACK_VERIFY"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write the expected texts of golden tests anew")
    parser.addoption(
        "--schedules", default="cheapest", metavar="random:SEED", help="groups get a random schedule of those that fit"
    )


@pytest.fixture(autouse=True)
def chosen_schedules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--schedules=random:SEED`, groups get a schedule that depends on the seed and the group, and short bodies
    of loops are cut into phases."""
    rule, _, seed = str(request.config.getoption("--schedules")).partition(":")
    if rule == "random":
        monkeypatch.setattr(schedules, "pick", at_random(int(seed)))
        for name, value in (("LONG", 8), ("WINDOW", 1 + int(seed) % 5), ("NEAR", 64), ("PHASE", 0.0), ("KEPT", 0.0)):
            monkeypatch.setattr(phases, name, value)


def pytest_collection_finish() -> None:
    """What was collected stays; the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """True if expected texts are to be written instead of compared."""
    return bool(request.config.getoption("--bless"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if importlib.util.find_spec("pycuda") is not None:
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(
                pytest.mark.skip(reason="needs a CUDA device and pycuda (pip install pullback[cuda])")
            )
