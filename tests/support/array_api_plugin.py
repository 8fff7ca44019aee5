"""A pytest plugin for the public array API suite: failing examples are reported as they are found, not shrunk."""

import pytest
from hypothesis import Phase, settings


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    settings.register_profile("as-found", parent=settings.get_profile("array-api-tests"), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("as-found")
