"""``python -m tests.cuda_host`` builds the pieces; with a script and its arguments, runs that over the stand-in."""

from __future__ import annotations

import runpy
import sys

from tests.cuda_host import Missing, activate
from tests.cuda_host.kernels import precompiled
from tests.cuda_host.pieces import library, site


def main() -> int:
    try:
        site(), library(), precompiled()
    except Missing as error:
        print(f"\n*** CUDA without a GPU cannot be tested here: {error}\n", file=sys.stderr)
        return 1
    if len(sys.argv) > 1:
        del sys.argv[0]
        activate()
        sys.path.insert(0, "")
        runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


sys.exit(main())
