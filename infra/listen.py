"""The client port: bound before anything else, and where the owner's command line finds who holds it."""

import errno
import socket

from infra.errors import SettingsInvalid
from infra.settings import Settings

RUN_FILE = ("run", "front.json")
"""Where the owner's command line finds the running front: its URL and the internal token, for the owner's eyes."""


def listen(settings: Settings) -> socket.socket:
    """The client port, bound.

    Raises:
        SettingsInvalid: it is taken, not ours to take, or the address is not this machine's.
    """
    host, port = settings.server.host, settings.server.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            words = f"port {port} on {host} is in use: stop what uses it, or choose another with CODERAI_SERVER__PORT"
        else:
            words = f"cannot listen on {host} port {port}: {error.strerror or error}"
        raise SettingsInvalid(words, param="server.port") from error
    listener.listen(2048)
    listener.set_inheritable(False)
    return listener
