"""Everything that the rows share, started when the first row asks for it and ended together."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from loadtests.bench.control import Control
from loadtests.bench.gateway_process import GatewayProcess
from loadtests.bench.generator import Generator

METERING_OFF = "[metering]\nenabled = false\n"


@dataclass(frozen=True)
class BenchParams:
    """How long and how often is measured."""

    #: One slice of a closed loop.
    slice_s: float = 2.0
    #: Pairs of slices for each comparison of throughput or latency.
    pairs: int = 5
    #: Metering on against off is a difference of a few per cent, so it takes more of them.
    metering_pairs: int = 7
    connections: int = 64
    #: Calls from zero workers, and fresh interpreters beside them.
    warm_calls: int = 15
    spawned: int = 5
    burst_calls: int = 50
    #: Idle workers added for the memory row.
    further_workers: int = 10
    #: Records for the metering writer.
    writer_records: int = 200_000
    #: Longest that a benchmark in a program of its own may take.
    program_timeout_s: float = 180.0


class Stage:
    """See the module. What has died since the last row is started again for the next."""

    def __init__(self, directory: Path, params: BenchParams) -> None:
        self.params = params
        self._directory = directory
        self._generator: Generator | None = None
        self._control: Control | None = None
        self._gateways: dict[bool, GatewayProcess] = {}
        self._started = 0

    @property
    def generator(self) -> Generator:
        """The load generator. Raises ProcessBroke."""
        if self._generator is None or not self._generator.alive:
            self._generator = Generator()
        return self._generator

    @property
    def control(self) -> Control:
        """The control server. Raises ProcessBroke."""
        if self._control is None or not self._control.alive:
            self._control = Control()
        return self._control

    def gateway(self, metering: bool = True) -> GatewayProcess:
        """A gateway with metering on or off. Raises GatewayBroke."""
        gateway = self._gateways.get(metering)
        if gateway is None or not gateway.alive:
            self._started += 1
            progress(f"starting a gateway{'' if metering else ' with metering off'}")
            data = self._directory / f"gateway-{self._started}"
            gateway = GatewayProcess(data, "" if metering else METERING_OFF)
            self._gateways[metering] = gateway
        return gateway

    def retire(self, metering: bool) -> None:
        """End a gateway that no later row needs, so that it is not measured beside them."""
        gateway = self._gateways.pop(metering, None)
        if gateway is not None:
            gateway.close()

    def close(self) -> None:
        """End everything."""
        for gateway in self._gateways.values():
            gateway.close()
        if self._generator is not None:
            self._generator.close()
        if self._control is not None:
            self._control.close()


def progress(said: str) -> None:
    """Tell the person who waits."""
    print(f"bench: {said}", file=sys.stderr, flush=True)
