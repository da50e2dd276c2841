"""Checks of answers about what is sent as a form, or kept: files, uploads, batches, chats, responses in the background,
sound and images."""

import time
from collections.abc import Callable
from typing import Any

import orjson

from benchmarks.exchange import Answer, delete, get, post
from infra.types import Json
from tests.conformance.openapi import Check
from tests.documents import drawn, encoded
from tests.system.speech import RECORDING

Ask = Callable[[int, str], Answer]
_BOUNDARY = "conformance"
_FILES, _UPLOADS, _BATCHES = "/v1/files", "/v1/uploads", "/v1/batches"
_EMBEDDINGS = "/v1/embeddings"
_BATCH_S = 90.0
_RESPONSES, _CHATS = "/v1/responses", "/v1/chat/completions"
_OVER = ("completed", "incomplete", "failed", "cancelled", "expired")


def checks(text_model: str, embedding_model: str, speech_model: str, image_model: str) -> list[Check]:
    """Every kind of answer that these resources give."""
    return [
        Check("file sent", "OpenAIFile", 200, _file()),
        Check("file", "OpenAIFile", 200, _after(_file(), lambda made: _got(f"{_FILES}/{made['id']}"))),
        Check("files", "ListFilesResponse", 200, _after(_file(), lambda _made: _got(f"{_FILES}?limit=2&order=asc"))),
        Check("file deleted", "DeleteFileResponse", 200, _after(_file(), lambda made: _deleted(made["id"]))),
        Check("no such file", "ErrorResponse", 404, _got(f"{_FILES}/file-none")),
        Check("a file for nothing", "ErrorResponse", 400, _form(_FILES, {"purpose": "fun"}, file=b"x")),
        *_uploads(),
        *_batches(embedding_model),
        *_chats(text_model),
        *_responses(text_model),
        *_sounds(speech_model),
        *_images(image_model),
    ]


def _uploads() -> list[Check]:
    wanted: Json = {"bytes": 3, "filename": "a.txt", "mime_type": "text/plain", "purpose": "user_data"}
    begun = _posted(_UPLOADS, wanted)

    def part(made: Any) -> Ask:
        return _form(f"{_UPLOADS}/{made['id']}/parts", {}, data=b"abc")

    def completed(made: Any) -> Ask:
        return _after(part(made), lambda sent: _posted(f"{_UPLOADS}/{made['id']}/complete", {"part_ids": [sent["id"]]}))

    def cancelled(made: Any) -> Ask:
        return _posted(f"{_UPLOADS}/{made['id']}/cancel")

    return [
        Check("upload", "Upload", 200, begun),
        Check("part of an upload", "UploadPart", 200, _after(begun, part)),
        Check("upload completed", "Upload", 200, _after(begun, completed)),
        Check(
            "upload cancelled", "Upload", 200, _after(begun, lambda made: _posted(f"{_UPLOADS}/{made['id']}/cancel"))
        ),
    ]


def _batches(model: str) -> list[Check]:
    begun = _batch({"model": model, "input": "a word"})

    def ended(made: Any) -> Ask:
        return lambda port, key: _when_over(port, key, f"{_BATCHES}/{made['id']}")

    return [
        Check("batch", "Batch", 200, begun),
        Check("batch completed", "Batch", 200, _after(begun, ended)),
        Check("batch of a wrong request", "Batch", 200, _after(_batch({"model": "nobody"}), ended)),
        Check("batch that was refused", "Batch", 200, _after(_batch({}, url="/v1/else"), ended)),
        Check("batches", "ListBatchesResponse", 200, _got(f"{_BATCHES}?limit=3")),
        Check("no such batch", "ErrorResponse", 404, _got(f"{_BATCHES}/batch_none")),
    ]


