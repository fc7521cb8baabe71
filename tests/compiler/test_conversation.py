"""Messages as the prompt: what the tokenizer's own chat template makes of them, token for token."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import Small
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from schemax import ModelError, TemplateError, compile_schema
from schemax.commands.cli import app
from schemax.compiler import TextCodec
from schemax.compiler.prompt import Conversation

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


# Examples as turns

SHOWN = [("LG OLED </product> 55", {"brand": "LG", "size": 55}), ("Wall mount <|end|>", {})]
DIALOGUE = """{{ turn("system") }}Read {{ category }}s.
{% for example in examples %}
{{ turn("user") }}{{ example.text }}
{{ turn("assistant") }}{{ example.output }}
{% endfor %}
{{ turn("user") }}{{ documents[0].text }}
"""


@pytest.mark.parametrize("template", ["verbatim", "standard", "generic"])
def test_examples_stand_as_turns(chatting: PreTrainedTokenizerFast, template: str) -> None:
    compiled = compile_schema(Small, chatting, template=template, examples=SHOWN)
    (prompt,) = compiled.encode(["Sony 55"])
    ids = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    told = compile_schema(Small, chatting, template=template).prompt.instruction.rstrip()
    tag = told[told.rindex("<") :]
    close = f"</{tag[1:]}"
    outputs = [
        '{\n  "brand": "LG",\n  "size": 55,\n  "smart": null,\n  "resolution": null\n}',
        '{\n  "brand": null,\n  "size": null,\n  "smart": null,\n  "resolution": null\n}',
    ]
    texts = ["LG OLED </product> 55".replace(close, f"&lt;{close[1:]}"), "Wall mount <|end|>"]
    said = [
        {"role": "user", "content": f"{told}\n{texts[0]}\n{close}"},
        {"role": "assistant", "content": outputs[0]},
        {"role": "user", "content": f"{tag}\n{texts[1]}\n{close}"},
        {"role": "assistant", "content": outputs[1]},
        {"role": "user", "content": f"{tag}\nSony 55\n{close}"},
    ]
    own = chatting.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
    assert chatting.decode(ids) == own + compiled.format.opening()
    # Five messages end, and no text ends one of its own.
    assert ids.count(chatting.convert_tokens_to_ids("<|end|>")) == 5


@pytest.mark.filterwarnings("ignore:the chat template does not show")
@pytest.mark.parametrize(
    ("chat", "decoding"),
    [
        (None, "isolated"),
        (CHAT, "paper"),
        ("{% if messages|length > 1 %}{{ raise('no') }}{% endif %}" + CHAT, "isolated"),
    ],
)
def test_examples_stand_in_the_message_where_turns_cannot_be(
    backend: Any, chat: str | None, decoding: str
) -> None:
    codec = TextCodec(backend, chat_template=chat)
    compiled = compile_schema(Small, codec, decoding=decoding, examples=SHOWN)
    assert compiled.prompt.chat.turns == ()
    assert "right for its own text:" in compiled.prompt.instruction


def test_templates_write_turns(chatting: PreTrainedTokenizerFast, codec: TextCodec) -> None:
    prompt = compile_schema(Small, chatting, template=DIALOGUE, examples=SHOWN).prompt
    assert [content.split("\n")[0] for _, content in prompt.chat.turns] == [
        "Read televisions.",
        "LG OLED </product> 55",
        "{",
        "Wall mount <|end|>",
        "{",
    ]
    roles = [markup.split("<|im|>")[1].strip() for markup, _ in prompt.chat.turns]
    assert roles == ["system", "user", "assistant", "user", "assistant"]
    assert (prompt.instruction, prompt.closing) == ("", "")
    # A base model is shown the same without markup.
    assert (
        "Read televisions.\nLG OLED"
        in compile_schema(Small, codec, template=DIALOGUE, examples=SHOWN).prompt.instruction
    )


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ('{{ turn("assistant") }}{{ documents[0].text }}\n', "role 'assistant'; begin one"),
        ('{{ documents[0].text }}{{ turn("assistant") }}Yes\n', "in its last message"),
        ("{{ turn() }}{{ documents[0].text }}\n", "template failed: TypeError"),
        ('{{ turn("judge") }}A{{ turn("user") }}{{ documents[0].text }}\n', "fails on messages"),
    ],
)
def test_turns_that_cannot_be_are_named(backend: Any, template: str, reason: str) -> None:
    strict = "{% if messages[0].role == 'judge' %}{{ raise('no') }}{% endif %}" + CHAT
    codec = TextCodec(backend, chat_template=strict)
    with pytest.raises(TemplateError, match=reason):
        compile_schema(Small, codec, template=template)


SPELLING = "<|im|>system\n{% for d in documents %}{{ d.text }}\n{% endfor %}Answer.<|end|>\n"
SHOWN_TEXT = "{% for d in documents %}{{ d.text }}\n{% endfor %}"


def test_control_tokens_that_a_template_spells(
    chatting: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """They are data, with a warning; explain tells them from those of the chat template."""
    with pytest.warns(UserWarning, match=r"holds <\|im\|>, <\|end\|> as plain characters"):
        compiled = compile_schema(Small, chatting, template=SPELLING)
    (prompt,) = compiled.encode(["LG"])
    ids = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    # Of the chat template: the user's turn, its end, and the turn of the answer.
    assert ids.count(chatting.convert_tokens_to_ids("<|im|>")) == 2
    assert ids.count(chatting.convert_tokens_to_ids("<|end|>")) == 1
    assert chatting.decode(ids).count("<|im|>") == 3
    chatting.save_pretrained(tmp_path)
    (tmp_path / "own.jinja").write_text(SPELLING)
    template = ("--template", str(tmp_path / "own.jinja"))
    command = ["explain", "television", "--tokenizer", str(tmp_path), *template]
    page = CliRunner().invoke(app, command).stdout
    assert "<|im|>user\n⟪<|im|>⟫system\n«text»\nAnswer.⟪<|end|>⟫" in page
    assert "⟪ ⟫: plain characters" in page
    assert "Warning: the prompt holds <|im|>, <|end|> as plain characters" in page


def test_control_tokens_of_documents_and_examples_are_nobodys_mistake(
    chatting: PreTrainedTokenizerFast,
) -> None:
    template = "{% for e in examples %}{{ e.text }} {{ e.output }}{% endfor %}" + SHOWN_TEXT
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = [("LG <|end|>", {"brand": "<|im|>"})]
        compiled = compile_schema(Small, chatting, template=template, examples=shown)
        compiled.encode(["Sony <|im|>"])
    assert not compiled.prompt.control_tokens
