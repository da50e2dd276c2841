"""A port that is given out is free, is nobody else's, and does not come again soon."""

import socket

import pytest

from tests import ports


def test_ports_differ_and_can_be_listened_on() -> None:
    given = [ports.free_port() for _ in range(50)]
    assert len(set(given)) == len(given)
    for port in given[:5]:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))


def test_one_that_is_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", ports.free_port()))
        listener.listen()
        taken = listener.getsockname()[1]
        monkeypatch.setattr(ports, "_next", iter(range(taken - ports._FIRST, taken - ports._FIRST + 9)))
        assert ports.free_port() != taken


def test_each_process_of_a_run_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        given.append({(ports.free_port() - ports._FIRST) // ports._SHARE for _ in range(20)})
    assert given == [{0}, {1}]
