"""What tests of the stand-in, and over it, stand on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from tests import cuda_host
from tests.support.cuda.gpu import driver
from tests.support.cuda.targets import UNAVAILABLE


class Bench:
    """PyCUDA with a current context of device 0, and short ways to run CUDA C."""

    def __init__(self) -> None:
        cuda_host.activate()
        self.driver = driver()
        self.modules: list[Any] = []

    def function(self, text: str, name: str = "k") -> Any:
        self.modules.append(self.driver.module_from_buffer(cuda_host.image(text)))
        return self.modules[-1].get_function(name)

    def put(self, array: Any) -> Any:
        return self.driver.to_device(np.ascontiguousarray(array))

    def get(self, memory: Any, like: Any) -> Any:
        result = np.empty_like(like)
        self.driver.memcpy_dtoh(result, memory)
        return result

    @contextmanager
    def fails(self, *words: str) -> Iterator[None]:
        """What runs in it raises an error of CUDA with these words; the context works again."""
        with pytest.raises(self.driver.Error) as caught:
            yield
        cuda_host.forgive()
        for word in words:
            assert word in str(caught.value), caught.value


@pytest.fixture
def bench() -> Iterator[Bench]:
    if UNAVAILABLE is not None:
        pytest.skip(UNAVAILABLE)
    built = Bench()
    cuda_host.forgive()
    cuda_host.order(0)
    yield built
    cuda_host.forgive()
    cuda_host.order(0)
