"""Ten spoken sentences (`tests/data/ten-sentences.ogg`, made with a voice whose recordings are in the public domain),
with the seconds in which each is spoken, and how far a transcript is from them."""

import re
import subprocess
from pathlib import Path

from infra.ffmpeg import ffmpeg

RECORDING = Path(__file__).parents[1] / "data" / "ten-sentences.ogg"
SENTENCES = (
    (0.3, 3.34, "The river was calm, and the boats lay still along the quay."),
    (3.94, 6.644, "She opened the window to let the morning air into the room."),
    (7.044, 10.202, "Please send the signed contract back before the end of the week."),
    (11.102, 14.142, "Our train leaves at half past seven from the second platform."),
    (14.642, 18.22, "He bought three apples, a loaf of bread, and a bottle of milk."),
    (18.92, 21.77, "The children laughed when the old dog chased its own tail."),
    (22.97, 25.848, "A strong wind from the north brought snow to the mountains."),
    (26.348, 29.445, "They planted a row of oak trees behind the village school."),
    (30.245, 33.956, "The library closes early on Sunday, so return your books today."),
    (34.556, 36.972, "Nobody knew why the lights in the harbor had gone out."),
)
"""From, until (seconds), and what is said."""
TEXT = " ".join(sentence for _start, _end, sentence in SENTENCES)


def recording(seconds: float) -> bytes:
    """The recording, again and again for so many seconds, as mp3."""
    argv = [str(ffmpeg()), "-loglevel", "error", "-stream_loop", "-1", "-i", str(RECORDING), "-t", str(seconds)]
    return subprocess.run([*argv, "-f", "mp3", "pipe:1"], capture_output=True, check=True).stdout


def words(text: str) -> list[str]:
    """The words, as they are compared."""
    return re.findall(r"[a-z0-9']+", text.lower())


def word_error_rate(text: str, truth: str = TEXT) -> float:
    """Words that would have to be changed, put in or left out, as a share of those that were said."""
    wanted, got = words(truth), words(text)
    row = list(range(len(got) + 1))
    for i, word in enumerate(wanted, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1] / len(wanted)
