"""Run `python -m fastredlock`, which is the command `fastredlock`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
