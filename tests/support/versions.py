"""What the installed NumPy and SciPy know of the calls in the tables, which are written for the versions below."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy

INSTALLED = {np: np.__version__, scipy: scipy.__version__}
IS_OLDER = np.lib.NumpyVersion(np.__version__) < "2.4.0" or np.lib.NumpyVersion(scipy.__version__) < "1.17.0"


def since(library: Any, version: str, *cases: Any) -> list[Any]:
    """Cases whose results, or their dtypes, are others before a version of the library."""
    return list(cases) if np.lib.NumpyVersion(INSTALLED[library]) >= version else []


def known(call: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a plain call, where an older version does not refuse a form that came later."""
    try:
        return call(*arguments)
    except Exception as error:
        if not IS_OLDER:
            raise
        pytest.skip(f"NumPy {np.__version__} or SciPy {scipy.__version__} refuses it: {error}")
