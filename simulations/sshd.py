"""A real OpenSSH server on a loopback port, with throw-away keys and one forced command."""

from __future__ import annotations

import asyncio
import getpass
import os
import shlex
import shutil
import signal
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_START_S = 10.0
_STOP_S = 5.0


@dataclass(frozen=True)
class KeyPair:
    """A key made by ssh-keygen: the private half's file and the public half's line."""

    private: Path
    public: str


class Sshd:
    """An sshd of its own under ``folder``; a login of ``client`` runs ``command``, if given, and no other."""

    def __init__(
        self, folder: Path, command: list[str] | None, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._folder = folder
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self.host = host
        self.port = port
        self.user = getpass.getuser()
        self.host_key = ""
        self.client = KeyPair(folder / "client", "")

    @property
    def log(self) -> Path:
        """What sshd had to say."""
        return self._folder / "sshd.log"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Make keys and configuration, unless made before, and listen. Raises OSError if it cannot."""
        path = f"/usr/sbin:{os.environ.get('PATH', '')}"
        program = await asyncio.to_thread(shutil.which, "sshd", path=path)
        if program is None:
            raise OSError("sshd is not installed: install the package openssh-server")
        if not self.host_key:
            self.client = await make_key(self._folder / "client")
            self.host_key = (await make_key(self._folder / "host")).public
        self.port = self.port or free_port(self.host)
        config = await asyncio.to_thread(self._write_config)
        # sshd insists on an absolute path, as it starts itself again for each connection.
        self._process = await asyncio.create_subprocess_exec(
            program,
            "-D",
            "-f",
            str(config),
            "-E",
            str(self.log),
        )
        await self._listening()

    async def stop(self) -> None:
        """End the server and all its sessions; safe to call twice."""
        process, self._process = self._process, None
        if process is None:
            return
        # A session is in a process group of its own, and would outlive the listener.
        below = await asyncio.to_thread(_below, process.pid)
        for pid in [process.pid, *(pid for pid, _ in below)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def sessions(self) -> list[int]:
        """The process ids below the server that run the forced command, oldest first."""
        if self._process is None:
            return []
        below = await asyncio.to_thread(_below, self._process.pid)
        return [pid for pid, line in below if not line.startswith("sshd")]

    async def _listening(self) -> None:
        async with asyncio.timeout(_START_S):
            while True:
                assert self._process is not None
                if self._process.returncode is not None:
                    raise OSError(f"sshd ended at once: {await asyncio.to_thread(self.log.read_text)}")
                with suppress(OSError):
                    _, writer = await asyncio.open_connection(self.host, self.port)
                    writer.close()
                    await writer.wait_closed()
                    return
                await asyncio.sleep(0.02)

    def _options(self) -> str:
        """What stands before the key: without a forced command it may do everything."""
        if self._command is None:
            return ""
        command = shlex.join(self._command).replace("\\", "\\\\").replace('"', '\\"')
        return f'command="{command}",restrict '

    def _write_config(self) -> Path:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd's own, made by its unit elsewhere
        keys = self._folder / "authorized_keys"
        keys.write_text(f"{self._options()}{self.client.public}\n")
        lines = {
            "ListenAddress": self.host,
            "Port": str(self.port),
            "HostKey": str(self._folder / "host"),
            "AuthorizedKeysFile": str(keys),
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitRootLogin": "forced-commands-only" if self._command else "prohibit-password",
            "Subsystem": "sftp internal-sftp",
            "MaxSessions": "64",
            "MaxStartups": "100",
            "UseDNS": "no",
            "PrintMotd": "no",
            # A login shell reads its owner's start files, which may take seconds or wait for a lock.
            "SetEnv": f"HOME={self._folder}",
        }
        path = self._folder / "sshd_config"
        path.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        return path


async def make_key(path: Path) -> KeyPair:
    """Make an ed25519 key pair at ``path`` with ssh-keygen. Raises OSError."""
    process = await asyncio.create_subprocess_exec(
        "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "outlast", "-f", str(path),
        stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, stderr = await process.communicate()
    if process.returncode:
        raise OSError(f"ssh-keygen failed: {stderr.decode(errors='replace').strip()}")
    public = await asyncio.to_thread(path.with_name(f"{path.name}.pub").read_text)
    return KeyPair(path, public.strip())


def receive_command(root: Path, job: str) -> list[str]:
    """The forced command of a peer that keeps its replicas in ``root``."""
    return [sys.executable, "-m", "outlast.daemon.ship.receive", "--root", str(root), "--job", job]


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _below(root: int) -> list[tuple[int, str]]:
    """All descendants of a process with their command lines, oldest first."""
    known, found = {root}, []
    for pid, parent, line in sorted(_processes()):
        if parent in known:
            known.add(pid)
            found.append((pid, line))
    return found


def _processes() -> list[tuple[int, int, str]]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError, ValueError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                found.append((int(path.name), parent, (path / "cmdline").read_text().replace("\0", " ")))
    return found
