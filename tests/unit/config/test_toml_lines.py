from __future__ import annotations

import tomllib
from textwrap import dedent

from peerd.config.reading.source import find_line, index_key_lines

TEXT = dedent(
    '''
    # [node] is not here
    top = 1
    [node] # but here
    name = "a # [b]"
    "quoted key" = 'x = 1'
    text = """
    [workers.no]
    count = 1
    \\""" still inside
    """
    list = [
        "one", # ]
        "two",
    ]
    after = 3

    [workers.video]
    tasks = "a:b"
    options.deep.key = 1
    inline = { one = 1, two = "}" }
    [workers."odd.name"]
    count = 2
    [[many]]
    first = 1
    [[many]]
    first = 2
    literal = \'\'\'
    x = 1\'\'\'
    last = true''',
)


def test_the_text_of_these_tests_is_toml() -> None:
    assert tomllib.loads(TEXT)["node"]["after"] == 3


def test_each_key_has_the_line_that_it_is_written_on() -> None:
    lines = index_key_lines(TEXT)
    numbered = list(enumerate(TEXT.splitlines(), start=1))

    def written(beginning: str) -> int:
        return next(number for number, line in numbered if line.startswith(beginning))

    assert lines[("top",)] == written("top")
    assert lines[("node",)] == written("[node]")
    assert lines[("node", "name")] == written("name")
    assert lines[("node", "quoted key")] == written('"quoted')
    assert lines[("node", "after")] == written("after")
    assert lines[("workers", "video", "options", "deep", "key")] == written("options")
    assert lines[("workers", "video", "inline")] == written("inline")
    assert lines[("workers", "odd.name", "count")] == written("count = 2")
    assert lines[("many", "first")] == written("first = 1")
    assert lines[("many", "last")] == written("last")


def test_text_inside_values_is_not_a_key() -> None:
    lines = index_key_lines(TEXT)
    assert ("workers", "no") not in lines
    assert not any("x" in path for path in lines)


def test_every_key_that_the_parser_finds_has_a_line() -> None:
    lines = index_key_lines(TEXT)
    for table, content in tomllib.loads(TEXT).items():
        assert (table,) in lines
        if isinstance(content, dict):
            assert all((table, key) in lines for key in content)


def test_a_key_that_is_not_written_has_the_line_of_its_table() -> None:
    lines = index_key_lines("a = 1\n[node]\n")
    assert find_line(("node", "missing"), lines) == 2
    assert find_line(("other",), lines) is None
