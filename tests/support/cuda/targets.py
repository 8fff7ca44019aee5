"""The machines that take emitted CUDA C, for tests of each: a GPU, and the stand-in for one where there is none."""

import pytest

from tests import cuda_host
from tests.support.cuda.gpu import Device, missing
from tests.support.cuda.host_kernels import Host

UNAVAILABLE = cuda_host.unavailable() or (None if missing() else "there is a GPU; PULLBACK_CUDA=host runs this without it")
needs_host = pytest.mark.skipif(UNAVAILABLE is not None, reason=str(UNAVAILABLE))
HOST = pytest.param(Host, id="host", marks=needs_host)
DEVICE = pytest.param(Device, id="gpu", marks=pytest.mark.gpu)
on_each = pytest.mark.parametrize("machine", [HOST, DEVICE])
