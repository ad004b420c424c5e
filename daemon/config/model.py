"""The settings: an immutable snapshot of one configuration file. Defaults live here and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from outlast.daemon.config import stores as places
from outlast.daemon.config import values
from outlast.daemon.store.address import Address

Text = Annotated[str, BeforeValidator(values.text)]
Name = Annotated[str, BeforeValidator(values.name)]
Folder = Annotated[Path, BeforeValidator(values.absolute)]
Seconds = Annotated[float, BeforeValidator(values.duration)]
PositiveSeconds = Annotated[float, BeforeValidator(values.positive_duration)]
Variables = Annotated[
    Mapping[str, str],
    BeforeValidator(values.environment),
    AfterValidator(MappingProxyType),
    PlainSerializer(dict),
]
Switch = Annotated[bool, Field(strict=True)]

ProviderName = Literal["auto", "aws", "gcp", "azure", "none"]
Role = Literal["primary", "standby"]
StartWhen = Literal["warning", "takeover", "always"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console", "journal"]


class _Snapshot(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class NodeSettings(_Snapshot):
    """This machine: its name, and where the daemon keeps its state and its sockets."""

    name: Name = Field(default_factory=socket.gethostname)
    state: Folder = Path("/var/lib/outlast")
    runtime: Annotated[Path, BeforeValidator(values.socket_folder)] = Path("/run/outlast")

    @property
    def trainer_socket(self) -> Path:
        """Where the ranks connect."""
        return self.runtime / "trainer.sock"

    @property
    def control_socket(self) -> Path:
        """Where the reading commands connect."""
        return self.runtime / "control.sock"


class ProviderSettings(_Snapshot):
    """Whose word is listened to. ``notice_s`` None is the provider's own default."""

    name: ProviderName = "auto"
    endpoint: Annotated[str | None, BeforeValidator(values.endpoint)] = None
    poll_s: Annotated[float, BeforeValidator(values.poll)] = Field(default=1.0, alias="poll")
    notice_s: PositiveSeconds | None = Field(default=None, alias="notice")
    acknowledge: Switch = False
    hints: Switch = True
    own_name: Name | None = None


class PeerSettings(_Snapshot):
    """The receiver of this job's checkpoints. ``host_key`` is ``algorithm base64``; ``key`` is a file."""

    ssh: Annotated[values.SshAddress, BeforeValidator(values.ssh_address)]
    host_key: Annotated[str, BeforeValidator(values.host_key)]
    key: Annotated[Path, BeforeValidator(values.private_key)]
    bulk: Literal["auto", "channels", "openssh", "rsync"] = "auto"
    channels: Annotated[int, Field(strict=True, ge=1, le=16)] = 8
    limit: Annotated[float | None, BeforeValidator(values.bandwidth)] = None
    keep: Annotated[int, Field(strict=True, ge=1, le=1000)] = 2

    @property
    def user(self) -> str:
        """The account on the peer."""
        return self.ssh.user

    @property
    def host(self) -> str:
        """The peer's name or address."""
        return self.ssh.host

    @property
    def port(self) -> int:
        """The peer's SSH port."""
        return self.ssh.port


class StartSettings(_Snapshot):
    """How a standby starts its trainer: a ``command`` or a systemd ``unit``, never both."""

    command: Annotated[tuple[str, ...] | None, BeforeValidator(values.command)] = None
    unit: Annotated[str | None, BeforeValidator(values.unit)] = None
    folder: Folder | None = None
    env: Variables = Field(default_factory=lambda: MappingProxyType({}))
    when: StartWhen = "warning"


class StoreSettings(_Snapshot):
    """An object store or a folder that gets this job's checkpoints; credentials are not given here."""

    url: Annotated[Address, BeforeValidator(places.address)]
    keep: Annotated[int, Field(strict=True, ge=2, le=1000)] = 2
    endpoint: Annotated[str | None, BeforeValidator(places.endpoint)] = None
    region: Annotated[str | None, BeforeValidator(places.word)] = None
    account: Annotated[str | None, BeforeValidator(places.word)] = None
    read_back: Switch | None = None


class JobSettings(_Snapshot):
    """One training run on this node. ``takeover_after_s`` is the grace after an announced deadline.

    ``nodes`` are the names of all nodes that the run spans, everywhere in one order; empty for this alone.
    ``every_s`` is fixed, or ``auto``: it follows what checkpoints cost and how often the pool is taken.
    """

    name: Annotated[str, BeforeValidator(values.job_name)]
    role: Role = "primary"
    nodes: Annotated[tuple[str, ...], BeforeValidator(values.nodes)] = ()
    checkpoints: Annotated[Path, BeforeValidator(values.checkpoint_folder)] | None = None
    every_s: Annotated[float | Literal["auto"], BeforeValidator(values.every)] | None = Field(
        default=None, alias="every"
    )
    peer: PeerSettings | None = None
    stores: tuple[StoreSettings, ...] = ()
    require: Annotated[Literal["any", "all"] | int, BeforeValidator(places.require)] = "any"
    replicas: Folder | None = None
    start: StartSettings | None = None
    takeover_after_s: Seconds = Field(default=5.0, alias="takeover_after")
    stop_signal: Annotated[str, BeforeValidator(values.stop_signal)] | None = None


class PriceSettings(_Snapshot):
    """Whether the node's own prices are asked for, and how often; None for not at all."""

    every_s: Annotated[float, BeforeValidator(values.price_pause)] | None = Field(default=None, alias="every")


class MetricsSettings(_Snapshot):
    """Where Prometheus reads: an address that is listened to, a file for node_exporter, both or neither."""

    listen: Annotated[tuple[str, int] | None, BeforeValidator(values.listen)] = None
    textfile: Annotated[Path | None, BeforeValidator(values.textfile)] = None


class LogSettings(_Snapshot):
    """How much is logged, and in which form."""

    level: LogLevel = "info"
    format: LogFormat = "auto"


class Settings(_Snapshot):
    """Everything one configuration file says. Two equal snapshots mean that nothing changed."""

    node: NodeSettings = Field(default_factory=NodeSettings)
    provider: ProviderSettings = Field(default_factory=ProviderSettings)
    jobs: tuple[JobSettings, ...]
    prices: PriceSettings = Field(default_factory=PriceSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    log: LogSettings = Field(default_factory=LogSettings)
