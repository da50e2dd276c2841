"""The hot routes, by name and by path: how each request is checked and planned."""

from typing import Any

from pydantic import TypeAdapter

from api.openai.chats.keeping import deliver
from api.openai.endpoint import Checked, Resource
from api.openai.responses import mapping as responses
from api.openai.responses.background import begin
from api.openai.responses.compact_schema import CompactBody
from api.openai.responses.compact_schema import check as check_compact
from api.openai.responses.compaction import kept_messages, summary_chat_of
from api.openai.responses.memory import COMPACTED, MEMORY, RECALLED
from api.openai.responses.schema import ResponsesBody
from api.openai.responses.schema import check as check_response
from api.openai.schemas import audio, chat, completions, embeddings, far_files, images, ocr, rerank, speech, video
from flows.chat import plan_chat, plan_completions
from flows.embeddings import SPREAD_EMBEDDINGS, plan_embeddings
from flows.images import SPREAD_IMAGES, plan_images
from flows.ocr import SPREAD_OCR, plan_ocr
from flows.rerank import SPREAD_RERANK, plan_rerank
from flows.responses import plan_compact, plan_input_tokens, plan_responses
from flows.speech import SPREAD_SPEECH, plan_speech, sentences
from flows.transcription import SPREAD_TRANSCRIPTION, plan_transcription
from flows.video import SPREAD_VIDEO, plan_video
from infra.types import Json
from workers.types import Capability, ModelEntry, ModelFormat

Body = dict[str, Json]


def _far(entry: ModelEntry) -> bool:
    """A far service may know fields that we do not: they are its business."""
    return entry.format is ModelFormat.SERVICE


def _chat(body: Body, entry: ModelEntry) -> Checked:
    view = chat.check(body, unknown_fields=_far(entry))
    return Checked(body, view.stream)


def _completions(body: Body, entry: ModelEntry) -> Checked:
    view = completions.check(body, unknown_fields=_far(entry))
    return Checked(body, view.stream)


def _embeddings(body: Body, entry: ModelEntry) -> Checked:
    embeddings.check(body, unknown_fields=_far(entry))
    return Checked(body)


def _rerank(body: Body, entry: ModelEntry) -> Checked:
    rerank.check(body, unknown_fields=_far(entry))
    return Checked({**body, "documents": list[Json](rerank.texts(body))})


def _responses(body: Body, entry: ModelEntry) -> Checked:
    check_response(body, far=_far(entry))
    made: Body = {"request": responses.chat_of(body), "response": responses.skeleton_of(body, entry)}
    return Checked(made, body.get("stream") is True)


def _input_tokens(body: Body, entry: ModelEntry) -> Checked:
    far = _far(entry)
    check_response(body, far=far)
    # Of a far service the response itself is asked about, its conversation in it; of an engine the chat that it is.
    asked: Body = {
        name: value
        for name, value in body.items()
        if name not in ("previous_response_id", "store", "stream", "background")
    }
    return Checked({"request": asked if far else responses.chat_of(asked)})


def _compact(body: Body, entry: ModelEntry) -> Checked:
    far = _far(entry)
    check_compact(body, far=far)
    return Checked({"request": summary_chat_of(body, far=far), "kept": kept_messages(body)})


def _transcription(body: Body, _entry: ModelEntry) -> Checked:
    return Checked(audio.normal(body), body.get("stream") is True)


def _speech(body: Body, entry: ModelEntry) -> Checked:
    speech.check(body, unknown_fields=_far(entry))
    made = body if _far(entry) else body | {"sentences": list[Json](sentences(str(body["input"])))}
    return Checked(made, body.get("stream_format") is not None)


def _ocr(body: Body, _entry: ModelEntry) -> Checked:
    return Checked(ocr.normal(body))


def _images(body: Body, entry: ModelEntry) -> Checked:
    checked = far_files.far_images(body) if _far(entry) else images.normal(body)
    return Checked(checked, "events" in checked)


def _video(body: Body, entry: ModelEntry) -> Checked:
    return Checked(far_files.far_video(body) if _far(entry) else video.normal(body))


RESOURCES: dict[str, Resource] = {
    "chat": Resource(Capability.CHAT, _chat, plan_chat, chat.opening, deliver=deliver),
    "completions": Resource(Capability.COMPLETIONS, _completions, plan_completions, completions.opening),
    "responses": Resource(
        Capability.CHAT,
        _responses,
        plan_responses,
        responses.opening,
        memory=MEMORY,
        counted="responses",
        begin=begin,
    ),
    "input_tokens": Resource(
        Capability.CHAT, _input_tokens, plan_input_tokens, memory=RECALLED, counted="input_tokens"
    ),
    "compact": Resource(
        Capability.CHAT, _compact, plan_compact, responses.opening, memory=COMPACTED, counted="compact"
    ),
    "embeddings": Resource(Capability.EMBEDDINGS, _embeddings, plan_embeddings, spread=SPREAD_EMBEDDINGS),
    "rerank": Resource(Capability.RERANK, _rerank, plan_rerank, spread=SPREAD_RERANK),
    "ocr": Resource(Capability.OCR, _ocr, plan_ocr, spread=SPREAD_OCR),
    "images": Resource(Capability.IMAGES, _images, plan_images, spread=SPREAD_IMAGES),
    "video": Resource(Capability.VIDEO, _video, plan_video, spread=SPREAD_VIDEO),
    "speech": Resource(Capability.TTS, _speech, plan_speech, spread=SPREAD_SPEECH, counted="speech"),
    "transcription": Resource(
        Capability.STT, _transcription, plan_transcription, spread=SPREAD_TRANSCRIPTION, counted="transcription"
    ),
}
PATHS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "completions",
    "/v1/responses": "responses",
    "/v1/responses/input_tokens": "input_tokens",
    "/v1/responses/compact": "compact",
    "/v1/embeddings": "embeddings",
    "/v1/rerank": "rerank",
}


def request_schemas() -> dict[str, dict[str, Any]]:
    """The JSON schema of each hot route's body; references point below `#/components/schemas`."""
    shapes = {
        "chat": chat.ChatBody,
        "completions": completions.CompletionsBody,
        "responses": ResponsesBody,
        "input_tokens": ResponsesBody,
        "compact": CompactBody,
        "embeddings": embeddings.EmbeddingsBody,
        "rerank": rerank.RerankBody,
    }
    return {
        name: TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}")
        for name, shape in shapes.items()
    }
