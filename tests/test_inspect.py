"""`keras_bert.inspect`: attention weights, attributions, and `keras-bert explain`."""

import html
import re
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads, inspect
from keras_bert.__main__ import main
from tests import contract, tiny
from tests.parameters import fast

TEXT = "this film is so good!"


@pytest.fixture(scope="module")
def encoder():
    return tiny.encoder(initializer_range=0.3)


@pytest.fixture(scope="module")
def classifier(encoder):
    return heads.classifier(encoder, labels=["bad", "good", "unclear"])


def arrays(model):
    return [keras.ops.convert_to_numpy(weight).copy() for weight in model.weights]


def inputs_of(encoder, *texts):
    """Return the inputs for one text or pair, NumPy arrays (1, seq)."""
    packed = encoder.preprocessor.with_options(sequence_length=None)(*([each] for each in texts))
    return {name: keras.ops.convert_to_numpy(value) for name, value in packed.items()}


# --- Attention -----------------------------------------------------------------------------


def test_attention(encoder):
    before = arrays(encoder)
    seen = inspect.attention(encoder, TEXT)
    assert seen.tokens == ["[CLS]", "this", "film", "is", "so", "good", "!", "[SEP]"]
    assert (seen.weights.shape, seen.weights.dtype) == ((2, 2, 8, 8), np.float32)
    np.testing.assert_allclose(seen.weights.sum(axis=-1), 1, atol=1e-6)
    assert seen.weights.std() > 0.02
    for weight, now in zip(before, arrays(encoder), strict=True):
        np.testing.assert_array_equal(weight, now)


def test_layers_use_these_weights(encoder):
    """The context of the first layer, computed from its weights and its values."""
    seen = inspect.attention(encoder, TEXT)
    inputs = inputs_of(encoder, TEXT)
    x = encoder.get_layer("embeddings")(inputs["input_word_ids"], inputs["input_type_ids"])
    layer = encoder.get_layer("layer_0").attention
    value = np.array(layer.qkv(x))[0, :, 16:].reshape(8, 2, 4).transpose(1, 0, 2)
    context = (seen.weights[0] @ value).transpose(1, 0, 2).reshape(1, 8, 8)
    np.testing.assert_allclose(layer.output_dense(context), layer(x), atol=1e-5)


def test_attention_of_pairs_and_heads(encoder, classifier):
    seen = inspect.attention(encoder, "good film", "so bad")
    assert seen.tokens == ["[CLS]", "good", "film", "[SEP]", "so", "bad", "[SEP]"]
    pairs = heads.regressor(encoder, pairs=True)
    again = inspect.attention(pairs, "good film", "so bad")
    np.testing.assert_array_equal(seen.weights, again.weights)
    for model in (classifier, heads.embedder(encoder), heads.features(encoder)):
        assert inspect.attention(model, TEXT).weights.shape == (2, 2, 8, 8)


def test_empty_long_and_korean_texts(encoder):
    assert inspect.attention(encoder, "").tokens == ["[CLS]", "[SEP]"]
    syllables = keras_bert.Preprocessor(tiny.PIECES, strip_accents=False)
    seen = inspect.attention(tiny.encoder(preprocessor=syllables), "한국 good")
    assert seen.tokens == ["[CLS]", "한", "##국", "good", "[SEP]"]
    with pytest.warns(UserWarning, match="truncated from 42 to 32 tokens") as caught:
        seen = inspect.attention(encoder, "good " * 40)
    assert caught[0].filename == __file__
    assert seen.weights.shape[-1] == len(seen.tokens) == 32


def with_lora(encoder):
    for index in range(2):
        qkv = encoder.get_layer(f"layer_{index}").attention.qkv
        qkv.enable_lora(2)
        qkv.lora_kernel_b.assign(np.ones(qkv.lora_kernel_b.shape) * 0.3)
    return encoder


# Change of an encoder -> a function of an encoder, options of the encoder, and how much the weights
# of attention change: at least, at most.
CHANGES = {
    "mixed_bfloat16": (lambda encoder: encoder, {"dtype": "mixed_bfloat16"}, (1e-5, 0.02)),
    "lora": (with_lora, {}, (0.02, 1)),
    "int8": (contract.quantize, {}, (1e-5, 0.05)),
}


