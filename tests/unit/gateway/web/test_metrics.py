"""What Prometheus reads: counts, histograms, bounded labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from gateway.web.metrics import Metrics, MetricsParams

ORDER = ("namespace", "function", "status", "start", "le", "state")


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            found[sample.name, tuple(sample.labels[key] for key in ORDER if key in sample.labels)] = sample.value
    return found


def test_calls_are_counted_by_function_status_class_and_start_kind() -> None:
    metrics = Metrics()
    for status in (200, 204, 500):
        metrics.observe_call("lab/f", status, "hot", 10, 0, 0, 2_000)
    metrics.observe_call("lab/f", 503, "", 1_000_000, 0, 0, 0)
    found = samples(metrics)
    assert found["samovar_calls_total", ("lab", "f", "2xx", "hot")] == 2
    assert found["samovar_calls_total", ("lab", "f", "5xx", "hot")] == 1
    assert found["samovar_calls_total", ("lab", "f", "5xx", "none")] == 1


def test_times_fall_into_buckets_and_only_real_starts_count_as_starts() -> None:
    metrics = Metrics()
    metrics.observe_call("lab/f", 200, "hot", 100, 0, 0, 3_000)
    metrics.observe_call("lab/f", 200, "warm", 40_000, 20_000, 10_000, 4_000)
    metrics.observe_call("lab/f", 504, "", 900_000_000, 0, 0, 0)
    found = samples(metrics)
    assert found["samovar_call_queued_seconds_bucket", ("0.0001",)] == 1
    assert found["samovar_call_queued_seconds_bucket", ("0.05",)] == 2
    assert found["samovar_call_queued_seconds_bucket", ("+Inf",)] == found["samovar_call_queued_seconds_count", ()] == 3
    assert found["samovar_call_run_seconds_count", ()] == 2
    assert found["samovar_call_run_seconds_sum", ()] == 0.007
    assert found["samovar_call_start_seconds_count", ()] == 1
    assert found["samovar_call_init_seconds_sum", ()] == 0.01


def test_functions_beyond_the_bound_are_counted_together() -> None:
    metrics = Metrics(MetricsParams(functions_max=2))
    for n in range(50):
        metrics.observe_call(f"lab/f{n}", 200, "hot", 1, 0, 0, 1)
        metrics.observe_call("lab/f1", 200, "hot", 1, 0, 0, 1)
    found = {labels: value for (name, labels), value in samples(metrics).items() if name == "samovar_calls_total"}
    assert found == {
        ("lab", "f0", "2xx", "hot"): 1,
        ("lab", "f1", "2xx", "hot"): 51,
        ("other", "other", "2xx", "hot"): 48,
    }


def test_numbers_of_others_are_asked_for_when_read() -> None:
    metrics = Metrics()
    running = [3]
    metrics.gauge("samovar_calls_running", "Calls under way", lambda: running[0])
    metrics.counter("samovar_unmetered_calls", "Calls without a record", lambda: 7)
    metrics.labelled_gauge("samovar_workers", "Workers", "state", lambda: {"ready": 2, "starting": 1})
    assert samples(metrics)["samovar_calls_running", ()] == 3
    running[0] = 4
    found = samples(metrics)
    assert found["samovar_calls_running", ()] == 4
    assert found["samovar_unmetered_calls_total", ()] == 7
    assert found["samovar_workers", ("ready",)] == 2
