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
    last = true'''
)


def test_each_key_has_the_line_that_it_is_written_on() -> None:
    lines, numbered = index_key_lines(TEXT), list(enumerate(TEXT.splitlines(), start=1))
    for key, beginning in {
        ("top",): "top",
        ("node",): "[node]",
        ("node", "name"): "name",
        ("node", "quoted key"): '"quoted',
        ("node", "after"): "after",
        ("workers", "video", "options", "deep", "key"): "options",
        ("workers", "video", "inline"): "inline",
        ("workers", "odd.name", "count"): "count = 2",
        ("many", "first"): "first = 1",
        ("many", "last"): "last",
    }.items():
        assert lines[key] == next(number for number, line in numbered if line.startswith(beginning)), key


def test_every_key_that_the_parser_finds_has_a_line_and_text_inside_values_is_not_a_key() -> None:
    lines = index_key_lines(TEXT)
    assert ("workers", "no") not in lines
    assert not any("x" in path for path in lines)
    for table, content in tomllib.loads(TEXT).items():
        assert (table,) in lines
        if isinstance(content, dict):
            assert all((table, key) in lines for key in content)
    assert tomllib.loads(TEXT)["node"]["after"] == 3
    of_few = index_key_lines("a = 1\n[node]\n")
    assert (find_line(("node", "missing"), of_few), find_line(("other",), of_few)) == (2, None), "the line of its table"
