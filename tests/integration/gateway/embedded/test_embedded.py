"""The services that a machine without any gets: started, found again, gone with whoever started them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest
import valkey.asyncio as valkey

from gateway.embedded import identity as identity_module
from gateway.embedded.data_directory import DataDirectoryUnusable
from gateway.embedded.identity import Identity, NoIdentity, choose_identity
from gateway.embedded.postgres import EmbeddedPostgres, binaries
from gateway.embedded.postmaster import read_postmaster
from gateway.embedded.processes import ServerFailed
from gateway.embedded.valkey import EmbeddedValkey

PATIENCE_S = 60.0
NOBODY = 65534
PROJECT = Path(__file__).parents[4]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")

STARTER = """
import asyncio, sys
from pathlib import Path
from gateway.embedded.postgres import EmbeddedPostgres
from gateway.embedded.valkey import EmbeddedValkey
async def main():
    servers = EmbeddedPostgres(Path(sys.argv[1])), EmbeddedValkey(Path(sys.argv[1]))
    for server in servers:
        print(await server.start(), server.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.fixture
def data() -> Iterator[Path]:
    """A short path, as sockets need one."""
    with tempfile.TemporaryDirectory(prefix="samovar-test-") as directory:
        yield Path(directory)


def until(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds; fails the test when it never does."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {PATIENCE_S:g} s")
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def value(dsn: str, sql: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


async def test_postgresql_starts_from_nothing_and_again_on_what_it_kept(data: Path) -> None:
    for start in range(2):
        server = EmbeddedPostgres(data)
        dsn = await server.start()
        pid = server.pid
        family = psutil.Process(pid).children()
        await value(dsn, "CREATE TABLE IF NOT EXISTS kept (n integer)")
        assert await value(dsn, "INSERT INTO kept SELECT count(*) FROM kept RETURNING n") == start
        assert await value(dsn, "SHOW fsync") == "on"
        assert await value(dsn, "SHOW listen_addresses") == ""
        assert await value(dsn, "SELECT datcollate || ' ' || pg_encoding_to_char(encoding) FROM pg_database LIMIT 1")
        await server.stop()
        assert not any(alive(one) for one in (pid, *(p.pid for p in family)))


async def test_valkey_starts_and_stops(data: Path) -> None:
    server = EmbeddedValkey(data)
    client = valkey.Valkey.from_url(await server.start())
    assert await client.ping()
    assert (await client.config_get("port"))["port"] == "0"
    await client.aclose()
    pid = server.pid
    await server.stop()
    assert not alive(pid)


def start_elsewhere(data: Path) -> tuple[subprocess.Popen[str], str, list[int]]:
    """A process of its own that starts both; gives it, the DSN and the pids of everything below it."""
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(data)], stdout=subprocess.PIPE, text=True, cwd=PROJECT
    )
    assert process.stdout is not None
    lines = [process.stdout.readline().split() for _ in range(2)]
    assert all(lines), "both servers start"
    return process, lines[0][0], [child.pid for child in psutil.Process(process.pid).children(recursive=True)]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_is_left_when_the_parent_is_killed_and_the_data_is_good_again(
    data: Path, how: signal.Signals
) -> None:
    process, dsn, pids = start_elsewhere(data)
    assert len(pids) >= 3
    await value(dsn, "CREATE TABLE kept AS SELECT 42 AS n")
    process.send_signal(how)
    process.wait()
    until(lambda: not any(map(alive, pids)), "every server process ends")
    server = EmbeddedPostgres(data)
    assert await value(await server.start(), "SELECT n FROM kept") == 42
    await server.stop()


async def test_two_run_side_by_side(data: Path) -> None:
    servers = [EmbeddedPostgres(data / name) for name in ("a", "b")]
    dsns = await asyncio.gather(*(server.start() for server in servers))
    assert dsns[0] != dsns[1]
    await value(dsns[0], "CREATE TABLE mine (n integer)")
    assert await value(dsns[1], "SELECT to_regclass('mine')") is None
    for server in servers:
        await server.stop()


async def test_a_server_that_dies_alone_is_started_again(data: Path) -> None:
    postgres, cache = EmbeddedPostgres(data), EmbeddedValkey(data)
    dsn, url = await postgres.start(), await cache.start()
    await value(dsn, "CREATE TABLE kept AS SELECT 42 AS n")
    killed = postgres.pid, cache.pid
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        while postgres.pid in {0, killed[0]} or cache.pid in {0, killed[1]} or not postgres.restarts:
            await asyncio.sleep(0.01)
    assert await value(dsn, "SELECT n FROM kept") == 42
    client = valkey.Valkey.from_url(url)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert await client.ping()
                break
            except valkey.ConnectionError:
                await asyncio.sleep(0.01)
    await client.aclose()
    await postgres.stop()
    await cache.stop()


async def test_a_server_that_outlived_its_gateway_is_ended_first(data: Path) -> None:
    first, second = EmbeddedPostgres(data), EmbeddedPostgres(data)
    await first.start()
    orphan = first.pid
    assert first._kept is not None and first._kept._keeper is not None
    first._kept._keeper.cancel()
    dsn = await second.start()
    assert second.pid != orphan
    until(lambda: not alive(orphan), "the first one ends")
    assert await value(dsn, "SELECT 1") == 1
    await second.stop()
    await first.stop()


