"""The protocol of S3, without sockets, tables or files: bytes and headers in, values out, and back.

`signature` verifies requests, `bodies` and `chunked` read what they carry, `requests` makes operations of them, `xml`
and `documents` read XML, `responses` writes it, and `errors` is the table of what can be refused.
"""
