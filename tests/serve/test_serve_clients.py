"""Other people's clients, against a real server with the embedded model."""

from __future__ import annotations

import asyncio
import json
import math
import warnings
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from typing import Any, Literal

import pytest
from conftest import slow_but
from pydantic import BaseModel
from serving import served

from schemax import AttrSchema, DecodingConfig, Extractor
from schemax.base.resources import resource_dir

openai = pytest.importorskip("openai")

TEXT = "Nike Air Zoom Pegasus 40 men running shoe, size 10, black"
SAID: list[Any] = [{"role": "system", "content": "Extract."}, {"role": "user", "content": TEXT}]


class Shoe(BaseModel):
    """A shoe."""

    brand: str | None
    color: str | None
    size: float | None
    gender: Literal["men", "women"] | None


class Color(Enum):
    BLACK = "black"
    WHITE = "white"


class Painted(BaseModel):
    brand: str | None
    color: Color | None


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    extractor = Extractor.from_pretrained(resource_dir("embedded"))
    with served(extractor, name="embedded", api_key="key") as address:
        yield f"{address}/v1"


@pytest.fixture(scope="module")
def expected() -> Shoe:
    with Extractor.from_pretrained(resource_dir("embedded")) as extractor:
        (shoe,) = extractor.extract([TEXT], Shoe)
    assert (shoe.brand, shoe.color) == ("Nike", "black")
    return shoe


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=url, api_key="key", max_retries=0) as made:
        yield made


@pytest.fixture(autouse=True)
def _no_loop_is_left() -> Iterator[None]:
    """litellm gives the thread an event loop that it never closes; a later test would be blamed."""
    yield
    with warnings.catch_warnings(), suppress(RuntimeError):  # there is none
        warnings.simplefilter("ignore")
        asyncio.get_event_loop().close()
        asyncio.set_event_loop(None)


def test_openai_parses(client: Any, expected: Shoe) -> None:
    done = client.chat.completions.parse(
        model="any", messages=SAID, response_format=Shoe, logprobs=True
    )
    (choice,) = done.choices
    assert choice.message.parsed == expected
    assert choice.finish_reason == "stop"
    tokens = choice.logprobs.content
    assert "".join(token.token for token in tokens) == choice.message.content
    brand = next(token for token in tokens if token.token == '"Nike"')
    assert 0 < math.exp(brand.logprob) < 1
    usage = done.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens > usage.prompt_tokens_details.cached_tokens > 0
    assert usage.completion_tokens >= 4


def test_openai_streams(client: Any, expected: Shoe) -> None:
    with client.chat.completions.stream(
        model="any",
        messages=SAID,
        response_format=Shoe,
        stream_options={"include_usage": True},
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "content.delta"]
        done = stream.get_final_completion()
    assert done.choices[0].message.parsed == expected
    assert len(deltas) > 4
    assert json.loads("".join(deltas)) == expected.model_dump()
    assert done.usage.completion_tokens >= 4


@pytest.mark.parametrize("stream", [False, True])
def test_openai_calls_one_function(client: Any, expected: Shoe, stream: bool) -> None:
    tool = openai.pydantic_function_tool(Shoe)
    asked = {"model": "any", "messages": SAID, "tools": [tool]}
    if stream:
        with client.chat.completions.stream(**asked) as events:
            done = events.get_final_completion()
    else:
        done = client.chat.completions.parse(**asked)
    (choice,) = done.choices
    (call,) = choice.message.tool_calls
    assert call.function.parsed_arguments == expected
    assert call.function.name == "Shoe"
    assert choice.finish_reason == "tool_calls"


def test_openai_responses(client: Any, expected: Shoe) -> None:
    done = client.responses.parse(
        model="any", instructions="Extract.", input=TEXT, text_format=Shoe
    )
    assert done.output_parsed == expected
    assert done.usage.output_tokens >= 4
    parts = [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}]
    assert client.responses.parse(model="any", input=parts, text_format=Shoe).output_parsed


@pytest.mark.slow
def test_openai_samples_as_one_call_does(client: Any) -> None:
    from openai.lib._pydantic import to_strict_json_schema

    with Extractor.from_pretrained(resource_dir("embedded")) as extractor:
        for seed in range(4):
            decoding = DecodingConfig(temperature=1.0, seed=seed)
            declared = AttrSchema.from_json_schema(to_strict_json_schema(Shoe))
            done = client.chat.completions.parse(
                model="any", messages=SAID, response_format=Shoe, temperature=1.0, seed=seed
            )
            (shoe,) = extractor.extract([TEXT], declared, decoding=decoding)
            assert done.choices[0].message.parsed.model_dump() == shoe.model_dump()


def test_a_limit_of_tokens_cuts_values(client: Any) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="any", messages=SAID, response_format=Shoe, max_tokens=1
        )
    asked: Any = {"model": "any", "messages": SAID, "response_format": Shoe}
    assert client.chat.completions.parse(**asked, max_tokens=1000).choices[0].message.parsed


def test_openai_is_told_what_cannot_be_done(client: Any) -> None:
    def error(**asked: Any) -> Any:
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="any", messages=SAID, **asked)
        return caught.value

    assert "a schema is missing" in str(error())
    assert error().param == "response_format"
    tool = openai.pydantic_function_tool(Shoe)
    assert "one function" in str(error(tools=[tool, tool]))
    unread = {"type": "object", "properties": {"x": {"not": {}}}}
    wrong = error(response_format={"type": "json_schema", "json_schema": {"schema": unread}})
    assert "has no type" in str(wrong)
    assert "x" in str(wrong)
    assert "n" in str(error(tools=[tool], n=2))
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    with pytest.raises(openai.BadRequestError, match="only text is read"):
        client.chat.completions.create(model="any", messages=image, tools=[tool])


