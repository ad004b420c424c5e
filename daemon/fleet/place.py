"""Where Parquet files lie: a folder, or a prefix in an object store. Files are added whole, never changed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import duckdb

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")
SUFFIX = ".parquet"


class PlaceError(Exception):
    """A folder or store does not answer or refuses. The text says what, why and what to do."""


class Place(Protocol):
    """Relative names use "/". ``put`` is atomic: a name is there whole or not at all."""

    def names(self, prefix: str) -> list[str]:
        """The Parquet files below ``prefix``, in order. Raises PlaceError."""
        ...

    def put(self, name: str, file: Path) -> None:
        """Add a file under a name that says its contents; one that is there already is left. PlaceError."""
        ...

    def path(self, name: str) -> str:
        """What a connection that was attached reads the file by."""
        ...

    def attach(self, db: duckdb.DuckDBPyConnection) -> None:
        """Let the connection read from here."""
        ...


def is_url(text: str) -> bool:
    """Whether this names an object store."""
    return urlsplit(text).scheme in SCHEMES and "://" in text


def place_of(text: str) -> Place:
    """The place of a folder's path or a URL. Raises PlaceError."""
    return StorePlace(text) if is_url(text) else FolderPlace(Path(text))


class FolderPlace:
    """A folder on a disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def names(self, prefix: str) -> list[str]:
        """See Place."""
        found = (self._root / prefix).rglob(f"*{SUFFIX}")
        return sorted(str(path.relative_to(self._root)) for path in found if not path.name.startswith("."))

    def put(self, name: str, file: Path) -> None:
        """Copy beside, fsync, rename."""
        target = self._root / name
        beside = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with file.open("rb") as source, beside.open("wb") as copy:
                while chunk := source.read(1 << 20):
                    copy.write(chunk)
                copy.flush()
                os.fsync(copy.fileno())
            beside.rename(target)
            _sync(target.parent)
        except OSError as exc:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise PlaceError(
                f"{target} cannot be written: {exc.strerror}. Make room, or run this as the owner."
            ) from exc

    def path(self, name: str) -> str:
        """See Place."""
        return str(self._root / name)

    def attach(self, db: duckdb.DuckDBPyConnection) -> None:
        """Folders need nothing."""


class StorePlace:
    """A prefix in an object store. Credentials and endpoint come from the environment, as the SDKs do it."""

    def __init__(self, url: str) -> None:
        import obstore.store

        parts = urlsplit(url)
        self._scheme = parts.scheme
        self._bucket = parts.netloc
        self._prefix = parts.path.strip("/")
        self._url = f"{self._scheme}://{self._bucket}"
        with _told(self._url):
            self._store = obstore.store.from_url(self._url)

    def names(self, prefix: str) -> list[str]:
        """See Place."""
        import obstore

        root = f"{self._prefix}/" if self._prefix else ""
        with _told(self._url):
            keys = [meta["path"] for chunk in obstore.list(self._store, root + prefix) for meta in chunk]
        return sorted(key.removeprefix(root) for key in keys if key.endswith(SUFFIX))

    def put(self, name: str, file: Path) -> None:
        """One conditional write: a name says its contents, so whoever was first has written the same."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with _told(self._url), contextlib.suppress(AlreadyExistsError):
            obstore.put(self._store, self._key(name), file, mode="create")

    def path(self, name: str) -> str:
        """See Place."""
        return f"{self._url}/{self._key(name)}"

    def attach(self, db: duckdb.DuckDBPyConnection) -> None:
        """DuckDB reads through the same client, so that there is one way of giving credentials."""
        from outlast.daemon.fleet.remote import Files

        files: Any = Files(self._scheme)
        db.register_filesystem(files)

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name


@contextlib.contextmanager
def _told(url: str) -> Iterator[None]:
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except AlreadyExistsError:
        raise
    except (BaseError, OSError, ValueError) as exc:
        # The first line, without the document that a store answers with.
        first = (str(exc).splitlines() or [""])[0].partition(": <")[0][:200]
        raise PlaceError(
            f"{url} does not do as asked: {first}. Check the bucket's name and region, and the credentials"
            " in the environment."
        ) from exc


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
