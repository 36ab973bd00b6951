"""Environments with the real uv, from wheels made here: no registry is asked."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import uv

from gateway.catalog import Manifest
from gateway.deploy.environments import EnvironmentFailed, EnvironmentParams, EnvironmentStore
from gateway.deploy.interpreters import own_base_python
from gateway.errors import BadRequest

PARAMS = EnvironmentParams(build_s=100, lock_poll_s=0.02)


def make_wheel(folder: Path, name: str, version: str, module: str) -> Path:
    """A wheel of one module with one console script."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": module,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-say = {name}:say\n",
    }
    record = ""
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text.encode())}\n"
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(path, text)
    return wheel


@pytest.fixture(autouse=True)
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "wheels"
    folder.mkdir()
    make_wheel(folder, "teapot", "1.2", "def say():\n    print('short and stout')\n")
    make_wheel(folder, "kettle", "3.0", "import teapot\n")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def manifest(*requirements: str, python: str = "") -> Manifest:
    return Manifest("f", "default", "handler:main", requirements=requirements, python=python)


def store_at(root: Path) -> EnvironmentStore:
    return EnvironmentStore(root, uv.find_uv_bin(), own_base_python(), PARAMS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "environments"


def entries(root: Path) -> list[str]:
    return sorted(p.name for p in root.iterdir() if p.name != ".locks") if root.exists() else []


def run(python: str, code: str) -> str:
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


async def test_without_requirements_nothing_is_built_and_none_of_our_packages_is_there(root: Path) -> None:
    environment = await store_at(root).resolve(manifest())
    assert environment.digest == "base-" + run(environment.python, "import platform; print(platform.python_version())")
    assert entries(root) == []
    found = run(environment.python, "import importlib.util as u; print(u.find_spec('gateway'), u.find_spec('aiohttp'))")
    assert found == "None None"


async def test_requirements_are_installed_compiled_and_can_be_run(root: Path) -> None:
    environment = await store_at(root).resolve(manifest("teapot>=1"))
    assert run(environment.python, "import teapot; teapot.say()") == "short and stout"
    assert "__pycache__" in run(environment.python, "import teapot; print(teapot.__cached__)")
    assert list((root / environment.digest).rglob("teapot.*.pyc"))
    script = Path(environment.python).with_name("teapot-say")
    assert subprocess.check_output([script], text=True).strip() == "short and stout"
    assert entries(root) == [environment.digest]


async def test_equal_requirements_share_an_environment(root: Path) -> None:
    store = store_at(root)
    one = await store.resolve(manifest("teapot", "Kettle >= 3"))
    two = await store.resolve(manifest("kettle>=3", "TeaPot"))
    assert one == two
    assert store.built == 1
    assert await store_at(root).resolve(manifest("teapot", "kettle>=3")) == one


async def test_many_deploys_at_once_build_once(root: Path) -> None:
    store = store_at(root)
    found = await asyncio.gather(*(store.resolve(manifest("teapot")) for _ in range(10)))
    assert len(set(found)) == 1
    assert store.built == 1


ELSEWHERE = """
import asyncio, sys, uv
from pathlib import Path
from gateway.catalog import Manifest
from gateway.deploy.environments import EnvironmentParams, EnvironmentStore
from gateway.deploy.interpreters import own_base_python
store = EnvironmentStore(Path(sys.argv[1]), uv.find_uv_bin(), own_base_python(), EnvironmentParams(lock_poll_s=0.02))
asyncio.run(store.resolve(Manifest("f", "default", "handler:main", requirements=("teapot",))))
print(store.built)
"""


def test_two_gateways_on_one_directory_build_once(root: Path) -> None:
    command = [sys.executable, "-c", ELSEWHERE, str(root)]
    gateways = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(gateway.communicate(timeout=60)[0].strip() for gateway in gateways) == ["0", "1"]
    assert len(entries(root)) == 1


async def test_one_who_stops_waiting_does_not_stop_the_build_of_the_others(root: Path) -> None:
    store = store_at(root)
    impatient = asyncio.create_task(store.resolve(manifest("teapot")))
    patient = asyncio.create_task(store.resolve(manifest("teapot")))
    while not entries(root) and not impatient.done():
        await asyncio.sleep(0.005)
    impatient.cancel()
    assert Path((await patient).python).exists()
    assert store.built == 1


async def test_what_cannot_be_installed_fails_with_uvs_words_and_leaves_nothing(root: Path) -> None:
    store = store_at(root)
    for _ in range(2):
        with pytest.raises(EnvironmentFailed) as caught:
            await store.resolve(manifest("teapot>=99"))
        assert isinstance(caught.value.detail, dict)
        assert "teapot" in caught.value.detail["output"]
        assert str(root) not in caught.value.detail["output"]
    assert entries(root) == []


async def test_a_build_that_takes_too_long_is_ended_and_leaves_nothing(root: Path) -> None:
    store = EnvironmentStore(root, uv.find_uv_bin(), own_base_python(), EnvironmentParams(build_s=0.01))
    with pytest.raises(EnvironmentFailed, match=r"not built within 0\.01 s"):
        await store.resolve(manifest("teapot"))
    assert entries(root) == []


async def test_source_packages_are_not_built_unless_allowed(root: Path, wheels: Path) -> None:
    (wheels / "teapot-1.2-py3-none-any.whl").unlink()
    sdist = wheels / "teapot-1.2"
    sdist.mkdir()
    (sdist / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: teapot\nVersion: 1.2\n")
    (sdist / "setup.py").write_text(f"open({str(root.parent / 'ran')!r}, 'w')\n")
    subprocess.run(["tar", "czf", wheels / "teapot-1.2.tar.gz", "-C", wheels, "teapot-1.2"], check=True)
    with pytest.raises(EnvironmentFailed):
        await store_at(root).resolve(manifest("teapot"))
    assert not (root.parent / "ran").exists()


async def test_closing_ends_builds_and_leaves_nothing(root: Path) -> None:
    store = store_at(root)
    waiting = asyncio.create_task(store.resolve(manifest("teapot", "kettle")))
    while not entries(root):
        await asyncio.sleep(0.005)
    await store.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert all(not name.startswith(".building-") for name in entries(root))


async def test_an_interpreter_of_the_asked_version_is_found_and_another_refused(root: Path) -> None:
    store = store_at(root)
    own = await store.resolve(manifest())
    version = own.digest.removeprefix("base-")
    assert await store.resolve(manifest(python=version)) == own
    assert await store.resolve(manifest(python=version.rpartition(".")[0])) == own
    with pytest.raises(BadRequest, match=rf"no CPython 3\.99 .* there are .*{version}"):
        await store.resolve(manifest(python="3.99"))
