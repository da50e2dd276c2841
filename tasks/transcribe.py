"""Transcription: a recording goes to an engine as a form, and comes back as text with times."""

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import BinaryIO, Final

import orjson

from infra.blobs import Blobs
from infra.errors import EngineFailed, NotFound, PayloadGone
from infra.types import Json
from tasks.refusals import refusal
from tasks.transcripts import write
from tasks.types import TaskCall, TaskResult
from workers.live import Engine
from workers.transport import FilePart

_TYPE: Final = re.compile(
    r"(?!multipart/)[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*", re.ASCII | re.IGNORECASE
)
_UNTOLD: Final = "application/octet-stream"


async def transcribe(call: TaskCall) -> TaskResult:
    """Send `inputs["file"]` (`{blob, name, media_type, bytes}`) with `inputs["fields"]` to `inputs["path"]`.

    The result is OpenAI's verbose_json, or `{text}` from an engine that gives no more.

    Raises:
        PayloadGone: the recording is not kept any more.
        EngineFailed: the engine died, broke off or refused for reasons of its own.
        UpstreamRefused: the request is wrong, in the engine's eyes.
    """
    file, fields = call.inputs["file"], call.inputs["fields"]
    assert isinstance(file, dict)
    assert isinstance(fields, list)
    with open_recording(file, call.stores) as content:
        answer = await ask(call, fields, sent(file, content))
    duration_s = answer.get("duration")
    return TaskResult(answer, units=duration_s if isinstance(duration_s, int | float) else 0.0)


async def ask(call: TaskCall, fields: Sequence[Json], part: FilePart) -> dict[str, Json]:
    """What the engine answers at `inputs["path"]` to a file and these fields.

    Raises:
        EngineFailed: the engine died, broke off or refused for reasons of its own, or answered no text.
        UpstreamRefused: the request is wrong, in the engine's eyes.
    """
    path, engine = str(call.inputs["path"]), call.leased()
    status, body = await call.transport.upload(engine, path, asked(engine, fields), part, mark=call.mark)
    answer = answered(engine, path, status, body)
    if not isinstance(answer.get("text"), str):
        raise EngineFailed(f"{engine.id} did not answer with a text")
    return answer


def asked(engine: Engine, fields: Sequence[Json]) -> list[tuple[str, str]]:
    """A form's fields with the model's name as the engine knows it."""
    pairs = [("model", engine.entry.served_model or engine.entry.name)]
    return pairs + [(str(pair[0]), str(pair[1])) for pair in fields if isinstance(pair, list)]


def answered(engine: Engine, path: str, status: int, body: bytes) -> dict[str, Json]:
    """The JSON object of an engine's answer; raises what `ask` does."""
    if status != 200:
        raise refusal(engine.id, path, status, body, ours=engine.local)
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise EngineFailed(f"{engine.id} did not answer in JSON") from error
    return answer if isinstance(answer, dict) else {}


async def write_transcript(call: TaskCall) -> TaskResult:
    """`inputs["transcript"]` in the form `inputs["format"]`; of verbose_json what `inputs["granularities"]` names."""
    transcript, form, granularities = call.inputs["transcript"], call.inputs["format"], call.inputs["granularities"]
    assert isinstance(transcript, dict)
    assert isinstance(granularities, list)
    body, media_type = write(transcript, str(form), frozenset(map(str, granularities)))
    return TaskResult(body, media_type=media_type)


def safe_name(name: str) -> str:
    """A file's name without a path: far servers look at its ending."""
    kept = "".join(
        letter for letter in PurePath(name.replace("\\", "/")).name if letter.isprintable() and letter != '"'
    )
    return kept[-100:] or "audio"


def safe_type(media_type: str) -> str:
    """What a file is, in a form's header: a client may have said anything of it, or that it is a form itself."""
    kind = media_type.partition(";")[0]
    return kind if _TYPE.fullmatch(kind) else _UNTOLD


def sent(file: Mapping[str, Json], content: BinaryIO) -> FilePart:
    """A recording as an engine gets it."""
    return FilePart("file", safe_name(str(file["name"])), safe_type(str(file["media_type"])), content)


def open_recording(file: Mapping[str, Json], stores: Sequence[Blobs]) -> BinaryIO:
    """The recording itself.

    Raises:
        PayloadGone: it is not kept any more.
    """
    for store in stores:
        try:
            return store.open(str(file["blob"]))
        except NotFound:
            continue
    raise PayloadGone("the recording of this request is not kept any more: send it anew")
