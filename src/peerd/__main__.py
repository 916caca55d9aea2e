"""``python -m peerd`` is the program ``peerd``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the working directory: a project's queue.py must not be taken for the standard library's

from peerd.cli import main

main()
