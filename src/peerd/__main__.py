"""``python -m peerd`` is the program ``peerd``."""

from peerd.cli import main

main()
