"""Which options were given."""

from api.cli.spreading import given


def test_what_was_not_said_is_left_out() -> None:
    assert given(enabled=False, nodes=[], max_parts=None, min_items=8) == {"enabled": False, "min_items": 8}
    assert given(nodes=["cpu"], hedge=None) == {"nodes": ["cpu"]}
