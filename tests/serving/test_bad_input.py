"""What clients may not ask: a status and words that say what was given, what was expected and what to do, in each API's form."""

import logging
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from tests.serving.made_up import CONTEXT, MadeUpEngine, Running, serving

HI = [{"role": "user", "content": "Hi"}]
CHAT, COMPLETIONS, MESSAGES, RESPONSES = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
)
TOOL = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def server() -> Any:
    with serving(MadeUpEngine("well")) as running:
        yield running


WRONG: list[tuple[str, Any, int, str]] = [
    (COMPLETIONS, b"{", 400, "the body is not JSON in UTF-8: Expecting property name"),
    (COMPLETIONS, b"\xff", 400, "the body is not JSON in UTF-8"),
    (COMPLETIONS, b"[" * 100_000, 400, "the body is not JSON in UTF-8"),
    (COMPLETIONS, b'{"temperature": NaN}', 400, "NaN is no number of JSON"),
    (COMPLETIONS, b'{"prompt": "\\ud800"}', 400, "the body is not JSON in UTF-8: 'utf-8' codec can't encode character"),
    (CHAT, {"messages": HI, "chat_template_kwargs": {"messages": []}}, 400, "chat_template_kwargs has 'messages', which is the request's own"),
    (CHAT, b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "a", "parameters": '
     + b'{"a":' * 700 + b"1" + b"}" * 700 + b"}}]}", 400, ""),
    ("/v1/embeddings", {"input": "x"}, 404, "there is no POST /v1/embeddings; ask by POST /v1/completions, /v1/chat/completions"),
    (MESSAGES + "/batches", {}, 404, "there is no POST /v1/messages/batches; ask by POST"),
    (COMPLETIONS, [1], 400, 'the body is a list; expected an object, as {"model": ...}'),
    (COMPLETIONS, {"model": "gpt-9", "prompt": "x"}, 404, "this server has no model 'gpt-9'; it serves 'tiny'"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": "4"}, 400, 'max_tokens is "4"; expected a whole number from 0'),
    (COMPLETIONS, {"prompt": "x", "max_tokens": 10**9}, 400, "the prompt has 1 tokens and max_tokens is 1,000,000,000, together"),
    (COMPLETIONS, {"prompt": "x", "max_tokens": 10**400}, 400, "max_tokens is a whole number of about 400 digits; expected"),
    (COMPLETIONS, {"prompt": "x", "n": 17}, 400, "n is 17; expected a whole number from 1 to 16"),
    (COMPLETIONS, {"prompt": "x", "n": True}, 400, "n is true; expected a whole number"),
    (COMPLETIONS, {"prompt": "x", "temperature": -1}, 400, "temperature is -1; expected a number from 0 to 100"),
    (COMPLETIONS, {"prompt": ""}, 400, 'prompt is ""; expected a text, a list of up to 64'),
    (COMPLETIONS, {}, 400, "prompt is missing; expected a text"),
    (COMPLETIONS, {"prompt": [97, 256]}, 400, "or lists of whole numbers from 0, below 256"),
    (COMPLETIONS, {"prompt": ["x"] * 65}, 400, "prompt is a list; expected a text, a list of up to 64 of them"),
    (COMPLETIONS, {"prompt": "x", "stop": [""]}, 400, "stop is a list; expected a text, or a list of at most 16"),
    (COMPLETIONS, {"prompt": "x", "logit_bias": {"a": 1}}, 400, "logit_bias has 'a'; expected numbers of tokens below 256"),
    (COMPLETIONS, {"prompt": "x", "suffix": "y"}, 400, "suffix is not supported: the models that are served write from left"),
    (COMPLETIONS, {"prompt": "x", "stream": "yes"}, 400, 'stream is "yes"; expected true or false'),
    (COMPLETIONS, {"prompt": "x" * CONTEXT}, 400, f"the prompt has {CONTEXT} tokens, and 'tiny' reads {CONTEXT}, of which some"),
    (CHAT, {}, 400, 'messages is missing; expected a list of 1 to 10,000, as [{"role": "user"'),
    (CHAT, {"messages": [{"role": "robot", "content": "x"}]}, 400, "messages[0].role is \"robot\"; expected 'system' or"),
    (CHAT, {"messages": ["x"]}, 400, 'messages[0] is "x"; expected an object'),
    (CHAT, {"messages": [{"role": "user"}]}, 400, "messages[0].content is missing; expected a text"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "is 'image_url'; models read only text"),
    (CHAT, {"messages": HI, "functions": [1]}, 400, "functions is not supported: give them as `tools`"),
    (CHAT, {"messages": HI, "tool_choice": "required"}, 400, "tool_choice asks for a call, and there are no tools"),
    (CHAT, {"messages": HI, "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "wether"}}}, 400,
     "tool_choice names 'wether', and the tools are weather"),
    (CHAT, {"messages": HI, "response_format": {"type": "xml"}}, 400, "response_format.type is \"xml\"; expected 'text' or"),
    (CHAT, {"messages": HI, "response_format": {"type": "json_schema"}}, 400, "response_format.schema is missing; expected a JSON schema"),
    (CHAT, {"messages": HI, "max_completion_tokens": 500}, 400, f"max_completion_tokens is 500, together 526; 'tiny' reads {CONTEXT}. Ask for at most 486"),
    (MESSAGES, {"messages": HI}, 400, "max_tokens is missing; expected a whole number"),
    (MESSAGES, {"messages": HI, "max_tokens": 32000}, 400, f"'tiny' reads {CONTEXT}. Ask for at most 486 tokens"),
    (MESSAGES, {"messages": [*HI, {"role": "assistant", "content": "a"}], "max_tokens": 1}, 400, "the last message is the assistant's"),
    (MESSAGES, {"messages": HI, "max_tokens": 1, "tools": [{"type": "bash"}]}, 400, "tools[0].type is 'bash'; only tools with an input_schema"),
    (RESPONSES, {"input": "x", "previous_response_id": "resp_1"}, 400, "previous_response_id is not supported: this server keeps no answers"),
    (RESPONSES, {"input": [{"type": "item_reference"}]}, 400, "input[0].type is 'item_reference'; expected message, function_call"),
    (RESPONSES, {"input": "x", "tools": [{"type": "web_search"}]}, 400, "tools[0].type is 'web_search'; only functions"),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(WRONG)))
def test_a_wrong_request_is_told_what_is_wrong(server: Running, row: int) -> None:
    path, body, status, words = WRONG[row]
    found, _, answer = server.ask(path, body)
    assert (found, words in answer["error"]["message"]) == (status, True), answer
    if path.startswith(MESSAGES):
        assert answer["type"] == "error"
        assert set(answer["error"]) == {"type", "message"}
    else:
        assert set(answer["error"]) == {"message", "type", "param", "code"}


def test_nothing_of_it_reached_the_engine_or_the_log(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for path, body, _, _ in WRONG[:8]:
            server.ask(path, body)
    assert server.engine.asked == []
    assert caplog.records == []
    assert server.application.active == 0


def test_a_body_that_is_too_large_is_not_read(server: Running) -> None:
    status, _, answer = server.ask(COMPLETIONS, b" " * ((1 << 23) + 1))
    assert status == 413
    assert "the body has more than 8,388,608 bytes; send a smaller request" in answer["error"]["message"]


def test_the_name_that_a_server_is_asked_for_under_is_checked(server: Running) -> None:
    assert server.ask("/health", headers={"host": "evil.example"})[0] == 400
    assert server.ask("/health", headers={"host": f"localhost:{server.port}"})[0] == 200


def test_keys() -> None:
    with serving(MadeUpEngine("well"), keys=["first-key", "second-key"]) as server:
        body = {"messages": HI, "max_tokens": 4}
        for headers in ({"authorization": "Bearer first-key"}, {"x-api-key": "second-key"}):
            assert server.ask(MESSAGES, body, headers)[0] == 200
        status, _, answer = server.ask(MESSAGES, body, {"authorization": "Bearer first-ke"})
        assert (status, answer["error"]["type"]) == (401, "authentication_error")
        assert (
            "the request has a key that this server does not know; send one as" in answer["error"]["message"]
        )
        status, _, answer = server.ask("/v1/models")
        assert (status, answer["error"]["code"]) == (401, "invalid_api_key")
        assert "the request has no key" in answer["error"]["message"]
        assert server.ask("/health")[0] == 200


def test_a_server_that_is_full_says_when_to_come_again() -> None:
    with serving(MadeUpEngine("well"), most=0) as server:
        status, headers, answer = server.ask(COMPLETIONS, {"prompt": "x"})
        text = server.ask("/metrics")[2].decode()
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert (
        "0 requests are answered or wait, and this server takes 0; try again in 1 s"
        in answer["error"]["message"]
    )
    assert headers["retry-after"] == "1"
    assert 'vllm:admission_rejections_total{engine="0",model_name="tiny",status="429"} 1.0' in text


def test_an_engine_that_is_full_says_the_same_and_cancels_what_it_took_of_the_request() -> None:
    with serving(MadeUpEngine("well", most=2)) as server:
        server.engine.gate.clear()
        status, headers, answer = server.ask(COMPLETIONS, {"prompt": "x", "n": 3})
        assert (status, headers["retry-after"]) == (429, "1")
        assert "2 requests wait already; try again in 1 s" in answer["error"]["message"]
        assert server.engine.cancelled == server.engine.streams


def test_no_memory_at_admission_is_refused_and_others_go_on() -> None:
    with serving(MadeUpEngine("well", MemoryError(), "well")) as server:
        assert server.ask(COMPLETIONS, {"prompt": "x"})[0] == 200
        status, headers, answer = server.ask(COMPLETIONS, {"prompt": "x"})
        assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "no_memory", "1")
        assert "there is no memory for this request; the others go on" in answer["error"]["message"]
        assert server.ask(COMPLETIONS, {"prompt": "x"})[2]["choices"][0]["text"] == "well"


@pytest.mark.parametrize(
    ("problem", "status", "words"),
    [
        (ValueError("a step"), 500, "the model failed: a step failed"),
        (OSError(12, "x"), 500, "the model failed"),
    ],
)
def test_a_step_that_fails_is_told_whole_and_in_a_stream(problem: Exception, status: int, words: str) -> None:
    with serving(MadeUpEngine(problem)) as server:
        found, _, answer = server.ask(COMPLETIONS, {"prompt": "x"})
        streamed = server.events(CHAT, {"messages": HI, "stream": True})
        message = server.events(MESSAGES, {"messages": HI, "stream": True, "max_tokens": 3})[-1]
        response = server.events(RESPONSES, {"input": HI, "stream": True})[-1]
    assert found == status
    assert words in answer["error"]["message"]
    assert words in streamed[-2][1]["error"]["message"]
    assert streamed[-1][1] == "[DONE]"
    assert (message[0], message[1]["error"]["type"]) == ("error", "api_error")
    assert (response[0], response[1]["response"]["status"]) == ("response.failed", "failed")


def test_a_model_without_a_template_completes_texts_only() -> None:
    with serving(MadeUpEngine("well"), template=None) as server:
        status, _, answer = server.ask(CHAT, {"messages": HI})
        assert server.ask(COMPLETIONS, {"prompt": "x"})[0] == 200
    assert status == 400
    assert (
        "has no chat template; or ask at /v1/completions, which takes text as it is"
        in answer["error"]["message"]
    )


def test_a_template_that_knows_no_tools_is_said_to_know_none() -> None:
    with serving(MadeUpEngine("well"), template="{{ messages[0].content }}") as server:
        status, _, answer = server.ask(CHAT, {"messages": HI, "tools": [TOOL]})
    assert status == 400
    assert (
        "the chat template of 'tiny' knows no tools in a form that is read here" in answer["error"]["message"]
    )
