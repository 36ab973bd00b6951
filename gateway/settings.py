"""What the operator can set: command line and `samovar.toml`, read once, checked, frozen.

Only the composition root sees the whole; every part gets its own small parameters. Unknown keys are refused with
the key's name, so that a typing error never silently means the default.
"""

from __future__ import annotations

import argparse
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

MIB = 1024 * 1024


class BadSettings(Exception):
    """A setting that cannot be used; the message names key and rule."""


@dataclass(frozen=True)
class ServerSettings:
    """`[server]`: where clients come in."""

    host: str = "127.0.0.1"
    port: int = 8080
    #: Calls under way get this long to end when the gateway stops.
    drain_s: float = 10.0


@dataclass(frozen=True)
class ServiceSettings:
    """`[database]`, `[redis]`: an own server's address; empty: an embedded one is started."""

    url: str = ""


@dataclass(frozen=True)
class MeteringSettings:
    """`[metering]`."""

    enabled: bool = True


@dataclass(frozen=True)
class LocalSettings:
    """`[local]`: the pool on this machine."""

    enabled: bool = True
    #: Memory that workers may be promised in all; 0: the machine's, less a reserve.
    memory_mib: int = 0
    cpu_millis: int = 0
    workers_max: int = 512


@dataclass(frozen=True)
class Settings:
    """Everything."""

    data: Path
    server: ServerSettings = ServerSettings()
    database: ServiceSettings = ServiceSettings()
    redis: ServiceSettings = ServiceSettings()
    metering: MeteringSettings = MeteringSettings()
    local: LocalSettings = LocalSettings()
    die_with_parent: bool = False


_SECTIONS: dict[str, type] = {
    "server": ServerSettings,
    "database": ServiceSettings,
    "redis": ServiceSettings,
    "metering": MeteringSettings,
    "local": LocalSettings,
}


def read_settings(arguments: list[str]) -> Settings:
    """Settings of this process from its command line and the file it names. Raises BadSettings."""
    parser = argparse.ArgumentParser(prog="python -m gateway", description="The Samovar gateway.")
    parser.add_argument("--data", type=Path, default=Path(".samovar"), help="directory of everything kept")
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (default 8080; 0: any free one)")
    parser.add_argument("--config", type=Path, help="samovar.toml")
    parser.add_argument("--die-with-parent", action="store_true", help="end when the parent process ends")
    given = parser.parse_args(arguments)
    sections = _read_file(given.config) if given.config else {}
    server = dict(sections.get("server", {}))
    if given.host is not None:
        server["host"] = given.host
    if given.port is not None:
        server["port"] = given.port
    sections["server"] = server
    values = {name: _section(name, sections.get(name, {})) for name in _SECTIONS}
    settings = Settings(data=given.data.absolute(), die_with_parent=given.die_with_parent, **values)
    if not 0 <= settings.server.port <= 65535:
        raise BadSettings(f"server.port: {settings.server.port} is not a port (0 to 65535)")
    return settings


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BadSettings(f"--config: {path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"--config: {path}: {error}") from error
    for name, value in content.items():
        if name not in _SECTIONS or not isinstance(value, dict):
            raise BadSettings(f"{path}: unknown section {name!r}; there are {', '.join(sorted(_SECTIONS))}")
    return content


def _section(name: str, values: dict[str, Any]) -> Any:
    cls = _SECTIONS[name]
    known = {field.name: field for field in fields(cls)}
    for key, value in values.items():
        if key not in known:
            raise BadSettings(f"{name}.{key}: unknown key; there are {', '.join(known)}")
        expected = type(known[key].default)
        fits = isinstance(value, expected) or (expected is float and isinstance(value, int))
        if not fits or (expected is not bool and isinstance(value, bool)):
            raise BadSettings(f"{name}.{key}: {value!r} is not a {expected.__name__}")
        if expected in {int, float} and value < 0:
            raise BadSettings(f"{name}.{key}: {value!r} is negative")
    return cls(**values)
