"""The installation page says what works: its files exist, its configurations load, its sshd accepts."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from outlast.daemon.config import (
    JobSettings,
    LogSettings,
    NodeSettings,
    PeerSettings,
    ProviderSettings,
    Settings,
    StartSettings,
    StoreSettings,
    load,
)
from outlast.daemon.config.model import MetricsSettings, PriceSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/install.md").read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    """The page's code blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Every command of the page, as words."""
    return [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]


def test_shell_accepts_the_commands() -> None:
    """Each block is a script that sh can parse."""
    for block in blocks("sh"):
        subprocess.run(["sh", "-n"], input=block, text=True, check=True, timeout=10)


def test_installed_files_exist() -> None:
    """Every file that the page copies is in the repository."""
    named = {word for words in commands() for word in words if word.startswith("systemd/")}
    assert len(named) >= 7
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("options", ["install -D -m 0644", "install -m 0644", "install -d -m 2775"])
def test_install_commands_run(tmp_path: Path, options: str) -> None:
    """The copying commands do what they say, in a folder that stands for the root of the node."""
    chosen = [words for words in commands() if shlex.join(words).startswith(options)]
    assert chosen
    for folder in ("etc/sysusers.d", "etc/tmpfiles.d", "etc/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    for words in chosen:
        local = [f"{tmp_path}{word}" if word.startswith("/") else word for word in words]
        owner = {"outlast-trainer": "0", "outlast": "0"}
        subprocess.run([owner.get(word, word) for word in local], check=True, cwd=ROOT, timeout=10)
        target = Path(local[-1])
        assert target.exists()
        assert target.stat().st_mode & 0o7777 == int(words[words.index("-m") + 1], 8) or target.is_dir()


def test_configurations_load(tmp_path: Path) -> None:
    """All configurations are accepted, with real keys and folders in the place of the node's."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "ssh_key"], check=True)
    (tmp_path / "checkpoints").mkdir()
    loaded: list[Settings] = []
    for text in blocks("yaml"):
        file = tmp_path / "outlast.yaml"
        here = text.replace("/data/checkpoints", str(tmp_path / "checkpoints"))
        file.write_text(here.replace("/etc/outlast/peer.pub", str(tmp_path / "ssh_key.pub")))
        loaded.append(load(file, env={"CREDENTIALS_DIRECTORY": str(tmp_path)}))
    assert [settings.jobs[0].role for settings in loaded] == ["primary", "standby", *3 * ["primary"]]
    assert [str(store.url) for store in loaded[2].jobs[0].stores] == [
        "s3://my-bucket/outlast",
        "/mnt/nfs/outlast",
    ]
    assert loaded[3].node.name in loaded[3].jobs[0].nodes
    assert loaded[0].jobs[0].peer is not None
    assert loaded[0].jobs[0].peer.key == tmp_path / "ssh_key"


def test_sshd_accepts_the_section(tmp_path: Path) -> None:
    """sshd reads the section, and it holds for the daemon's user alone."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "host"], check=True)
    config = tmp_path / "sshd_config"
    (section,) = blocks("sshd_config")
    config.write_text(f"HostKey {tmp_path / 'host'}\n{section}")
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd separates its privileges
    for user, ours in (("outlast", True), ("root", False)):
        condition = f"user={user},host=x,addr=10.8.0.1"
        command = [sshd, "-T", "-f", str(config), "-C", condition]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
        assert done.returncode == 0, done.stderr
        assert ("authorizedkeysfile /etc/outlast/authorized_keys" in done.stdout) is ours


def test_forced_command_restricts() -> None:
    """The key's line forces the receiver and allows nothing else."""
    (line,) = blocks("authorized_keys")
    match = re.fullmatch(r'command="([^"]+)",restrict ssh-ed25519 AAAA… outlast\n', line)
    assert match is not None
    assert match.group(1).split()[:2] == ["/opt/outlast/bin/outlast", "receive"]


def test_the_scrape_configuration_names_the_page() -> None:
    """Its target is the address that the example listens at; Prometheus accepts it, where that is here."""
    (text,) = blocks("prometheus")
    (scrape,) = yaml.safe_load(text)["scrape_configs"]
    (target,) = scrape["static_configs"][0]["targets"]
    assert f"listen: {target}\n" in PAGE
    promtool = shutil.which("promtool")
    if promtool is not None:
        command = [promtool, "check", "config", "/dev/stdin"]
        subprocess.run(command, input=text, text=True, check=True, timeout=10, capture_output=True)


def test_every_key_is_documented() -> None:
    """The table of keys and the settings name the same keys."""
    models: list[tuple[str, type[BaseModel]]] = [
        *(("node.", NodeSettings), ("provider.", ProviderSettings), ("prices.", PriceSettings)),
        *(("metrics.", MetricsSettings), ("log.", LogSettings)),
        *(("jobs[].", JobSettings), ("jobs[].peer.", PeerSettings), ("jobs[].start.", StartSettings)),
        ("jobs[].stores[].", StoreSettings),
    ]
    fields = [(prefix, *item) for prefix, model in models for item in model.model_fields.items()]
    wanted = {f"{prefix}{field.alias or name}" for prefix, name, field in fields}
    wanted -= {"jobs[].peer", "jobs[].start", "jobs[].stores"}
    table = PAGE.partition("## All keys")[2].replace("`, `.env`", "`\n| `jobs[].start.env`")
    assert set(re.findall(r"^\| `([a-z_.\[\]]+)`", table, re.MULTILINE)) == wanted
