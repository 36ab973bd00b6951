"""The Python interpreters of this machine: the gateway's own base one, and others that uv finds. None is downloaded."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.deploy.programs import Ended, ProgramOverdue, run_program
from gateway.errors import BadRequest, Unavailable

#: For one question to uv or to an interpreter.
ANSWER_S = 30.0
ANSWER_BYTES_MAX = 256 * 1024
LISTED_MAX = 12

_ASK = "import json, os, sys; print(json.dumps([os.path.realpath(sys.executable), '%d.%d.%d' % sys.version_info[:3]]))"

#: Passed on to uv and interpreters: where to look, and how to reach an index.
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "USER", "NETRC", "SSL_CERT_FILE", "SSL_CERT_DIR", "LD_LIBRARY_PATH")
_PASSED_ON_UPPER = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PASSED_ON_PREFIXES = ("UV_", "XDG_", "PYENV_", "PIP_CERT")
#: Settings for a developer's project, which would lead uv away from what is built here.
_KEPT_BACK = (
    "UV_PYTHON",
    "UV_SYSTEM_PYTHON",
    "UV_PROJECT",
    "UV_PROJECT_ENVIRONMENT",
    "UV_WORKING_DIRECTORY",
    "UV_LINK_MODE",
)


def uv_environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables uv runs with: the operator's index and proxy settings, and no downloads of interpreters."""
    passed = {
        name: value
        for name, value in inherited.items()
        if name in _PASSED_ON
        or name.upper() in _PASSED_ON_UPPER
        or (name.startswith(_PASSED_ON_PREFIXES) and name not in _KEPT_BACK)
    }
    return passed | {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}


def own_base_python() -> str:
    """The interpreter below this process's virtual environment: without the gateway's own packages."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    candidate = Path(sys.base_prefix) / "bin" / name
    return str(candidate if candidate.exists() else Path(getattr(sys, "_base_executable", sys.executable)))


@dataclass(frozen=True)
class Interpreter:
    """One interpreter: its absolute path, links followed, and full version."""

    path: str
    version: str


class Interpreters:
    """Finds interpreters by version and remembers them."""

    def __init__(self, uv: str, base_python: str) -> None:
        self._uv = uv
        self._base_python = base_python
        self._base: Interpreter | None = None
        self._found: dict[str, Interpreter] = {}

    async def base(self) -> Interpreter:
        """The gateway's own. Raises Unavailable when it does not run any more."""
        if self._base is None:
            self._base = await self._ask(self._base_python)
        return self._base

    async def find(self, version: str) -> Interpreter:
        """One of this version ("3.12" or "3.12.1"; "": the gateway's own). Raises BadRequest listing what is there."""
        base = await self.base()
        if f"{base.version}.".startswith(f"{version}." if version else ""):
            return base
        if version not in self._found:
            answer = await self._run([self._uv, "python", "find", "--system", "--no-project", f"cpython@{version}"])
            path = answer.output.splitlines()[-1] if answer.output else ""
            if answer.code != 0 or not path.startswith("/"):
                there = ", ".join(await self._versions())
                raise BadRequest(f"python: no CPython {version} on the gateway's machine; there are {there}")
            self._found[version] = await self._ask(path)
        return self._found[version]

    async def _ask(self, path: str) -> Interpreter:
        answer = await self._run([path, "-I", "-S", "-c", _ASK])
        try:
            executable, version = json.loads(answer.output.splitlines()[-1])
            return Interpreter(str(executable), str(version))
        except (ValueError, IndexError, TypeError):
            raise Unavailable(f"the interpreter {path} does not run (exit code {answer.code})") from None

    async def _versions(self) -> list[str]:
        found = {(await self.base()).version}
        arguments = [self._uv, "python", "list", "--only-installed", "--output-format", "json"]
        answer = await self._run(arguments)
        try:
            found |= {str(row["version"]) for row in json.loads(answer.output) if row["implementation"] == "cpython"}
        except (ValueError, TypeError, KeyError):
            pass  # the list is a courtesy
        numbered = sorted(found, key=lambda v: [int(part) if part.isdigit() else 0 for part in v.split(".")])
        return numbered[-LISTED_MAX:]

    async def _run(self, arguments: list[str]) -> Ended:
        try:
            variables = uv_environment(os.environ)
            return await run_program(arguments, variables, ANSWER_S, ANSWER_BYTES_MAX, with_errors=False)
        except ProgramOverdue:
            raise Unavailable(f"{arguments[0]} did not answer within {ANSWER_S:g} s", retry_after_s=10.0) from None
        except OSError as error:
            raise Unavailable(f"{arguments[0]} cannot be run: {error.strerror}") from error
