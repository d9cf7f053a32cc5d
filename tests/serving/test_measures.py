"""Numbers for Prometheus: what dashboards ask for, under the names of now and of before."""

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from tests.serving.made_up import MadeUpEngine, serving

ASKED = [
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc", "prefix_cache_queries_total",
    "prefix_cache_hits_total", "gpu_prefix_cache_queries_total", "gpu_prefix_cache_hits_total", "num_preemptions_total",
    "prompt_tokens_total", "generation_tokens_total", "request_success_total", "time_to_first_token_seconds_bucket",
    "inter_token_latency_seconds_bucket", "time_per_output_token_seconds_bucket", "request_time_per_output_token_seconds_bucket",
    "e2e_request_latency_seconds_bucket", "request_queue_time_seconds_sum", "request_prefill_time_seconds_count",
    "request_decode_time_seconds_sum", "request_prompt_tokens_bucket", "request_generation_tokens_bucket",
]  # fmt: skip


def test_dashboards_find_what_they_ask_for() -> None:
    with serving(MadeUpEngine("four", "four", ValueError("x"))) as server:
        server.ask("/v1/completions", {"prompt": "ab", "n": 2, "max_tokens": 4})
        server.ask("/v1/completions", {"prompt": "ab"})
        server.ask("/v1/completions", {"prompt": 7})
        text = server.ask("/metrics")[2].decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    names = {line.partition("{")[0] for line in values}
    assert [name for name in ASKED if f"vllm:{name}" not in names] == []
    of = 'engine="0",model_name="tiny"'
    assert values[f"vllm:prompt_tokens_total{{{of}}}"] == "6.0"
    assert values[f"vllm:generation_tokens_total{{{of}}}"] == "8.0"
    assert (
        values['vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"}'] == "2.0"
    )
    assert (
        values['vllm:request_success_total{engine="0",finished_reason="failed",model_name="tiny"}'] == "1.0"
    )
    assert values[f"vllm:time_to_first_token_seconds_count{{{of}}}"] == "2.0"
    assert values[f"vllm:inter_token_latency_seconds_count{{{of}}}"] == "6.0"
    assert values[f"vllm:request_time_per_output_token_seconds_count{{{of}}}"] == "2.0"
    assert values[f"vllm:gpu_cache_usage_perc{{{of}}}"] == "0.25"
    assert values[f'vllm:admission_rejections_total{{{of},status="400"}}'] == "1.0"
