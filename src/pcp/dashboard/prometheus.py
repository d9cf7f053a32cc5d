"""A run for Prometheus, in its text format. There is no metric of a single worker: 10,000 of them would be a burden."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pcp.training.display.fleet import SILENT_SECONDS, Row

GAUGES = {
    "step": ("pcp_step", "Inner steps of each worker slot that are merged."),
    "total_steps": ("pcp_steps_planned", "Inner steps that the run is to do."),
    "round": ("pcp_round", "Outer steps that are done."),
    "loss": ("pcp_loss", "Mean training loss of the last round."),
    "validation_loss": ("pcp_validation_loss", "The latest validation loss."),
    "tokens_per_second": ("pcp_tokens_per_second", "Tokens merged per second in the last round."),
    "samples_per_second": (
        "pcp_samples_per_second",
        "Samples trained on per second, where the data are samples.",
    ),
    "mfu": (
        "pcp_model_flops_utilisation_ratio",
        "Share of the device's peak that the model's products take.",
    ),
    "utilisation": ("pcp_utilisation_ratio", "Share of the workers' time that they trained."),
    "unmerged_seconds": (
        "pcp_unmerged_seconds",
        "Time since the last round was merged, or the last exchange of workers that go in pairs.",
    ),
    "silent_seconds": ("pcp_silent_seconds", "Time since the Shepherd wrote its last record."),
}
COUNTERS = {
    "tokens": ("pcp_tokens", "Tokens behind the parameters."),
    "sent": ("pcp_sent_bytes", "Bytes sent since the Shepherd began."),
    "received": ("pcp_received_bytes", "Bytes received since the Shepherd began."),
}
LABELLED = {
    "refused_updates": ("pcp_refused_updates", "Updates refused since the Shepherd began.", "reason"),
    "refused_connections": ("pcp_refused_connections", "Connections refused since it began.", "reason"),
}


def exposition(summary: Row) -> bytes:
    """The text that Prometheus reads.

    Arguments:
        summary: of `Fleet.summary`.
    """
    registry = CollectorRegistry()
    registry.register(_Summary(summary))
    return generate_latest(registry)


class _Summary(Collector):
    def __init__(self, summary: Row) -> None:
        self._summary = summary

    def collect(self) -> Iterator[Metric]:
        """The metrics that are known."""
        summary = self._summary
        for key, (name, meaning) in GAUGES.items():
            if summary[key] is not None:
                yield GaugeMetricFamily(name, meaning, value=summary[key])
        for key, (name, meaning) in COUNTERS.items():
            if summary[key] is not None:
                yield CounterMetricFamily(name, meaning, value=summary[key])
        workers = GaugeMetricFamily("pcp_workers", "Workers by what they do.", labels=["state"])
        for state, count in summary["workers"].items():
            workers.add_metric([state], count)
        yield workers
        for key, (name, meaning, label) in LABELLED.items():
            family = CounterMetricFamily(name, meaning, labels=[label])
            for value, count in summary[key].items():
                family.add_metric([value], count)
            yield family
        silent = summary["silent_seconds"]
        is_up = summary["ended"] is None and silent is not None and silent < SILENT_SECONDS
        yield GaugeMetricFamily("pcp_up", "Whether the Shepherd runs.", value=is_up)
