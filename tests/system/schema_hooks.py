"""Our word on errors as a check of schemathesis, which loads it by `SCHEMATHESIS_HOOKS` in a process of its own."""

from typing import Any

import schemathesis

_ERROR = {"message": str, "type": str, "param": str | None, "code": str | None}
_UNAVAILABLE = (501, 503)


@schemathesis.check
def error_in_openai_s_shape(
    _context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
) -> None:
    """No mistake of the server's; every error is OpenAI's object, with a sentence."""
    status = response.status_code
    if status < 400:
        return
    assert status < 500 or status in _UNAVAILABLE, f"{status}: {response.text[:500]}"
    if case.method.upper() == "HEAD":
        return
    answer = response.json()
    assert answer.keys() == {"error"}, f"{status}: {response.text[:500]}"
    error = answer["error"]
    assert error.keys() == _ERROR.keys(), response.text[:500]
    assert all(isinstance(error[name], kind) for name, kind in _ERROR.items()), response.text[:500]
    assert error["message"].strip(), response.text[:500]
