"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

# Up to the time limit of a request; the library's own buckets end at 10.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """The metrics of an app, apart from the metrics of other apps in the process.

    in_flight: returns the number of documents under way.
    """

    def __init__(self, in_flight: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, processor time, open files
        self.requests = Counter(
            "schemax_requests", "Requests.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "schemax_request_seconds",
            "Seconds of a request.",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.documents = Counter(
            "schemax_documents", "Documents that were read.", ["result"], registry=self.registry
        )
        self.written = Counter(
            "schemax_tokens_written", "Tokens of values.", registry=self.registry
        )
        under_way = Gauge(
            "schemax_documents_in_flight", "Documents under way.", registry=self.registry
        )
        under_way.set_function(in_flight)
