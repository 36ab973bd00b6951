"""Zygotes: what is preloaded, when they may be forked, and that nothing of the runtime is in a handler's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from runtime import messages as wire

MIB = 1024 * 1024

#: Some weight for a zygote to share: standard modules that no bare interpreter has loaded.
HEAVY = ["decimal", "fractions", "statistics", "xml.dom.minidom", "email.mime.text", "http.client", "sqlite3"]


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A small environment of its own, without msgpack: only the standard library, and modules that a test adds."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "env")], check=True)
    return str(tmp_path / "env" / "bin" / "python")


def add_module(python: str, name: str, code: str) -> None:
    """Put a module into an environment's site-packages."""
    (place,) = Path(python).parents[1].glob("lib/python*/site-packages")
    (place / f"{name}.py").write_text(code)


async def test_what_a_handler_imported_is_told_and_then_preloaded(gateway: Any) -> None:
    code = {"handler.py": "import decimal, xml.dom.minidom, mine\ndef main(event, context): pass\n", "mine.py": ""}
    place = gateway.bundle(code)
    first = await gateway.worker(place)
    assert "not loaded" in first.started.note
    imports = first.ready.imports
    assert {"decimal", "xml", "xml.dom", "xml.dom.minidom"} <= set(imports)
    assert not {"mine", "handler", "runtime", "msgpack", "sys"} & set(imports)
    loaded = await gateway.load(imports)
    assert loaded.mode == "zygote"
    assert loaded.note == ""
    second = await gateway.worker(place)
    assert second.started.how == "zygote"
    assert second.started.note == ""
    assert second.ready.imports == []


async def test_an_environment_without_msgpack_serves(gateway: Any, python: str) -> None:
    worker = await gateway.worker(
        """
        import sys
        def main(event, context):
            try:
                import msgpack
            except ImportError:
                return sys.prefix
        """,
        python=python,
    )
    assert json.loads((await worker.call()).body) == str(Path(python).parents[1])


@pytest.mark.parametrize("spawned", [False, True])
async def test_a_handlers_own_modules_win_over_all_others(gateway: Any, python: str, spawned: bool) -> None:
    names = ["runtime", "msgpack", "gateway", "functions", "decimal", "queue", "json"]
    add_module(python, "utilities", "MINE = 'of the environment'\n")
    await gateway.load(["decimal", "utilities"], python=python)
    files = {f"{name}.py": "MINE = 'of the bundle'\n" for name in [*names, "utilities"]}
    files["handler.py"] = """
        import sys
        import runtime, msgpack, gateway, functions, decimal, queue, json, utilities
        before = [p for p in sys.path if p.endswith(("/main", "site-packages"))]
        def main(event, context):
            return [m.MINE for m in (runtime, msgpack, gateway, functions, decimal, queue, json, utilities)]
    """
    variables = {"OMP_NUM_THREADS": "1"} if spawned else {}
    worker = await gateway.worker(files, python=python, variables=variables)
    assert worker.started.how == ("spawn" if spawned else "zygote")
    assert json.loads((await worker.call()).body) == ["of the bundle"] * 8


async def test_nothing_of_the_runtime_can_be_seen(gateway: Any, python: str) -> None:
    worker = await gateway.worker(
        """
        import sys
        def main(event, context):
            ours = [name for name in sys.modules if name.partition(".")[0] in ("runtime", "msgpack")]
            try:
                import runtime
                ours.append("importable")
            except ModuleNotFoundError:
                pass
            return [ours, sys.path[1:], sys.argv]
        """,
        python=python,
    )
    ours, path, argv = json.loads((await worker.call()).body)
    assert ours == []
    bare = subprocess.run(
        [python, "-I", "-c", "import json, sys; print(json.dumps(sys.path))"], check=True, stdout=subprocess.PIPE
    )
    assert path == json.loads(bare.stdout)
    assert argv == ["handler"]


