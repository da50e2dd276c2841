"""Lines become blocks by where they stand."""

from workers.engine.runtimes.ocr_layout import Box, Line, blocks, describe_page


def line(box: Box, text: str = "x", confidence: float = 1.0) -> Line:
    left, top, right, bottom = box
    return Line(text, confidence, ((left, top), (right, top), (right, bottom), (left, bottom)))


HEADING = line((0, 0, 400, 60))
LEFT = [line((0, 100 + 30 * row, 180, 120 + 30 * row)) for row in range(3)]
RIGHT = [line((220, 100 + 30 * row, 400, 120 + 30 * row)) for row in range(3)]


def test_columns_and_a_heading_are_blocks_of_their_own() -> None:
    lines = [HEADING, *(each for pair in zip(LEFT, RIGHT, strict=True) for each in pair)]
    assert blocks(lines) == [[0], [1, 3, 5], [2, 4, 6]]


def test_a_gap_begins_a_new_block() -> None:
    assert blocks([line((0, 0, 100, 20)), line((0, 25, 100, 45)), line((0, 90, 100, 110))]) == [[0, 1], [2]]


def test_words_beside_each_other_are_not_below_each_other() -> None:
    assert blocks([line((0, 0, 100, 20)), line((60, 4, 200, 24))]) == [[0], [1]]


def test_no_lines_no_blocks() -> None:
    assert blocks([]) == []
    empty = describe_page(1, (10, 20), [], layout=True)
    assert empty == {"page": 1, "width": 10, "height": 20, "text": "", "lines": [], "regions": []}


def test_a_page_says_where_everything_is() -> None:
    tilted = Line("first", 0.9, ((0, 5), (100, 0), (101, 20), (1, 25)))
    page = describe_page(2, (300, 200), [tilted, line((0, 30, 90, 50), "second", 0.7)], layout=True)
    assert page["text"] == "first\nsecond"
    assert page["lines"] == [
        {
            "text": "first",
            "confidence": 0.9,
            "box": [0, 0, 101, 25],
            "polygon": [[0, 5], [100, 0], [101, 20], [1, 25]],
        },
        {
            "text": "second",
            "confidence": 0.7,
            "box": [0, 30, 90, 50],
            "polygon": [[0, 30], [90, 30], [90, 50], [0, 50]],
        },
    ]
    assert page["regions"] == [
        {"type": "text", "box": [0, 0, 101, 50], "text": "first\nsecond", "confidence": 0.8, "lines": [0, 1]}
    ]
    assert describe_page(2, (300, 200), [tilted], layout=False)["regions"] == []