@pytest.mark.parametrize("name", fast(CHANGES, "mixed_bfloat16", "lora"))
def test_attention_of_changed_encoders(name, encoder):
    change, options, (least, most) = CHANGES[name]
    weights = inspect.attention(
        change(tiny.encoder(initializer_range=0.3, **options)), TEXT
    ).weights
    assert weights.dtype == np.float32
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-6)
    assert least < np.abs(weights - inspect.attention(encoder, TEXT).weights).max() < most


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((["good"],), "text 1 must be a string"),
        (("good", 3), "text 2 must be a string"),
        (("good", "bad"), "Remove text_pair"),
    ],
)
def test_wrong_texts(classifier, arguments, message):
    for function in (inspect.attention, inspect.attributions):
        with pytest.raises(ValueError, match=message):
            function(classifier, *arguments)


def test_wrong_models(encoder):
    with pytest.raises(ValueError, match=r"keras_bert\.load"):
        inspect.attention("minilm", TEXT)
    with pytest.raises(ValueError, match="set its `preprocessor`"):
        inspect.attention(tiny.encoder(preprocessor=None), TEXT)
    for head in (heads.span_selector, heads.multiple_choice):
        with pytest.raises(ValueError, match="Give text_pair"):
            inspect.attention(head(encoder), TEXT)
    for model in (encoder, heads.features(encoder)):
        with pytest.raises(ValueError, match="use .*attention"):
            inspect.attributions(model, TEXT)


# --- Attributions --------------------------------------------------------------------------


def test_scores_add_up_to_the_difference_of_the_logits(classifier):
    before = arrays(classifier)
    found = inspect.attributions(classifier, TEXT, target="good")
    encoder = heads.find_encoder(classifier)
    inputs = inputs_of(encoder, TEXT)
    logit = float(classifier(inputs)[0, 1])
    ids = inputs["input_word_ids"].copy()
    ids[0, 1:-1] = 0  # [PAD], visible
    baseline = float(classifier({**inputs, "input_word_ids": ids})[0, 1])
    assert found.logit == pytest.approx(logit, abs=1e-5)
    assert found.baseline_logit == pytest.approx(baseline, abs=1e-5)
    assert abs(logit - baseline) > 0.05
    assert found.scores.sum() == pytest.approx(logit - baseline, abs=1e-4)
    assert abs(found.error) < 1e-5
    assert (found.target, found.position, found.texts) == ("good", None, (TEXT,))
    assert found.scores[0] == found.scores[-1] == 0
    for weight, now in zip(before, arrays(classifier), strict=True):
        np.testing.assert_array_equal(weight, now)
    assert abs(inspect.attributions(classifier, TEXT, target="good", steps=1).error) > 1e-4


def test_words_that_make_two_texts_similar(encoder):
    model = heads.embedder(encoder, pooling="mean")
    found = inspect.attributions(model, "this film is good", target="good film")
    first, second = keras_bert.pipeline(model).encode(["this film is good", "good film"])
    assert found.logit == pytest.approx(float(first @ second), abs=1e-5)
    assert found.target == "good film" and abs(found.error) < 1e-4
    assert [word["text"] for word in found.words] == ["this", "film", "is", "good"]


def test_an_independent_computation_gives_the_same_scores(classifier):
    """The integral by the midpoint rule, with central differences."""
    encoder = heads.find_encoder(classifier)
    inputs = inputs_of(encoder, TEXT)
    ids = inputs["input_word_ids"]
    words = encoder.get_layer("embeddings").word_embeddings.embeddings.numpy()
    end = words[ids[0]]
    start = words[[ids[0, 0], *[0] * (len(end) - 2), ids[0, -1]]]
    alphas = (np.arange(400) + 0.5) / 400
    points = start + alphas[:, None, None] * (end - start)

    def logits(points):
        rows = {key: np.repeat(x, len(points), axis=0) for key, x in inputs.items()}
        vectors = encoder(rows | {"word_embeddings": points.astype("float32")})
        return classifier.get_layer("logits")(vectors["pooled_output"]).numpy()

    expected = np.zeros((len(end), 3))
    for token in range(1, len(end) - 1):
        step = np.zeros_like(end)
        step[token] = 0.05 * (end - start)[token]
        change = (logits(points + step) - logits(points - step)) / (2 * 0.05)
        expected[token] = change.mean(axis=0)
    for index, label in enumerate(["bad", "good", "unclear"]):
        found = inspect.attributions(classifier, TEXT, target=label)
        np.testing.assert_allclose(found.scores, expected[:, index], atol=2e-4)
    assert expected.std() > 0.02


