"""From upload to traffic: the order of things, what a failure leaves, turns and bounds."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import tarfile
from pathlib import Path

import pytest

from gateway.catalog import Function, Manifest, Revision
from gateway.deploy.archive import ArchiveLimits
from gateway.deploy.bundles import BundleStore
from gateway.deploy.environments import Environment, EnvironmentFailed
from gateway.deploy.pipeline import Deployer, DeployFailed, DeployParams, Proof, ProofFailed
from gateway.errors import BadRequest, NotFound, TooMany, Unavailable

TOML = 'name = "f"\nhandler = "handler:main"\n'


class Registry:
    """A registry in memory."""

    def __init__(self) -> None:
        self.rows: dict[int, Revision] = {}
        self.live: int | None = None
        self.fail_route = False

    def function(self, namespace: str, name: str) -> Function | None:
        return Function(namespace, name, self.live, False) if self.rows else None

    async def create_revision(self, manifest: Manifest, bundle: str, environment: str, python: str) -> Revision:
        number = len(self.rows) + 1
        self.rows[number] = Revision(manifest.namespace, manifest.name, number, manifest, bundle, environment, python)
        return self.rows[number]

    async def _change(self, revision: Revision, **change: object) -> Revision:
        self.rows[revision.number] = dataclasses.replace(self.rows[revision.number], **change)  # type: ignore[arg-type]
        return self.rows[revision.number]

    async def mark_ready(self, revision: Revision, shape: str, preload: tuple[str, ...]) -> Revision:
        return await self._change(revision, state="ready", shape=shape, preload=preload)

    async def mark_failed(self, revision: Revision, error: str) -> Revision:
        return await self._change(revision, state="failed", error=error)

    async def route(self, namespace: str, function: str, number: int) -> Revision:
        if self.fail_route:
            raise Unavailable("PostgreSQL is away")
        self.live = number
        return self.rows[number]

    async def rollback_target(self, namespace: str, function: str, number: int | None) -> Revision:
        if not self.rows:
            raise NotFound(f"no function {namespace}/{function}")
        return self.rows[number or 1]

    async def delete_function(self, namespace: str, function: str) -> None:
        self.rows.clear()
        self.live = None


class Environments:
    """Always the same environment, or always the same error."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked: list[Manifest] = []

    async def resolve(self, manifest: Manifest) -> Environment:
        self.asked.append(manifest)
        if self.error is not None:
            raise self.error
        return Environment("e" * 32, "/python")


