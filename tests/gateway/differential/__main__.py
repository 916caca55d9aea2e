"""Compare two servers, or replay a script that showed a difference.

python -m tests.gateway.differential 0:5000                     seeds; peerd-beanstalkd against Debian's beanstalkd
python -m tests.gateway.differential 0:50 --theme pauses        scripts in which time passes
python -m tests.gateway.differential --replay FILE              a script as it was printed
python -m tests.gateway.differential 17 --tested beanstalkd     Debian's against itself
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from tests.gateway.beanstalk_servers import BEANSTALKD, PEERD, BeanstalkServer
from tests.gateway.differential.generator import THEMES, random_script, random_timed_script
from tests.gateway.differential.playing import Difference, TooLateError, play_in_time, shortest
from tests.gateway.differential.script import Script, from_text


def main() -> int:
    """Play what the arguments say; 1 if there was a difference."""
    chosen = arguments()
    with ExitStack() as afterwards:
        reference, tested = BeanstalkServer(BEANSTALKD), BeanstalkServer(chosen.tested)
        for server in (reference, tested):
            afterwards.callback(server.stop)
            server.start()

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
                    print(shortest(f"seed {seed}", script, found, play_on_both))
                    return 1
            except TooLateError:
                late += 1
        print(f"{len(chosen.seeds)} scripts, no difference, {late} given up, {time.monotonic() - began:.1f} s")
        return 0


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.gateway.differential", description=__doc__.split("\n")[0])
    parser.add_argument("seeds", nargs="?", type=seeds, default=range(1000), help="one, or FIRST:END")
    parser.add_argument("--tested", choices=(BEANSTALKD, PEERD), default=PEERD)
    parser.add_argument("--theme", choices=THEMES, help="scripts in which time passes")
    parser.add_argument("--replay", type=Path, help="a file with a script")
    return parser.parse_args()


def seeds(text: str) -> range:
    """One seed, or FIRST:END."""
    first, _, end = text.partition(":")
    return range(int(first), int(end or int(first) + 1))


if __name__ == "__main__":
    sys.exit(main())
