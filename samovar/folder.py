"""A function's folder on this side: reading whose it is, and writing a new one to start from.

The manifest is the gateway's to check; here it is read only to address the upload.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from samovar.archive import MANIFEST
from samovar.names import DEFAULT_NAMESPACE, FunctionName
from samovar.problems import WrongUsage

_FUNCTION_TOML = """\
# {name}: what Samovar needs to know to serve it. Lines with a leading '#' show the default.
name = "{name}"
{namespace_line}
handler = "handler:main"            # module:attribute; `def main(event, context)` or an ASGI app

# python = "3.12"                   # default: the gateway's own version
requirements = []                   # such as ["numpy>=2.0"]; or put a requirements.txt beside this file
# concurrency = 1                   # calls that one worker serves at once
# public = false                    # true: callable without a token
# max_body = "64MiB"                # largest request body

# [env]                             # environment variables of the handler
# MODEL = "small"

# [timeouts]
# total = "300s"                    # from arrival to the end of the answer
# first_byte = "300s"               # from the worker's start on it to the answer's beginning
# start = "60s"                     # for a worker to get ready

[resources]
memory = "256MiB"

[scale]
# min = 0                           # workers kept even when nobody calls
# max = 0                           # 0: no bound but the pool's own
idle_timeout = "60s"                # after this long without calls the workers go
"""

_HANDLER_PY = '''\
"""{name}: answers with a greeting. What is done here, at the top, is done once for each worker."""


def main(event, context):
    """`event` is the request's JSON (None without a body); what is returned becomes the answer's JSON."""
    who = event.get("name", "world") if isinstance(event, dict) else "world"
    print(f"greeting {{who}}")  # goes to `samovar logs {short}`
    return {{"message": f"Hello, {{who}}!"}}
'''

_REQUEST_JSON = """\
{"name": "Ada"}
"""

HANDLER = "handler.py"
REQUEST = "request.json"


@dataclass(frozen=True)
class Manifest:
    """The part of function.toml that addresses it; `namespace` empty where it does not say."""

    name: str
    namespace: str


def read_manifest(folder: Path) -> Manifest:
    """Whose folder it is. Raises WrongUsage, with the line where TOML is broken."""
    path = folder / MANIFEST
    try:
        content = tomllib.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError as error:
        raise WrongUsage(f"{folder} has no {MANIFEST}", hint="`samovar init NAME` makes a folder with one") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WrongUsage(f"{path}: {error}") from error
    except OSError as error:
        raise WrongUsage(f"{path} cannot be read: {error.strerror}") from error
    values = []
    for key in ("name", "namespace"):
        value = content.get(key, "")
        if not isinstance(value, str):
            raise WrongUsage(f"{path}: {key}: {value!r} is not text")
        values.append(value)
    if not values[0]:
        raise WrongUsage(f'{path}: name: missing; write name = "..."')
    return Manifest(*values)


def create_folder(name: FunctionName, parent: Path) -> list[Path]:
    """Write a new function's folder below `parent`; gives its files. Raises WrongUsage rather than overwrite."""
    folder = parent / name.function
    contents = {
        MANIFEST: _FUNCTION_TOML.format(name=name.function, namespace_line=_namespace_line(name.namespace)),
        HANDLER: _HANDLER_PY.format(name=name.function, short=name.short),
        REQUEST: _REQUEST_JSON,
    }
    try:
        folder.mkdir(exist_ok=True)
        for file in contents:
            if (folder / file).exists() or (folder / file).is_symlink():
                raise WrongUsage(f"{folder / file} exists already", hint="nothing was written; take another name")
        for file, content in contents.items():
            with (folder / file).open("x", encoding="utf-8") as new:
                new.write(content)
    except OSError as error:
        raise WrongUsage(f"{folder} cannot be written: {error.strerror}") from error
    return [folder / file for file in contents]


def _namespace_line(namespace: str) -> str:
    """A namespace that was asked for is fixed; without one the folder can be deployed into any."""
    if namespace != DEFAULT_NAMESPACE:
        return f'namespace = "{namespace}"'
    return f'# namespace = "{namespace}"             # fixed here; else `samovar deploy --namespace NS` chooses'


def address(manifest: Manifest, namespace: str | None) -> FunctionName:
    """Where the folder is deployed to: the option's namespace, else the manifest's, else the default one."""
    return FunctionName(namespace or manifest.namespace or DEFAULT_NAMESPACE, manifest.name)
