"""What `peerd-beanstalkd` runs: beanstalkd's protocol and flags on a SQLite file of its own, in one process.

`flags` and `listeners` load next to nothing, not even `typing`, so that the process listens as soon as it has started;
clients wait in the kernel's queue while the rest is loaded. `job_folder` has the file, `durability` says when it is
written to the disk, and `server` runs the gateway with the duties of a node.
"""
