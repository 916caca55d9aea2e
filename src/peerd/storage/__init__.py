"""Files that survive their servers: contents on the disks of several nodes; their catalogue is in `peerd.store.files`.

`placement` decides where copies belong, as pure functions.
"""
