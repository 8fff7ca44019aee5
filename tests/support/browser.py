"""A browser that tests drive: Debian's chromium with its driver, through selenium. Tests are skipped where one is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
"""The screen of a phone, in CSS pixels."""


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Any]:
    """Yield a driver of a browser without a window on a screen, in which errors of the console are logged."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed; the test extra has it")
    binary = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        missing = "no chromium" if binary is None else "no chromedriver"
        pytest.skip(f"{missing} on this machine; apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"window-size={width},{height}"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    started = webdriver.Chrome(options=options, service=service)
    try:
        started.set_script_timeout(30)
        yield started
    finally:
        started.quit()


def on_a_phone(driver: Any) -> None:
    """Give the page the screen of a phone."""
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)


def in_the_dark(driver: Any) -> None:
    """Have the page prefer dark colours."""
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
