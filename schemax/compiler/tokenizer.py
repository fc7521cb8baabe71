"""A codec over any fast tokenizer: text to ids without control tokens, ids to bytes without loss.

Document text is data. It is encoded with a copy of the tokenizer that knows no added tokens and
finds no control tokens in its vocabulary, so `<|im_end|>` in a product title is ordinary
characters. The copy adds no dummy prefix space, so that segments encoded one by one can be joined;
a segment where the tokenizer itself would add the space is told what it stands `behind`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from schemax.base.messages import clipped
from schemax.compiler.vocabulary import (
    BYTE_CHARACTERS,
    BYTE_TOKEN,
    byte_reader,
    control_tokens,
    guarded_tokenizer,
    ids_of,
    unknown_token,
)
from schemax.errors import InputError, ModelError

_PROBE = '  "Size": "M \\" é",\n</x> 12.5'

# Surroundings of a token in a document: they decide how text is cut into words.
_SURROUNDINGS = ("{}", "a{}a", "\n{} a")


class TextCodec:
    """Encodes text and decodes bytes for one tokenizer.

    backend: the tokenizer of the `tokenizers` library.
    special_tokens: names such as `bos_token` and `eos_token` to their text, for chat templates.
    chat_template: Jinja source, or None for a base model.

    Raises ModelError for tokenizers whose tokens cannot be read as bytes, and for those whose
    control tokens a document could write.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        special_tokens: Mapping[str, str] | None = None,
        chat_template: str | None = None,
    ) -> None:
        self.special_tokens = dict(special_tokens or {})
        self.chat_template = chat_template
        self._leads_texts = self._leads_runs = False
        self._spec: dict[str, Any] = json.loads(backend.to_str())
        self.added_tokens: list[dict[str, Any]] = self._spec.get("added_tokens") or []
        controls = control_tokens(self._spec, self.special_tokens.values())
        self._markup = _rebuild(self._spec, added_tokens=self.added_tokens)
        # Added tokens of spaces alone are text: keys are indented with them.
        blanks = [t for t in self.added_tokens if not t["content"].strip() and not t["special"]]
        data = guarded_tokenizer(self._spec, controls)
        steps = {part: _without_prefix(data.get(part)) for part in ("normalizer", "pre_tokenizer")}
        self._data = _rebuild({**data, **steps}, added_tokens=blanks)
        # The ids that the tokenizer itself puts before a text: BOS, or nothing.
        self.prefix_ids: tuple[int, ...] = _prefix_ids(backend)
        vocab = backend.get_vocab(with_added_tokens=True)
        self.vocab_size: int = max(vocab.values(), default=-1) + 1
        # The size without added tokens, which only markup can hold.
        self.base_vocab_size: int = max(ids_of(self._spec).values(), default=-1) + 1
        if self.decode_bytes(self.encode(_PROBE)) != _PROBE.encode():
            raise ModelError(
                "this tokenizer changes text when it encodes and decodes it "
                f"({_PROBE!r} came back as {self.decode_bytes(self.encode(_PROBE))!r}), "
                "so values could not be copied from documents"
            )
        self._check_guard(controls)
        # Whether the tokenizer puts a space before a text, and before what follows a special token.
        led = self.encode_markup("a")
        self._leads_texts = led != self.encode("a")
        self._leads_runs = self._leads_texts and any(
            self.encode_markup(f"{text}a") == [token, *led]
            for token, text in self.special_texts.items()
        )

    def _check_guard(self, controls: Mapping[str, int]) -> None:
        """Raises ModelError, naming it, for a control token that a document could still write."""
        tokens = [token for token in controls if token != unknown_token(self._spec)]
        texts = [(token, around.format(token)) for token in tokens for around in _SURROUNDINGS]
        encoded = self.encode_batch([text for _, text in texts])
        for (token, text), ids in zip(texts, encoded, strict=True):
            if controls[token] not in ids:
                continue
            # A document may hold the character that a byte token stands for.
            if not (BYTE_TOKEN.fullmatch(token) and self.decode_bytes(ids) == text.encode()):
                raise ModelError(
                    f"this tokenizer reads {token!r} in a document as its control token "
                    f"{controls[token]}, so documents could write instructions; choose a model "
                    "with another tokenizer"
                )

    def encode(self, text: str, behind: Sequence[int] | None = None) -> list[int]:
        """Encodes data: neither adds special tokens nor recognises them in the text.

        behind: the tokens before, () for none; None if neither the text's beginning nor a special
            token can stand right before. Raises InputError for a text that the tokenizer fails on.
        """
        with _surviving_panics():
            text = f" {text}" if text and self._leads(behind) else text
            return list(self._data.encode(text, add_special_tokens=False).ids)

    def encode_batch(
        self, texts: Sequence[str], behind: Sequence[int] | None = None
    ) -> list[list[int]]:
        """`encode` for many texts, in threads."""
        if self._leads(behind):
            texts = [f" {text}" if text else "" for text in texts]
        with _surviving_panics():
            encoded = self._data.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(item.ids) for item in encoded]

    def encode_markup(self, text: str, behind: Sequence[int] | None = ()) -> list[int]:
        """Encodes text of a chat template: recognises special tokens in it, but adds no token."""
        encoded = self._markup.encode(text, add_special_tokens=False)
        if self._leads(behind) or not self._leads_texts:
            return list(encoded.ids)
        added = {token["id"] for token in self.added_tokens}
        places = zip(encoded.ids, encoded.offsets, strict=True)
        first = next((start for token, (start, _) in places if token in added), len(text))
        rest = self._markup.encode(text[first:], add_special_tokens=False)
        return [*self.encode(text[:first]), *rest.ids]

    def encode_message(self, markup: str, content: str, behind: Sequence[int]) -> list[int]:
        """Encodes a message. The spaces that end its markup belong to its first word."""
        bare = markup.rstrip(" ")
        ids = [*behind, *self.encode_markup(bare, behind)]
        return [*ids[len(behind) :], *self.encode(markup[len(bare) :] + content, ids)]

    def _leads(self, behind: Sequence[int] | None) -> bool:
        """True if the tokenizer itself puts a space before a text behind these tokens."""
        if not behind:
            return behind is not None and self._leads_texts
        return self._leads_runs and behind[-1] in self.special_texts

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Decodes ids to bytes. Joins characters split across tokens; drops special tokens."""
        table = self.token_bytes
        return b"".join(table[i] for i in ids if i < len(table))

    def text_of(self, ids: Sequence[int]) -> str:
        """Text that a tokenizer which knows special tokens encodes to these ids again.

        Leaves out the tokens and spaces that the tokenizer itself adds. Control tokens that stand
        as plain text, as in a document, are defused by a space behind their first character.
        """
        if self.prefix_ids and tuple(ids[: len(self.prefix_ids)]) == self.prefix_ids:
            ids = ids[len(self.prefix_ids) :]
        specials = self.special_texts
        parts: list[str] = []
        for is_special, run in groupby(ids, key=specials.__contains__):
            if is_special:
                parts += (specials[token] for token in run)
                continue
            text = self.decode_bytes(run).decode("utf-8", "replace")
            if self._leads_runs if parts else self._leads_texts:
                text = text.removeprefix(" ")
            for control in specials.values():
                text = text.replace(control, f"{control[:1]} {control[1:]}")
            parts.append(text)
        return "".join(parts)

    def special_tokens_in(self, text: str) -> tuple[str, ...]:
        """The special tokens that a text spells, each once, in order of appearance."""
        spelt = self._special_pattern
        return tuple(dict.fromkeys(spelt.findall(text))) if spelt is not None else ()

    def marked(self, text: str) -> str:
        """Data with brackets around the special tokens that it spells: ⟪<|im_start|>⟫."""
        spelt = self._special_pattern
        return spelt.sub(lambda match: f"⟪{match[0]}⟫", text) if spelt is not None else text

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        texts = sorted(set(filter(None, self.special_texts.values())), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts))) if texts else None

    def to_str(self) -> str:
        """The JSON of the tokenizer that encodes data: without added tokens."""
        return str(self._data.to_str())

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises ModelError if a prompt could hold ids beyond the model's vocabulary: tokens of
        texts, of spaces, of the chat template, and BOS. Some have more, such as for images."""
        markup = (self.chat_template or "") + self.special_tokens.get("bos_token", "")
        beyond = [
            token["content"]
            for token in self.added_tokens
            if token["id"] >= vocab_size
            and (not token["content"].strip() or token["content"] in markup)
        ]
        if self.base_vocab_size > vocab_size or beyond:
            raise ModelError(
                f"the tokenizer has {max(self.base_vocab_size, self.vocab_size):,} tokens, the "
                f"model a vocabulary of {vocab_size:,}"
                f"{f' without {beyond[0]!r}' if beyond else ''}: they do not belong together; "
                "name the tokenizer that the model was trained with, or resize its embeddings"
            )

    @cached_property
    def token_bytes(self) -> tuple[bytes, ...]:
        """(vocab_size,) the bytes of every token; b"" for special tokens and unused ids."""
        table = [b""] * self.vocab_size
        bytes_of = byte_reader(self._spec)
        for token, index in ids_of(self._spec).items():
            table[index] = bytes_of(token)
        for added in self.added_tokens:
            table[added["id"]] = b"" if added.get("special") else added["content"].encode()
        return tuple(table)

    @cached_property
    def special_texts(self) -> dict[int, str]:
        """The texts of special tokens, by id."""
        return {
            added["id"]: added["content"] for added in self.added_tokens if added.get("special")
        }

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Ids of the tokenizer's own end-of-sequence token."""
        wanted = self.special_tokens.get("eos_token")
        return tuple(a["id"] for a in self.added_tokens if a["content"] == wanted)


