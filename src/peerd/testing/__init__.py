"""For tests of code that uses peerd: run handlers and whole-row workers without a database; rows as values."""

from peerd.testing.inline import Ran, run_inline, run_row
from peerd.testing.rows import make_task

__all__ = ["Ran", "make_task", "run_inline", "run_row"]
