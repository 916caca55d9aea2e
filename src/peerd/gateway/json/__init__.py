"""The JSON protocol; docs/protocol.md is its definition.

`messages` has a class for each message, `parser` makes messages of bytes, and `replies` has every reply: these three
have no input or output. `session` keeps the order of a connection's messages, and says what each of them does.
"""
