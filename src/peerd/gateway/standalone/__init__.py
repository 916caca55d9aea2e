"""What `peerd-beanstalkd` runs: beanstalkd's protocol and flags on a SQLite file of its own, in one process.

`start` loads next to nothing, not even `typing`, so that the process listens as soon as it runs; clients wait in the
kernel's queue while the rest is loaded. `database_file` has the file and says when it is written to the disk, and
`server` runs the gateway with the duties of a node.
"""