def test_the_first_target_is_the_predicted_label(classifier):
    found = inspect.attributions(classifier, TEXT)
    ask = keras_bert.pipeline(classifier)
    assert found.target == ask(TEXT)["label"]
    index = heads.find_output(classifier).labels.index(found.target)
    again = inspect.attributions(classifier, TEXT, target=index)
    np.testing.assert_array_equal(found.scores, again.scores)


def test_words_join_subwords_and_have_character_offsets(classifier):
    text = "  한국 so goodly films! "
    found = inspect.attributions(classifier, text)
    words = [word["text"] for word in found.words]
    assert words == ["한국", "so", "goodly", "films", "!"]
    assert [text[word["start"] : word["end"]] for word in found.words] == words
    assert found.tokens[1:8] == ["[UNK]", "so", "good", "##ly", "film", "##s", "!"]
    assert found.words[2]["score"] == pytest.approx(found.scores[3:5].sum(), abs=1e-5)
    assert found.word_scores.sum() == pytest.approx(found.scores.sum(), abs=1e-5)
    assert found.word_scores.dtype == np.float32


def test_an_empty_text_has_no_words(classifier):
    found = inspect.attributions(classifier, "")
    assert (found.words, found.scores.tolist()) == ([], [0, 0])
    assert found.word_scores.shape == (0,)
    assert found._repr_html_()
    assert found.plot().axes


def test_pairs(encoder):
    model = heads.classifier(encoder, labels=["no", "yes"], pairs=True)
    found = inspect.attributions(model, "good films", "bad film", target="yes")
    assert found.tokens == ["[CLS]", "good", "film", "##s", "[SEP]", "bad", "film", "[SEP]"]
    assert [word.get("pair", False) for word in found.words] == [False, False, True, True]
    assert [word["start"] for word in found.words] == [0, 5, 0, 4]
    assert abs(found.error) < 1e-4
    following = inspect.attributions(heads.next_sentence(encoder), "good films", "bad film")
    assert following.target in ("next", "random")


def test_numbers_and_choices(encoder):
    for model, texts in (
        (heads.regressor(encoder), [TEXT]),
        (heads.multiple_choice(encoder), ["a film", "is good"]),
    ):
        found = inspect.attributions(model, *texts)
        assert found.target == "score"
        assert abs(found.error) < 1e-4 < abs(found.logit - found.baseline_logit)


def test_tags(encoder):
    model = heads.tagger(encoder, labels=["O", "B-work", "I-work"])
    logits = np.array(model(inputs_of(encoder, "films so good")))[0]
    found = inspect.attributions(model, "films so good", target=(2, "B-work"))
    assert (found.target, found.position, found.tokens[4]) == ("B-work", 4, "good")
    assert found.logit == pytest.approx(logits[4, 1], abs=1e-5)
    assert abs(found.error) < 1e-4
    found = inspect.attributions(model, "films so good", target=0)
    assert found.target == ["O", "B-work", "I-work"][logits[1].argmax()]


def test_answers(encoder):
    model = heads.span_selector(encoder)
    question, context = "is this bad", "this film is so good!"
    outputs = model(inputs_of(encoder, question, context))
    outputs = {name: np.array(value)[0] for name, value in outputs.items()}
    for target in ("start", "end"):
        found = inspect.attributions(model, question, context, target=target)
        logits = outputs[f"{target}_logits"]
        assert found.position == 5 + logits[5:-1].argmax()
        assert found.logit == pytest.approx(logits[5:-1].max(), abs=1e-5)
        assert abs(found.error) < 1e-4


@pytest.mark.parametrize("head", [heads.masked_lm, heads.pretraining])
def test_masked_tokens(encoder, head):
    model = head(encoder)
    text = "this [MASK] is so[MASK] 한국 good"
    candidates = keras_bert.pipeline(model)(text, top_k=None)
    found = inspect.attributions(model, text)
    assert " ".join(found.tokens) == "[CLS] this [MASK] is so [MASK] [UNK] good [SEP]"
    assert (found.target, found.position) == (candidates[0][0]["token"], 2)
    words = [(word["text"], text[word["start"] : word["end"]]) for word in found.words]
    assert words == [(word, word) for word in ("this", "is", "so", "한국", "good")]
    assert found.scores[[0, 2, 5, 8]].tolist() == [0, 0, 0, 0]
    assert abs(found.error) < 1e-4 < np.abs(found.scores).max()
    second = [inspect.attributions(model, text, target=(1, token)) for token in ("film", "good")]
    assert [each.position for each in second] == [5, 5]
    scores = {each["token"]: each["score"] for each in candidates[1]}
    assert second[0].logit - second[1].logit == pytest.approx(
        np.log(scores["film"] / scores["good"]), abs=1e-4
    )
    assert inspect.attention(model, text).tokens == found.tokens


