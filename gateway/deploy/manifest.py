"""Reads `function.toml`: every key checked, every refusal with the key's name, the rule and the line.

What is valid is decided here and nowhere else; the rest of the gateway trusts a `Manifest`. A new key needs its place
in `_KEYS`, its rule below and a row in docs/function-toml.md.
"""

from __future__ import annotations

import re
import tomllib

from gateway.catalog import MIB, NAME, NAME_RULE, Manifest, Resources, Scale, Timeouts
from gateway.deploy.manifest_reader import FILE_NAME, Table, quoted, refusal
from gateway.deploy.requirements import REQUIREMENTS_MAX, normalised, requirements_of_file
from gateway.deploy.toml_lines import LineIndex
from gateway.errors import BadRequest

MANIFEST_BYTES_MAX = 64 * 1024
CONCURRENCY_MAX = 1000
WORKERS_MAX = 10_000
VARIABLES_MAX = 256
VARIABLE_BYTES_MAX = 32 * 1024
VARIABLES_BYTES_MAX = 128 * 1024
#: Oldest interpreter that the runtime runs in.
PYTHON_MINOR_MIN = 11

HOUR_S = 3600.0
GIB = 1024 * MIB

_KEYS: dict[str, tuple[str, ...]] = {
    "": (
        "name", "namespace", "handler", "shape", "python", "requirements", "env", "concurrency", "timeouts",
        "resources", "scale", "public", "max_body",
    ),
    "timeouts": ("total", "first_byte", "idle", "start"),
    "resources": ("cpu", "memory", "gpu", "gpus", "gpu_memory"),
    "scale": ("min", "max", "target", "idle_timeout", "keep_alive"),
}  # fmt: skip