async def test_a_lock_file_that_names_a_stranger_is_no_obstacle_and_the_stranger_lives(data: Path) -> None:
    server = EmbeddedPostgres(data)
    await server.start()
    lock = data / "postgres" / "cluster" / "postmaster.pid"
    content = lock.read_text()
    await server.stop()
    stranger = subprocess.Popen(["/bin/sleep", "600"])
    try:
        lock.write_text(content.replace(content.splitlines()[0], str(stranger.pid), 1))
        lock.chmod(0o600)
        again = EmbeddedPostgres(data)
        assert await value(await again.start(), "SELECT 1") == 1
        found = read_postmaster(lock.parent)
        assert found is not None
        assert found.pid == again.pid
        assert stranger.poll() is None
        await again.stop()
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_start_that_was_cut_off_while_the_cluster_was_made_is_done_again(data: Path) -> None:
    remains = data / "postgres" / "cluster.new"
    remains.mkdir(parents=True)
    (remains / "PG_VERSION").write_text("18")
    server = EmbeddedPostgres(data)
    assert await value(await server.start(), "SELECT 1") == 1
    await server.stop()


async def test_a_cluster_of_another_version_is_explained(data: Path) -> None:
    cluster = data / "postgres" / "cluster"
    cluster.mkdir(parents=True)
    (cluster / "PG_VERSION").write_text("9\n")
    with pytest.raises(ServerFailed, match="was made by PostgreSQL 9"):
        await EmbeddedPostgres(data).start()


async def test_a_server_that_cannot_start_says_what_its_log_says(data: Path) -> None:
    cluster = data / "postgres" / "cluster"
    cluster.mkdir(parents=True, mode=0o700)
    (cluster / "PG_VERSION").write_text("18\n")
    with pytest.raises(
        ServerFailed, match=r"PostgreSQL did not start: ended with \d+: (.|\n)*could not find the database"
    ):
        await EmbeddedPostgres(data).start()


async def test_a_path_too_long_for_sockets_works_and_leaves_nothing_elsewhere(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = data / "t"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    server = EmbeddedPostgres(data / ("long" * 30))
    assert await value(await server.start(), "SELECT 1") == 1
    assert list(elsewhere.iterdir())
    await server.stop()
    assert not list(elsewhere.iterdir())


def as_user(uid: int, work: Callable[[], None]) -> int:
    """Run something in a child process under another user; gives its exit code."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@as_root
def test_an_ordinary_user_can_start_both(data: Path) -> None:
    async def work() -> None:
        postgres, cache = EmbeddedPostgres(data), EmbeddedValkey(data)
        dsn = await postgres.start()
        await cache.start()
        assert psutil.Process(postgres.pid).uids().real == NOBODY
        assert await value(dsn, "SELECT 1") == 1
        await postgres.stop()
        await cache.stop()

    os.chown(data, NOBODY, NOBODY)
    assert as_user(NOBODY, lambda: asyncio.run(work())) == 0


@as_root
def test_a_data_directory_of_another_user_is_explained(data: Path) -> None:
    async def work() -> None:
        with pytest.raises(DataDirectoryUnusable, match="start as the user who owns"):
            await EmbeddedPostgres(data).start()

    (data / "postgres").mkdir(mode=0o700)
    data.chmod(0o711)
    assert as_user(NOBODY, lambda: asyncio.run(work())) == 0


def _forbidden() -> None:
    raise PermissionError("no user namespaces here")


@pytest.fixture
def no_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that forbids them."""
    monkeypatch.setattr(identity_module, "mapped_identity", lambda: Identity("a user namespace", (0, 0), _forbidden))


@as_root
@pytest.mark.usefixtures("no_namespaces")
async def test_root_without_user_namespaces_runs_it_as_an_unprivileged_user(data: Path) -> None:
    home = data / "home"
    home.mkdir(mode=0o700)
    data.chmod(0o711)
    for _ in range(2):
        server = EmbeddedPostgres(home)
        dsn = await server.start()
        assert psutil.Process(server.pid).uids().real != 0
        assert await value(dsn, "SELECT 1") == 1
        await server.stop()


@as_root
async def test_a_cluster_of_one_identity_is_handed_over_to_the_other(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = data / "home"
    home.mkdir()
    data.chmod(0o711)
    server = EmbeddedPostgres(home)
    await value(await server.start(), "CREATE TABLE kept AS SELECT 42 AS n")
    await server.stop()
    with monkeypatch.context() as patch:
        patch.setattr(identity_module, "mapped_identity", lambda: Identity("none", (0, 0), _forbidden))
        server = EmbeddedPostgres(home)
        assert await value(await server.start(), "SELECT n FROM kept") == 42
        await server.stop()
    server = EmbeddedPostgres(home)
    assert await value(await server.start(), "SELECT n FROM kept") == 42
    await server.stop()


@as_root
@pytest.mark.usefixtures("no_namespaces")
def test_root_without_any_way_is_told_what_to_do(data: Path) -> None:
    closed = data / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(NoIdentity, match=r"Run Samovar as an ordinary user.*chmod o\+x"):
        choose_identity([str(binaries() / "postgres"), "--version"], closed / "data")
