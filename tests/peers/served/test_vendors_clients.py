"""The vendors' own clients beside a server: each reads what its API says, whole and in streams."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("anthropic")
pytest.importorskip("openai")

import anthropic
import openai
from tests.serving.made_up import CONTEXT, MadeUpEngine, Running, serving

TEXT = "Grüße, 世界! 🎉"
CALL = 'I look. <tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
HI: list[Any] = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA},
}


@pytest.fixture
def server() -> Iterator[Running]:
    with serving(MadeUpEngine(TEXT)) as running:
        yield running


def of_openai(server: Running) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="a key", timeout=20, max_retries=0)


def of_anthropic(server: Running) -> Any:
    return anthropic.Anthropic(base_url=server.url, api_key="a key", timeout=20, max_retries=0)


def test_openai_completions_and_models(server: Running) -> None:
    with of_openai(server) as client:
        assert [each.id for each in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").owned_by == "pcp"
        found = client.completions.create(model="tiny", prompt=["a", "b"], logprobs=1, max_tokens=99)
        assert [each.text for each in found.choices] == [TEXT, TEXT]
        parts = client.completions.create(model="tiny", prompt="a", stream=True, max_tokens=99)
        assert "".join(each.choices[0].text for each in parts) == TEXT


def test_openai_chat(server: Running) -> None:
    with of_openai(server) as client:
        found = client.chat.completions.create(
            model="tiny", messages=HI, n=2, logprobs=True, top_logprobs=1, seed=1
        )
        assert [each.message.content for each in found.choices] == [TEXT, TEXT]
        assert len(found.choices[0].logprobs.content) == len(TEXT.encode())
        with client.chat.completions.stream(
            model="tiny", messages=HI, stream_options={"include_usage": True}
        ) as stream:
            events = list(stream)
            final = stream.get_final_completion()
        assert events
        assert final.choices[0].message.content == TEXT
        assert final.choices[0].finish_reason == "stop"
        assert final.usage.completion_tokens == found.usage.completion_tokens // 2


def test_openai_tools(server: Running) -> None:
    server.engine.script = [CALL]
    with of_openai(server) as client:
        with client.chat.completions.stream(model="tiny", messages=HI, tools=[TOOL]) as stream:
            for _ in stream:
                pass
            [choice] = stream.get_final_completion().choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "I look. ")
        [call] = choice.message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Köln"}
        result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        server.engine.script = [TEXT]
        said = choice.message.model_dump(exclude_none=True)
        more = client.chat.completions.create(model="tiny", messages=[*HI, said, result], tools=[TOOL])
        assert more.choices[0].message.content == TEXT


def test_openai_responses(server: Running) -> None:
    with of_openai(server) as client:
        assert client.responses.create(model="tiny", input="Hi", instructions="Be kind").output_text == TEXT
        server.engine.script = [CALL]
        with client.responses.stream(
            model="tiny", input=HI, tools=[{"type": "function", "strict": None} | TOOL["function"]]
        ) as stream:
            names = [event.type for event in stream]
            final = stream.get_final_response()
        assert names[-1] == "response.completed"
        assert [each.type for each in final.output] == ["message", "function_call"]
        assert final.output_text == "I look. "
        result = {"type": "function_call_output", "call_id": final.output[1].call_id, "output": "sunny"}
        server.engine.script = [TEXT]
        said = [each.model_dump(exclude_none=True) for each in final.output]
        assert client.responses.create(model="tiny", input=[*HI, *said, result]).output_text == TEXT


def test_anthropic_messages(server: Running) -> None:
    tools = [{"name": "weather", "description": "of a city", "input_schema": SCHEMA}]
    with of_anthropic(server) as client:
        assert [each.id for each in client.models.list()] == ["tiny"]
        whole = client.messages.create(model="tiny", max_tokens=99, messages=HI, stop_sequences=["世"])
        assert (whole.content[0].text, whole.stop_reason, whole.stop_sequence) == (
            "Grüße, ",
            "stop_sequence",
            "世",
        )
        assert (
            client.messages.count_tokens(model="tiny", messages=HI).input_tokens == whole.usage.input_tokens
        )
        server.engine.script = [CALL]
        with client.messages.stream(model="tiny", max_tokens=99, messages=HI, tools=tools) as stream:
            for _ in stream:
                pass
            final = stream.get_final_message()
        assert [each.type for each in final.content] == ["text", "tool_use"]
        assert (final.content[1].input, final.stop_reason) == ({"city": "Köln"}, "tool_use")
        result = [{"type": "tool_result", "tool_use_id": final.content[1].id, "content": "sunny"}]
        said = [*HI, {"role": "assistant", "content": final.content}, {"role": "user", "content": result}]
        server.engine.script = [TEXT]
        more = client.messages.create(model="tiny", max_tokens=99, messages=said, tools=tools)
        assert more.content[0].text == TEXT


def test_clients_know_what_they_are_refused(server: Running) -> None:
    with of_openai(server) as client:
        with pytest.raises(openai.NotFoundError, match="it serves 'tiny'"):
            client.chat.completions.create(model="other", messages=HI)
        with pytest.raises(openai.BadRequestError, match=f"reads {CONTEXT}") as found:
            client.chat.completions.create(model="tiny", messages=HI, max_tokens=CONTEXT)
        assert found.value.code == "context_length_exceeded"
        server.engine.script = [ValueError("x")]
        with pytest.raises(openai.APIError, match="the model failed"):
            list(client.chat.completions.create(model="tiny", messages=HI, stream=True))
    with of_anthropic(server) as client:
        with pytest.raises(anthropic.BadRequestError, match=f"reads {CONTEXT}"):
            client.messages.create(model="tiny", max_tokens=CONTEXT, messages=HI)
        with (
            pytest.raises(anthropic.APIStatusError, match="the model failed"),
            client.messages.stream(model="tiny", max_tokens=9, messages=HI) as stream,
        ):
            list(stream)
    server.application._most = 0
    with of_openai(server) as client, pytest.raises(openai.RateLimitError, match="try again in"):
        client.completions.create(model="tiny", prompt="x")
