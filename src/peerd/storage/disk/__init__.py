"""One disk: a folder with an identity, whose contents are written completely or not at all.

`identity` makes a disk and checks which one it is, `folder` opens it, `part_file` writes a content and publishes it,
`digest` verifies it. All functions are synchronous, for threads; a `DiskFolder` may be used by several at
once, a `PartFile` by one.

The order of a publication; the process or the machine may end at any point:

1. The part is written, hashed on the way, and fsync'ed: its bytes are durable before a name in contents/ leads to them.
   Many small parts (`SmallParts`) are made durable by one sync of their file system, where that reports errors.
2. It is linked into its folder below contents/, never over another content.
3. The folder is fsync'ed, and those above it in which a folder may be new: the name is durable.
4. The part's own name is removed. A crash before this leaves two names of one content; whichever process opens the part
   next finishes the steps 3 and 4, and never writes into it.
"""
