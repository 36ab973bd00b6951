"""Things that break: gateway killed, PostgreSQL away, node agent killed. Nothing is lost, nothing is doubled."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import httpx
import psutil
from house import PATIENCE_S, Samovar, alive, wait_until

COUNTED = """
import os
def main(event, context):
    with open(event["file"], "a") as file:
        file.write(f"{event['n']}\\n")
    return event["n"]
"""


async def shower(house: Samovar, name: str, file: Path, calls: int, kill_after: int) -> set[int]:
    """Send `calls` calls, kill -9 the gateway once `kill_after` were answered; the numbers of those answered 200."""
    answered: set[int] = set()
    killed = asyncio.Event()
    numbers = iter(range(calls))

    async def one_client() -> None:
        headers = {"authorization": f"Bearer {house.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_S, trust_env=False) as client:
            for n in numbers:
                try:
                    answer = await client.post(f"{house.url}/fn/default/{name}", json={"n": n, "file": str(file)})
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    answered.add(answer.json())
                if len(answered) >= kill_after and not killed.is_set():
                    killed.set()
                    house.process.kill()

    await asyncio.gather(*(one_client() for _ in range(16)))
    return answered


def test_kill_9_of_the_gateway_loses_no_finished_call_and_counts_none_twice(
    own_samovar: Samovar, tmp_path: Path
) -> None:
    house, file = own_samovar, tmp_path / "ran"
    house.start()
    house.deployed("counted", COUNTED, scale={"max": 4})
    pids = [p.pid for p in house.family()]
    answered = asyncio.run(shower(house, "counted", file, 1000, 400))
    house.process.wait(PATIENCE_S)
    wait_until(lambda: not alive(pids), "every process of the killed gateway is gone")
    house.client.close()
    house.start()
    ran = [int(line) for line in file.read_text().split()]
    assert len(ran) == len(set(ran)), "no call ran twice"
    assert answered <= set(ran)
    usage = house.usage("counted")
    assert len(answered) <= usage["calls"] <= len(ran)
    assert house.call("counted", json={"n": -1, "file": str(file)}).json() == -1
    assert house.usage("counted")["calls"] == usage["calls"] + 1


def test_calls_go_on_and_nothing_is_lost_while_postgresql_is_away(own_samovar: Samovar) -> None:
    house = own_samovar
    house.start()
    house.deployed("steady", "def main(event, context):\n    return 'here'\n")
    servers = [p for p in house.family() if p.name() == "postgres"]
    assert servers
    for process in servers:
        process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(200):
            assert house.call("steady").json() == "here"
    finally:
        for process in servers:
            if process.is_running():
                process.send_signal(signal.SIGCONT)
    wait_until(lambda: house.usage("steady")["calls"] == 200, "every record has arrived")


def test_a_killed_postgresql_comes_back_with_every_record(own_samovar: Samovar) -> None:
    house = own_samovar
    house.start()
    house.deployed("robust", "def main(event, context):\n    return 'here'\n")
    house.call("robust")
    tops = [p for p in house.family() if p.name() == "postgres" and psutil.Process(p.ppid()).name() != "postgres"]
    os.kill(tops[0].pid, signal.SIGKILL)
    for _ in range(50):
        assert house.call("robust").json() == "here"
    wait_until(lambda: house.usage("robust")["calls"] == 51, "every record has arrived")


def test_a_killed_node_agent_is_replaced_and_calls_are_served_again(own_samovar: Samovar) -> None:
    house = own_samovar
    house.start()
    house.deployed("node", "import os\ndef main(event, context):\n    return os.getpid()\n")
    worker = house.call("node").json()
    agent = next(p for p in house.family() if "runtime.agent" in " ".join(p.cmdline()))
    agent.kill()
    wait_until(lambda: not alive([worker]), "its workers died with it")
    assert house.call("node").json() != worker


def test_a_deployed_function_is_still_there_after_a_restart(own_samovar: Samovar) -> None:
    house = own_samovar
    house.start()
    house.deployed("kept", "def main(event, context):\n    return 'kept'\n")
    assert house.stop() == 0
    house.start()
    answer = house.call("kept")
    assert answer.json() == "kept"
    assert answer.headers["x-samovar-start"] in {"cold", "warm"}


def test_a_burst_of_first_calls_is_answered_to_the_last(own_samovar: Samovar) -> None:
    house = own_samovar
    house.start()
    code = "import os, time\ndef main(event, context):\n    time.sleep(1)\n    return os.getpid()\n"
    house.deployed("burst", code, scale={"idle_timeout": "1s"})
    house.wait_for_zero("burst")

    async def burst() -> list[httpx.Response]:
        headers = {"authorization": f"Bearer {house.token}"}
        limits = httpx.Limits(max_connections=50)
        async with httpx.AsyncClient(headers=headers, timeout=PATIENCE_S, limits=limits, trust_env=False) as client:
            return await asyncio.gather(*(client.post(f"{house.url}/fn/default/burst") for _ in range(50)))

    answers = asyncio.run(burst())
    assert [a.status_code for a in answers] == [200] * 50
    assert len({json.loads(a.content) for a in answers}) > 10
