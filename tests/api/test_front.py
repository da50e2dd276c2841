"""The client port, and a front that was started in the wrong way."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from api.front import RUN_FILE, _reachable, listen
from infra.errors import SettingsInvalid
from infra.settings import Settings, load_settings
from infra.supervisor.types import EX_CONFIG

pytestmark = pytest.mark.enable_socket


def at(host: str, port: int = 0) -> Settings:
    return load_settings(server={"host": host, "port": port})


def test_a_free_port() -> None:
    with listen(at("127.0.0.1")) as listener:
        host, port = listener.getsockname()
        assert host == "127.0.0.1"
        socket.create_connection((host, port), 1).close()
        assert not listener.get_inheritable()


def test_a_name_is_an_address_too() -> None:
    with listen(at("localhost")) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_port_in_use_says_what_to_do() -> None:
    with listen(at("127.0.0.1")) as first:
        port = first.getsockname()[1]
        words = f"port {port} on 127.0.0.1 is in use: .* CODERAI_SERVER__PORT"
        with pytest.raises(SettingsInvalid, match=words) as caught:
            listen(at("127.0.0.1", port))
    assert caught.value.param == "server.port"
    listen(at("127.0.0.1", port)).close()


def test_a_port_that_was_just_left_may_be_taken_again() -> None:
    with listen(at("127.0.0.1")) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), 1)
        served, _address = listener.accept()
        served.close()  # this side closes first, so the port stays in TIME_WAIT
        client.close()
    listen(at("127.0.0.1", port)).close()


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "2001:db8::1"])
def test_an_address_that_is_not_this_machine_s(host: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"cannot listen on {host} port 0: .+"):
        listen(at(host))


def test_ipv6() -> None:
    try:
        socket.socket(socket.AF_INET6).close()
        listener = listen(at("::1"))
    except (OSError, SettingsInvalid):
        pytest.skip("this machine has no IPv6")
    with listener:
        socket.create_connection(listener.getsockname()[:2], 1).close()


@pytest.mark.parametrize(
    ("host", "url"),
    [("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]"), ("10.1.2.3", "10.1.2.3"), ("box", "box")],
)
def test_where_the_owner_s_command_line_finds_it(host: str, url: str) -> None:
    assert _reachable(host) == url


def test_by_hand_it_says_how_it_is_started(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "api.front"],
        env={"PATH": os.defpath, "CODERAI_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == EX_CONFIG
    assert done.stderr == "error: the front is started by `coderai serve`, not by hand\n"
    assert not tmp_path.joinpath(*RUN_FILE).exists()
