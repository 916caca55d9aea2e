"""A part of a bucket in an S3-compatible object store as a disk, which several nodes may use at once.

`options` and `place` say where it is, `bucket` has the requests, `credentials` what they are signed with, `errors` what
can go wrong, `writer` how a content is written, `unfinished` what killed writers have left, `disk` the disk itself.

The names are those of a folder, below the prefix: peerd-disk.json, contents/0191/b2c/0191b2c3d4e5f607, quarantine/….
Nothing has a name before it is whole: an object appears with the last request of its upload, and this is sent only
after the digest was compared. An upload that ends before is aborted. What a killed process has left has no name and is
no content: a sweep aborts it when it is a week old, or the object store does before, by a lifecycle rule.

A content is written again rather than looked up: it never changes, so the bytes are the same.
"""
