"""A row of the table: how a file is made, what is asked, what must come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """`steps` are ffmpeg's arguments or commands of `surgery`, with ``&&`` between them; the last word is the source.

    Macros: ``{A}`` a film of mark A, ``{A:320x180@50*4%2}`` with size, rate, seconds, images per number;
    ``{~440|880*2}`` tones of the channels for 2 s, ``{~440|0=mono}`` with a layout, ``=?`` without one;
    ``{t:64x36@25*1}`` a test picture; ``{x}`` H.264.
    """

    name: str
    steps: str
    call: str = "transcode"
    args: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""  # its name, when it is not the last word
    named: str = ""  # its name after the steps
    first: str = ""  # another file, transcoded before
    replaces: str = ""  # the one file that may be changed
    # what must come out
    error: str = ""  # classes of the error, as a regular expression
    words: str = ""  # of its text
    final: bool = True
    frames: int | tuple[int, int] = 50
    numbers: Sequence[int] | None = ()  # of the pictures; () as the frames, None: it is no film of ours
    mark: str = "A"
    rate: float = 25
    times: Sequence[float] | None = ()  # of the pictures; () by the rate, None: any
    begins: float = 0.0
    lasts: float | None = None  # None: as the frames
    size: str = "160x96"
    padded: bool = False  # black bars round the film are allowed
    colours: str = "right"  # or "mapped", "any"
    tolerance: int = 16
    tags: bool = False  # that they are there: BT.709, limited; primaries may be those of SD
    sound: str = ""  # tones of the channels
    span: tuple[float, float] | None = (0.0, 2.0)  # None: any
    shown: float | None = None  # the second a poster says it is of
    result: str = ""  # an expression of the result that must be true

    @property
    def least_and_most(self) -> tuple[int, int]:
        return self.frames if isinstance(self.frames, tuple) else (self.frames, self.frames)


def film(name: str, steps: str, frames: int | tuple[int, int] = 50, sound: str = "", **more: Any) -> Row:
    return Row(name=name, steps=steps, frames=frames, sound=sound, **more)


def plain(name: str, steps: str, frames: int | tuple[int, int] = 50, sound: str = "", **more: Any) -> Row:
    """A film of another generator: counted and measured, not read."""
    return Row(name=name, steps=steps, frames=frames, sound=sound, numbers=None, colours="any", **more)


def still(name: str, steps: str, number: int | tuple[int, int], at: float | None = None, **more: Any) -> Row:
    """A poster that shows the picture of this number, or one between two."""
    return Row(name=name, steps=steps, call="poster", args={} if at is None else {"at": at}, frames=number, **more)


def refused(name: str, steps: str, error: str, words: str = "", **more: Any) -> Row:
    return Row(name=name, steps=steps, error=error, words=words, **more)


def many(
    maker: Callable[..., Row], name: str, steps: str, variants: Iterable[Any] | str, *given: Any, **more: Any
) -> list[Row]:
    """A row for each variant, whose words stand at $1, $2 … ($0: all of them); variants may be 'a|b; c|d'."""
    if isinstance(variants, str):
        variants = [[word.strip() for word in variant.split("|")] for variant in variants.split(";")]
    rows = []
    for words in variants:
        texts = [name, steps]
        for place, word in enumerate((" ".join(words), *words)):
            texts = [text.replace(f"${place}", word) for text in texts]
        rows.append(maker(*(text.strip() for text in texts), *given, **more))
    return rows
