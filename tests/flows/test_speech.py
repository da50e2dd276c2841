"""A text in sentences, in parts, over the engines: every sentence once, in order."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.openai.schemas.speech import MAX_CHARS
from flows.distribute import Cut, in_parts
from flows.plan import Plan
from flows.speech import PART_CHARS, SENTENCE_CHARS, SPREAD_SPEECH, cut, plan_speech, sentences, spread_speech
from infra.types import EngineId, Json, PoolId
from tests.fakes import make_entry
from workers.sites import Site
from workers.types import Capability, Distribute, ModelFormat

ENTRY = make_entry("joe", format=ModelFormat.PIPER, capabilities=(Capability.TTS,))
SITES = tuple(Site(PoolId(name), EngineId(f"{name}/joe"), True) for name in ("cpu-a", "cpu-b"))
TEXT = " ".join(f"This is sentence number {n}, and it is short." for n in range(12))


def request_of(text: str = TEXT, **fields: Json) -> dict[str, Json]:
    return {"model": "joe", "input": text, "sentences": list[Json](sentences(text)), **fields}


def spoken(plan: Plan) -> list[str]:
    return [str(each) for step in plan.steps for each in _list(step.inputs.get("sentences", []))]


def _list(value: Json) -> list[Json]:
    assert isinstance(value, list)
    return value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Dr. Smith came at 5 p.m. He left.", ["Dr. Smith came at 5 p.m.", "He left."]),
        ("One\nand two.\n\nThree", ["One and two.", "Three"]),
        ("Well... — !\n\n***\n\nOk 😀", ["Well...", "Ok 😀"]),
        ("a\0b\x07c d", ["a b c d"]),
        ("私は学生です。あなたは？", ["私は学生です。", "あなたは？"]),
        (" \n ", []),
    ],
)
def test_sentences(text: str, wanted: list[str]) -> None:
    assert sentences(text) == wanted


def test_a_long_sentence_is_cut_where_one_draws_breath() -> None:
    clause = "and so it went on for a long while without any end in sight"
    found = sentences(", ".join([clause] * 12) + ".")
    assert all(len(each) <= SENTENCE_CHARS and each.endswith((",", ".")) for each in found)
    assert "".join(found).replace(",", "").replace(" ", "") == (clause * 12 + ".").replace(" ", "")
    assert [len(each) for each in sentences("x" * 700)] == [300, 300, 100]


@pytest.mark.parametrize(
    "unit", ["“a ", "「」‘a", "a。", "․😀a", '"a\u200b`', "「" + "a" * 12 + "“" + "a" * 12 + "‘" + "a" * 12]
)
def test_no_text_takes_much_longer_than_prose(unit: str) -> None:
    """The event loop waits for it: the longest text that is taken, at worst."""
    text = (unit * MAX_CHARS)[:MAX_CHARS]
    began_s = time.process_time()
    found = sentences(text)
    assert time.process_time() - began_s < 0.5, "it takes a fifth of that on a slow machine that is busy"
    assert sum(each.count("a") for each in found) == text.count("a")
    assert len(found) < 25_000


def test_quotations_are_kept_where_there_is_something_between_them() -> None:
    said = ["“It rains. We stay,” she said to all of us.", '‘It doesn’t,’ said he; he went and "left" us at once.']
    assert sentences(" ".join(said * 40)) == said * 40
    assert sentences("“Yes.” “No.” «Why?»" * 40) == ["Yes.", "No.", "Why?"] * 40


def test_a_long_text_has_the_same_sentences_as_its_parts() -> None:
    assert sentences(f"{TEXT} " * 40) == sentences(TEXT) * 40


@given(st.text(max_size=2000))
def test_nothing_that_can_be_spoken_is_lost(text: str) -> None:
    found = sentences(text)
    assert all(0 < len(each) <= SENTENCE_CHARS for each in found)
    letters = [letter for letter in text if letter.isalnum()]
    assert [letter for each in found for letter in each if letter.isalnum()] == letters


@given(st.lists(st.integers(1, 80), min_size=1, max_size=40), st.lists(st.integers(1, 500), min_size=1, max_size=8))
def test_a_cut_keeps_every_sentence_and_holds(lengths: list[int], sizes: list[int]) -> None:
    made = ["x" * length for length in lengths]
    parts = cut(made, sizes)
    assert [each for part in parts for each in part] == made
    assert all(parts)
    assert cut(made, [sum(map(len, part)) for part in parts]) == parts


def test_a_short_text_is_one_step_that_flows() -> None:
    plan = plan_speech(request_of(voice={"id": "alloy"}, speed=2), ENTRY)
    assert Plan.from_json(plan.to_json()) == plan
    (step,) = plan.steps
    assert (step.task, step.inputs["format"], step.inputs["stream"]) == ("speak", "mp3", "audio")
    assert (step.inputs["voice"], step.inputs["speed"]) == ("alloy", 2)
    assert spoken(plan) == sentences(TEXT)
    assert step.demand is not None
    assert step.demand.capability is Capability.TTS


@pytest.mark.parametrize(
    ("fields", "stream"),
    [
        ({"response_format": "wav"}, None),
        ({"response_format": "wav", "stream_format": "audio"}, "audio"),
        ({"response_format": "flac"}, None),
        ({"response_format": "opus"}, "audio"),
        ({"stream_format": "sse"}, "sse"),
    ],
)
def test_how_an_answer_is_sent(fields: dict[str, Json], stream: str | None) -> None:
    (step,) = plan_speech(request_of() | fields, ENTRY).steps
    assert step.inputs["stream"] == stream


def test_a_long_text_is_cut_unless_it_is_streamed() -> None:
    text = TEXT * 40
    plan = plan_speech(request_of(text), ENTRY)
    assert Plan.from_json(plan.to_json()) == plan
    *parts, join = plan.steps
    assert len(parts) == -(-sum(map(len, sentences(text))) // PART_CHARS)
    assert all(step.items <= PART_CHARS + SENTENCE_CHARS for step in parts)
    assert spoken(plan) == sentences(text)
    assert (join.task, join.inputs["format"], set(join.refs)) == ("join_speech", "mp3", {step.id for step in parts})
    assert len(plan_speech(request_of(text, stream_format="audio"), ENTRY).steps) == 1


def test_a_far_service_is_sent_what_the_client_sent() -> None:
    far = make_entry("far", path=None, service_url="http://far", format=ModelFormat.SERVICE, capabilities=("tts",))
    request = request_of(anything="else")
    (step,) = plan_speech(request, far).steps
    assert (step.task, step.inputs) == ("speak_far", {"request": request})
    assert spread_speech(request, far, ()) is None


def test_parts_for_the_engines_in_order() -> None:
    plan = spread_speech(request_of(), ENTRY, SITES)
    assert plan is not None
    assert Plan.from_json(plan.to_json()) == plan
    split, one, two, join = plan.steps
    assert [step.demand.home for step in (one, two) if step.demand] == ["cpu-a", "cpu-b"]
    assert split.inputs["sizes"] == [one.items, two.items]
    assert abs(one.items - two.items) < 60
    assert spoken(plan) == sentences(TEXT)
    assert set(join.refs) == {"split", "part-1", "part-2"}


def test_a_faster_engine_has_more_to_say() -> None:
    fast = (SITES[0]._replace(items_per_s=300.0), SITES[1]._replace(items_per_s=100.0))
    plan = spread_speech(request_of(TEXT * 3), ENTRY, fast)
    assert plan is not None
    one, two = plan.steps[1:3]
    assert 2.4 < one.items / two.items < 3.6


@pytest.mark.parametrize("most", [64, 2])
@pytest.mark.parametrize("text", [TEXT, TEXT * 60])
def test_the_same_cut_when_it_is_done_again(text: str, most: int) -> None:
    """What is kept of an earlier try still fits, also where there were more parts than engines may take part."""
    entry = ENTRY.model_copy(update={"distribute": Distribute(max_parts=most)})
    fast = (SITES[0]._replace(items_per_s=500.0), SITES[1]._replace(items_per_s=100.0))
    first = spread_speech(request_of(text), entry, fast)
    assert first is not None
    sizes = first.steps[0].inputs["sizes"]
    assert isinstance(sizes, list)
    kept = tuple(size for size in sizes if isinstance(size, int))
    again = in_parts(SPREAD_SPEECH, request_of(text), entry, Cut(lambda _entry: SITES[:1], kept))
    assert again is not None
    assert again.steps[0].inputs == first.steps[0].inputs
    assert spoken(again) == spoken(first)


@pytest.mark.parametrize(
    ("sites", "distribute", "text"),
    [
        (SITES, Distribute(enabled=False), TEXT),
        (SITES, Distribute(min_items=13), TEXT),
        (SITES[:1], Distribute(), TEXT),
        (SITES, Distribute(), "One. Two. Three. Four. Five."),
        (SITES, Distribute(min_items=2), "x" * 250),
    ],
    ids=["switched off", "too few for the model", "one engine", "too few", "one sentence"],
)
def test_what_is_not_spread(sites: tuple[Site, ...], distribute: Distribute, text: str) -> None:
    entry = ENTRY.model_copy(update={"distribute": distribute})
    assert in_parts(SPREAD_SPEECH, request_of(text), entry, Cut(lambda _entry: sites)) is None


def test_few_short_sentences_are_spread_where_the_model_says_so() -> None:
    entry = ENTRY.model_copy(update={"distribute": Distribute(min_items=2)})
    plan = spread_speech(request_of("One of us. Two of us. Three."), entry, SITES)
    assert plan is not None
    assert spoken(plan) == ["One of us.", "Two of us.", "Three."]
