"""The four APIs over a made-up engine: whole answers and streams say the same, in each API's form."""

from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")

from tests.serving.made_up import CONTEXT, MadeUpEngine, serving

TEXT = "Grüße, 世界! 🎉 STOP and more"
SAID = "Grüße, 世界! 🎉 "
CALL = 'I look. <tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
HI = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}}


def test_a_completion_says_the_same_whole_and_in_a_stream() -> None:
    body = {"model": "tiny", "prompt": "Once", "stop": ["STOP", "never"], "max_tokens": 99}
    with serving(MadeUpEngine(TEXT)) as server:
        status, _, whole = server.ask("/v1/completions", body)
        events = server.events(
            "/v1/completions", body | {"stream": True, "stream_options": {"include_usage": True}}
        )
    assert status == 200
    [choice] = whole["choices"]
    assert (choice["text"], choice["finish_reason"]) == (SAID, "stop")
    *chunks, counted, (_, done) = events
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["text"] for _, chunk in chunks) == SAID
    assert [chunk["choices"][0]["finish_reason"] for _, chunk in chunks] == [None] * (len(chunks) - 1) + [
        "stop"
    ]
    assert {chunk["usage"] for _, chunk in chunks} == {None}
    assert counted[1]["choices"] == []
    assert counted[1]["usage"] == whole["usage"]
    assert whole["usage"]["prompt_tokens"] == 4
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for _, chunk in [*chunks, counted]}) == 1


def test_several_prompts_as_texts_and_tokens_have_n_answers_each() -> None:
    with serving(MadeUpEngine()) as server:
        body = {"prompt": ["ab", "cd"], "n": 2, "max_tokens": 5, "seed": 7}
        _, _, texts = server.ask("/v1/completions", body)
        _, _, numbers = server.ask("/v1/completions", body | {"prompt": [[97, 98], [99, 100]]})
        _, _, other = server.ask("/v1/completions", body | {"seed": 8})
        _, _, echoed = server.ask("/v1/completions", body | {"echo": True})
        seeds = [request.sampling.seed for request in server.engine.asked[:4]]
    said = [choice["text"] for choice in texts["choices"]]
    assert len(set(said)) == 4
    assert said == [choice["text"] for choice in numbers["choices"]]
    assert said != [choice["text"] for choice in other["choices"]]
    assert [each["text"] for each in echoed["choices"]] == [
        f"{prompt}{text}" for prompt, text in zip(("ab", "ab", "cd", "cd"), said, strict=True)
    ]
    assert seeds == [7, 8, 7, 8]
    assert texts["usage"] == {"prompt_tokens": 4, "completion_tokens": 20, "total_tokens": 24}
    assert {choice["finish_reason"] for choice in texts["choices"]} == {"length"}


def test_a_chat_says_the_same_whole_and_in_a_stream() -> None:
    body = {"messages": [{"role": "developer", "content": "Be kind"}, *HI], "n": 2, "stop": "STOP"}
    with serving(MadeUpEngine(TEXT)) as server:
        _, _, whole = server.ask("/v1/chat/completions", body)
        events = server.events("/v1/chat/completions", body | {"stream": True})
        prompt = bytes(server.engine.asked[0].prompt).decode()
        counts = {request.count for request in server.engine.asked}
    assert prompt == "<system>Be kind</system><user>Hi</user><assistant>"
    assert counts == {CONTEXT - len(prompt)}
    assert [each["message"]["content"] for each in whole["choices"]] == [SAID, SAID]
    *chunks, (_, done) = events
    assert done == "[DONE]"
    for number in range(2):
        own = [each["choices"][0] for _, each in chunks if each["choices"][0]["index"] == number]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(each["delta"].get("content", "") for each in own) == SAID
        assert (own[-1]["delta"], own[-1]["finish_reason"]) == ({}, "stop")
    assert all("usage" not in each for _, each in chunks)


