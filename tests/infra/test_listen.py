"""The client port: free, taken, just left, not ours."""

import socket

import pytest

from infra.errors import SettingsInvalid
from infra.listen import listen
from infra.settings import Settings, load_settings

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
