"""What every test stands on: a kernel cache of its own, the verifier after every pass, and `--bless`."""

import importlib.util
import os
import tempfile

import pytest

CACHE = tempfile.TemporaryDirectory(prefix="pullback-tests-")
os.environ["PULLBACK_CACHE_DIR"] = CACHE.name
os.environ["PULLBACK_VERIFY"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write the expected texts of golden tests anew")


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
