"""Calls of real workers over real frames: bodies of all sizes both ways, flow control, cancelling, stopping."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from runtime import messages as wire

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1024 * 1024

HANDLER = """
    import os, sys, time
    def main(event, context):
        if isinstance(event, bytes):
            return event
        if isinstance(event, dict) and "size" in event:
            return b"z" * event["size"]
        if isinstance(event, dict) and "sleep" in event:
            time.sleep(event["sleep"])
        return {"event": event, "pid": os.getpid()}
"""
BYTES = [[b"content-type", b"application/octet-stream"]]


async def test_a_worker_starts_answers_and_stops(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER)
    assert worker.ready.shape == "event"
    answer = await worker.call(b'{"a": 1}')
    assert answer.status == 200
    assert answer.headers == [[b"content-type", b"application/json"]]
    assert json.loads(answer.body) == {"event": {"a": 1}, "pid": worker.started.pid}
    run_us, cpu_us, peak_rss_bytes = answer.stats
    assert run_us >= 0
    assert cpu_us >= 0
    assert peak_rss_bytes > MIB
    worker.stop(5_000)
    assert await worker.gone() == wire.Exited(worker.name, 0, 0, "")


async def test_a_body_that_is_not_json_is_the_callers_fault(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER)
    answer = await worker.call(b"{not json")
    assert answer.failed.kind == "bad_request"
    assert "line 1 column 2" in answer.failed.message
    assert (await worker.call(b"1")).status == 200


async def test_a_large_request_comes_in_pieces_within_the_window(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER)
    body = bytes(range(256)) * 4 * 4 * 1024  # 4 MiB
    request = worker.request(body[: wire.CHUNK_BYTES], last=False, headers=BYTES)
    sent, window = wire.CHUNK_BYTES, wire.WINDOW_BYTES - wire.CHUNK_BYTES
    while sent < len(body):
        piece = min(wire.CHUNK_BYTES, len(body) - sent)
        while window < piece:
            credit = await worker.peer.next()
            assert isinstance(credit, wire.Credit)
            window += credit.amount
        worker.peer.send(wire.Body(request.call, body[sent : sent + piece], sent + piece == len(body), []))
        sent, window = sent + piece, window - piece
    answer = await worker.ending(request.call)
    assert answer.body == body


async def test_a_body_over_the_handlers_limit_is_refused_and_the_next_call_works(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER, max_body_bytes=1_000)
    request = worker.request(b"x" * 600, last=False, headers=BYTES)
    worker.peer.send(wire.Body(request.call, b"x" * 600, False, []))
    answer = await worker.ending(request.call)
    assert answer.failed.kind == "bad_request"
    worker.peer.send(wire.Body(request.call, b"late", True, []))
    assert (await worker.call(b"1")).status == 200


async def test_a_large_answer_waits_for_credit(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER)
    request = worker.request(b'{"size": 5000000}')
    received = 0
    while received < wire.WINDOW_BYTES:
        message = await worker.peer.next()
        received += len(message.body if isinstance(message, wire.Response) else message.data)
    assert received == wire.WINDOW_BYTES
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(worker.peer.messages.get(), 0.2)
    worker.peer.send(wire.Credit(request.call, received))
    assert len((await worker.ending(request.call)).body) + received == 5_000_000


async def test_an_answer_that_nobody_waits_for_any_more_is_given_up(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER)
    request = worker.request(b'{"size": 5000000}')
    assert isinstance(await worker.peer.next(), wire.Response)
    worker.peer.send(wire.Cancel(request.call, "client_gone"))
    answer = await worker.ending(request.call, credit=False)
    assert answer.failed.kind == "cancelled"
    assert (await worker.call(b"1")).status == 200


async def test_a_busy_worker_told_to_stop_finishes_its_call(shared_gateway: Any, wait_until: Any) -> None:
    worker = await shared_gateway.worker("""
        import time
        def main(event, context):
            print("running")
            time.sleep(0.5)
            return "finished"
    """)
    request = worker.request()
    await wait_until(lambda: b"running" in worker.log_text(), "the call runs")
    worker.stop(30_000)
    assert (await worker.ending(request.call)).body == b'"finished"'
    assert (await worker.gone()).code == 0


async def test_calls_waiting_in_the_connection_are_answered_in_order(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER)
    requests = [worker.request(b"%d" % n) for n in range(50)]
    for n, request in enumerate(requests):
        assert json.loads((await worker.ending(request.call)).body)["event"] == n


async def test_a_worker_leaves_when_its_connection_ends(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(HANDLER)
    worker.peer.close()
    assert (await worker.gone()).code == 0


async def test_async_handlers_overlap_on_one_worker(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(
        """
        import asyncio
        event = asyncio.Event()
        async def main(what, context):
            if what == "wait":
                await event.wait()
                return "waited"
            event.set()
            return "set"
        """,
        concurrency=2,
    )
    first, second = worker.request(b'"wait"'), worker.request(b'"set"')
    assert (await worker.ending(second.call)).body == b'"set"'
    assert (await worker.ending(first.call)).body == b'"waited"'


async def test_synchronous_handlers_overlap_in_threads(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(
        """
        import threading
        both = threading.Barrier(2, timeout=30)
        def main(event, context):
            both.wait()
            return event
        """,
        concurrency=2,
    )
    first, second = worker.request(b"1"), worker.request(b"2")
    messages = [await worker.peer.next(), await worker.peer.next()]
    assert {m.call: m.body for m in messages} == {first.call: b"1", second.call: b"2"}


@pytest.mark.parametrize("reason", ["timeout", "client_gone"])
async def test_an_async_call_can_be_cancelled(shared_gateway: Any, reason: str) -> None:
    worker = await shared_gateway.worker("""
        import asyncio
        async def main(event, context):
            if event:
                await asyncio.sleep(600)
            return "well"
    """)
    request = worker.request(b"1")
    worker.peer.send(wire.Cancel(request.call, reason))
    assert (await worker.ending(request.call)).failed.kind == "cancelled"
    assert (await worker.call()).body == b'"well"'


async def test_the_worker_is_a_process_as_the_contract_says(shared_gateway: Any) -> None:
    worker = await shared_gateway.worker(
        {
            "handler.py": """
                import os, resource, subprocess, sys, tempfile
                import neighbour
                def main(event, context):
                    fds = subprocess.run(["ls", "/proc/self/fd"], capture_output=True, text=True, close_fds=False)
                    return {
                        "env": dict(os.environ), "cwd": os.getcwd(), "session": os.getsid(0) == os.getpid(),
                        "stdin": os.read(0, 10).decode(), "path": sys.path[0],
                        "core": resource.getrlimit(resource.RLIMIT_CORE), "tmp": tempfile.mkdtemp(),
                        "mode": os.stat(os.environ["TMPDIR"]).st_mode & 0o777, "neighbour": neighbour.NAME,
                        "main": hasattr(sys.modules["__main__"], "__file__"), "fds": fds.stdout.split(),
                    }
            """,
            "neighbour.py": "NAME = 'beside the handler'\n",
        },
        variables={"MINE": "yes", "LANG": "de_DE.UTF-8"},
        devices="MIG-1",
    )
    seen = json.loads((await worker.call()).body)
    env = seen["env"]
    scratch = str(shared_gateway.folder / "scratch" / worker.name)
    assert env["HOME"] == env["TMPDIR"] == scratch
    assert (env["MINE"], env["LANG"]) == ("yes", "de_DE.UTF-8")
    assert (env["SAMOVAR_NAMESPACE"], env["SAMOVAR_FUNCTION"], env["SAMOVAR_REVISION"]) == ("default", "f", "7")
    assert (env["SAMOVAR_WORKER"], env["K_SERVICE"], env["K_REVISION"]) == (worker.name, "f", "f-7")
    assert env["AWS_LAMBDA_FUNCTION_NAME"] == "f"
    assert env["AWS_LAMBDA_FUNCTION_VERSION"] == "7"
    assert env["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "256"
    assert env["CUDA_VISIBLE_DEVICES"] == "MIG-1"
    assert set(env) <= {
        "PATH", "HOME", "TMPDIR", "LANG", "MINE", "CUDA_VISIBLE_DEVICES", "K_SERVICE", "K_REVISION",
        "SAMOVAR_NAMESPACE", "SAMOVAR_FUNCTION", "SAMOVAR_REVISION", "SAMOVAR_WORKER", "LD_LIBRARY_PATH", "TZ",
        "AWS_LAMBDA_FUNCTION_NAME", "AWS_LAMBDA_FUNCTION_VERSION", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE",
    }  # fmt: skip
    assert seen["cwd"] == seen["path"]
    assert seen["neighbour"] == "beside the handler"
    assert seen["session"] is True
    assert seen["stdin"] == ""
    assert seen["core"] == [0, 0]
    assert seen["tmp"].startswith(scratch)
    assert seen["mode"] == 0o700
    assert seen["main"] is False
    assert set(seen["fds"]) == {"0", "1", "2", "3"}, "no descriptor of ours reaches a subprocess"


async def test_the_scratch_directory_is_removed_with_the_worker(shared_gateway: Any, wait_until: Any) -> None:
    worker = await shared_gateway.worker("""
        import os
        def main(event, context):
            os.makedirs(os.environ["TMPDIR"] + "/deep/er")
            os.chmod(os.environ["TMPDIR"] + "/deep", 0o500)
    """)
    await worker.call()
    place = shared_gateway.folder / "scratch" / worker.name
    assert (place / "deep").exists()
    worker.stop()
    await worker.gone()
    await wait_until(lambda: not place.exists(), "the directory is removed")


async def test_workers_differ_in_their_random_sources(shared_gateway: Any) -> None:
    code = "import random\ndef main(event, context):\n    return random.random()\n"
    await shared_gateway.load(["random"])
    answers = {(await (await shared_gateway.worker(code)).call()).body for _ in range(3)}
    assert len(answers) == 3
