"""The commands ``peerd files …``."""

from __future__ import annotations

from peerd.cli import access
from peerd.cli.command import command, new_app
from peerd.cli.files import buckets, contents, disks
from peerd.cli.files.catalogue import at_risk, du, fsck, ls, mv, rm, stat, verify
from peerd.cli.files.contents import get, put
from peerd.cli.files.disks import drain, rebalance, undrain
from peerd.cli.files.storage_watch import watch

app = new_app("Put, get, list, show, move, remove and check files; buckets, classes, disks, access keys and uploads.")

for function in (put, get, ls, stat, mv, rm, du, verify, fsck, drain, undrain, rebalance, watch):
    command(app)(function)
command(app, "at-risk")(at_risk)
app.add_typer(buckets.app, name="buckets")
app.add_typer(buckets.classes, name="classes")
app.add_typer(disks.app, name="disks")
app.add_typer(access.keys, name="keys")
app.add_typer(contents.uploads, name="uploads")