class Prover:
    """Proves at once, or when let go."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_work = 0
        self.most = 0
        self.entered = asyncio.Event()

    async def prove(self, revision: Revision) -> Proof:
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        self.entered.set()
        try:
            await self.gate.wait()
        finally:
            self.at_work -= 1
        if self.error is not None:
            raise self.error
        return Proof("event", ("json", "numpy"), 1500)


class House:
    """A deployer over doubles and a real bundle store."""

    def __init__(self, folder: Path, params: DeployParams = DeployParams()) -> None:  # noqa: B008 - frozen
        self.folder = folder
        self.registry, self.environments, self.prover = Registry(), Environments(), Prover()
        self.bundles = folder / "bundles"
        store = BundleStore(self.bundles, ArchiveLimits())
        self.deployer = Deployer(self.registry, store, self.environments, self.prover, params)
        self.progress: list[tuple[str, str]] = []
        self.uploads = 0

    def upload(self, files: dict[str, str]) -> Path:
        self.uploads += 1
        path = self.folder / f"upload-{self.uploads}"
        with tarfile.open(path, "w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        return path

    async def deploy(self, toml: str = TOML, namespace: str = "default", **more: str) -> Revision:
        path = self.upload({"function.toml": toml, "handler.py": "", **more})
        return await self.deployer.deploy(namespace, path, lambda phase, line: self.progress.append((phase, line)))

    def phases(self) -> list[str]:
        return list(dict.fromkeys(phase for phase, _ in self.progress))


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


async def test_a_deploy_ends_with_traffic_on_a_proved_revision(house: House) -> None:
    revision = await house.deploy()
    assert (revision.state, revision.shape, revision.preload) == ("ready", "event", ("json", "numpy"))
    assert (revision.environment_digest, revision.python) == ("e" * 32, "/python")
    assert house.registry.live == revision.number == 1
    assert house.phases() == ["bundle", "environment", "proof", "traffic"]
    assert (house.bundles / revision.bundle_digest / "handler.py").exists()


async def test_requirements_may_come_from_their_file(house: House) -> None:
    await house.deploy(**{"requirements.txt": "six\n"})
    assert house.environments.asked[0].requirements == ("six",)


async def test_the_addresss_namespace_is_taken_and_must_not_be_contradicted(house: House) -> None:
    assert (await house.deploy(namespace="lab")).namespace == "lab"
    with pytest.raises(BadRequest, match="they must agree"):
        await house.deploy('namespace = "other"\n' + TOML, namespace="lab")


async def test_a_bad_upload_is_refused_before_any_progress_and_leaves_nothing(house: House) -> None:
    with pytest.raises(BadRequest, match="line 3: concurency"):
        await house.deploy(TOML + "concurency = 3")
    broken = house.folder / "broken"
    broken.write_bytes(b"not an archive")
    with pytest.raises(BadRequest, match="not a tar"):
        await house.deployer.deploy("default", broken, lambda *_: pytest.fail("progress"))
    assert house.progress == []
    assert house.registry.rows == {}
    assert list(house.bundles.iterdir()) == []


async def test_requirements_that_cannot_be_installed_fail_with_the_tools_output(house: House) -> None:
    house.environments.error = EnvironmentFailed("cannot", detail={"output": "no such package"})
    with pytest.raises(DeployFailed) as caught:
        await house.deploy()
    error = caught.value
    assert (error.phase, error.code, error.detail) == (
        "environment",
        "environment_failed",
        {"output": "no such package"},
    )
    assert house.registry.rows == {}


async def test_a_failed_proof_tells_the_traceback_and_the_old_revision_serves_on(house: House) -> None:
    await house.deploy()
    house.prover.error = ProofFailed("import_error", "ModuleNotFoundError", "No module named 'x'", "Traceback ...")
    with pytest.raises(DeployFailed) as caught:
        await house.deploy()
    error = caught.value
    assert (error.phase, error.code, error.fault) == ("proof", "import_error", "function")
    assert error.message == "ModuleNotFoundError: No module named 'x'"
    assert isinstance(error.detail, dict)
    assert error.detail["traceback"] == "Traceback ..."
    assert house.registry.live == 1
    failed = house.registry.rows[2]
    assert (failed.state, failed.error) == ("failed", error.message)


async def test_a_proof_that_found_no_room_is_the_platforms_fault(house: House) -> None:
    house.prover.error = ProofFailed("no_capacity", "", "no worker could be started", "")
    with pytest.raises(DeployFailed) as caught:
        await house.deploy()
    assert caught.value.fault == "platform"


async def test_a_surprise_in_a_phase_is_a_platform_failure_and_marks_the_revision(house: House) -> None:
    house.prover.error = RuntimeError("surprise")
    with pytest.raises(DeployFailed) as caught:
        await house.deploy()
    assert (caught.value.code, caught.value.fault) == ("internal", "platform")
    assert "surprise" not in caught.value.message
    assert house.registry.rows[1].state == "failed"


async def test_traffic_that_cannot_be_switched_leaves_the_old_revision(house: House) -> None:
    await house.deploy()
    house.registry.fail_route = True
    with pytest.raises(DeployFailed) as caught:
        await house.deploy()
    assert (caught.value.phase, caught.value.code) == ("traffic", "unavailable")
    assert house.registry.live == 1


async def test_a_deploy_that_is_cut_short_marks_its_revision_failed(house: House) -> None:
    house.prover.gate.clear()
    task = asyncio.create_task(house.deploy())
    await house.prover.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert house.registry.rows[1].state == "failed"
    house.prover.gate.set()
    assert (await house.deploy()).number == 2


async def test_deploys_of_one_function_take_turns_and_others_do_not_wait(house: House) -> None:
    house.prover.gate.clear()
    same = [asyncio.create_task(house.deploy()) for _ in range(3)]
    other = asyncio.create_task(house.deploy(TOML.replace('"f"', '"g"')))
    await house.prover.entered.wait()
    for _ in range(200):
        await asyncio.sleep(0.001)
        if house.prover.at_work == 2 and sum("waiting" in line for _, line in house.progress) == 2:
            break
    assert house.prover.at_work == 2
    house.prover.gate.set()
    await asyncio.gather(*same, other)
    assert house.prover.most == 2
    assert all(revision.state == "ready" for revision in house.registry.rows.values())


async def test_one_deploy_too_many_is_refused(tmp_path: Path) -> None:
    house = House(tmp_path, DeployParams(pending_max=1))
    house.prover.gate.clear()
    first = asyncio.create_task(house.deploy())
    await house.prover.entered.wait()
    with pytest.raises(TooMany):
        await house.deploy()
    house.prover.gate.set()
    await first


async def test_rollback_tells_where_traffic_came_from(house: House) -> None:
    await house.deploy()
    await house.deploy()
    revision, previous = await house.deployer.rollback("default", "f", None)
    assert (revision.number, previous, house.registry.live) == (1, 2, 1)


async def test_a_function_is_deleted_in_its_turn(house: House) -> None:
    house.prover.gate.clear()
    deploying = asyncio.create_task(house.deploy())
    await house.prover.entered.wait()
    deleting = asyncio.create_task(house.deployer.delete("default", "f"))
    await asyncio.sleep(0)
    assert house.registry.rows
    house.prover.gate.set()
    await asyncio.gather(deploying, deleting)
    assert house.registry.rows == {}
