"""Handlers that misbehave: each gives its caller the documented status in time, and the next call works."""

from __future__ import annotations

import pytest
from house import Samovar, wait_until

CODE = r"""
import ctypes, os, signal, subprocess, sys, threading, time
class Odd: pass
def deep(n): return [deep(n + 1)]
def main(event, context):
    what = (event or {}).get("what")
    if what == "raise": raise ValueError("on purpose")
    if what == "sys.exit": sys.exit(3)
    if what == "os._exit": os._exit(4)
    if what == "sigkill": os.kill(os.getpid(), signal.SIGKILL); time.sleep(60)
    if what == "segfault": ctypes.string_at(0)
    if what == "loop":
        while True: pass
    if what == "grandchild":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        return {"pid": child.pid}
    if what == "loop with grandchild":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("grandchild", child.pid, flush=True)
        while True: pass
    if what == "close stdout":
        os.close(1); os.close(2); return "closed"
    if what == "long line":
        sys.stdout.write("x" * 1_000_000); sys.stdout.flush(); return "written"
    if what == "unserialisable": return {"a": [1, Odd()]}
    if what == "nan": return {"x": float("nan")}
    if what == "surrogates": return {"text": "\ud800"}
    if what == "bytes": return b"\x00\xff"
    if what == "recursion": return deep(0)
    if what == "deep result":
        x = []
        for _ in range(100_000): x = [x]
        return x
    if what == "interrupt": raise KeyboardInterrupt
    return "well"
"""


@pytest.fixture(scope="module")
def house(samovar: Samovar) -> Samovar:
    samovar.deployed("hostile", CODE, timeouts={"total": "2s", "first_byte": "2s"})
    return samovar


@pytest.mark.parametrize(
    ("what", "status", "part"),
    [
        ("raise", 500, "ValueError: on purpose"),
        ("sys.exit", 500, "SystemExit"),
        ("os._exit", 502, "code 4"),
        ("sigkill", 502, "signal 9"),
        ("segfault", 502, "signal 11"),
        ("loop", 504, "total timeout of 2 s"),
        ("loop with grandchild", 504, "total timeout of 2 s"),
        ("unserialisable", 500, "Odd"),
        ("nan", 500, "NaN"),
        ("recursion", 500, "RecursionError"),
        ("deep result", 500, ""),
        ("interrupt", 500, "KeyboardInterrupt"),
    ],
)
def test_a_misbehaving_handler_gets_its_status_and_the_next_call_works(
    house: Samovar, what: str, status: int, part: str
) -> None:
    answer = house.call("hostile", json={"what": what})
    assert answer.status_code == status, answer.text
    assert part in answer.json()["error"]["message"]
    assert answer.headers["x-samovar-fault"] == "function"
    assert answer.json()["error"]["fault"] == "function"
    assert house.call("hostile", json={}).json() == "well"


@pytest.mark.parametrize(
    ("what", "body"),
    [("long line", b'"written"'), ("bytes", b"\x00\xff"), ("close stdout", b'"closed"')],
)
def test_an_odd_but_legal_handler_is_answered(house: Samovar, what: str, body: bytes) -> None:
    answer = house.call("hostile", json={"what": what})
    assert answer.status_code == 200
    assert answer.content == body
    assert house.call("hostile", json={}).json() == "well"


def test_lone_surrogates_do_not_break_the_answer(house: Samovar) -> None:
    answer = house.call("hostile", json={"what": "surrogates"})
    assert answer.status_code in {200, 500}
    answer.json()
    assert house.call("hostile", json={}).json() == "well"


def test_grandchildren_of_a_killed_worker_die_with_it(house: Samovar) -> None:
    from house import alive

    pid = house.call("hostile", json={"what": "grandchild"}).json()["pid"]
    assert alive([pid])
    house.call("hostile", json={"what": "loop"})  # gets the worker killed, with its process group
    wait_until(lambda: not alive([pid]), "the grandchild is gone with its worker")


def test_a_body_that_is_not_json_is_the_callers_fault(house: Samovar) -> None:
    answer = house.call("hostile", content=b"{not json", headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["fault"] == "caller"


def test_the_traceback_is_for_the_owner_only(samovar: Samovar) -> None:
    samovar.deployed("open-door", "def main(event, context):\n    raise ValueError('secret path')\n", public=True)
    owned = samovar.call("open-door")
    assert "traceback" in owned.json()["error"]["detail"]
    import httpx

    stranger = httpx.post(f"{samovar.url}/fn/default/open-door", trust_env=False)
    assert stranger.status_code == 500
    assert "traceback" not in stranger.json()["error"]["detail"]