def _chats(model: str) -> list[Check]:
    said: Json = [{"role": "user", "content": "Name one colour."}]
    asked: dict[str, Json] = {"model": model, "messages": said, "max_tokens": 8, "store": True, "metadata": {"a": "b"}}
    made, answer = _posted(_CHATS, asked), "CreateChatCompletionResponse"
    role = "the document knows an assistant's messages alone, though its own example is a user's"

    def at(more: str) -> Callable[[Any], Ask]:
        return lambda chat: _got(f"{_CHATS}/{chat['id']}{more}")

    def labelled(chat: Any) -> Ask:
        return _posted(f"{_CHATS}/{chat['id']}", {"metadata": {"a": "c"}})

    def deleted(chat: Any) -> Ask:
        return lambda port, key: delete(port, f"{_CHATS}/{chat['id']}", key)

    def streamed(port: int, key: str) -> Answer:
        events = _posted(_CHATS, asked | {"stream": True, "logprobs": True, "top_logprobs": 2})(port, key).text
        chunk = orjson.loads(events.removeprefix("data: ").partition("\n")[0])
        return at("")(chunk)(port, key)

    return [
        Check("chat stored", answer, 200, _after(made, at(""))),
        Check("chat stored from a stream", answer, 200, streamed),
        Check("chats", "ChatCompletionList", 200, _after(made, lambda _chat: _got(f"{_CHATS}?metadata[a]=b&limit=2"))),
        Check("chat labelled", answer, 200, _after(made, labelled)),
        Check("chat deleted", "ChatCompletionDeleted", 200, _after(made, deleted)),
        Check(
            "messages of a chat",
            "ChatCompletionMessageList",
            200,
            _after(made, at("/messages")),
            allowed={"$.data[0].role": role},
        ),
        Check("no such chat", "ErrorResponse", 404, _got(f"{_CHATS}/chatcmpl-none")),
    ]


def _responses(model: str) -> list[Check]:
    asked: dict[str, Json] = {
        "model": model,
        "input": "Name one colour.",
        "max_output_tokens": 8,
        "background": True,
    }
    begun, answer, event = _posted(_RESPONSES, asked), "Response", "ResponseStreamEvent"
    done = r'\{"type":"response\.(completed|incomplete)"'

    def at(more: str) -> Callable[[Any], Ask]:
        return lambda made: _got(f"{_RESPONSES}/{made['id']}{more}")

    def ended(made: Any) -> Ask:
        return lambda port, key: _when_over(port, key, f"{_RESPONSES}/{made['id']}")

    def cancelled(made: Any) -> Ask:
        return _posted(f"{_RESPONSES}/{made['id']}/cancel")

    followed = _after(begun, at("?stream=true&starting_after=2"))
    return [
        Check("response in the background", answer, 200, begun),
        Check("response in the background, shown", answer, 200, _after(begun, at(""))),
        Check("response in the background, over", answer, 200, _after(begun, ended)),
        Check("response in the background, cancelled", answer, 200, _after(begun, cancelled)),
        Check(
            "response in the background, streamed",
            event,
            200,
            _posted(_RESPONSES, asked | {"stream": True}),
            streamed=True,
            done=done,
        ),
        Check("response in the background, followed", event, 200, followed, streamed=True, done=done),
    ]


def _sounds(model: str) -> list[Check]:
    heard, said = "CreateTranscriptionResponse", "CreateTranslationResponse"
    sound = RECORDING.read_bytes()
    verbose = {"model": model, "response_format": "verbose_json", "timestamp_granularities[]": "word"}

    def asked(path: str, fields: dict[str, str], data: bytes = sound) -> Ask:
        return _form(f"/v1/audio/{path}", fields, file=data)

    return [
        Check("transcription", f"{heard}Json", 200, asked("transcriptions", {"model": model})),
        Check("transcription, verbose", f"{heard}VerboseJson", 200, asked("transcriptions", verbose)),
        Check("translation", f"{said}Json", 200, asked("translations", {"model": model})),
        Check(
            "translation, verbose",
            f"{said}VerboseJson",
            200,
            asked("translations", {"model": model, "response_format": "verbose_json"}),
        ),
        Check("no sound", "ErrorResponse", 400, asked("transcriptions", {"model": model}, b"Example data")),
    ]