async def test_the_environments_own_msgpack_is_the_one_a_handler_gets(gateway: Any, python: str) -> None:
    add_module(python, "msgpack", "MINE = 'of the environment'\n")
    code = "import msgpack\ndef main(event, context):\n    return msgpack.MINE\n"
    worker = await gateway.worker(code, python=python)
    assert (await worker.call()).body == b'"of the environment"'


async def test_the_real_msgpack_works_for_a_handler_too(gateway: Any) -> None:
    code = "import msgpack\ndef main(event, context):\n    return msgpack.unpackb(msgpack.packb(event))\n"
    worker = await gateway.worker(code)
    assert (await worker.call(b'{"a": [1]}')).body == b'{"a":[1]}'


async def test_a_module_that_starts_a_thread_makes_workers_spawned(gateway: Any, python: str) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    add_module(python, "threaded", thread)
    loaded = await gateway.load(["threaded"], python=python)
    assert loaded.mode == "spawn"
    assert "threaded" in loaded.note
    assert "threads are running" in loaded.note
    code = "import threaded, threading\ndef main(event, context):\n    return threading.active_count()\n"
    worker = await gateway.worker(code, python=python)
    assert worker.started.how == "spawn"
    assert worker.started.note == loaded.note
    assert (await worker.call()).body == b"2"
    worker.stop(5_000)
    assert (await worker.gone()).code == 0


async def test_variables_that_are_read_at_process_start_make_a_worker_spawned(gateway: Any) -> None:
    code = "import os\ndef main(event, context):\n    return os.environ['OMP_NUM_THREADS']\n"
    worker = await gateway.worker(code, variables={"OMP_NUM_THREADS": "3"})
    assert worker.started.how == "spawn"
    assert "OMP_NUM_THREADS" in worker.started.note
    assert (await worker.call()).body == b'"3"'


async def test_a_module_that_cannot_be_imported_is_noted_and_the_rest_loaded(gateway: Any, python: str) -> None:
    add_module(python, "leaving", "import sys\nsys.exit(1)\n")
    loaded = await gateway.load(["not_there", "leaving", "decimal"], python=python)
    assert loaded.mode == "zygote"
    assert "not_there (ModuleNotFoundError)" in loaded.note
    assert "leaving (SystemExit)" in loaded.note
    worker = await gateway.worker("import sys\nMODULES = dict(sys.modules)\ndef main(e): return 'decimal' in MODULES\n")
    assert (await worker.call()).body == b"true"


async def test_a_module_that_crashes_at_import_harms_no_running_worker(gateway: Any, python: str) -> None:
    add_module(python, "crashing", "import os\nos.abort()\n")
    code = "def main(event, context):\n    return 'well'\n"
    before = await gateway.worker(code, python=python)
    loaded = await gateway.load(["crashing"], python=python)
    assert loaded.mode == "spawn"
    assert "signal 6" in loaded.note
    assert (await before.call()).body == b'"well"'
    assert (await (await gateway.worker(code, python=python)).call()).body == b'"well"'


async def test_imports_that_forbid_forking_do_not_cost_an_environment_its_good_zygote(
    gateway: Any, python: str
) -> None:
    add_module(python, "crashing", "import os\nos.abort()\n")
    assert (await gateway.load(["decimal"], python=python)).mode == "zygote"
    again = await gateway.load(["crashing"], python=python)
    assert again.mode == "zygote"
    assert "signal 6" in again.note
    worker = await gateway.worker("def main(event, context):\n    return 'well'\n", python=python)
    assert worker.started.how == "zygote"


async def test_functions_with_equal_environments_share_a_zygote(gateway: Any) -> None:
    code = "import os\ndef main(event, context):\n    return os.getppid()\n"
    one, two = await gateway.worker(code, function="one"), await gateway.worker(code, function="two")
    other = await gateway.worker(code, environment="another")
    parents = [(await w.call()).body for w in (one, two, other)]
    assert parents[0] == parents[1] != parents[2]


