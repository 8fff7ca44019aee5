"""Pictures of the pages of ``View`` objects, for the gallery: Sphinx-Gallery calls ``pictures_of_views`` after each block of a
program. Chromium and its driver draw them, through selenium."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from sphinx_gallery.scrapers import figure_rst

from pullback.view.view import View

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SIZE = (1400, 860)
"""Width and height of a picture in CSS pixels: both columns of the page at a readable size."""
COLOURS = 64
"""Colours of a picture: enough for text with soft edges, in a third of the bytes."""
PANELS = {
    "plot_view_digits": '[data-answer="time"]',
    "plot_view_lstm": '[data-answer="gradient"]',
    "plot_view_loops": '[data-answer="loops"]',
    "plot_view_deep": '[data-answer="kernels"]',
}
"""By program, the element that is clicked before the picture is taken; other pages are drawn as they open."""

IS_DRAWN = "return document.readyState === 'complete' && document.body.innerText.trim().length > 0"
"""Whether a page has its text: one of an error has no stages to load."""
IS_READY = "return document.documentElement.dataset.ready !== undefined"
"""Whether a page has loaded its stages."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a driver of a browser without a window. Raises RuntimeError if no browser or driver is installed."""
    from selenium import webdriver

    binary = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        raise RuntimeError("the pictures of `view` need chromium and its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    width, height = SIZE
    for flag in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"window-size={width},{height}"):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    try:
        yield browser
    finally:
        browser.quit()


def draw(view: View, selector: str, path: Path) -> None:
    """Write a picture of a page to a PNG file, after a click on an element unless ``selector`` is empty."""
    from selenium.webdriver.support.ui import WebDriverWait

    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        browser.get(view.save(Path(folder) / "page.html").as_uri())
        ready = IS_DRAWN if view.contents.error is not None else IS_READY
        WebDriverWait(browser, 30).until(lambda b: b.execute_script(ready))
        if selector:
            browser.find_element("css selector", selector).click()
        browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")
        screenshot = Image.open(io.BytesIO(browser.get_screenshot_as_png()))
    screenshot.convert("RGB").quantize(COLOURS).save(path, optimize=True)


def pictures_of_views(block: Any, variables: Mapping[str, Any], configuration: Mapping[str, Any]) -> str:
    """Draw the views that the variables of a program refer to, each once, and return the text that shows the pictures."""
    seen = variables.setdefault("views", set())
    paths = []
    for value in list(variables["example_globals"].values()):
        if isinstance(value, View) and id(value) not in seen:
            seen.add(id(value))
            path = Path(next(variables["image_path_iterator"]))
            draw(value, PANELS.get(Path(variables["src_file"]).stem, ""), path)
            paths.append(str(path))
    return str(figure_rst(paths, configuration["src_dir"]))
