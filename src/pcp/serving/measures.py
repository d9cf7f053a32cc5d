"""Numbers of a server for Prometheus, under the names that dashboards of vLLM ask for: those of now, and those of before."""

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from pcp.inference.request import Counts, Piece

_SECONDS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_TOKENS = tuple(float(1 << power) for power in range(18))

_HISTOGRAMS = {
    "time_to_first_token_seconds": ("From a request to its first token.", _SECONDS),
    "inter_token_latency_seconds": ("Between two events of a stream.", _SECONDS),
    "time_per_output_token_seconds": ("The same, under the name that it had.", _SECONDS),
    "request_time_per_output_token_seconds": (
        "Of an answer, from its first token to the last, per token.",
        _SECONDS,
    ),
    "e2e_request_latency_seconds": ("From a request to the end of its answer.", _SECONDS),
    "request_decode_time_seconds": ("From the first token to the last.", _SECONDS),
    "request_prompt_tokens": ("Tokens of a prompt.", _TOKENS),
    "request_generation_tokens": ("Tokens of an answer.", _TOKENS),
}


class Measures:
    """All numbers of a server.

    Arguments:
        model: its name, a label of every number.
        counts: of the engine.
        facts: what is told as labels: the device, how weights are stored, what runs instead of what was asked for.
    """

    def __init__(self, model: str, counts: Callable[[], Counts], facts: dict[str, str] | None = None) -> None:
        self._registry = CollectorRegistry()
        self._labels = (model, "0")
        names = ("model_name", "engine")
        self._histograms = {
            name: Histogram(f"vllm:{name}", what, names, buckets=buckets, registry=self._registry).labels(
                *self._labels
            )
            for name, (what, buckets) in _HISTOGRAMS.items()
        }
        self._success = Counter(
            "vllm:request_success",
            "Answers by how they ended.",
            (*names, "finished_reason"),
            registry=self._registry,
        )
        self._refused = Counter(
            "vllm:admission_rejections",
            "Requests that were refused, by status.",
            (*names, "status"),
            registry=self._registry,
        )
        self._left = Counter(
            "pcp:clients_left", "Requests whose clients left.", names, registry=self._registry
        )
        self._left.labels(*self._labels)
        self._registry.register(_EngineCounts(counts, self._labels, facts or {}))
        self.seconds_of_an_answer = 1.0

    def exposition(self) -> bytes:
        """All of it in the text format of Prometheus."""
        return generate_latest(self._registry)

    def observe(self, name: str, value: float) -> None:
        """One more of a histogram."""
        self._histograms[name].observe(value)

    def ended(self, reason: str, seconds: float) -> None:
        """An answer has ended."""
        self._success.labels(*self._labels, reason).inc()
        self.seconds_of_an_answer += 0.1 * (seconds - self.seconds_of_an_answer)
        self.observe("e2e_request_latency_seconds", seconds)

    def refused(self, status: int) -> None:
        """A request was refused."""
        self._refused.labels(*self._labels, str(status)).inc()

    def left(self) -> None:
        """A client has left before the end."""
        self._left.labels(*self._labels).inc()


class Timing:
    """When the tokens of one answer came.

    Attributes:
        has_ended: whether its last piece came.
    """

    def __init__(self, measures: Measures, prompt: int) -> None:
        self._measures, self._began = measures, time.monotonic()
        self._first = self._last = 0.0
        self._tokens, self._prompt = 0, prompt
        self.has_ended = False

    def saw(self, piece: Piece) -> None:
        """A piece came."""
        now, observe = time.monotonic(), self._measures.observe
        if piece.token is not None:
            if self._tokens:
                for name in ("inter_token_latency_seconds", "time_per_output_token_seconds"):
                    observe(name, now - self._last)
            else:
                self._first = now
                observe("time_to_first_token_seconds", now - self._began)
            self._tokens, self._last = self._tokens + 1, now
        if piece.finish is not None:
            self._end(piece.finish, now)

    def _end(self, reason: str, now: float) -> None:
        self.has_ended = True
        self._measures.ended(reason, now - self._began)
        if self._tokens:
            self._measures.observe("request_prompt_tokens", self._prompt)
            self._measures.observe("request_generation_tokens", self._tokens)
            self._measures.observe("request_decode_time_seconds", self._last - self._first)
        if self._tokens > 1:
            each = (self._last - self._first) / (self._tokens - 1)
            self._measures.observe("request_time_per_output_token_seconds", each)

    def leave(self) -> None:
        """The client has left."""
        self.has_ended = True
        self._measures.left()


class _EngineCounts(Collector):
    """What the engine counts, asked for when Prometheus asks."""

    def __init__(self, counts: Callable[[], Counts], labels: tuple[str, str], facts: dict[str, str]) -> None:
        self._counts, self._labels, self._facts = counts, labels, facts

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        counts = self._counts()
        share = counts.pages_used / max(counts.pages, 1)
        gauges = {
            "num_requests_running": ("Requests that have room in the cache.", counts.running),
            "num_requests_waiting": ("Requests that wait for room.", counts.waiting),
            "kv_cache_usage_perc": ("The share of the cache that is used; 1 is all of it.", share),
            "gpu_cache_usage_perc": ("The same, under the name that it had.", share),
        }
        counters = {
            "prefix_cache_queries": (
                "Tokens that were looked for in the cache of prefixes.",
                counts.prefix_queries,
            ),
            "prefix_cache_hits": ("Tokens that were found there.", counts.prefix_hits),
            "gpu_prefix_cache_queries": ("Queries, under the name that they had.", counts.prefix_queries),
            "gpu_prefix_cache_hits": ("Hits, under the name that they had.", counts.prefix_hits),
            "num_preemptions": ("Times that a request gave its room to an older one.", counts.preemptions),
            "prompt_tokens": ("Tokens of prompts.", counts.prompt_tokens),
            "generation_tokens": ("Tokens that were told.", counts.generated_tokens),
        }
        names = ("model_name", "engine")
        for name, (what, value) in gauges.items():
            gauge = GaugeMetricFamily(f"vllm:{name}", what, labels=names)
            gauge.add_metric(self._labels, value)
            yield gauge
        for name, (what, value) in counters.items():
            counter = CounterMetricFamily(f"vllm:{name}", what, labels=names)
            counter.add_metric(self._labels, value)
            yield counter
        yield from self._sums(counts)
        yield InfoMetricFamily(
            "pcp:model", "How the model runs.", value=self._facts | {"model_name": self._labels[0]}
        )

    def _sums(self, counts: Counts) -> Iterator[Metric]:
        """Times that the engine knows as sums only, in the form of a summary: dashboards divide `_sum` by `_count`."""
        from prometheus_client.core import SummaryMetricFamily

        ended = sum(counts.finished.values())
        for name, what, value in (
            ("request_queue_time_seconds", "From a request until it has room.", counts.seconds_waiting),
            ("request_prefill_time_seconds", "From there to the first token.", counts.seconds_prefill),
        ):
            found = SummaryMetricFamily(f"vllm:{name}", what, labels=("model_name", "engine"))
            found.add_metric(self._labels, count_value=ended, sum_value=value)
            yield found
