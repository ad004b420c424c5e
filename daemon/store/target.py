"""From an address to the client that talks to it. Credentials come as each cloud's own tools find them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlast.daemon.store.address import Address
from outlast.daemon.store.layout import Keys

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_MISSING = "stores need the extra of that name on the daemon's environment: pip install 'outlast[stores]'"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """One store of one job.

    ``endpoint`` is another server that speaks the same protocol; ``account`` is Azure's. ``keep``: how many
    whole checkpoints stay. ``read_back``: digest what arrived once more; None for where no TLS protects it.
    ``patience_s``: how long one request is tried again before the store counts as out of reach.
    """

    address: Address
    endpoint: str | None = None
    region: str | None = None
    account: str | None = None
    keep: int = 2
    read_back: bool | None = None
    patience_s: float = 30.0
    part_bytes: int = 8 * 1024 * 1024

    @property
    def reads_back(self) -> bool:
        """Whether what arrived is read and digested before it counts."""
        if self.read_back is not None:
            return self.read_back
        return self.endpoint is not None and self.endpoint.startswith("http://")


class StoreUnusable(Exception):  # noqa: N818 - a state of the world, named as callers speak of it
    """The settings make no client; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A job's place in a store, and the client for it."""

    settings: StoreSettings
    job: str
    store: ObjectStore
    keys: Keys

    @property
    def address(self) -> Address:
        """Where it is."""
        return self.settings.address

    @property
    def folder(self) -> Path | None:
        """The job's own folder, where the store is one: a local store that ``outlast verify`` reads."""
        return self.address.folder and self.address.folder / self.job


def open_target(settings: StoreSettings, job: str) -> Target:
    """Make the client; nothing is asked of the store yet. May block on files. Raises StoreUnusable."""
    try:
        import obstore  # noqa: F401 - the only place that tells of a missing extra
    except ImportError:
        raise StoreUnusable(_MISSING) from None
    from obstore.exceptions import BaseError

    folder = settings.address.folder
    if folder is not None and not folder.is_dir():
        raise StoreUnusable(no_folder(folder))
    try:
        store = _MAKERS[settings.address.scheme](settings)
    except (BaseError, OSError, ValueError) as exc:
        first = (str(exc).splitlines() or [""])[0][:200]
        raise StoreUnusable(f"{settings.address} cannot be used: {first}") from exc
    prefix = settings.address.prefix if settings.address.folder is None else ""
    return Target(settings, job, store, Keys(f"{prefix}/{job}".lstrip("/")))


def no_folder(root: Path) -> str:
    """What is wrong with a folder that is not there, and what to do."""
    return f"{root} is not there: mount it, or make it, writable for the daemon"


def _client(settings: StoreSettings) -> ClientConfig:
    plain = settings.endpoint is not None and settings.endpoint.startswith("http://")
    # Each read is bounded, not the whole: a part may take its time on a thin link, a dead one may not.
    config: ClientConfig = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "15m"}
    return {**config, "allow_http": True} if plain else config


def _retry(settings: StoreSettings) -> RetryConfig:
    backoff = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=8), "base": 2}
    return {
        "max_retries": 8,
        "retry_timeout": timedelta(seconds=settings.patience_s),
        "backoff": backoff,  # type: ignore[typeddict-item]  # a plain dictionary is what it takes
    }


def _given(**options: Any) -> dict[str, Any]:
    """What was set; the environment speaks for the rest."""
    return {name: value for name, value in options.items() if value is not None}


def _s3(settings: StoreSettings) -> ObjectStore:
    from obstore.store import S3Store

    options = _given(endpoint=settings.endpoint, region=settings.region)
    if "AWS_PROFILE" in os.environ:
        from obstore.auth.boto3 import Boto3CredentialProvider

        options = {**options, "credential_provider": Boto3CredentialProvider()}
    # Each part goes with its digest, and S3 refuses one that does not fit.
    return S3Store(
        settings.address.bucket,
        checksum_algorithm="SHA256",
        client_options=_client(settings),
        retry_config=_retry(settings),
        **options,
    )


def _gs(settings: StoreSettings) -> ObjectStore:
    from obstore.store import GCSStore

    return GCSStore(
        settings.address.bucket,
        client_options=_client(settings),
        retry_config=_retry(settings),
        **_given(base_url=settings.endpoint),
    )


def _az(settings: StoreSettings) -> ObjectStore:
    from obstore.store import AzureStore

    return AzureStore(
        settings.address.bucket,
        client_options=_client(settings),
        retry_config=_retry(settings),
        **_given(endpoint=settings.endpoint, account_name=settings.account),
    )


def _folder(settings: StoreSettings) -> ObjectStore:
    from obstore.store import LocalStore

    # A folder that is missing is a mount that is missing: to make it would fill the disk below.
    return LocalStore(settings.address.folder, automatic_cleanup=True, mkdir=False)


_MAKERS = {"s3": _s3, "gs": _gs, "az": _az, "file": _folder}
