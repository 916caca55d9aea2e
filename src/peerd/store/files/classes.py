"""Classes of files: how many copies the files of a class have, and where."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.file_errors import FileClassInUse, FileClassNotFound, InvalidFile
from peerd.domain.files import DEFAULT_CLASS, FileClass, check_class_name
from peerd.store.records import add_new, columns_of, read_all, read_first
from peerd.store.schema.tables import file_buckets, file_classes, files

_SELECT_CLASS = sa.select(*columns_of(FileClass, file_classes))


def list_classes(connection: Connection) -> list[FileClass]:
    """All classes by name; `default` is there without a row, too."""
    found = {one.name: one for one in (FileClass(name=DEFAULT_CLASS), *read_all(connection, FileClass, _SELECT_CLASS))}
    return [found[name] for name in sorted(found)]


def get_class(connection: Connection, name: str) -> FileClass:
    """The class of this name.

    Raises:
        FileClassNotFound: there is none.
    """
    found = read_first(connection, FileClass, _SELECT_CLASS.where(file_classes.c.name == name))
    if found is not None:
        return found
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
    values = msgspec.structs.asdict(wanted)
    add_new(connection, file_classes, values)
    connection.execute(sa.update(file_classes).where(file_classes.c.name == wanted.name).values(values))


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
