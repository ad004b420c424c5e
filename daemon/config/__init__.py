"""Configuration: a YAML file to frozen settings, or to every fault in it with its place."""

from outlast.daemon.config.load import load
from outlast.daemon.config.model import (
    JobSettings,
    LogSettings,
    NodeSettings,
    PeerSettings,
    ProviderSettings,
    Settings,
    StartSettings,
    StoreSettings,
)
from outlast.daemon.config.problem import ConfigError, Problem

__all__ = [
    "ConfigError",
    "JobSettings",
    "LogSettings",
    "NodeSettings",
    "PeerSettings",
    "Problem",
    "ProviderSettings",
    "Settings",
    "StartSettings",
    "StoreSettings",
    "load",
]
