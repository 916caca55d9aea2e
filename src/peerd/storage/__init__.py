"""Files that survive their servers: contents on the disks of several nodes; their catalogue is in `peerd.store.files`.

`placement` decides where copies belong, as pure functions; `checking` writes what they decide; `disk` is what one disk
holds, without a database or a network; `transfer` moves contents between nodes.
"""