def _images(model: str) -> list[Check]:
    asked: dict[str, Json] = {"model": model, "prompt": "an otter", "size": "64x64", "steps": 2}
    streamed: dict[str, Json] = {"stream": True, "partial_images": 1, "size": "1024x1024"}
    edited = {"model": model, "prompt": "an otter", "stream": "true", "size": "1024x1024", "steps": "2"}
    picture = encoded(drawn(("otter",)).resize((64, 64)))
    path = "/v1/images/generations"
    return [
        Check("image", "ImagesResponse", 200, _posted(path, asked)),
        Check(
            "images in base64", "ImagesResponse", 200, _posted(path, asked | {"n": 2, "response_format": "b64_json"})
        ),
        Check(
            "image edited",
            "ImagesResponse",
            200,
            _form("/v1/images/edits", {"model": model, "prompt": "an otter", "size": "64x64"}, image=picture),
        ),
        Check("image varied", "ImagesResponse", 200, _form("/v1/images/variations", {"model": model}, image=picture)),
        Check(
            "images streamed",
            "ImageGenStreamEvent",
            200,
            _posted(path, asked | streamed),
            streamed=True,
            done=r'\{"type":"image_generation\.completed"',
        ),
        Check(
            "image edited, streamed",
            "ImageEditStreamEvent",
            200,
            _form("/v1/images/edits", edited, image=picture),
            streamed=True,
            done=r'\{"type":"image_edit\.completed"',
        ),
        Check("no images", "ErrorResponse", 400, _posted(path, asked | {"n": 0})),
    ]


def _file(content: bytes = b"text", purpose: str = "user_data") -> Ask:
    return _form(_FILES, {"purpose": purpose}, file=content)


def _batch(body: dict[str, Json], url: str = _EMBEDDINGS) -> Ask:
    line = orjson.dumps({"custom_id": "a", "method": "POST", "url": url, "body": body})

    def begin(file: Any) -> Ask:
        wanted: Json = {"completion_window": "24h", "endpoint": _EMBEDDINGS, "input_file_id": file["id"]}
        return _posted(_BATCHES, wanted)

    return _after(_file(line, "batch"), begin)


def _when_over(port: int, key: str, path: str) -> Answer:
    give_up = time.monotonic() + _BATCH_S
    while True:
        answer = get(port, path, key)
        if orjson.loads(answer.body).get("status") in _OVER or time.monotonic() > give_up:
            return answer
        time.sleep(0.3)


def _after(first: Ask, then: Callable[[Any], Ask]) -> Ask:
    """Ask for something with what the answer to `first` has."""
    return lambda port, key: then(orjson.loads(first(port, key).body))(port, key)


def _deleted(file: str) -> Ask:
    return lambda port, key: delete(port, f"{_FILES}/{file}", key)


def _posted(path: str, body: Json = None) -> Ask:
    return lambda port, key: post(port, path, b"" if body is None else orjson.dumps(body), key)


def _got(path: str) -> Ask:
    return lambda port, key: get(port, path, key)


def _form(path: str, fields: dict[str, str], **files: bytes) -> Ask:
    """A form with these fields and files."""
    parts = [f'Content-Disposition: form-data; name="{name}"\r\n\r\n{text}'.encode() for name, text in fields.items()]
    parts += [
        f'Content-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n'.encode() + data
        for name, data in files.items()
    ]
    body = b"".join(b"--%b\r\n%b\r\n" % (_BOUNDARY.encode(), part) for part in parts) + f"--{_BOUNDARY}--\r\n".encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={_BOUNDARY}"}
    return lambda port, key: post(port, path, body, key, extra=kind)
