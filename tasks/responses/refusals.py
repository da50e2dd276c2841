"""What an engine refuses of a chat, in the words of the response that was asked for."""

import re
from typing import Final

from infra.errors import UpstreamRefused

_NAMES: Final = {
    "messages": "input",
    "response_format": "text.format",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
}
"""Fields of a chat, and what they are called in a response's request."""


def in_response_words(error: UpstreamRefused) -> UpstreamRefused:
    """The same refusal, with the field that the client knows."""
    name = _NAMES.get(error.param or "")
    if name is None:
        return error
    message = re.sub(rf"((?:your|the) |'){error.param}\b", rf"\g<1>{name}", error.message)
    return UpstreamRefused(message, status=error.status, param=name, code=error.code)
