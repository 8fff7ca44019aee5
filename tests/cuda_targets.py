"""The machines that take emitted CUDA C, for tests of each."""

import pytest
from cuda_device import Device
from cuda_library import COMPILER, Host

HOST = pytest.param(Host, id="host", marks=pytest.mark.skipif(COMPILER is None, reason="there is no g++ to compile CUDA C"))
DEVICE = pytest.param(Device, id="gpu", marks=pytest.mark.gpu)
on_each = pytest.mark.parametrize("machine", [HOST, DEVICE])