def test_logprobs_of_a_chat() -> None:
    body = {"messages": HI, "logprobs": True, "top_logprobs": 2, "max_tokens": 2}
    with serving(MadeUpEngine("ü")) as server:
        _, _, whole = server.ask("/v1/chat/completions", body)
        events = server.events("/v1/chat/completions", body | {"stream": True})
        _, _, without = server.ask("/v1/chat/completions", body | {"logprobs": False, "top_logprobs": None})
    content = whole["choices"][0]["logprobs"]["content"]
    part = {"token": "\ufffd", "logprob": -0.5, "bytes": None}
    other = {"token": "b", "logprob": -2.0, "bytes": [98]}
    assert content == [part | {"top_logprobs": [part, other]}] * 2
    streamed = [each["choices"][0]["logprobs"] for _, each in events[:-1]]
    assert [entry for found in streamed if found for entry in found["content"]] == content
    assert without["choices"][0]["logprobs"] is None


def test_logprobs_of_a_completion() -> None:
    body = {"prompt": "x", "logprobs": 1, "max_tokens": 9}
    with serving(MadeUpEngine("ab")) as server:
        _, _, whole = server.ask("/v1/completions", body)
    assert whole["choices"][0]["logprobs"] == {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.5, -0.5],
        "top_logprobs": [{"a": -0.5}, {"b": -0.5}],
        "text_offset": [0, 1],
    }


