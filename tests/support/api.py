"""What the tests of the face share."""

from typing import Any

import numpy as np

from pullback.runtime.process import counters

Array = Any
X = np.linspace(0.2, 1.4, 7)


def traces() -> int:
    """How many calls have been traced so far."""
    return counters.snapshot().runs.get("trace", 0)


def same(a: Any, b: Any) -> None:
    """Equal types, dtypes and shapes; values to a few ulps."""
    assert type(a) is type(b), (type(a), type(b))
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)
