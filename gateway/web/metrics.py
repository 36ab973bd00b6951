"""Counts of what the gateway does, as Prometheus reads them.

A call costs a few additions of plain integers; texts, labels and floats are made when somebody asks. Labels are
bounded: functions beyond the first so many are counted together as "other".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from gateway.metering.record import MeteringRecord

CONTENT_TYPE = CONTENT_TYPE_LATEST
#: Upper bounds of the time histograms, microseconds.
BUCKETS_US = (
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000, 300_000_000,
)  # fmt: skip
OTHER = ("other", "other")

Value = Callable[[], float]
LabelledValues = Callable[[], Mapping[str, float]]


@dataclass(frozen=True)
class MetricsParams:
    """Bounds of the labels."""

    functions_max: int = 200


class _Histogram:
    """Times in fixed buckets."""

    __slots__ = ("counts", "name", "sum_us", "text")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.counts = [0] * (len(BUCKETS_US) + 1)
        self.sum_us = 0

    def family(self) -> HistogramMetricFamily:
        total = 0
        buckets = []
        for bound, count in zip((*BUCKETS_US, None), self.counts, strict=True):
            total += count
            buckets.append(("+Inf" if bound is None else repr(bound / 1e6), float(total)))
        return HistogramMetricFamily(self.name, self.text, buckets=buckets, sum_value=self.sum_us / 1e6)


class Metrics:
    """All of them, and the text they make."""

    def __init__(self, params: MetricsParams = MetricsParams()) -> None:
        self._params = params
        #: (function, status class, start kind) -> calls.
        self._calls: dict[tuple[str, int, str], int] = {}
        self._known: set[str] = set()
        self._queued = _Histogram("samovar_call_queued_seconds", "Time that calls waited for a worker")
        self._start = _Histogram("samovar_call_start_seconds", "Start of a worker, for calls that waited for one")
        self._init = _Histogram("samovar_call_init_seconds", "Loading of the handler, for calls that waited for it")
        self._run = _Histogram("samovar_call_run_seconds", "Time that calls ran")
        self._values: list[tuple[type[CounterMetricFamily | GaugeMetricFamily], str, str, Value]] = []
        self._labelled: list[tuple[str, str, str, LabelledValues]] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(self._families))

    # -- the hot path ------------------------------------------------------------------------------------

    def observe_call(
        self, function: str, status: int, start_kind: str, queued_us: int, start_us: int, init_us: int, run_us: int
    ) -> None:
        """Count one answered call. `function` is "namespace/function"; `start_kind` empty: it reached no worker."""
        key = (function, status // 100, start_kind)
        calls = self._calls
        if key in calls:
            calls[key] += 1
        else:
            self._count_new(function, status // 100, start_kind)
        histogram = self._queued
        histogram.counts[bisect_left(BUCKETS_US, queued_us)] += 1
        histogram.sum_us += queued_us
        if not start_kind:
            return
        histogram = self._run
        histogram.counts[bisect_left(BUCKETS_US, run_us)] += 1
        histogram.sum_us += run_us
        if start_us or init_us:
            histogram = self._start
            histogram.counts[bisect_left(BUCKETS_US, start_us)] += 1
            histogram.sum_us += start_us
            histogram = self._init
            histogram.counts[bisect_left(BUCKETS_US, init_us)] += 1
            histogram.sum_us += init_us

    def observe_record(self, record: MeteringRecord) -> None:
        """Count the call of a metering record."""
        self.observe_call(
            f"{record.namespace}/{record.function}",
            record.status,
            record.start_kind,
            record.queued_us,
            record.start_us,
            record.init_us,
            record.run_us,
        )

    def _count_new(self, function: str, status_class: int, start_kind: str) -> None:
        if function not in self._known:
            if len(self._known) >= self._params.functions_max:
                function = "/".join(OTHER)
            else:
                self._known.add(function)
        key = (function, status_class, start_kind)
        self._calls[key] = self._calls.get(key, 0) + 1

    # -- what others count -------------------------------------------------------------------------------

    def counter(self, name: str, text: str, value: Value) -> None:
        """A number that only grows, asked for when the text is made. The name without "_total"."""
        self._values.append((CounterMetricFamily, name, text, value))

    def gauge(self, name: str, text: str, value: Value) -> None:
        """A number that goes up and down."""
        self._values.append((GaugeMetricFamily, name, text, value))

    def labelled_gauge(self, name: str, text: str, label: str, values: LabelledValues) -> None:
        """Numbers by the values of one label, of which there must be few."""
        self._labelled.append((name, text, label, values))

    # -- the text ----------------------------------------------------------------------------------------

    def render(self) -> bytes:
        """All metrics in Prometheus's text format, of type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def _families(self) -> Iterator[Metric]:
        labels = ["namespace", "function", "status", "start"]
        calls = CounterMetricFamily("samovar_calls", "Answered calls", labels=labels)
        for (function, status_class, start_kind), count in sorted(self._calls.items()):
            namespace, _, name = function.partition("/")
            calls.add_metric([namespace, name, f"{status_class}xx", start_kind or "none"], count)
        yield calls
        for histogram in (self._queued, self._start, self._init, self._run):
            yield histogram.family()
        for family, name, text, value in self._values:
            yield family(name, text, value=value())
        for name, text, label, values in self._labelled:
            gauge = GaugeMetricFamily(name, text, labels=[label])
            for key, number in sorted(values().items()):
                gauge.add_metric([key], number)
            yield gauge


class _Collector:
    """What the Prometheus library asks."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        """Everything, now."""
        return self._families()
