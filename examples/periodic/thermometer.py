"""A Worker does something every so often, without a queue."""

from pathlib import Path

from peerd import Worker


class Thermometer(Worker):
    """Measures, and writes down what it measured. An error is reported, and the next loop comes all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.measured = 0

    def loop(self) -> None:
        """One measurement; a plain method runs in a thread, so it may block."""
        self.measured += 1
        if self.measured == 2:
            raise ConnectionError("the sensor did not answer")
        with Path("measured.txt").open("a") as file:
            file.write(f"{self.measured}\n")
