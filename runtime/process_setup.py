"""Makes a forked process a worker's: its own session, descriptors, environment, limits and random sources."""

from __future__ import annotations

import fcntl
import os
import random
import resource
import signal
import socket
import struct
import sys
import types
from collections.abc import Mapping
from io import TextIOWrapper
from pathlib import Path

from runtime.linux import die_with_parent, name_process
from runtime.spec import WorkerSpec

#: The gateway's connection lives at or above this number, out of the way of what handlers open and close.
CONNECTION_FD_MIN = 900
#: Soft limit of open files for handlers (the hard limit stays, they may raise it).
OPEN_FILES = 4096
#: Raised, so that the kernel short of memory ends a worker before agent or gateway.
OOM_SCORE_ADJ = 500

MIB = 1024 * 1024

#: Taken over from the node agent when set there: where site software keeps libraries, and the clock's zone.
INHERITED_VARIABLES = ("LD_LIBRARY_PATH", "TZ")
#: Variables with these beginnings are read when a program or a library starts: they need a fresh process.
START_VARIABLES = ("LD_", "MALLOC_", "OMP_", "OPENBLAS_", "MKL_", "GOMP_", "KMP_", "BLIS_", "GLIBC_")


def start_variables(spec: WorkerSpec) -> list[str]:
    """The function's variables that a fork would come too late for."""
    return sorted(name for name in spec.variables if name.startswith(START_VARIABLES))


def environment_variables(spec: WorkerSpec, inherited: Mapping[str, str]) -> dict[str, str]:
    """All the variables a worker has; the function's own come last and win."""
    variables = {name: inherited[name] for name in INHERITED_VARIABLES if name in inherited}
    variables |= {
        "PATH": f"{os.path.dirname(spec.python)}:/usr/local/bin:/usr/bin:/bin",  # noqa: PTH120
        "HOME": spec.scratch_dir,
        "TMPDIR": spec.scratch_dir,
        "LANG": "C.UTF-8",
        "SAMOVAR_NAMESPACE": spec.namespace,
        "SAMOVAR_FUNCTION": spec.function,
        "SAMOVAR_REVISION": str(spec.revision),
        "SAMOVAR_WORKER": spec.worker,
        "K_SERVICE": spec.function,
        "K_REVISION": f"{spec.function}-{spec.revision}",
        "AWS_LAMBDA_FUNCTION_NAME": spec.function,
        "AWS_LAMBDA_FUNCTION_VERSION": str(spec.revision),
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory_bytes // MIB),
        "CUDA_VISIBLE_DEVICES": spec.devices,
    }
    variables.update(spec.variables)
    return variables


def leave_the_zygote(parent: int) -> None:
    """What can be done before it is known which worker this will be: own session, limits, random state."""
    os.setsid()
    die_with_parent(signal.SIGKILL, parent)
    name_process("samovar-spare")
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE_ADJ))
    except OSError:
        pass  # some containers do not let go of it; the worker is no worse off than its agent
    _reseed()


def take_descriptors(descriptors: list[int]) -> int:
    """Make these (connection, standard output, standard error) our own; gives the connection's new number."""
    connection, stdout, stderr = descriptors
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
        os.close(source)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    high = fcntl.fcntl(connection, fcntl.F_DUPFD_CLOEXEC, min(CONNECTION_FD_MIN, soft - 1))
    os.close(connection)
    return high


def replace_environment(variables: Mapping[str, str]) -> None:
    """Have exactly these variables, for C code too."""
    os.environ.clear()
    os.environ.update(variables)


def fresh_streams() -> None:
    """Standard streams of this process's own: nothing buffered by the parent, a line is out when it is ended.

    Text that is no valid UTF-8 is written escaped instead of raising.
    """
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        raw = open(descriptor, "wb", closefd=False)  # noqa: SIM115
        stream = TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _reseed() -> None:
    """New random state in every source that was copied from the zygote, and other such per-process state."""
    random.seed()
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(struct.unpack("8I", os.urandom(32)))
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(int.from_bytes(os.urandom(8), "big") >> 1)
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        setattr(tempfile, "tempdir", None)  # noqa: B010 - it is looked up anew, in TMPDIR
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def forget_the_bootstrap() -> None:
    """An empty `__main__`, so that multiprocessing and pickle find nothing of ours there."""
    sys.modules["__main__"] = types.ModuleType("__main__")
    sys.argv = ["handler"]


def let_bundle_win(bundle_dir: str, bare_modules: frozenset[str]) -> None:
    """Forget imported modules that the bundle has too, except those that every interpreter starts with."""
    try:
        entries = os.listdir(bundle_dir)  # noqa: PTH208
    except OSError:
        return  # told when the handler is loaded
    for entry in entries:
        name = entry.partition(".")[0]
        if name in sys.modules and name not in bare_modules:
            prefix = name + "."
            for loaded in [key for key in sys.modules if key == name or key.startswith(prefix)]:
                del sys.modules[loaded]


def close_in_children(connection: socket.socket) -> None:
    """A handler's own forks do not keep the gateway's connection open."""
    os.register_at_fork(after_in_child=connection.close)
