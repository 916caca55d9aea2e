"""beanstalkd's protocol, as its version 1.13 speaks it.

`grammar.COMMANDS` is the table of commands, `commands` has a class for each of them, `parser` makes commands of bytes,
`replies` has every reply, and `statistics` the YAML of the commands that report.
"""

VERSION = "1.13"
"""The version that statistics and `peerd-beanstalkd -v` show. Two numbers and no more: clients compute with it."""
