"""beanstalkd's protocol, as its version 1.13 speaks it.

`commands` makes commands of bytes, by the table of their lines, and `replies` has every reply: these two have no input
or output. `session` keeps the order of a connection's commands and says what each of them does, `statistics` what the
commands report that show numbers.
"""

VERSION = "1.13"
"""The version that statistics and `peerd-beanstalkd -v` show. Two numbers and no more: clients compute with it."""
