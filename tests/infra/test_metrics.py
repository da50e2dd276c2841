"""The metrics page: it parses, and its names are those that the documents promise."""

from prometheus_client.parser import text_string_to_metric_families

from infra.metrics import Metrics

REQUEST = ("ann", "tiny", "chat", "200", "cpu/tiny")


def test_the_page_parses_and_has_what_was_counted() -> None:
    metrics = Metrics("1.2.3")
    metrics.requests.observe(REQUEST, 0.3)
    metrics.queue_wait.observe(("tiny",), 0.0)
    metrics.first_token.observe(("tiny",), 0.02)
    metrics.tokens.add(("ann", "tiny", "prompt"), 7)
    metrics.retries.add(("tiny",))
    metrics.active.set(2)
    metrics.spool_dropped.labels("run").set(0)
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    samples = {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for f in families.values()
        for sample in f.samples
    }
    assert samples["coderai_tokens_total", frozenset(("ann", "tiny", "prompt"))] == 7
    assert samples["coderai_info", frozenset(("1.2.3",))] == 1
    assert samples["coderai_requests_active", frozenset()] == 2
    (count,) = families["coderai_requests"].samples
    assert count.labels == dict(zip(("key", "model", "kind", "status", "engine"), REQUEST, strict=True))
    buckets = {
        sample.labels["le"]: sample.value
        for sample in families["coderai_request_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert (buckets["0.25"], buckets["0.5"], buckets["+Inf"]) == (0, 1, 1)
    assert {"coderai_step_retries", "coderai_queue_wait_seconds", "coderai_time_to_first_token_seconds"} <= set(
        families
    )


def test_two_fronts_of_one_process_share_nothing() -> None:
    one, other = Metrics("1"), Metrics("2")
    one.requests.observe(REQUEST, 0.1)
    assert b"ann" in one.render()
    assert b"ann" not in other.render()