LABELS = "The labels are bad, good, unclear"
WORDS = "words are 0 films, 1 so, 2 good"
OF_A_MASK = r"index of a \[MASK\] and a token"


@pytest.mark.parametrize(
    ("head", "texts", "target", "message"),
    [
        (heads.classifier, [TEXT], "nonsense", LABELS),
        (heads.classifier, [TEXT], 3, LABELS),
        (heads.classifier, [TEXT], -1, LABELS),
        (heads.classifier, [TEXT], 1.0, LABELS),
        (heads.embedder, [TEXT], None, "a text to compare with"),
        (heads.regressor, [TEXT], "x", "remove target"),
        (heads.tagger, ["films so good"], None, WORDS),
        (heads.tagger, ["films so good"], 3, WORDS),
        (heads.tagger, ["films so good"], "good", WORDS),
        (heads.span_selector, [TEXT, TEXT], "middle", "start, end"),
        (heads.span_selector, [TEXT, " "], "start", "no tokens"),
        (heads.masked_lm, [TEXT], None, r"has 0 \[MASK\]"),
        (heads.masked_lm, ["so [MASK]"], "goodness", "a token of the vocabulary"),
        (heads.masked_lm, ["so [MASK]"], (1, "good"), OF_A_MASK),
        (heads.masked_lm, ["so [MASK]"], ("good", 0), OF_A_MASK),
    ],
)
def test_wrong_targets(encoder, head, texts, target, message):
    options = {}
    if head in (heads.classifier, heads.tagger):
        options["labels"] = ["bad", "good", "unclear"]
    with pytest.raises(ValueError, match=message):
        inspect.attributions(head(encoder, **options), *texts, target=target)


@pytest.mark.parametrize("change", ["mixed_bfloat16", "lora", "rematerialize", "frozen"])
def test_attributions_of_changed_encoders(change):
    dtype = "mixed_bfloat16" if change == "mixed_bfloat16" else None
    encoder = tiny.encoder(
        initializer_range=0.3, dtype=dtype, rematerialize=change == "rematerialize"
    )
    if change == "lora":
        with_lora(encoder)
    encoder.trainable = change != "frozen"
    found = inspect.attributions(heads.regressor(encoder), TEXT)
    assert np.abs(found.scores).max() > 0.01
    # bfloat16 has 8 bits, and processors with and without AVX512-BF16 round differently.
    assert abs(found.error) < (2**-7 if change == "mixed_bfloat16" else 1e-4)


# --- HTML and figures ----------------------------------------------------------------------


ATTACK = '<script>alert("1")</script> & good'


def test_grid_of_heads(encoder):
    assert inspect.attention(encoder, TEXT)._repr_html_().count("<img") == 1
    large = inspect.Attention(["a"] * 512, np.full((2, 2, 512, 512), 1 / 512, np.float32))
    assert len(large._repr_html_()) < 40_000


def test_figures(encoder, classifier, tmp_path):
    seen = inspect.attention(encoder, "한국 so $good$ films")
    for name, figure in {
        "grid": seen.plot(),
        "mean": seen.plot(layer=1),
        "head": seen.plot(layer=1, head=0),
        "words": inspect.attributions(classifier, "한국 so $good$ films").plot(),
    }.items():
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").stat().st_size > 3000
    assert seen.plot(layer=1, head=0).axes[0].get_title() == "Layer 1, head 0"
    with pytest.raises(ValueError, match="head needs a layer; received head=0"):
        seen.plot(head=0)


# --- Command -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(encoder, classifier, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    keras_bert.save(encoder, folder / "encoder.keras")
    keras_bert.save(classifier, folder / "classifier.keras")
    keras_bert.save(heads.tagger(encoder, labels=["O", "B"]), folder / "tagger.keras")
    return folder


def test_explain_writes_one_page(saved, tmp_path, capsys):
    page = tmp_path / "explain.html"
    model = saved / "classifier.keras"
    assert main(["explain", str(model), ATTACK, "--output", str(page)]) == 0
    printed = capsys.readouterr().out
    label = r"(bad|good|unclear)"
    expected = rf"{page}: attributions to {label} and attention of 2 layers with 2 heads\n"
    assert re.fullmatch(expected, printed)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.count("<img") == text.count('src="data:') == 1
    assert "<script" not in text and "<link" not in text
    assert ATTACK in html.unescape(re.sub("<[^>]*>", "", text))
    assert [path.name for path in tmp_path.iterdir()] == ["explain.html"]


