"""beanstalkd's protocol, as its version 1.13 speaks it.

`commands` has a class for each command and the table of their lines, `parser` makes commands of bytes, and `replies`
has every reply: these three have no input or output. `session` keeps the order of a connection's commands, `handlers`
says what each of them does, and `statistics` what the commands report that show numbers.
"""

VERSION = "1.13"
"""The version that statistics and `peerd-beanstalkd -v` show. Two numbers and no more: clients compute with it."""