_DOTTED = r"[A-Za-z_][A-Za-z0-9_]{0,99}(?:\.[A-Za-z_][A-Za-z0-9_]{0,99}){0,15}"
_HANDLER = re.compile(rf"{_DOTTED}:{_DOTTED}")
_PYTHON = re.compile(r"3\.[0-9]{1,2}(?:\.[0-9]{1,3})?")
_GPU = re.compile(r"[a-z0-9][a-z0-9.+_-]{0,62}")
_MIG_PROFILE = re.compile(r"[1-9]g\.[0-9]{1,3}gb(?:\+[a-z.]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

#: Variables that the platform sets, or that would keep a worker from starting.
RESERVED_VARIABLES = (
    "HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "PYTHONHOME", "PYTHONPATH", "K_SERVICE",
    "K_REVISION",
)  # fmt: skip
RESERVED_PREFIXES = ("SAMOVAR_",)


def parse_manifest(text: bytes, *, default_namespace: str = "default", requirements_txt: bytes | None) -> Manifest:
    """The manifest of a bundle; `requirements_txt` is that file's content when the bundle has one.

    Requirements stand in function.toml or in requirements.txt, not in both. Raises BadRequest whose message names
    key, rule and line, and whose detail is `{"file", "key", "rule", "line"}`.
    """
    decoded = _decoded(text)
    lines = LineIndex(decoded)
    top = Table(_loaded(decoded), (), lines)
    top.check_keys(_KEYS[""])
    concurrency = top.whole("concurrency", 1, 1, CONCURRENCY_MAX)
    return Manifest(
        name=top.text("name", None, NAME, NAME_RULE),
        namespace=top.text("namespace", default_namespace, NAME, NAME_RULE),
        handler=top.text("handler", None, _HANDLER, "is written 'module:attribute'"),
        shape=top.choice("shape", "auto", ("auto", "event", "asgi")),
        python=_python(top),
        requirements=_requirements(top, requirements_txt),
        variables=_variables(top),
        concurrency=concurrency,
        timeouts=_timeouts(top.table("timeouts", _KEYS["timeouts"])),
        resources=_resources(top.table("resources", _KEYS["resources"])),
        scale=_scale(top.table("scale", _KEYS["scale"]), concurrency),
        public=top.flag("public", False),
        max_body_bytes=top.size("max_body", 64 * MIB, 1, 64 * GIB),
    )


def _decoded(text: bytes) -> str:
    if len(text) > MANIFEST_BYTES_MAX:
        raise BadRequest(f"{FILE_NAME}: larger than {MANIFEST_BYTES_MAX} bytes")
    try:
        # A byte order mark is what some editors leave; TOML does not know it.
        return text.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise refusal("text", "is not UTF-8", text.count(b"\n", 0, error.start) + 1) from None


def _loaded(text: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column \d+\)$", str(error))
        line = int(place.group(1)) if place else text.count("\n") + 1
        rule = str(error)[: place.start()].strip() if place else str(error)
        raise refusal("syntax", rule, line) from None
    except (ValueError, OverflowError) as error:
        raise refusal("syntax", f"a value cannot be read: {error}", 1) from None
    except RecursionError:
        raise refusal("syntax", "nested too deeply", 1) from None


def _python(top: Table) -> str:
    rule = f'is a version of CPython such as "3.12", 3.{PYTHON_MINOR_MIN} at least'
    version = top.text("python", "", _PYTHON, rule)
    if version and int(version.split(".")[1]) < PYTHON_MINOR_MIN:
        raise top.refusal("python", f"{rule}, not {version!r}")
    return version


def _requirements(top: Table, requirements_txt: bytes | None) -> tuple[str, ...]:
    listed = top.texts("requirements")
    for requirement, line in listed:
        try:
            normalised(requirement)
        except ValueError as error:
            raise refusal("requirements", str(error), line) from None
    if len(listed) > REQUIREMENTS_MAX:
        raise top.refusal("requirements", f"has at most {REQUIREMENTS_MAX} entries, not {len(listed)}")
    if requirements_txt is None:
        return tuple(requirement for requirement, _ in listed)
    from_file = requirements_of_file(requirements_txt)
    if listed and from_file:
        raise top.refusal("requirements", "is given here and in requirements.txt; keep one of the two")
    return from_file or tuple(requirement for requirement, _ in listed)


def _variables(top: Table) -> dict[str, str]:
    given = top.values.get("env", {})
    if not isinstance(given, dict):
        raise top.refusal("env", "is a table, written [env]")
    table = Table(given, ("env",), top.lines)
    if len(given) > VARIABLES_MAX:
        raise top.refusal("env", f"has at most {VARIABLES_MAX} variables, not {len(given)}")
    total = 0
    for name, value in given.items():
        if not _VARIABLE.fullmatch(name):
            raise table.refusal(name, "a variable's name is made of letters, digits and '_', 128 at most")
        if name in RESERVED_VARIABLES or name.startswith(RESERVED_PREFIXES):
            raise table.refusal(name, "is set by the platform and cannot be given")
        if not isinstance(value, str):
            raise table.refusal(name, f'is text, written in quotes ({name} = "..."), not {quoted(value)}')
        size = len(value.encode())
        total += len(name) + size + 2
        if "\0" in value or size > VARIABLE_BYTES_MAX:
            raise table.refusal(name, f"is at most {VARIABLE_BYTES_MAX} bytes without a zero byte")
    if total > VARIABLES_BYTES_MAX:
        raise top.refusal("env", f"is at most {VARIABLES_BYTES_MAX} bytes in all, not {total}")
    return dict(given)


def _timeouts(table: Table) -> Timeouts:
    total = table.duration("total", Timeouts.total_s, 0.1, 24 * HOUR_S)
    first_byte = table.duration("first_byte", total, 0.01, 24 * HOUR_S)
    idle = table.duration("idle", Timeouts.idle_s, 0.01, 24 * HOUR_S, zero=True)
    for key, value in (("first_byte", first_byte), ("idle", idle)):
        if value > total:
            raise table.refusal(key, f"is longer than timeouts.total ({total:g}s)")
    start = table.duration("start", Timeouts.start_s, 0.1, HOUR_S)
    return Timeouts(total_s=total, first_byte_s=first_byte, idle_s=idle, start_s=start)


def _resources(table: Table) -> Resources:
    cpu = table.number("cpu", 0.0, 0.01, 1024)
    memory = table.size("memory", Resources.memory_bytes, 16 * MIB, 16 * 1024 * GIB)
    gpu = table.text("gpu", "", _GPU, 'is a MIG profile ("1g.10gb") or a GPU type ("h100") in lower case')
    gpus = table.whole("gpus", 0, 0, 16)
    gpu_memory = table.size("gpu_memory", 0, 256 * MIB, 1024 * GIB, zero=True)
    if gpus and gpu_memory:
        raise table.refusal("gpu_memory", "is a part of one GPU and does not go with gpus, which are whole ones")
    if _MIG_PROFILE.fullmatch(gpu):
        if gpus > 1:
            raise table.refusal("gpus", f"a process uses one MIG instance ({gpu}) at a time, so gpus is 1 or left out")
        if gpu_memory:
            raise table.refusal("gpu_memory", f"is what the MIG profile {gpu} says already; keep one of the two")
    elif gpu and not gpus and not gpu_memory:
        gpus = 1  # a type alone means one whole GPU of it
    return Resources(cpu_millis=round(cpu * 1000), memory_bytes=memory, gpu=gpu, gpus=gpus, gpu_memory_bytes=gpu_memory)


def _scale(table: Table, concurrency: int) -> Scale:
    low = table.whole("min", 0, 0, WORKERS_MAX)
    high = table.whole("max", 0, 0, WORKERS_MAX)
    if high and low > high:
        raise table.refusal("min", f"{low} is more than scale.max ({high})")
    target = table.number("target", 0.0, 0.01, CONCURRENCY_MAX)
    if target > concurrency:
        raise table.refusal("target", f"{target:g} is more than concurrency ({concurrency})")
    return Scale(
        min=low,
        max=high,
        target=target,
        idle_timeout_s=table.duration("idle_timeout", Scale.idle_timeout_s, 0.0, 7 * 24 * HOUR_S),
        keep_alive=table.choice("keep_alive", Scale.keep_alive, ("fixed",)),
    )
