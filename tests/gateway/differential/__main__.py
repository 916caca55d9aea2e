"""Compare two servers, or replay a script that showed a difference.

python -m tests.gateway.differential 0:5000                     seeds; peerd-beanstalkd against Debian's beanstalkd
python -m tests.gateway.differential 0:50 --theme deadlines     scripts in which time passes
python -m tests.gateway.differential --replay FILE              a script as it was printed
python -m tests.gateway.differential 17 --tested beanstalkd     Debian's against itself
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.gateway.beanstalk_servers import BEANSTALKD, KINDS, PEERD, BeanstalkServer
from tests.gateway.differential.generator import THEMES, random_script, random_timed_script
from tests.gateway.differential.playing import Difference, TooLateError, play_in_time
from tests.gateway.differential.script import Script, from_text
from tests.gateway.differential.shrinking import describe, shrink


def main() -> int:
    """Play what the arguments say; 1 if there was a difference."""
    chosen = arguments()
    with running_servers(chosen.tested) as (reference, tested):

        def play_on_both(script: Script) -> Difference | None:
            return play_in_time(script, reference, tested)

        if chosen.replay:
            difference = play_on_both(from_text(chosen.replay.read_text()))
            print(difference or "no difference")
            return int(difference is not None)
        began, late = time.monotonic(), 0
        for seed in chosen.seeds:
            script = random_timed_script(seed, chosen.theme) if chosen.theme else random_script(seed)
            try:
                if (found := play_on_both(script)) is not None:
                    print(describe(f"seed {seed}", *shrink(script, found, play_on_both)))
                    return 1
            except TooLateError:
                late += 1
        print(f"{len(chosen.seeds)} scripts, no difference, {late} given up, {time.monotonic() - began:.1f} s")
        return 0


@contextmanager
def running_servers(tested: str) -> Iterator[tuple[BeanstalkServer, BeanstalkServer]]:
    """Debian's beanstalkd, and the server that is tested."""
    with ExitStack() as afterwards:
        servers = BeanstalkServer(BEANSTALKD), BeanstalkServer(tested)
        for server in servers:
            afterwards.callback(server.stop)
            server.start()
        yield servers


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.gateway.differential", description=__doc__.split("\n")[0])
    parser.add_argument("seeds", nargs="?", type=seeds, default=range(1000), help="one, or FIRST:END")
    parser.add_argument("--tested", choices=KINDS, default=PEERD)
    parser.add_argument("--theme", choices=THEMES, help="scripts in which time passes")
    parser.add_argument("--replay", type=Path, help="a file with a script")
    return parser.parse_args()


def seeds(text: str) -> range:
    """One seed, or FIRST:END.

    >>> seeds("3:5")
    range(3, 5)
    >>> seeds("7")
    range(7, 8)
    """
    first, colon, end = text.partition(":")
    return range(int(first), int(end)) if colon else range(int(first), int(first) + 1)


if __name__ == "__main__":
    sys.exit(main())
