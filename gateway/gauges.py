"""What the parts count, by its name in `/metrics`: every bound that can be hit has its number here."""

from __future__ import annotations

from gateway.activator import Activator
from gateway.controller import Controller
from gateway.metering.journal import Journal
from gateway.metering.writer import Writer
from gateway.views import PoolView
from gateway.web.http1 import Front
from gateway.web.metrics import Metrics


def publish_calls(metrics: Metrics, activator: Activator, controller: Controller, pool: PoolView, front: Front) -> None:
    """Calls, connections and workers."""
    metrics.gauge("samovar_calls_under_way", "Calls admitted and not answered", activator.running)
    metrics.counter("samovar_calls_unmetered", "Records that could not be written", lambda: activator.unmetered)
    metrics.counter("samovar_pool_events", "Events given to the pool", lambda: controller.events_handled)
    metrics.gauge("samovar_connections", "Client connections", lambda: len(front.connections))
    metrics.counter("samovar_connections_refused", "Client connections over the bound", lambda: front.refused)
    metrics.labelled_gauge("samovar_workers", "Workers by state", "state", pool.states)


def publish_metering(metrics: Metrics, journal: Journal, writer: Writer) -> None:
    """How far PostgreSQL is behind the journal."""
    metrics.gauge("samovar_metering_bytes_waiting", "Journal not in PostgreSQL yet", lambda: writer.lag().bytes_waiting)
    metrics.gauge("samovar_metering_behind_seconds", "Age of the oldest waiting record", lambda: writer.lag().behind_s)
    metrics.counter("samovar_metering_stored", "Records brought to PostgreSQL", lambda: writer.stored)
    metrics.counter("samovar_metering_failures", "Failed attempts to store records", lambda: writer.failures)
    metrics.counter("samovar_metering_refused", "Records that the journal did not take", lambda: journal.refused)
    metrics.counter("samovar_metering_duplicates", "Records that PostgreSQL had already", lambda: writer.duplicates)
    metrics.counter(
        "samovar_metering_torn_bytes", "Journal bytes that a crash left unreadable", lambda: writer.bytes_torn
    )
