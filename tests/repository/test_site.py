"""The site: its links lead somewhere, it loads nothing from a network, and a browser shows it on a phone and in the dark."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.site import PHONE, Page, build_part, dead_links, outside_resources, pages, served

pytest.importorskip("pydata_sphinx_theme", reason="the site's packages are not installed: pip install '.[docs]'")

MOST_SECONDS = 120
"""The time of `make docs` on two idle cores; a machine with other load gets three times as long."""
CONTRAST = 4.5
"""The least ratio of luminances of text and background, by WCAG 2.1 level AA."""
SHOWN = (
    "index.html", "quickstart.html", "reference/tree.html", "reference/generated/pullback.tree.ravel.html", "gallery/index.html",
)  # fmt: skip
"""Pages that the browser opens: one of each kind."""


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HTML of a few pages."""
    return build_part(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def whole() -> Path:
    """The HTML of the whole site, built without a warning from the stored gallery."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, ROOT / "docs" / "build_site.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert time.perf_counter() - start < 3 * MOST_SECONDS
    return ROOT / "build" / "site" / "html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        yield started
    finally:
        started.quit()


def test_no_link_is_dead(part: Path) -> None:
    """But to the pages that the small site leaves out."""
    absent = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.*")}
    dead = [link for link in dead_links(pages(part)) if not any(f"{name}.html" in link for name in absent)]
    assert dead == []


def test_nothing_is_loaded_from_a_network(part: Path) -> None:
    assert outside_resources(pages(part)) == []
    styles = "".join(path.read_text(errors="replace") for path in (part / "_static").rglob("*.css"))
    assert not re.findall(r"url\(['\"]?https?:[^)]*", styles)


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.html"
    links = '<a href="#top">x</a><a href="#bottom">y</a><a href="b.html">z</a>'
    path.write_text(f'<h1 id="top">a</h1>{links}<img src="https://x.y/p.png">')
    site = {path: Page(path)}
    assert dead_links(site) == ["a.html: #bottom", "a.html: b.html"]
    assert outside_resources(site) == ["a.html: https://x.y/p.png"]


def test_a_browser_shows_it(part: Path, browser: Any) -> None:
    with served(part) as address:
        for page in SHOWN:
            look_at(browser, f"{address}/{page}")


def test_search_finds_a_page(part: Path, browser: Any) -> None:
    with served(part) as address:
        browser.get(f"{address}/search.html?q=quickstart")
        results = wait_for(browser, "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)")
    assert any("quickstart.html" in link for link in results)


@pytest.mark.long
def test_the_whole_site(whole: Path, browser: Any) -> None:
    site = pages(whole)
    assert dead_links(site) == []
    assert outside_resources(site) == []
    with served(whole) as address:
        for path in sorted(whole.glob("*.html")) + sorted(whole.glob("*/index.html")) + sorted(whole.glob("gallery/plot_*.html")):
            if path.name not in ("genindex.html", "search.html"):
                look_at(browser, f"{address}/{path.relative_to(whole).as_posix()}")


def wait_for(browser: Any, script: str, seconds: float = 20) -> Any:
    """Return the result of a script as soon as it is true."""
    end = time.monotonic() + seconds
    while not (result := browser.execute_script(script)) and time.monotonic() < end:
        time.sleep(0.1)
    return result


def look_at(browser: Any, address: str) -> None:
    """Open a page on a phone and in both modes: no error on the console, no sideways scrolling, readable text."""
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    browser.get(address)
    problems = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert problems == [], address
    width = browser.execute_script("return document.documentElement.scrollWidth")
    assert width <= PHONE["width"], f"{address} is {width} pixels wide on a phone"
    assert float(browser.execute_script(FONT_SIZE).removesuffix("px")) >= 14
    for mode in ("light", "dark"):
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", mode)
        text, ground = browser.execute_script(COLOURS)
        light, dark = luminance(text), luminance(ground)
        assert (max(light, dark) + 0.05) / (min(light, dark) + 0.05) >= CONTRAST, (address, mode, text, ground)
        assert (dark < 0.2) == (mode == "dark"), (address, mode, ground)


FONT_SIZE = "return getComputedStyle(document.querySelector('article p') || document.querySelector('article')).fontSize"
COLOURS = """
const article = document.querySelector('article');
const opaque = node => {
  for (; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (colour !== 'transparent' && !/, 0\\)$/.test(colour)) return colour;
  }
  return 'rgb(255, 255, 255)';
};
return [getComputedStyle(article.querySelector('p') || article).color, opaque(article)];
"""
"""Returns the colours of the text of a page and of what is behind it."""


def luminance(colour: str) -> float:
    """Return the relative luminance of a CSS colour ``rgb(...)``, from 0 (black) to 1 (white), as WCAG defines it."""
    channels = [int(c) / 255 for c in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_luminance() -> None:
    assert luminance("rgb(0, 0, 0)") == 0
    assert luminance("rgba(255, 255, 255, 1)") == pytest.approx(1)
    assert luminance("rgb(255, 0, 0)") == pytest.approx(0.2126)
