"""Classes of files: how many copies, on how many zones, and how many before a put is acknowledged."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import FileClassInUse, FileClassNotFound, InvalidFile
from peerd.domain.files import DEFAULT_CLASS, FileClass, check_class_name
from peerd.store.schema.tables import file_buckets, file_classes, files
from peerd.store.upserts import insert_new

CLASS_COLUMNS = tuple(file_classes.c[field] for field in FileClass.__struct_fields__)


def list_classes(connection: Connection) -> list[FileClass]:
    """All classes by name; `default` is there without a row, too."""
    found = {DEFAULT_CLASS: FileClass(name=DEFAULT_CLASS)}
    for row in connection.execute(sa.select(*CLASS_COLUMNS)).mappings():
        found[row["name"]] = FileClass(**row)
    return [found[name] for name in sorted(found)]


def get_class(connection: Connection, name: str) -> FileClass:
    """The class of this name.

    Raises:
        FileClassNotFound: there is none.
    """
    row = connection.execute(sa.select(*CLASS_COLUMNS).where(file_classes.c.name == name)).mappings().first()
    if row is not None:
        return FileClass(**row)
    if name == DEFAULT_CLASS:
        return FileClass(name=DEFAULT_CLASS)
    raise FileClassNotFound(name, [one.name for one in list_classes(connection)])


def set_class(connection: Connection, wanted: FileClass) -> None:
    """Create a class, or change one; files that have it are checked by `peerd files fsck`.

    Raises:
        InvalidFile: its name or one of its numbers is wrong.
    """
    check_class_name(wanted.name)
    if problem := wanted.problem():
        raise InvalidFile("class", problem)
    values: dict[str, Any] = {
        "copies": wanted.copies,
        "durable": wanted.durable,
        "zones": wanted.zones,
        "object_copies": wanted.object_copies,
    }
    connection.execute(insert_new(file_classes, connection.dialect.name).values(name=wanted.name, **values))
    connection.execute(sa.update(file_classes).where(file_classes.c.name == wanted.name).values(**values))


def remove_class(connection: Connection, name: str) -> None:
    """Remove a class that neither a bucket nor a file has; `default` gets its first values again.

    Raises:
        FileClassNotFound: there is none.
        FileClassInUse: something has it.
    """
    get_class(connection, name)
    if name != DEFAULT_CLASS:
        of_buckets = sa.select(file_buckets.c.name).where(file_buckets.c.class_name == name).limit(1)
        if (bucket := connection.execute(of_buckets).scalar()) is not None:
            raise FileClassInUse(name, f"the bucket {bucket!r}")
        if connection.execute(sa.select(files.c.id).where(files.c.class_name == name).limit(1)).first() is not None:
            raise FileClassInUse(name, "files")
    connection.execute(sa.delete(file_classes).where(file_classes.c.name == name))
