"""Entry point of ``python -m pullback`` and of the ``pullback`` command."""

import sys

from pullback.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