def test_a_tool_is_called_in_a_chat_and_its_result_comes_back() -> None:
    body: dict[str, Any] = {"messages": HI, "tools": [TOOL]}
    with serving(MadeUpEngine(CALL)) as server:
        _, _, whole = server.ask("/v1/chat/completions", body)
        events = server.events("/v1/chat/completions", body | {"stream": True})
        message = whole["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sunny"}
        server.ask("/v1/chat/completions", body | {"messages": [*HI, message, result]})
        _, _, none = server.ask("/v1/chat/completions", body | {"tool_choice": "none"})
        prompts = [bytes(request.prompt).decode() for request in server.engine.asked]
    assert message["content"] == "I look. "
    [call] = message["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Köln"}'}
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    deltas = [each["choices"][0]["delta"] for _, each in events[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas) == "I look. "
    [streamed] = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert [each | {"id": ""} for each in streamed] == [call | {"index": 0, "id": ""}]
    assert '"weather"' in prompts[0]
    # Arguments come back as what they say, not as a text in a text.
    assert '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>' in prompts[2]
    assert "<tool>sunny</tool>" in prompts[2]
    assert "<tools>" not in prompts[3]
    assert none["choices"][0]["message"]["content"] == CALL


def test_messages_say_the_same_whole_and_in_a_stream() -> None:
    body: dict[str, Any] = {
        "messages": HI,
        "max_tokens": 200,
        "system": [{"type": "text", "text": "Be kind"}],
    }
    with serving(MadeUpEngine(TEXT)) as server:
        _, _, whole = server.ask("/v1/messages", body | {"stop_sequences": ["STOP", "Z"]})
        events = server.events("/v1/messages", body | {"stop_sequences": ["STOP"], "stream": True})
        _, _, ended = server.ask("/v1/messages", body)
        _, _, cut = server.ask("/v1/messages", body | {"max_tokens": 3})
        _, _, counted = server.ask("/v1/messages/count_tokens", {k: body[k] for k in ("messages", "system")})
    assert whole["content"] == [{"type": "text", "text": SAID}]
    assert (whole["stop_reason"], whole["stop_sequence"]) == ("stop_sequence", "STOP")
    assert (ended["stop_reason"], ended["stop_sequence"]) == ("end_turn", None)
    assert cut["stop_reason"] == "max_tokens"
    assert counted == {"input_tokens": whole["usage"]["input_tokens"]}
    names = [name for name, _ in events]
    assert names == [content["type"] for _, content in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(each["delta"]["text"] for name, each in events if name == "content_block_delta") == SAID
    assert events[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}
    assert events[-2][1]["usage"] == whole["usage"]


def test_a_tool_is_called_in_messages_and_its_result_comes_back() -> None:
    tools = [{"name": "weather", "description": "of a city", "input_schema": SCHEMA}]
    body: dict[str, Any] = {"messages": HI, "max_tokens": 100, "tools": tools}
    with serving(MadeUpEngine(CALL)) as server:
        _, _, whole = server.ask("/v1/messages", body)
        events = server.events("/v1/messages", body | {"stream": True})
        result = [{"type": "tool_result", "tool_use_id": whole["content"][1]["id"], "content": "sunny"}]
        more = [*HI, {"role": "assistant", "content": whole["content"]}, {"role": "user", "content": result}]
        server.ask("/v1/messages", body | {"messages": more})
        prompt = bytes(server.engine.asked[2].prompt).decode()
    assert [each["type"] for each in whole["content"]] == ["text", "tool_use"]
    assert (whole["content"][1]["name"], whole["content"][1]["input"]) == ("weather", {"city": "Köln"})
    assert whole["stop_reason"] == "tool_use"
    blocks = [each for name, each in events if name == "content_block_start"]
    assert [(each["index"], each["content_block"]["type"]) for each in blocks] == [
        (0, "text"),
        (1, "tool_use"),
    ]
    [arguments] = [
        each["delta"] for _, each in events if each.get("delta", {}).get("type") == "input_json_delta"
    ]
    assert arguments["partial_json"] == '{"city": "Köln"}'
    assert "</assistant><tool>sunny</tool><assistant>" in prompt


def test_responses_say_the_same_whole_and_in_a_stream() -> None:
    body = {"input": "Hi", "instructions": "Be kind", "temperature": 0.5}
    with serving(MadeUpEngine(TEXT)) as server:
        _, _, whole = server.ask("/v1/responses", body)
        events = server.events("/v1/responses", body | {"stream": True})
        _, _, cut = server.ask("/v1/responses", body | {"max_output_tokens": 3})
        prompt = bytes(server.engine.asked[0].prompt).decode()
    assert prompt == "<system>Be kind</system><user>Hi</user><assistant>"
    assert whole["output"][0]["content"][0]["text"] == TEXT
    assert (whole["status"], whole["temperature"]) == ("completed", 0.5)
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [each["sequence_number"] for _, each in events] == list(range(len(events)))
    assert "".join(each["delta"] for name, each in events if name == "response.output_text.delta") == TEXT
    final = events[-1][1]["response"]
    assert [final["output"][0]["content"], final["usage"]] == [whole["output"][0]["content"], whole["usage"]]
    names = list(dict.fromkeys(name.removeprefix("response.") for name, _ in events))
    assert names == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]


def test_a_tool_is_called_in_responses_and_its_result_comes_back() -> None:
    body: dict[str, Any] = {"input": HI, "tools": [{"type": "function"} | TOOL["function"]]}  # type: ignore[dict-item]  # a dict
    with serving(MadeUpEngine(CALL)) as server:
        _, _, whole = server.ask("/v1/responses", body)
        events = server.events("/v1/responses", body | {"stream": True})
        result = {"type": "function_call_output", "call_id": whole["output"][1]["call_id"], "output": "sunny"}
        server.ask("/v1/responses", body | {"input": [*HI, *whole["output"], result]})
        prompt = bytes(server.engine.asked[2].prompt).decode()
    assert [each["type"] for each in whole["output"]] == ["message", "function_call"]
    assert whole["output"][1]["arguments"] == '{"city": "Köln"}'
    final = events[-1][1]["response"]["output"]
    assert [each["type"] for each in final] == ["message", "function_call"]
    added = [each["output_index"] for name, each in events if name == "response.output_item.added"]
    assert added == [0, 1]
    assert '<assistant>I look. <tool_call>{"name": "weather"' in prompt
    assert "<tool>sunny</tool>" in prompt


def test_settings_reach_the_engine() -> None:
    body = {
        "prompt": "x", "max_tokens": 1, "temperature": 0.25, "top_p": 0.5, "top_k": 4, "min_p": 0.125, "seed": -1,
        "presence_penalty": 0.5, "frequency_penalty": 0.75, "repetition_penalty": 1.5, "logit_bias": {"65": -100}, "ignore_eos": True,
    }  # fmt: skip
    with serving(MadeUpEngine()) as server:
        assert server.ask("/v1/completions", body)[0] == 200
        assert (
            server.ask("/v1/completions", {"prompt": "x", "max_tokens": 1, "top_k": -1, "top_p": 0})[0] == 200
        )
    given, other = server.engine.asked
    found = given.sampling
    assert (found.temperature, found.top_p, found.top_k, found.min_p) == (0.25, 0.5, 4, 0.125)
    assert (found.presence_penalty, found.frequency_penalty, found.repetition_penalty) == (0.5, 0.75, 1.5)
    assert found.logit_bias == {65: -100.0}
    assert found.seed == (1 << 64) - 1
    assert given.ignore_end
    assert other.sampling.temperature == 1.0
    assert other.sampling.top_k is None
