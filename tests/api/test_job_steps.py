"""What a front knows of the jobs whose steps come for slots."""

from api.job_steps import JobSteps
from infra.types import KeyName, ModelName, RunId
from workers.types import Capability, Demand
from workers.wire import LeaseAsk


def ask(step: str, run: str = "r", done: tuple[str, ...] = ()) -> LeaseAsk:
    return LeaseAsk(
        run=RunId(run),
        step=step,
        flow="video",
        key=KeyName("ann"),
        model=ModelName("wan"),
        demand=Demand(ModelName("wan"), Capability.VIDEO),
        peers=3,
        done=done,
    )


def test_a_run_is_there_while_one_of_its_steps_is() -> None:
    jobs = JobSteps()
    with jobs.hold(ask("a")) as first:
        run = jobs.runs[RunId("r")]
        assert (run.key, run.model, run.capability, run.peers, run.done) == ("ann", "wan", "video", 3, set())
        with jobs.hold(ask("b")) as second:
            assert run.steps == [first, second]
            second.finished = True
        assert (run.steps, run.done) == ([first], {"b"})
        with jobs.hold(ask("c", done=("kept",))):
            assert run.done == {"b", "kept"}
        assert run.done == {"b", "kept"}, "a step that did not end well is not done"
        with jobs.hold(ask("a", "other")):
            assert len(jobs.runs) == 2
    assert not jobs.runs
