"""An object store as DuckDB reads it. Files never change, so each is asked about once."""

from __future__ import annotations

import datetime as dt
from typing import Any

from obstore.fsspec import FsspecStore


class Files(FsspecStore):
    """DuckDB asks for size and time of a file several times a query; each answer is kept."""

    def __init__(self, scheme: Any) -> None:
        super().__init__(scheme)
        self._known: dict[str, dict[str, Any]] = {}

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        if path not in self._known:
            found = await super()._info(path, **kwargs)
            if found["type"] != "file":
                return found
            self._known[path] = found
        return self._known[path]

    def modified(self, path: str) -> dt.datetime:
        """When the file was written."""
        when: dt.datetime = self.info(path)["last_modified"]
        return when
