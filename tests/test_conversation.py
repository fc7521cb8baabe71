"""Messages as the prompt: what the tokenizer's own chat template makes of them, token for token."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Small
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from schemax import ModelError, TemplateError, compile_schema
from schemax.compiler import TextCodec
from schemax.compiler.conversation import Conversation

CHAT = (
    "{% for m in messages %}<|im|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im|>assistant\n{% endif %}"
)
MESSAGES = (("system", "Be brief."), ("user", "LG <|end|> OLED"), ("assistant", '{"brand": "LG"}'))


@pytest.fixture
def chatting(backend: Any) -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=type(backend).from_str(backend.to_str()), eos_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens(
        {"additional_special_tokens": [AddedToken("<|im|>"), AddedToken("<|end|>")]}
    )
    tokenizer.chat_template = CHAT
    return tokenizer


def test_messages_become_the_ids_of_the_chat_template(chatting: PreTrainedTokenizerFast) -> None:
    compiled = compile_schema(Small, chatting, template=Conversation(MESSAGES[:1]))
    (prompt,) = compiled.encode(["Sony 55"])
    ids = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Sony 55"}]
    own = chatting.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
    opening = compiled.format.opening()
    assert chatting.decode(ids) == own + opening
    expected = chatting(own, add_special_tokens=False).input_ids
    assert ids == [*expected, *compiled.codec.encode(opening)]


def test_what_is_said_never_becomes_a_control_token(chatting: PreTrainedTokenizerFast) -> None:
    compiled = compile_schema(Small, chatting, template=Conversation(MESSAGES))
    end = chatting.convert_tokens_to_ids("<|end|>")
    assert compiled.instruction.count(end) == len(MESSAGES)
    assert "LG <|end|> OLED" in chatting.decode(compiled.instruction)


def test_what_is_said_before_is_shared(chatting: PreTrainedTokenizerFast) -> None:
    """Equal messages before the document compile once, whatever the document says."""
    one, same, other = (
        compile_schema(Small, chatting, template=Conversation(said))
        for said in (MESSAGES, tuple(MESSAGES), MESSAGES[:1])
    )
    assert one is same
    assert one is not other


def test_base_models_are_shown_the_contents_alone(codec: TextCodec) -> None:
    compiled = compile_schema(Small, codec, template=Conversation(MESSAGES[:1]))
    (prompt,) = compiled.encode(["Sony 55"])
    ids = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    assert codec.decode_bytes(ids).decode() == "Be brief.\n\nSony 55\n\n{\n"


@pytest.mark.parametrize(
    ("template", "said", "error", "reason"),
    [
        ("{{ messages[-1].content }}", MESSAGES, TemplateError, "drops one of the messages"),
        ("{{ raise('no') }}", MESSAGES, TemplateError, "fails on messages of system, user"),
        ("nothing", (), ModelError, "drops the user's message"),
    ],
)
def test_templates_that_cannot_hold_it_are_named(
    backend: Any, template: str, said: Any, error: type[Exception], reason: str
) -> None:
    codec = TextCodec(backend, special_tokens={}, chat_template=template)
    with pytest.raises(error, match=reason):
        compile_schema(Small, codec, template=Conversation(said))


def test_one_document_is_all_that_it_holds(codec: TextCodec) -> None:
    with pytest.raises(TemplateError, match="one document"):
        compile_schema(Small, codec, template=Conversation(), decoding="paper")
