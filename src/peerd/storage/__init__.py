"""Files that survive their servers: contents on the disks of several nodes; their catalogue is in `peerd.store.files`.

`placement` decides where copies belong, as pure functions, and `checking` writes what it decides; `disk` is what one
disk holds, without a database or a network; `transfer` moves contents between nodes; `server` serves them and files;
`s3` is the protocol of S3 without sockets; `duties` and `maintenance` are what tasks and the periodic worker do.
"""