async def test_more_modules_make_a_new_zygote_and_the_old_one_goes_with_its_workers(
    gateway: Any, is_alive: Any, wait_until: Any
) -> None:
    code = "import os, sys\nMODULES = list(sys.modules)\ndef main(event, context):\n    return os.getppid()\n"
    old = await gateway.worker(code)
    old_zygote = int((await old.call()).body)
    assert (await gateway.load(["decimal"])).mode == "zygote"
    assert (await gateway.load(["fractions"])).mode == "zygote"
    new = await gateway.worker(code)
    assert int((await new.call()).body) != old_zygote
    assert (await old.call()).status == 200
    assert is_alive(old_zygote)
    old.stop(1_000)
    await old.gone()
    await wait_until(lambda: not is_alive(old_zygote), "the old zygote ends")


async def test_a_dropped_environment_ends_when_its_workers_have_and_can_come_again(
    gateway: Any, is_alive: Any, wait_until: Any
) -> None:
    code = "import os\ndef main(event, context):\n    return os.getppid()\n"
    worker = await gateway.worker(code)
    zygote = int((await worker.call()).body)
    gateway.order(wire.DropEnvironment("env"))
    gateway.order(wire.DropEnvironment("unknown"))
    again = await gateway.worker(code)
    assert int((await again.call()).body) != zygote
    assert (await worker.call()).status == 200
    worker.stop(1_000)
    await worker.gone()
    await wait_until(lambda: not is_alive(zygote), "the dropped zygote ends")


async def test_an_interpreter_that_cannot_be_started_is_reported(gateway: Any, tmp_path: Path) -> None:
    failed = await gateway.load(["decimal"], python="/nowhere/bin/python")
    assert isinstance(failed, wire.EnvironmentFailed)
    assert "/nowhere/bin/python" in failed.message
    worker = await gateway.settled(gateway.begin("", python="/nowhere/bin/python"))
    assert "/nowhere/bin/python" in worker.exited.note
    false = await gateway.load([], environment="false", python="/bin/false")
    assert isinstance(false, wire.EnvironmentFailed)
    assert "code 1" in false.message


async def test_a_killed_zygote_takes_its_workers_along_and_is_replaced(
    gateway: Any, is_alive: Any, wait_until: Any
) -> None:
    code = """
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import os, time; os.setsid(); time.sleep(600)"])
        def main(event, context):
            return [os.getppid(), child.pid]
    """
    worker = await gateway.worker(code)
    zygote, child = json.loads((await worker.call()).body)
    os.kill(zygote, 9)
    exited = await worker.gone()
    assert exited.signal == 9
    assert "zygote ended by signal 9" in exited.note
    await wait_until(lambda: not is_alive(child), "what the worker had started is gone")
    await wait_until(lambda: gateway.environments, "the loss is reported")
    assert isinstance(gateway.environments[-1], wire.EnvironmentFailed)
    assert (await (await gateway.worker(code)).call()).status == 200


async def test_a_burst_of_starts_ends_in_as_many_workers(gateway: Any) -> None:
    place = gateway.bundle("import os\ndef main(event, context):\n    return os.getpid()\n")
    workers = [gateway.begin(place) for _ in range(40)]
    for worker in workers:
        assert (await gateway.settled(worker)).ready is not None
    assert len({(await w.call()).body for w in workers}) == 40


def proportional_bytes(pid: int) -> int:
    """A process's own memory and its part of what it shares."""
    return int(psutil.Process(pid).memory_full_info().pss)


async def test_a_further_idle_worker_costs_little_memory(gateway: Any) -> None:
    place = gateway.bundle("import " + ", ".join(HEAVY) + "\ndef main(event, context):\n    return 1\n")
    assert (await gateway.load(HEAVY)).mode == "zygote"
    for _ in range(2):
        await gateway.worker(place)
    before = sum(map(proportional_bytes, gateway.family()))
    for _ in range(5):
        await gateway.worker(place)
    each = (sum(map(proportional_bytes, gateway.family())) - before) / 5
    assert each < 8 * MIB, f"{each / MIB:.1f} MiB"
