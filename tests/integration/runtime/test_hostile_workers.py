"""Handlers that misbehave: every call is answered or its worker's end is told, and nothing of it stays behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
import pytest_asyncio

from runtime import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

CODE = r"""
import ctypes, os, signal, subprocess, sys, threading, time
class Odd: pass
class Evil(Exception):
    def __str__(self): raise RuntimeError("no")
def deep(n): return [deep(n + 1)]
def main(event, context):
    what = (event or {}).get("what")
    if what == "raise": raise ValueError("on purpose")
    if what == "evil": raise Evil()
    if what == "surrogate message": raise ValueError("\ud800")
    if what == "sys.exit": sys.exit(3)
    if what == "interrupt": raise KeyboardInterrupt
    if what == "generator exit": raise GeneratorExit
    if what == "unserialisable": return {"a": [1, Odd()]}
    if what == "nan": return {"x": float("nan")}
    if what == "recursion": return deep(0)
    if what == "deep result":
        x = []
        for _ in range(100_000): x = [x]
        return x
    if what == "huge head": return {"statusCode": 200, "headers": {"x": "y" * 600_000}}
    if what == "huge head and body": return {"statusCode": 200, "headers": {"x": "y" * 600_000}, "body": "z" * 600_000}
    if what == "os._exit": os._exit(4)
    if what == "sigkill": os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)
    if what == "segfault": ctypes.string_at(0)
    if what == "abort": os.abort()
    if what == "close stdout":
        os.close(1); os.close(2); return "closed"
    if what == "print after close": print("into the void"); return "printed"
    if what == "close all": os.closerange(0, 100); return "closed"
    if what == "long line":
        sys.stdout.write("x" * 1_000_000); sys.stdout.flush(); return "written"
    if what == "surrogates": return {"text": "\ud800"}
    if what == "print surrogates": print("\ud800 printed"); return "printed"
    if what == "bytes": return b"\x00\xff"
    if what == "stdout.close": sys.stdout.close(); return "closed"
    if what == "fork returns":
        if os.fork() == 0: return "from the child"
        return "from the parent"
    if what == "fork exits":
        if os.fork() == 0: sys.exit(5)
        return "from the parent"
    if what == "thread dies":
        thread = threading.Thread(target=sys.exit); thread.start(); thread.join(); return "well"
    if what == "grandchild":
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    if what == "daemon":
        code = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nprint(os.getpid(), flush=True)\n"
        code += "os.close(1)\ntime.sleep(600)"
        return int(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).stdout)
    if what == "forked daemon":
        read, write = os.pipe()
        if os.fork() == 0:
            os.setsid()
            if os.fork(): os._exit(0)
            os.write(write, str(os.getpid()).encode()); time.sleep(600)
        return int(os.read(read, 100))
    if what == "loop":
        print("looping", flush=True)
        while True: pass
    return "well"
