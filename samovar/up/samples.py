"""The sample functions of `samovar up --samples`: where they are, which of them need a deploy, what to paste.

A second start on the same data directory deploys only what has changed: the digests of what was deployed are kept in
`<data>/samples.json`, and a function that the gateway no longer has is deployed again whatever that file says.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samovar.archive import MANIFEST, pack
from samovar.client import Client
from samovar.deployment import deploy_folder
from samovar.folder import address, read_manifest
from samovar.names import FunctionName
from samovar.payload import JSON_TYPE, guess_type
from samovar.problems import Problem, WrongUsage

#: Deploys at the same time.
PARALLEL = 3
#: A JSON request up to this length is shown in the curl line itself.
INLINE_BYTES = 100
#: What says how a sample is called and what it answers.
EXPECTED = "expected.json"


@dataclass(frozen=True)
class Sample:
    """One sample as it now stands: served (`problem` empty), or why not."""

    folder: Path
    name: FunctionName
    digest: str
    #: deployed | unchanged | failed.
    outcome: str
    problem: str = ""


def find_samples(given: str) -> Path:
    """The folder of sample functions: the given one, else the project's, else ./functions. Raises WrongUsage."""
    project = Path(__file__).resolve().parents[2]
    candidates = [Path(given)] if given else [project / "functions", Path.cwd() / "functions"]
    for candidate in candidates:
        if sample_folders(candidate):
            return candidate.resolve()
    where = " or ".join(str(candidate) for candidate in candidates)
    raise WrongUsage(f"--samples: no function folders in {where}", hint="give their folder: --samples DIR")


def sample_folders(parent: Path) -> list[Path]:
    """Folders below `parent` that hold a function."""
    try:
        return sorted(entry for entry in parent.iterdir() if (entry / MANIFEST).is_file())
    except OSError:
        return []


def bring_up(client: Client, folder: Path, known: Mapping[str, str], live: Mapping[str, Any]) -> Sample:
    """Deploy one sample unless the very same content is live; never raises Problem, the outcome says it."""
    name, digest = FunctionName("", folder.name), ""
    try:
        name = address(read_manifest(folder), None)
        with tempfile.TemporaryFile() as archive:
            digest = pack(folder, archive).digest
        if known.get(str(name)) == digest and live.get(str(name)) is not None:
            return Sample(folder, name, digest, "unchanged")
        deploy_folder(client, folder, None)
    except Problem as problem:
        return Sample(folder, name, digest, "failed", problem.message)
    return Sample(folder, name, digest, "deployed")


def live_revisions(client: Client) -> dict[str, Any]:
    """The serving revision of each function, by "namespace/function"."""
    return {f"{row['namespace']}/{row['name']}": row.get("live") for row in client.get("functions")}


def read_known(data: Path) -> dict[str, str]:
    """Digests of the samples that this data directory got; empty when nothing readable is there."""
    try:
        known = json.loads((data / "samples.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in known.items()} if isinstance(known, dict) else {}


def write_known(data: Path, known: Mapping[str, str]) -> None:
    """Keep them, in one step; a directory that cannot be written costs a deploy next time, nothing else."""
    new = data / f".samples.json.{os.getpid()}"
    with contextlib.suppress(OSError):
        new.write_text(json.dumps(known, indent=1, sort_keys=True), "utf-8")
        new.replace(data / "samples.json")


def curl_line(sample: Sample, url: str, token_file: Path) -> str:
    """A line to paste; the token is read from its file, so that it shows neither here nor in the history."""
    expected = _expected(sample.folder)
    words = ["curl", "-sS"]
    kind = str(expected.get("headers", {}).get("content-type", ""))
    if kind.startswith("text/event-stream"):
        words.append("-N")
    if kind.startswith("image/"):
        words += ["-o", f"{sample.name.function}.{kind.removeprefix('image/')}"]
    words.append(f'-H "Authorization: Bearer $(cat {shlex.quote(str(token_file))})"')
    words += _body(sample.folder, expected)
    return " ".join([*words, shlex.quote(url + str(expected.get("path", "")))])


def _body(folder: Path, expected: Mapping[str, Any]) -> list[str]:
    request = folder / str(expected.get("request", "request.json"))
    if not request.is_file():
        return []
    words = ["-H", shlex.quote(f"Content-Type: {guess_type(request)}")]
    if guess_type(request) == JSON_TYPE and request.stat().st_size <= 4 * INLINE_BYTES:
        try:
            text = json.dumps(json.loads(request.read_bytes()), ensure_ascii=False)
        except ValueError:
            text = ""
        if 0 < len(text) <= INLINE_BYTES:
            return [*words, "-d", shlex.quote(text)]
    return [*words, "--data-binary", shlex.quote(f"@{request}")]


def _expected(folder: Path) -> dict[str, Any]:
    try:
        expected = json.loads((folder / EXPECTED).read_bytes())
    except (OSError, ValueError):
        return {}
    return expected if isinstance(expected, dict) else {}