def test_a_value_that_cannot_be_made_is_a_refusal(client: Any) -> None:
    impossible = {"type": "string", "pattern": "^(?=z)a"}
    document = {"type": "object", "properties": {"code": impossible}, "required": ["code"]}
    done = client.chat.completions.create(
        model="any",
        messages=SAID,
        response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": document}},
    )
    message = done.choices[0].message
    assert message.content is None
    assert "code" in message.refusal


def test_openai_in_tasks_shares_passes(url: str, expected: Shoe) -> None:
    async def all_of() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=url, api_key="key") as client:
            return await asyncio.gather(
                *(
                    client.chat.completions.parse(model="any", messages=SAID, response_format=Shoe)
                    for _ in range(16)
                )
            )

    found = [done.choices[0].message.parsed for done in asyncio.run(all_of())]
    assert found == [expected] * 16


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor(client: Any, expected: Shoe, mode: str) -> None:
    instructor = pytest.importorskip("instructor")
    patched = instructor.from_openai(client, mode=instructor.Mode[mode])
    found = patched.chat.completions.create(model="any", messages=SAID, response_model=Shoe)
    assert found.model_dump() == expected.model_dump()


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_instructor_streams_a_model_with_an_enum(client: Any, mode: str) -> None:
    instructor = pytest.importorskip("instructor")
    patched = instructor.from_openai(client, mode=instructor.Mode[mode])
    *_, found = patched.chat.completions.create_partial(
        model="any", messages=SAID, response_model=Painted, strict=False
    )
    assert (found.brand, found.color) == ("Nike", Color.BLACK)


@pytest.mark.filterwarnings("ignore")  # its own
@pytest.mark.parametrize("method", slow_but({"json_schema"}, ["json_schema", "function_calling"]))
def test_langchain(url: str, expected: Shoe, method: str) -> None:
    langchain = pytest.importorskip("langchain_openai")
    model = langchain.ChatOpenAI(base_url=url, api_key="key", model="any", temperature=0)
    found = model.with_structured_output(Shoe, method=method).invoke(TEXT)
    assert found == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # its own
def test_litellm(url: str, expected: Shoe) -> None:
    litellm = pytest.importorskip("litellm")
    done = litellm.completion(
        model="openai/any", api_base=url, api_key="key", messages=SAID, response_format=Shoe
    )
    assert Shoe.model_validate_json(done.choices[0].message.content) == expected


@pytest.mark.parametrize("way", slow_but({"native"}, ["tool", "native", "responses", "default"]))
def test_pydantic_ai(url: str, expected: Shoe, way: str) -> None:
    """Whole, and streamed."""
    pydantic_ai = pytest.importorskip("pydantic_ai")
    models = pytest.importorskip("pydantic_ai.models.openai")
    providers = pytest.importorskip("pydantic_ai.providers.openai")
    is_chat = way in ("tool", "native")
    kind = models.OpenAIChatModel if is_chat else models.OpenAIResponsesModel
    output = Shoe if way in ("tool", "default") else pydantic_ai.NativeOutput(Shoe)

    async def run() -> tuple[Any, Any]:
        # A client of its own leaves connections open behind the event loop.
        async with openai.AsyncOpenAI(base_url=url, api_key="key") as client:
            model = kind("any", provider=providers.OpenAIProvider(openai_client=client))
            agent = pydantic_ai.Agent(model, output_type=output)
            first = await agent.run(TEXT)
            second = await agent.run(TEXT, message_history=first.all_messages())
            assert second.output.brand == expected.brand  # with a call, or a text, before it
            async with agent.run_stream(TEXT) as streamed:
                return first.output, await streamed.get_output()

    assert asyncio.run(run()) == (expected, expected)


def test_what_was_called_before_is_part_of_the_conversation(client: Any, expected: Shoe) -> None:
    tool = {"type": "function", "name": "shoe", "parameters": Shoe.model_json_schema()}
    call = {"type": "function_call", "call_id": "c", "name": "shoe", "arguments": "{}"}
    done = {"type": "function_call_output", "call_id": "c", "output": "Fine."}
    thought = {"type": "reasoning", "id": "r", "summary": []}
    before = [{"role": "user", "content": "Puma Suede"}, thought, call, done]
    said = [*before, {"role": "user", "content": TEXT}]
    found = client.responses.create(model="any", input=said, tools=[tool])
    assert Shoe.model_validate_json(found.output[0].arguments).brand == expected.brand
    for place, item, param in (
        (0, {"type": "item_reference", "id": "x"}, "input[0].type"),
        (1, {"type": "computer_call"}, "input[1].type"),
        (1, {"type": "message", "content": "a"}, "input[1].role"),
        (0, {"role": "nobody", "content": "a"}, "input[0].role"),
        (0, {"role": "user", "content": [{"type": "input_image"}]}, "input[0].content"),
    ):
        wrong = [*said[:place], item, *said[place:]]
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(model="any", input=wrong, tools=[tool])
        assert raised.value.param == param


def test_openai_streams_responses(client: Any, expected: Shoe) -> None:
    with client.responses.stream(model="any", input=TEXT, text_format=Shoe) as stream:
        kinds = [event.type for event in stream]
        done = stream.get_final_response()
    assert done.output_parsed == expected
    assert kinds.count("response.output_text.delta") > 4