@contextmanager
def _surviving_panics() -> Iterator[None]:
    """Raises InputError for whatever a tokenizer raises over a text.

    A panic of its Rust code, as of a regular expression that gives up, is no Exception.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        reason = clipped(str(error))
        if isinstance(error, TypeError) and "must be str" in reason:  # UTF-8 cannot hold the text
            reason = "half a surrogate pair in it is no character"
        raise InputError(f"the tokenizer fails on this text ({reason})") from error


def load_codec(folder: str | Path) -> TextCodec:
    """Reads `tokenizer.json` and `tokenizer_config.json` of a folder, without transformers.

    Raises ModelError if there is no `tokenizer.json`.
    """
    folder = Path(folder)
    path = folder / "tokenizer.json"
    if folder.is_file():
        raise ModelError(
            f"{folder} is a file; load it by Extractor.from_pretrained, and give its .tokenizer"
        )
    if not path.is_file():
        raise ModelError(f"{folder} has no tokenizer.json")
    config_path = folder / "tokenizer_config.json"
    chat_path = folder / "chat_template.jinja"
    try:
        config = json.loads(config_path.read_text("utf-8")) if config_path.is_file() else {}
        chat = chat_path.read_text("utf-8") if chat_path.is_file() else config.get("chat_template")
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exceptions for broken files
        raise ModelError(f"{folder}: the tokenizer cannot be read ({error})") from error
    return TextCodec(
        backend,
        special_tokens=_special_tokens(config),
        chat_template=_default_chat_template(chat),
    )


def as_codec(tokenizer: Any) -> TextCodec:
    """A `TextCodec` of a tokenizer, whichever library it comes from.

    tokenizer: a `tokenizers.Tokenizer`, a fast tokenizer of transformers, or a folder that holds
        `tokenizer.json`.

    Raises ModelError for slow tokenizers, which cannot say where their tokens begin.
    """
    if isinstance(tokenizer, TextCodec):
        return tokenizer
    if isinstance(tokenizer, (str, Path)):
        return _codec_of_folder(str(tokenizer))
    if isinstance(tokenizer, tokenizers.Tokenizer):
        return _codec_of_backend(tokenizer, (), None)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise ModelError(
            f"{type(tokenizer).__name__} is not a fast tokenizer; save it with a tokenizer.json "
            "(transformers: AutoTokenizer.from_pretrained(..., use_fast=True).save_pretrained(...))"
        )
    specials = _special_tokens(getattr(tokenizer, "special_tokens_map", {}))
    chat = _default_chat_template(getattr(tokenizer, "chat_template", None))
    return _codec_of_backend(backend, tuple(specials.items()), chat)


_codec_of_folder = lru_cache(maxsize=8)(load_codec)


@lru_cache(maxsize=8)
def _codec_of_backend(
    backend: tokenizers.Tokenizer, specials: tuple[tuple[str, str], ...], chat: str | None
) -> TextCodec:
    # Keyed by all that may be changed on a tokenizer, so that no codec is stale.
    return TextCodec(backend, special_tokens=dict(specials), chat_template=chat)


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    texts = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        if isinstance(value, Mapping):
            value = value.get("content")
        if value is not None:
            texts[name] = str(value)
    return texts


def _default_chat_template(template: Any) -> str | None:
    """The chat template; among several, the one named "default"."""
    if isinstance(template, Mapping):
        template = template.get("default")
    elif isinstance(template, list):
        template = next((t["template"] for t in template if t.get("name") == "default"), None)
    return template or None


def _prefix_ids(backend: tokenizers.Tokenizer) -> tuple[int, ...]:
    encoded = backend.encode("a", add_special_tokens=True)
    marks = zip(encoded.ids, encoded.special_tokens_mask, encoded.attention_mask, strict=True)
    before = takewhile(lambda mark: mark[1], marks)
    return tuple(token for token, _, is_no_padding in before if is_no_padding)


def _rebuild(
    spec: Mapping[str, Any], *, added_tokens: Sequence[Mapping[str, Any]]
) -> tokenizers.Tokenizer:
    """A copy of the tokenizer that adds no special tokens and no padding, and cuts nothing off.

    added_tokens: the tokens that the copy recognises in a text.
    """
    spec = {**spec, "added_tokens": list(added_tokens)}
    spec.update(post_processor=None, truncation=None, padding=None)
    return tokenizers.Tokenizer.from_str(json.dumps(spec))


def _without_prefix(part: Any) -> Any:
    """The normalizer or pre-tokenizer without the step that puts a space before the text."""
    if part is None or part["type"] == "Prepend":
        return None
    part = dict(part)
    for children in ("normalizers", "pretokenizers"):
        if children in part:
            kept = [_without_prefix(child) for child in part[children]]
            part[children] = [child for child in kept if child is not None]
    if part["type"] == "Metaspace":
        part["prepend_scheme"] = "never"
        part.pop("add_prefix_space", None)
    elif "add_prefix_space" in part:
        part["add_prefix_space"] = False
    return part


_ROLES = ("system", "user", "assistant")
_NUM_BYTES = 256


class ByteCodec(TextCodec):
    """A codec for models behind servers that take texts, not tokens: every byte is a token.

    Ids from 256 on stand for roles, each of which begins a message. The server applies its own chat
    template to the messages.
    """

    def __init__(self) -> None:
        backend = tokenizers.Tokenizer(models.BPE(vocab=BYTE_CHARACTERS, merges=[]))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.decoder = decoders.ByteLevel()
        backend.add_special_tokens([AddedToken(f"<|{role}|>", special=True) for role in _ROLES])
        template = (
            "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}"
        )
        super().__init__(backend, chat_template=template)

    def messages(self, ids: Iterable[int]) -> list[dict[str, str]]:
        """The messages before the answer; ids before the first role are a message of the user."""
        messages: list[dict[str, str]] = []
        for is_role, run in groupby(ids, key=lambda token: token >= _NUM_BYTES):
            if is_role:
                messages += [{"role": _ROLES[token - _NUM_BYTES], "content": ""} for token in run]
                continue
            if not messages:
                messages.append({"role": "user", "content": ""})
            messages[-1]["content"] = bytes(run).decode("utf-8", "replace")
        return messages[:-1]  # the last one is the answer's opening, which the server writes
