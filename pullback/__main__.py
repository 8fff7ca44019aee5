"""``python -m pullback`` and the command ``pullback``."""

import sys

from pullback.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
