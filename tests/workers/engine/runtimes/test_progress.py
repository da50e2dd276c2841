"""How far the work on a request is."""

from workers.engine.runtimes.progress import Progress


def test_the_pace_is_that_of_the_phase() -> None:
    now_s = 100.0
    progress = Progress(lambda: now_s)
    assert progress.reached() == ("waiting", 0, 0, 0.0, 0.0)
    now_s = 105.0
    progress.tell("denoising", 0, 20)
    now_s = 107.0
    progress.tell("denoising", 4, 20)
    now_s = 108.0
    assert progress.reached() == ("denoising", 4, 20, 2.0, 8.0)


def test_a_phase_of_one_step_keeps_the_count() -> None:
    progress = Progress(lambda: 0.0)
    progress.tell("preparing", 0, 1)
    assert progress.reached()[:3] == ("preparing", 0, 0)
    progress.tell("denoising", 20, 20)
    progress.tell("encoding", 0, 1)
    assert progress.reached()[:3] == ("encoding", 20, 20)
    progress.tell("speaking", 1, 1)
    assert progress.reached()[:3] == ("speaking", 1, 1)
