"""A server of completions over real sockets: a tiny model of transformers and its `generate`.

It speaks as vLLM does (token ids in, `token_id:` out), as llama-cpp-python does (texts only), or as
a hosted model does (chats under a schema). It keeps a list of what it was asked, and fails in the
ways that it is told.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from llguidance import LLMatcher
from transformers import LogitsProcessorList

from schemax.compiler import TextCodec
from schemax.compiler.automata import TokenGrammar


class CompletionsServer:
    """speaks: "vllm"; "text" for prompts and tokens as texts, without biases; or "chat" alone.

    faults: for the next requests, one each: a status, "hang", "cut", "html", "large" or "empty".
    refused: fields that it does not take. slots: how many it tells of, as llama-server does.
    """

    def __init__(self, model: Any, codec: TextCodec, speaks: str = "vllm") -> None:
        self.model, self.codec, self.speaks = model, codec, speaks
        self.asked: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: deque[Any] = deque()
        self.lock = threading.Lock()
        self.in_flight = self.most_in_flight = 0
        self.context: int | None = None
        self.refused: set[str] = set()
        self.slots: int | None = None
        self.server: ThreadingHTTPServer | None = None
        self.connections: set[socket.socket] = set()
        self.port = 0

    def start(self) -> None:
        """At the port of before, if it has been stopped."""

        class Bound(Handler):
            owner = self

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = True

        self.server = Server(("127.0.0.1", self.port), Bound)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        for connection in list(self.connections):  # which would go on
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = body["prompt"]
        if isinstance(prompt, str):
            ids = [*self.codec.prefix_ids, *self.codec.encode_markup(prompt)]
        else:
            ids = prompt
        stops = body.get("stop") or []
        bias = {int(token): value for token, value in (body.get("logit_bias") or {}).items()}
        bias = {} if self.speaks == "text" else bias

        def biased(_: Any, scores: torch.Tensor) -> torch.Tensor:
            scores = scores.clone()
            for token, value in bias.items():
                scores[:, token] += value
            return scores

        def stopped(written: torch.Tensor, _: Any) -> torch.Tensor:
            text = self.text(written[0, len(ids) :].tolist())
            return torch.tensor([any(stop in text for stop in stops)])

        written, logprobs = self.generated(ids, body["max_tokens"], biased, [stopped])
        text = self.text(written)
        is_short = len(written) == body["max_tokens"] and written[-1] not in self.codec.eos_ids
        ended = any(stop in text for stop in stops) or not is_short
        if self.speaks == "text":
            if written and written[-1] in self.codec.eos_ids:
                written = written[:-1]
            places = [text.find(stop) for stop in stops if stop in text]
            text = text[: min(places)] if places else text
            while len(self.text(written)) > len(text):
                written = written[:-1]
        choice: dict[str, Any] = {"text": text, "finish_reason": "stop" if ended else "length"}
        if body.get("logprobs"):
            choice["logprobs"] = self.told(written, logprobs, body["logprobs"])
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(written)}
        return {"choices": [choice], "usage": usage}

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        """Under the schema of its response_format, token by token."""
        ids = self.codec.encode_markup(body["messages"][0]["content"] + "\n")
        schema = body["response_format"]["json_schema"]["schema"]
        text = LLMatcher.grammar_from_json_schema(schema)
        eos_ids, size = self.codec.eos_ids, self.codec.vocab_size
        matcher = TokenGrammar(text, True, False, self.codec, eos_ids, size).new_matcher()
        read = len(ids)

        def legal(input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            nonlocal read
            matcher.consume_tokens(input_ids[0, read:].tolist())
            read = input_ids.shape[1]
            words = torch.frombuffer(bytearray(matcher.compute_bitmask()), dtype=torch.uint8)
            bits = (words[:, None] >> torch.arange(8)) & 1
            forbidden = ~bits.flatten()[: scores.shape[1]].bool()
            if forbidden.all():
                forbidden[list(eos_ids)] = False
            return scores.masked_fill(forbidden, -torch.inf)

        def stopped(written: torch.Tensor, _: Any) -> torch.Tensor:
            return torch.tensor([written.shape[1] > read and self.is_whole(written[0, len(ids) :])])

        most = body.get("max_tokens") or body["max_completion_tokens"]
        written, logprobs = self.generated(ids, most, legal, [stopped])
        content = [
            {
                "token": self.text([token]),
                "bytes": list(self.codec.decode_bytes([token])),
                "logprob": float(row[token]),
            }
            for token, row in zip(written, logprobs, strict=True)
        ]
        reason = "length" if len(written) == most else "stop"
        message = {"role": "assistant", "content": self.text(written), "refusal": None}
        choice = {"message": message, "finish_reason": reason, "logprobs": {"content": content}}
        usage = {"prompt_tokens": len(ids), "completion_tokens": len(written)}
        return {"choices": [choice], "usage": usage}

    def is_whole(self, ids: torch.Tensor) -> bool:
        try:
            json.loads(self.text(ids.tolist()))
        except ValueError:
            return False
        return True

    def generated(
        self, ids: list[int], most: int, processor: Any, stopping: list[Any]
    ) -> tuple[list[int], list[torch.Tensor]]:
        """Tokens, and the log-probabilities before any processing."""
        with self.lock:
            found = self.model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=most,
                do_sample=False,
                logits_processor=LogitsProcessorList([processor]),
                stopping_criteria=stopping,
                output_logits=True,
                return_dict_in_generate=True,
                eos_token_id=list(self.codec.eos_ids),
                pad_token_id=0,
            )
        written = found.sequences[0, len(ids) :].tolist()
        return written, [row[0].float().log_softmax(0) for row in found.logits]

    def told(self, written: list[int], logprobs: list[torch.Tensor], most: int) -> dict[str, Any]:
        tops = []
        for row in logprobs[: len(written)]:
            best = row.topk(min(most, len(row)))
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            tops.append({self.called(token): value for token, value in pairs})
        return {
            "tokens": [self.called(token) for token in written],
            "token_logprobs": [
                float(row[token]) for token, row in zip(written, logprobs, strict=False)
            ],
            "top_logprobs": tops,
        }

    def called(self, token: int) -> str:
        return f"token_id:{token}" if self.speaks == "vllm" else self.text([token])

    def text(self, ids: list[int]) -> str:
        return self.codec.decode_bytes(ids).decode("utf-8", "replace")


class Handler(BaseHTTPRequestHandler):
    owner: CompletionsServer
    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.owner.connections.add(self.connection)

    def finish(self) -> None:
        self.owner.connections.discard(self.connection)
        with suppress(OSError):
            super().finish()

    def handle(self) -> None:
        with suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        owner = self.owner
        owned_by = {"vllm": "vllm", "text": "me", "chat": "somebody"}[owner.speaks]
        if owner.slots is not None:
            owned_by = "llamacpp"
        entry = {"id": "tiny", "owned_by": owned_by, "max_model_len": owner.context}
        answers = {"/v1/models": {"data": [entry]}, "/props": {"total_slots": owner.slots}}
        self.say(200, answers.get(self.path, {}))

    def do_POST(self) -> None:
        owner = self.owner
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        works = {"/v1/completions": owner.complete, "/v1/chat/completions": owner.chat}
        if owner.speaks == "chat":
            del works["/v1/completions"]
        if self.path not in works:
            self.say(404, {"error": {"message": "Not Found"}})
            return
        if refused := owner.refused & body.keys():
            self.say(400, {"error": {"message": f"Unsupported parameter: {refused.pop()}"}})
            return
        if owner.speaks == "text" and not isinstance(body.get("prompt", ""), str):
            self.say(422, {"error": {"message": "prompt: Input should be a valid string"}})
            return
        owner.asked.append(body)
        owner.headers.append({name.lower(): value for name, value in self.headers.items()})
        owner.in_flight += 1
        owner.most_in_flight = max(owner.most_in_flight, owner.in_flight)
        try:
            fault = owner.faults.popleft() if owner.faults else None
            if fault == "hang":
                time.sleep(5)
            elif fault == "cut":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                self.wfile.write(b'{"choices": [')
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            elif fault == "html":
                self.say(200, "<html>a proxy's page</html>")
            elif fault == "large":
                self.say(200, {"choices": [], "more": "x" * 100_000})
            elif fault == "empty":
                self.say(200, {"choices": []})
            elif fault is not None:
                self.say(fault, {"error": {"message": f"told to answer {fault}"}})
            else:
                self.say(200, works[self.path](body))
        finally:
            owner.in_flight -= 1

    def say(self, status: int, reply: Any) -> None:
        data = (reply if isinstance(reply, str) else json.dumps(reply)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if status == 429:
            self.send_header("Retry-After", "0.2")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None: ...


@contextmanager
def served(model: Any, codec: TextCodec, speaks: str = "vllm") -> Iterator[CompletionsServer]:
    made = CompletionsServer(model, codec, speaks)
    made.start()
    try:
        yield made
    finally:
        made.stop()
