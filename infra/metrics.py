"""Prometheus metrics of the front: what is counted on the request's path, and gauges of what is now."""

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from infra.tally import Tally, TimeTally

_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_REQUEST = ("key", "model", "kind", "status", "engine")
_ENGINE = ("engine", "backend", "remote")


class Metrics:
    """The instruments of one front, in a registry of their own."""

    def __init__(self, version: str) -> None:
        self.registry = CollectorRegistry()
        self.requests = TimeTally(
            "coderai_request_seconds",
            "Finished requests by wall time.",
            _REQUEST,
            _BOUNDS_S,
            counter="coderai_requests",
        )
        self.queue_wait = TimeTally(
            "coderai_queue_wait_seconds", "Time from a request's start to its slot.", ("model",), _BOUNDS_S
        )
        self.first_token = TimeTally(
            "coderai_time_to_first_token_seconds", "Time to a stream's first byte.", ("model",), _BOUNDS_S
        )
        self.tokens = Tally("coderai_tokens", "Tokens by direction.", ("key", "model", "direction"))
        self.units = Tally(
            "coderai_units",
            "Used besides tokens: pages read, seconds heard, characters spoken, images and videos made.",
            ("key", "model", "kind"),
        )
        self.retries = Tally("coderai_step_retries", "Steps tried once more elsewhere.", ("model",))
        for tally in (self.requests, self.queue_wait, self.first_token, self.tokens, self.units, self.retries):
            self.registry.register(tally)
        self.active = self._gauge("coderai_requests_active", "Requests being answered.")
        self.engine_up = self._gauge("coderai_engine_up", "1 when the engine answers.", *_ENGINE)
        self.engine_inflight = self._gauge("coderai_engine_inflight", "Requests in an engine.", *_ENGINE)
        self.engine_models = self._gauge("coderai_engine_loaded_models", "Models an engine holds.", *_ENGINE)
        self.vram_free = self._gauge("coderai_engine_vram_free_bytes", "Free memory of a card.", *_ENGINE)
        self.vram_total = self._gauge("coderai_engine_vram_total_bytes", "Memory of a card.", *_ENGINE)
        self.spool_bytes = self._gauge("coderai_spool_bytes", "Space that the spool takes.")
        self.spool_dropped = self._gauge("coderai_spool_dropped", "What a full spool or disk left out.", "what")
        self.recorder_state = self._gauge("coderai_recorder_state", "1 for the state that the recorder is in.", "state")
        self.recorder_recorded = self._gauge("coderai_recorder_recorded", "Runs recorded since the recorder's start.")
        self.recorder_set_aside = self._gauge("coderai_recorder_set_aside", "Lines that could not be recorded.")
        self.recorder_segments = self._gauge("coderai_recorder_waiting_segments", "Segments that wait to be recorded.")
        self.recorder_waiting = self._gauge("coderai_recorder_oldest_waiting_seconds", "How long the oldest one waits.")
        self._gauge("coderai_info", "The version, as a label.", "version").labels(version).set(1)

    def render(self) -> bytes:
        """The page in Prometheus' text format."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(name, documentation, labels, registry=self.registry)
