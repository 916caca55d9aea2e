"""``python -m peerd.cli``, where the program ``peerd`` is not on the PATH."""

from __future__ import annotations

from peerd.cli import main

main()
