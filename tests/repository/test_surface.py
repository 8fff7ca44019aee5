"""docs/numpy.md is what becomes of the calls in tests/surface: each gives NumPy's results, or a TraceError as it says.

``--bless`` writes the page. With ``-m long`` every accepted call is compiled and differentiated, too.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import scipy

from tests.tables.surface import (
    OF_SCIPY,
    PAGE,
    SECTIONS,
    head,
    part,
    parts_of_page,
    public,
    read,
    refused,
    tells_arrays_apart,
)  # fmt: skip

IS_PAGES_VERSION = np.__version__.startswith("2.4.") and scipy.__version__.startswith("1.17.")
COMPILED_OF = {section: 32 if section in OF_SCIPY else 8 for section in SECTIONS}
"""One call in this many of a section is compiled and differentiated by default."""


@pytest.mark.parametrize("section", SECTIONS)
def test_every_public_name_is_there(section: str) -> None:
    missing = set(public(section)) - set(read(section))
    assert not missing or not IS_PAGES_VERSION


@pytest.mark.parametrize("section", SECTIONS)
def test_a_sample_is_compiled_and_differentiated(section: str) -> None:
    for tried in read(section).values():
        for text in tried.texts():
            if zlib.crc32(text.encode()) % COMPILED_OF[section] == 0:
                refused(text, compiled=True)


@pytest.mark.parametrize("section", SECTIONS)
def test_results_are_arrays_where_numpys_are(section: str) -> None:
    texts = [text for tried in read(section).values() for text in tried.texts() if zlib.crc32(text.encode()) % 3 == 0]
    assert not [text for text in texts if not tells_arrays_apart(text)]


@pytest.mark.skipif(not IS_PAGES_VERSION, reason="the page is of NumPy 2.4 and SciPy 1.17")
@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_is_what_is_accepted(section: str, bless: bool) -> None:
    result = part(section, compiled=False)
    if bless:
        PAGE.write_text("".join((parts_of_page() | {section: result}).values()))
    assert result == parts_of_page()[section]


def test_the_page_has_the_sections_and_nothing_else() -> None:
    parts = parts_of_page()
    assert parts[""] == head()
    assert list(parts) == ["", *SECTIONS]


@pytest.mark.long
@pytest.mark.parametrize("section", SECTIONS)
def test_everything_accepted_is_compiled_and_differentiated(section: str) -> None:
    assert part(section, compiled=True) == parts_of_page()[section] or not IS_PAGES_VERSION
