"""Videos of a far service, which is another install of ours: no other has this endpoint."""

from infra.errors import EngineFailed
from infra.types import Json
from tasks.far_files import make_far
from tasks.types import TaskCall, TaskResult
from workers.engine.filming import PATH

_FORM = "b64_mp4"


async def film_far(call: TaskCall) -> TaskResult:
    """Have the video of `inputs["asked"]` made: `{blob, media_type, suffix}`, and its seed where it is told. `image`,
    to start from, is `{blob}`.

    Raises:
        PayloadGone: the image of the request is not kept any more.
        DiskFull: there is no room for what is made.
        EngineFailed: the service died, broke off, or did not answer with a video.
        UpstreamRefused: the request is wrong, in the service's eyes.
    """
    asked, image = call.inputs["asked"], call.inputs.get("image")
    assert isinstance(asked, dict)
    files = {"image": await call.fetch(str(image["blob"]))} if isinstance(image, dict) else {}
    made = await make_far(call, PATH, asked, files, _FORM)
    if made.data[4:8] != b"ftyp":  # the first box of a file of ISO/IEC 14496-12
        raise EngineFailed(f"{call.leased().id} answered with a file that is no MP4")
    of_seed: dict[str, Json] = {"seed": seed} if (seed := asked.get("seed")) is not None else {}
    video: dict[str, Json] = {"blob": await call.keep(made.data), "media_type": "video/mp4", "suffix": "mp4"}
    return TaskResult(video | of_seed | made.seed, units=1)
