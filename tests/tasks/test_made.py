"""The shape of an answer with files."""

import orjson

from tasks.made import FILES_TYPE, files_answer


def test_files_by_reference() -> None:
    result = files_answer([{"blob": "sha256:1", "seed": 3}], "url", {"output_format": "png"})
    assert isinstance(result.value, bytes)
    body = orjson.loads(result.value)
    assert body.pop("created") > 1_700_000_000
    assert body == {"data": [{"blob": "sha256:1", "seed": 3}], "response_format": "url", "output_format": "png"}
    assert result.media_type == FILES_TYPE
