"""Videos: one of a request's on an engine, and the answer that is made of all."""

import io

from infra.errors import EngineFailed
from infra.types import Json
from tasks.loras import located
from tasks.made import files_answer
from tasks.refusals import refusal
from tasks.types import TaskCall, TaskResult
from workers.engine.filming import FIELD, PATH, Shot
from workers.transport import FilePart


async def film_video(call: TaskCall) -> TaskResult:
    """Make the video of `inputs["shot"]`: `{blob, media_type, suffix, seed}`. `image`, to start from, is `{blob}`.

    Raises:
        PayloadGone: the image or an adapter of the request is not kept any more.
        DiskFull: there is no room for what is made.
        EngineFailed: the engine died or broke off.
        UpstreamRefused: the request is wrong, in the engine's eyes.
    """
    shot, loras, image = call.inputs["shot"], call.inputs["loras"], call.inputs.get("image")
    assert isinstance(shot, dict)
    assert isinstance(loras, list)
    wanted = Shot.model_validate({**shot, "loras": await located(call, loras)})
    files = []
    if isinstance(image, dict):
        data = await call.fetch(str(image["blob"]))
        files.append(FilePart("image", "image", "application/octet-stream", io.BytesIO(data)))
    engine, fields = call.leased(), [(FIELD, wanted.model_dump_json(exclude_none=True))]
    status, body = await call.transport.upload(engine, PATH, fields, *files, mark=call.mark)
    if status != 200:
        raise refusal(engine.id, PATH, status, body, ours=False)
    if not body:
        raise EngineFailed(f"{engine.id} answered without a video")
    ref = await call.keep(body)
    video: dict[str, Json] = {"blob": ref, "media_type": "video/mp4", "suffix": "mp4", "seed": wanted.seed}
    return TaskResult(video, units=1)


async def collect_videos(call: TaskCall) -> TaskResult:
    """The answer: `video-1`, `video-2` and so on, in order.

    Raises:
        EngineFailed: a step has no result that can be put there, as after a change of version between two tries.
    """
    videos: list[Json] = []
    while (name := f"video-{len(videos) + 1}") in call.inputs:
        video = call.inputs[name]
        if not isinstance(video, dict) or "blob" not in video:
            raise EngineFailed(f"{name} of the request has no result that can be put in its answer; send it again")
        videos.append(video)
    extra: dict[str, Json] = {name: call.inputs[name] for name in ("num_frames", "fps")}
    return files_answer(videos, str(call.inputs["response_format"]), extra)
