"""Prints the plan of a node once more, for a master that reloads.

    python -P -m peerd.entrypoints.planner LIFE [FILE [watch]]

LIFE is the incarnation of the master that asks; `watch` says that the node has a watcher. Errors of the configuration
go to stderr, and there is no plan then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from peerd.config import ConfigError, load
from peerd.entrypoints.node_plan import build_node_plan


def main(incarnation: str, file: str = "", watch: str = "") -> int:
    """Print the plan; return the exit status."""
    try:
        settings = load(Path(file) if file else None)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    json.dump(build_node_plan(settings, incarnation, watch=bool(watch)), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