def test_explain_an_encoder_and_a_tagger(saved, tmp_path, capsys):
    def explain(model, *arguments):
        status = main(["explain", str(saved / f"{model}.keras"), *arguments, *output])
        return status, "".join(capsys.readouterr())

    page = tmp_path / "explain.html"
    output = ["--output", str(page), "--steps", "4"]
    attention = f"{page}: attention of 2 layers with 2 heads\n"
    assert explain("encoder", "good", "bad") == (0, attention)
    assert "Attributions" not in page.read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*has no pooling")
        status, printed = explain("encoder", "good", "--target", "so good")
    assert status == 0 and "attributions to so good and attention of" in printed
    assert explain("tagger", "so good", "--target", "1")[0] == 0
    assert "Attributions" in page.read_text(encoding="utf-8")
    assert explain("tagger", "so good") == (0, attention)  # a tag needs the index of a word
    status, printed = explain("tagger", "so good", "--target", "good")
    assert status == 1 and "The words are 0 so, 1 good" in printed


def test_explain_needs_a_folder(saved, tmp_path, capsys):
    missing = str(tmp_path / "no" / "explain.html")
    assert main(["explain", str(saved / "classifier.keras"), "good", "--output", missing]) == 1
    assert "does not exist. Create it first" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# --- Other backends and transformers -------------------------------------------------------

ON_BACKEND = """
import sys
import keras, numpy as np
from keras_bert import heads, inspect
from tests import tiny
def fill(model):
    random = np.random.default_rng(5)
    model.set_weights([random.normal(0, 0.5, w.shape).astype("float32") for w in model.weights])
    return model
encoder = tiny.encoder()
models = [
    (fill(heads.classifier(encoder, labels=["a", "b"])), ["this film is so good!"], None),
    (fill(heads.tagger(encoder, labels=["O", "B"])), ["films so good"], (1, "B")),
    (fill(heads.span_selector(encoder)), ["is this bad", "a film so good"], "end"),
    (fill(heads.multiple_choice(encoder)), ["a film", "is good"], None),
]
found = {}
for model, texts, target in models:
    result = inspect.attributions(model, *texts, target=target, steps=20)
    found[model.name] = np.array([*result.scores, result.logit, result.baseline_logit])
found["attention"] = inspect.attention(fill(encoder), "this film is so good!").weights
np.savez(sys.argv[1], **found)
"""


@pytest.mark.parametrize(
    "other",
    [pytest.param("jax", marks=pytest.mark.slow), pytest.param("torch", marks=pytest.mark.peers)],
)
def test_backends_agree(other, python, tmp_path):
    results = {}
    for backend in ("tensorflow", other):
        python("-c", ON_BACKEND, tmp_path / f"{backend}.npz", backend=backend)
        results[backend] = dict(np.load(tmp_path / f"{backend}.npz"))
    for name, expected in results["tensorflow"].items():
        np.testing.assert_allclose(results[other][name], expected, atol=1e-4, err_msg=name)
        assert expected.std() > 0.01, name


@pytest.mark.peers
@pytest.mark.parametrize("pair", [None, "a bad film"])
def test_attention_equals_that_of_transformers(pair, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=len(tiny.PIECES), hidden_size=24, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=40, max_position_embeddings=40, initializer_range=0.3,
        attn_implementation="eager",
    )  # fmt: skip
    original = transformers.BertModel(config).eval()
    original.save_pretrained(tmp_path)
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.PIECES) + "\n", encoding="utf-8")
    encoder = keras_bert.load(tmp_path, task=None)
    seen = inspect.attention(encoder, TEXT, pair)
    inputs = inputs_of(encoder, TEXT, *([pair] if pair else []))
    ids, types = (torch.tensor(inputs[f"input_{name}_ids"]).long() for name in ("word", "type"))
    with torch.no_grad():
        outputs = original(input_ids=ids, token_type_ids=types, output_attentions=True)
    expected = np.stack([weights[0].numpy() for weights in outputs.attentions])
    assert seen.weights.shape == expected.shape
    assert np.abs(seen.weights - expected).max() < 2e-5 < expected.std()
