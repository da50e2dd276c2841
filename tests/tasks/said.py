"""A client's end of a stream, as tasks write to it."""


class Said:
    """Keeps what was written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    @property
    def started(self) -> bool:
        return bool(self.pieces)

    async def write(self, data: bytes) -> None:
        assert data, "nothing is no piece of a stream"
        self.pieces.append(data)

    @property
    def text(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)
