"""The acceptance programs on a device, by the runtime that users have: their tests, with what they compile compiled for it.

On the stand-in for a GPU where there is none, each in an order of threads, blocks and streams of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest

from tests.acceptance.test_activations import test_dropout, test_far_from_zero
from tests.acceptance.test_activations import test_program as test_activations
from tests.acceptance.test_attention import test_layer as test_attention
from tests.acceptance.test_blocks import test_block as test_blocks
from tests.acceptance.test_convolution import test_program as test_convolution
from tests.acceptance.test_dense import test_program as test_dense
from tests.acceptance.test_losses import test_log_loss_of_far_scores
from tests.acceptance.test_losses import test_program as test_losses
from tests.acceptance.test_networks import test_network as test_networks
from tests.acceptance.test_normalisation import test_program as test_normalisation
from tests.acceptance.test_operator_set import test_formula, test_no_slope, test_operator
from tests.acceptance.test_pooling import test_program as test_pooling
from tests.acceptance.test_recurrent import test_layer as test_recurrent
from tests.acceptance.test_training import test_fifty_steps
from tests.support.cuda.places import compiled_there
from tests.support.cuda.targets import needs_host

__all__ = [
    "test_activations", "test_attention", "test_blocks", "test_convolution", "test_dense", "test_dropout", "test_far_from_zero",
    "test_fifty_steps", "test_formula", "test_log_loss_of_far_scores", "test_losses", "test_networks", "test_no_slope",
    "test_normalisation", "test_operator", "test_pooling", "test_recurrent",
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
PLACES = [pytest.param("host", id="host", marks=needs_host), pytest.param("gpu", id="gpu", marks=pytest.mark.gpu)]


@pytest.fixture(params=PLACES, autouse=True)
def places(request: Any) -> Iterator[None]:
    """What a test compiles runs there."""
    with compiled_there(request.param, crc32(request.node.name.encode())):
        yield
