"""What a handler is given."""

import pytest

from workers.engine.runtimes.protocol import Abandoned, Ask, Upload


def test_a_client_that_has_left_is_noticed() -> None:
    ask = Ask({})
    ask.check()
    ask.gone.set()
    with pytest.raises(Abandoned):
        ask.check()


def test_no_log_shows_what_a_file_holds() -> None:
    assert "secret" not in repr(Ask({}, (Upload("file", "a.wav", "audio/wav", b"secret"),)))