"""


@pytest_asyncio.fixture(loop_scope="module")
async def hostile(shared_gateway: Any) -> Any:
    """Starts a worker of the hostile handler with a given concurrency."""

    async def start(concurrency: int) -> Any:
        return await shared_gateway.worker(CODE, concurrency=concurrency)

    return start


def asked(what: str) -> bytes:
    return json.dumps({"what": what}).encode()


@pytest.mark.parametrize(
    ("what", "kind", "error_type", "part"),
    [
        ("raise", "raised", "ValueError", "on purpose"),
        ("evil", "raised", "Evil", "cannot be read"),
        ("surrogate message", "raised", "ValueError", "ud800"),
        ("sys.exit", "raised", "SystemExit", "status 3"),
        ("interrupt", "raised", "KeyboardInterrupt", ""),
        ("generator exit", "raised", "GeneratorExit", ""),
        ("unserialisable", "bad_result", "BadResult", "result['a'][1] is of type Odd"),
        ("nan", "bad_result", "BadResult", "result['x'] is NaN"),
        ("recursion", "raised", "RecursionError", "recursion"),
        ("deep result", "bad_result", "BadResult", "deeply"),
        ("huge head", "bad_result", "FrameError", "limit"),
        ("huge head and body", "bad_result", "FrameError", "limit"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_failing_call_is_told_and_the_same_worker_goes_on(
    hostile: Any, what: str, kind: str, error_type: str, part: str, concurrency: int
) -> None:
    worker = await hostile(concurrency)
    answer = await worker.call(asked(what))
    assert answer.failed is not None
    assert (answer.failed.kind, answer.failed.error_type) == (kind, error_type)
    assert part in answer.failed.message
    assert "runtime/" not in answer.failed.traceback
    assert len(answer.failed.stats) == 3
    assert (await worker.call()).body == b'"well"'
    assert worker.exited is None


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("close stdout", b'"closed"'),
        ("stdout.close", b'"closed"'),
        ("long line", b'"written"'),
        ("surrogates", b'{"text":"\\ud800"}'),
        ("print surrogates", b'"printed"'),
        ("bytes", b"\x00\xff"),
        ("fork returns", b'"from the parent"'),
        ("fork exits", b'"from the parent"'),
        ("thread dies", b'"well"'),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_an_odd_but_legal_call_is_answered_once(hostile: Any, what: str, body: bytes, concurrency: int) -> None:
    worker = await hostile(concurrency)
    assert (await worker.call(asked(what))).body == body
    assert (await worker.call()).body == b'"well"'
    worker.stop(5_000)
    assert (await worker.gone()).code == 0


async def test_closing_every_low_descriptor_does_not_reach_the_connection(hostile: Any) -> None:
    worker = await hostile(1)
    assert (await worker.call(asked("close all"))).body == b'"closed"'
    assert (await worker.call()).body == b'"well"'


async def test_a_worker_whose_event_loop_was_closed_under_it_ends(hostile: Any) -> None:
    worker = await hostile(3)
    await worker.call(asked("close all"))
    await worker.gone()


@pytest.mark.parametrize(
    ("what", "code", "signal"), [("os._exit", 4, 0), ("sigkill", -1, 9), ("segfault", -1, 11), ("abort", -1, 6)]
)
async def test_a_worker_that_dies_is_reported_with_code_or_signal(
    hostile: Any, what: str, code: int, signal: int
) -> None:
    worker = await hostile(1)
    assert (await worker.call(asked(what))).failed is None  # its connection ended
    exited = await worker.gone()
    assert (exited.code, exited.signal) == (code, signal)
    assert (await (await hostile(1)).call()).body == b'"well"'


async def test_a_segfault_leaves_its_python_stack_in_the_log(hostile: Any) -> None:
    worker = await hostile(1)
    await worker.call(asked("segfault"))
    await worker.gone()
    assert b"Segmentation fault" in worker.log_text()
    assert b"handler.py" in worker.log_text()


@pytest.mark.parametrize("what", ["grandchild", "daemon", "forked daemon"])
async def test_what_a_worker_left_behind_dies_with_it(hostile: Any, is_alive: Any, wait_until: Any, what: str) -> None:
    worker, other = await hostile(1), await hostile(1)
    pid = json.loads((await worker.call(asked(what))).body)
    assert is_alive(pid)
    other.stop()
    await other.gone()
    if what != "forked daemon":  # one that hides from every trace of its worker does not outlive another's end
        assert is_alive(pid), "another worker's end is no concern of it"
    worker.stop()
    await worker.gone()
    await wait_until(lambda: not is_alive(pid), "it is gone")


async def test_an_endless_loop_ends_at_once_with_all_its_children(hostile: Any, is_alive: Any, wait_until: Any) -> None:
    worker = await hostile(1)
    pid = json.loads((await worker.call(asked("grandchild"))).body)
    worker.request(asked("loop"))
    await wait_until(lambda: b"looping" in worker.log_text(), "the loop runs")
    worker.stop(0)
    assert (await worker.gone()).signal == 9
    await wait_until(lambda: not is_alive(pid), "its child is gone")


async def test_a_loop_that_does_not_heed_sigterm_is_killed_after_the_grace(hostile: Any, wait_until: Any) -> None:
    worker = await hostile(1)
    worker.request(asked("loop"))
    await wait_until(lambda: b"looping" in worker.log_text(), "the loop runs")
    worker.stop(300)
    exited = await worker.gone()
    assert exited.signal == 9
    assert "within 300 ms" in exited.note


async def test_a_long_line_is_cut_with_a_note(hostile: Any) -> None:
    worker = await hostile(1)
    await worker.call(asked("long line"))
    worker.stop(5_000)
    await worker.gone()
    (line,) = [line for stream, line in worker.log if line.startswith(b"xxx")]
    assert line.endswith(" … [cut]".encode())
    assert len(line) < 17 * 1024


async def test_a_flood_of_lines_neither_blocks_the_worker_nor_fills_memory(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker("""
        import sys
        def main(event, context):
            for n in range(50):
                sys.stdout.write("a line of some length\\n" * 50_000)
            return "written"
    """)
    assert (await worker.call()).body == b'"written"'
    worker.stop(5_000)
    await worker.gone()
    assert any(b"of log dropped" in line for _, line in worker.log)
    assert sum(len(line) for _, line in worker.log) < 30 * 1024 * 1024


async def test_a_child_that_holds_the_log_open_delays_nothing(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker("""
        import os, sys
        def main(event, context):
            print("last words", end="", flush=True)
            if os.fork() == 0:
                os.setsid()
                import time
                time.sleep(600)
            os._exit(1)
    """)
    await worker.call()
    assert (await worker.gone()).code == 1
    assert worker.log_text() == b"last words"


async def test_a_handler_that_takes_over_sigterm_is_killed_after_the_grace(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker("""
        import signal
        def main(event, context):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
    """)
    await worker.call()
    worker.stop(200)
    assert (await worker.gone()).signal == 9


START_FAILURES = [
    ("import not_there_at_all\n", "import_error", "not_there_at_all"),
    ("def main(event, context)\n    pass\n", "syntax_error", "handler.py"),
    ("raise ValueError('at import')\n", "import_error", "at import"),
    ("import sys\nsys.exit(2)\n", "exited", "status 2"),
    ("def other(event, context): pass\n", "handler_not_found", "it has other"),
    ("main = 5\n", "bad_shape", "cannot be called"),
    ("def main(a, b, c): pass\n", "bad_shape", "function.toml"),
]


@pytest.mark.parametrize(("code", "kind", "part"), START_FAILURES)
async def test_a_handler_that_cannot_be_loaded_says_why(shared_gateway: Any, code: str, kind: str, part: str) -> None:
    worker = await shared_gateway.settled(shared_gateway.begin(code))
    assert worker.failed is not None
    assert worker.failed.kind == kind
    assert part in worker.failed.message
    assert "runtime/" not in worker.failed.traceback
    if kind == "import_error":
        assert 'File "handler.py", line 1' in worker.failed.traceback
    assert (await worker.gone()).code == 1


async def test_a_missing_module_is_told_with_what_the_bundle_holds(shared_gateway: Any) -> None:
    worker = await shared_gateway.settled(shared_gateway.begin({"function.py": "", "data.txt": ""}))
    assert worker.failed.kind == "handler_not_found"
    assert "data.txt, function.py" in worker.failed.message


async def test_a_process_that_ends_while_loading_is_reported(shared_gateway: Any) -> None:
    worker = await shared_gateway.settled(shared_gateway.begin("import os\nos._exit(9)\n"))
    assert worker.failed is None
    assert (await worker.gone()).code == 9


async def test_a_bundle_that_is_not_there_is_told(shared_gateway: Any) -> None:
    worker = await shared_gateway.settled(shared_gateway.begin("", bundle_dir="/nowhere/at/all"))
    assert worker.failed.error_type == "FileNotFoundError"


async def test_a_message_out_of_place_ends_only_its_worker(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(CODE)
    worker.peer._transport.write(b"\xff\xff\xff\xff")
    await worker.gone()
    other = await shared_gateway.worker(CODE)
    other.peer.send(wire.Credit(99, 1))
    other.peer.send(wire.Body(99, b"", True, []))
    other.peer.send(wire.Cancel(99, "timeout"))
    assert (await other.call()).body == b'"well"'
