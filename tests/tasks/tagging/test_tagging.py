"""Tests of tagging: windows, targets at first tokens, tags of words, scores of entities."""

import functools
import random
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.tasks.keras_predictor import KerasPredictor
from keras_bert.tasks.tagging.data import TaggedSentences
from keras_bert.tasks.tagging.task import Tagging, are_characters
from tests import tiny

tagging = Tagging()

INVISIBLE = "\u200b"  # the tokenizer drops it, so a word of it has no tokens
NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
# Each word "w<number>" is one token, so that the ids identify the words.
NUMBERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "##x", "##y", *(f"w{n}" for n in range(400))]


def model_of(labels, tokens=tiny.PIECES, lowercase=True):
    return cached_model(tuple(labels), tuple(tokens), lowercase)


@functools.cache  # no test changes a model
def cached_model(labels, tokens, lowercase):
    encoder = keras_bert.BertEncoder(
        vocab_size=len(tokens), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
        preprocessor=preprocessor(tokens, lowercase),
    )  # fmt: skip
    return heads.tagger(encoder, labels=labels)


@functools.cache
def preprocessor(tokens=tuple(tiny.PIECES), lowercase=True):
    return keras_bert.Preprocessor(tokens, lowercase=lowercase)


def random_sentences(seed, count=40):
    """Return sentences of words with 0 to 9 tokens. Each word has a tag of its own."""
    draw = random.Random(seed)
    words = []
    for _ in range(count):
        numbers = iter(draw.sample(range(400), 120))
        words.append([])
        for _ in range(draw.choice([1, 5, 60])):
            kind, tail = draw.random(), draw.choice(["", "", "x", "yx", "xyxyxyxy"])
            if kind < 0.1:
                words[-1].append(draw.choice([INVISIBLE, " ", ""]))
            elif kind < 0.15:
                words[-1].append(f"w{next(numbers)} w{next(numbers)}")
            else:
                words[-1].append(f"w{next(numbers)}{tail}")
    place = iter(range(count * 60))
    return TaggedSentences(words, [[f"t{next(place)}" for _ in row] for row in words])


def ids_of(word):
    """Return the ids of a word of `random_sentences`."""
    parts = [(part.rstrip("xy"), part.lstrip("w0123456789")) for part in word.split()]
    return [
        NUMBERS.index(piece)
        for number, tail in parts
        if number != INVISIBLE
        for piece in (number, *(f"##{char}" for char in tail))
    ]


def everything(encoded, extra=0):
    """Return all windows as one batch."""
    return encoded.batch(np.arange(len(encoded)), int(encoded.lengths.max()) + extra)


@pytest.mark.parametrize(("max_length", "stride"), [(3, None), (7, 1), (12, 10), (24, None)])
def test_each_word_counts_once_in_the_window_with_the_most_context(max_length, stride):
    capacity = max_length - 2
    sentences = random_sentences(seed=max_length)
    labels = sorted(tag for row in sentences.tags for tag in row)
    encoded = tiny.encode(model_of(labels, NUMBERS), sentences, max_length, stride=stride)
    inputs, targets, weights = everything(encoded)
    assert len(encoded) > len(sentences)

    answered, row = [], 0
    for words, tags in zip(sentences.words, sentences.tags, strict=True):
        cut = [ids_of(word)[:capacity] for word in words]
        edges = np.cumsum([0, *map(len, cut)]).tolist()
        text = [piece for word in cut for piece in word]
        spans, owners = [], {}
        while spans[-1][1] < len(text) if spans else text:
            ids = inputs["input_word_ids"][row, 1 : encoded.lengths[row] - 1].tolist()
            # The first token of a window identifies its word.
            starts = [at for at in edges if ids == text[at : at + len(ids)]]
            assert len(set(starts)) == 1
            span = (starts[0], starts[0] + len(ids))
            assert span[1] in edges
            assert len(ids) <= capacity
            if spans:
                assert spans[-1][0] < span[0] <= spans[-1][1] < span[1]
            for position in np.flatnonzero(weights[row]):
                word = tags.index(labels[targets[row, position]])
                assert edges[word] == span[0] + position - 1
                owners[word] = len(spans)
                answered.append(word)
            spans.append(span)
            row += 1
        assert sorted(owners) == [n for n, word in enumerate(cut) if word]
        for word, owner in owners.items():
            # At the ends of the sentence, no context is missing.
            around = [
                min(
                    edges[word] - start if start else len(text),
                    limit - edges[word + 1] if limit < len(text) else len(text),
                )
                for start, limit in spans
            ]
            assert around[owner] == max(around)
    assert row == len(encoded)
    with_tokens = sum(bool(ids_of(word)) for words in sentences.words for word in words)
    assert len(answered) == (weights > 0).sum() == with_tokens
    assert encoded.words_without_tokens == len(labels) - with_tokens


def test_default_stride_overlaps_by_a_quarter():
    sentences = TaggedSentences([[f"w{n}" for n in range(40)]])
    model = model_of(NAMES, NUMBERS)
    for stride, starts in ((None, [0, 12, 24]), (8, [0, 8, 16, 24]), (16, [0, 16, 32])):
        encoded = tiny.encode(model, sentences, max_length=18, stride=stride)
        first = everything(encoded)[0]["input_word_ids"][:, 1]
        assert first.tolist() == [NUMBERS.index(f"w{n}") for n in starts]
        assert encoded.lengths.tolist() == [min(16, 40 - n) + 2 for n in starts]
    assert encoded.max_length == 18


def test_words_longer_than_a_window_keep_their_first_tokens():
    sentences = TaggedSentences([["w1", "w2" + "x" * 8, "w3"]], [["O", "B-PER", "O"]])
    encoded = tiny.encode(model_of(NAMES, NUMBERS), sentences, max_length=6)
    inputs, targets, weights = everything(encoded)
    ids = [[NUMBERS[piece] for piece in row] for row in inputs["input_word_ids"]]
    assert ids == [
        ["[CLS]", "w1", "[SEP]", "[PAD]", "[PAD]", "[PAD]"],
        ["[CLS]", "w2", "##x", "##x", "##x", "[SEP]"],
        ["[CLS]", "w3", "[SEP]", "[PAD]", "[PAD]", "[PAD]"],
    ]
    np.testing.assert_allclose(weights.sum(axis=1), [1] * 3, rtol=1e-6)  # one word per window
    assert encoded.cut_words == 1
    assert targets[:, 1].tolist() == [0, 1, 0]


def test_contents_of_a_batch():
    sentences = TaggedSentences(
        [["so", "badly", "!"], ["film"], [INVISIBLE, "goods", "\u00a0"]],
        [["O", "B-LOC", "I-LOC"], ["B-PER"], ["O", "I-PER", "O"]],
    )
    encoded = tiny.encode(model_of(NAMES), sentences, max_length=32)
    assert encoded.lengths.tolist() == [6, 3, 4]
    inputs, targets, weights = encoded.batch([2, 0], 7)
    assert [[tiny.PIECES[piece] for piece in row] for row in inputs["input_word_ids"]] == [
        ["[CLS]", "good", "##s", "[SEP]", "[PAD]", "[PAD]", "[PAD]"],
        ["[CLS]", "so", "bad", "##ly", "!", "[SEP]", "[PAD]"],
    ]
    assert inputs["input_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]]
    assert list(inputs) == ["input_word_ids", "input_mask", "input_type_ids"]
    assert not inputs["input_type_ids"].any()
    assert targets.tolist() == [[0, 2, 0, 0, 0, 0, 0], [0, 0, 3, 0, 4, 0, 0]]
    # Five words in three windows.
    expected = [[0, 0.6, 0, 0, 0, 0, 0], [0, 0.6, 0.6, 0, 0.6, 0, 0]]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    arrays = (*inputs.values(), targets, weights)
    assert [array.dtype for array in arrays] == [np.int32] * 4 + [np.float32]
    assert {array.shape for array in arrays} == {(2, 7)}
    assert (encoded.words_without_tokens, encoded.cut_words) == (2, 0)


@pytest.mark.parametrize(
    ("sentences", "options", "message"),
    [
        (TaggedSentences([["so"]]), {"max_length": 2}, "max_length must be an integer of at least"),
        (TaggedSentences([["so"]]), {"stride": 7}, "stride must be from 1 to .*, 6; received 7"),
        (TaggedSentences([["so"]]), {"stride": 0}, "received 0"),
        (TaggedSentences([["so"], ["a"]], [["O"], ["B-FOO"]], source="dev.tsv"), {},
         "dev.tsv, sentence 2: the tag 'B-FOO' is not one of the model's labels: O, B-PER, "),
    ],
)  # fmt: skip
def test_what_encode_rejects(sentences, options, message):
    with pytest.raises(ValueError, match=message):
        tiny.encode(model_of(NAMES), sentences, **{"max_length": 8, **options})


def test_build_uses_the_labels_of_the_data():
    sentences = TaggedSentences([["so", "bad"]], [["O", "B-PER"]])
    model = tagging.build(tiny.encoder(), sentences)
    assert heads.find_output(model).labels == ["O", "B-PER"]
    assert heads.find_output(model).task == "tagging"


def test_loss_and_accuracy_count_first_tokens():
    sentences = TaggedSentences([["badly", "goods", "so"], ["film"]], [["O", "B-PER", "O"], ["O"]])
    model = tagging.build(tiny.encoder(initializer_range=1.0), sentences)
    model.compile("sgd", **tagging.compile_options(heads.find_output(model), None))
    inputs, targets, weights = everything(tiny.encode(model, sentences, 32))
    logits = keras.ops.convert_to_numpy(model(inputs))
    log = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    at = [(0, 1, 0), (0, 3, 1), (0, 5, 0), (1, 1, 0)]  # badly, goods, so, film
    loss = -sum(log[place] for place in at) / len(at)  # the mean over words
    right = np.mean([logits[row, position].argmax() == label for row, position, label in at])
    # Keras' mean is over all positions.
    weights = weights * weights.shape[1]
    result = model.test_on_batch(inputs, targets, weights, return_dict=True)
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(result["accuracy"], right, rtol=1e-6)


@pytest.mark.parametrize("max_length", [4, 20])
def test_decode_inverts_encode(max_length):
    sentences = random_sentences(seed=1)
    labels = ["O", *sorted(tag for row in sentences.tags for tag in row)]
    model = model_of(labels, NUMBERS)
    encoded = tiny.encode(model, sentences, max_length)
    _, targets, weights = everything(encoded, extra=3)
    # Positions with weight 0 have random logits.
    noise = np.random.default_rng(0).normal(scale=50, size=(*targets.shape, len(labels)))
    right = 99.0 * np.eye(len(labels))[targets]
    outputs = list(np.where(weights[..., None] > 0, right, noise))
    answers = KerasPredictor(model).decode(sentences, encoded, outputs)
    for words, tags, answer in zip(sentences.words, sentences.tags, answers, strict=True):
        known = [bool(ids_of(word)) for word in words]
        wanted = [tag if has else "O" for tag, has in zip(tags, known, strict=True)]
        assert [tag for tag, _ in answer] == wanted
        assert [value for _, value in answer] == [float(has) for has in known]


def test_score_is_a_probability():
    sentences = TaggedSentences([["so"]])
    model = model_of(["a", "b"])
    encoded = tiny.encode(model, sentences, 8)
    [[(tag, value)]] = KerasPredictor(model).decode(
        sentences, encoded, [np.log([[1, 1], [1, 3], [1, 1]])]
    )
    assert tag == "b"
    assert type(value) is float
    np.testing.assert_allclose(value, 0.75, rtol=1e-6)


def tagged(names, words, given):
    """Return the tags of words, if the model gives the tags `given` to those with tokens.

    The first name is the tag outside of entities, here also of [CLS] and [SEP].
    """
    sentences = TaggedSentences(words)
    model = model_of(names)
    encoded = tiny.encode(model, sentences, 32)
    outputs = [
        99.0 * np.eye(len(names))[[0, *(names.index(tag) for tag in row), 0]] for row in given
    ]
    answers = KerasPredictor(model).decode(sentences, encoded, outputs)
    return [[tag for tag, _ in answer] for answer in answers]


@pytest.mark.parametrize(
    ("names", "around", "gap"),
    [
        (NAMES, ["B-PER", "I-PER"], "I-PER"),
        (NAMES, ["I-PER", "I-PER"], "I-PER"),
        (NAMES, ["B-PER", "O"], "O"),
        (NAMES, ["B-PER", "B-PER"], "O"),
        (NAMES, ["B-PER", "I-LOC"], "O"),
        (NAMES, ["O", "I-PER"], "O"),
        (["O", "B-PER", "I-PER", "E-PER"], ["B-PER", "E-PER"], "I-PER"),
        (["O", "B-PER", "M-PER", "E-PER"], ["M-PER", "E-PER"], "M-PER"),
        (["-", "PER_B", "PER_I"], ["PER_B", "PER_I"], "PER_I"),
        (["-", "PER_B", "PER_I"], ["PER_B", "-"], "-"),
        (["O", "B-PER", "E-PER", "S-PER"], ["S-PER", "E-PER"], "O"),
    ],
)
def test_space_does_not_end_an_entity(names, around, gap):
    # KLUE-NER tags characters, including spaces inside names.
    first, last = around
    assert tagged(names, [["so", " ", INVISIBLE, "bad"]], [around]) == [[first, gap, gap, last]]


def test_entities_end_with_their_sentence():
    words = [["so", " "], [" ", "bad"]]
    assert tagged(NAMES, words, [["B-PER"], ["I-PER"]]) == [["B-PER", "O"], ["O", "I-PER"]]


def test_sentences_without_tokens_have_tags():
    words = [[INVISIBLE, " "], [], ["so"]]
    assert tagged(NAMES, words, [["B-PER"]]) == [["O", "O"], [], ["B-PER"]]
    assert tagged(NAMES, words[:2], []) == [["O", "O"], []]


def test_default_tag_without_o_is_the_first_label():
    sentences = TaggedSentences([[" "]])
    model = model_of(["NOUN", "VERB"])
    encoded = tiny.encode(model, sentences, 32)
    assert KerasPredictor(model).decode(sentences, encoded, []) == [[("NOUN", 0.0)]]


def scores(gold, given):
    words = [["a"] * len(row) for row in gold]
    answers = [[(tag, 1.0) for tag in row] for row in given]
    output = heads.TaskOutput("tagging", labels=labels_of(gold, given))
    return tagging.score(output, TaggedSentences(words, gold), answers)


def labels_of(*columns):
    return sorted({tag for rows in columns for row in rows for tag in row} | {"O", "X"})


def test_entities_are_scored_as_a_whole():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    given = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "B-PER"]]
    result = scores(gold, given)
    assert list(result) == ["f1", "precision", "recall", "accuracy", "majority"]
    assert result["precision"] == 2 / 4
    assert result["recall"] == 2 / 3
    np.testing.assert_allclose(result["f1"], 4 / 7)
    np.testing.assert_allclose(result["accuracy"], 4 / 6)
    np.testing.assert_allclose(result["majority"], 2 / 6)


def test_metrics_depend_on_the_labels_of_the_model_or_on_the_tags():
    output = heads.TaskOutput("tagging", labels=["B-PER", "O"])
    sentences = TaggedSentences([["a"]], [["O"]])
    result = tagging.score(output, sentences, [[("O", 1.0)]])
    assert result["f1"] == 0 and result["accuracy"] == 1
    assert tuple(result)[:-1] == tagging.metric_names(output, sentences)
    sentences = TaggedSentences([["a"]], [["NOUN"]])
    assert list(tagging.score(None, sentences, [[("NOUN", 1.0)]])) == ["accuracy", "majority"]


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_scores_match_seqeval(prefixes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the packages that seqeval imports
        metrics = pytest.importorskip("seqeval.metrics")
    draw = random.Random(0)
    names = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC-x"))]
    for _ in range(300):  # 1 to 15 sentences, mostly with malformed tags
        sizes = [draw.randint(1, 9) for _ in range(draw.randint(1, 15))]
        gold = [draw.choices(names, k=size) for size in sizes]
        gold[0][0] = "B-PER"  # seqeval warns without entities
        given = [
            [tag if draw.random() < 0.7 else draw.choice(names) for tag in row] for row in gold
        ]
        given[-1][-1] = "I-PER"
        result = scores(gold, given)
        np.testing.assert_allclose(
            [result[name] for name in ("f1", "precision", "recall", "accuracy")],
            [
                metrics.f1_score(gold, given),
                metrics.precision_score(gold, given),
                metrics.recall_score(gold, given),
                metrics.accuracy_score(gold, given),
            ],
            atol=1e-12,
        )


def test_scores_of_tags_with_the_position_at_the_end():
    gold = [["PER_B", "PER_I", "-", "LOC_B"]]
    output = heads.TaskOutput("tagging", labels=["-", "LOC_B", "PER_B", "PER_I"])
    sentences = TaggedSentences([["a"] * 4], gold)
    answers = [[(tag, 1.0) for tag in ("PER_B", "-", "-", "LOC_B")]]
    assert tagging.score(output, sentences, answers)["f1"] == 0.5
    assert tagging.metric_names(output, sentences)[0] == "f1"
    report = tagging.report(output, sentences, answers)
    assert {name: row["f1"] for name, row in report.items()} == {"LOC": 1.0, "PER": 0.0}


def test_are_characters():
    characters = [list("서울에서 만나요")] * 25
    assert are_characters(characters)
    assert are_characters([*characters, ["URL"]])
    assert not are_characters([*characters, ["그리고"] * 50])
    assert not are_characters([["I", "a", "go"]])
    assert not are_characters([[], []])


def test_entities_of_characters_have_no_spaces_between_them():
    output = heads.TaskOutput("tagging", labels=NAMES, characters=True)
    sentences = TaggedSentences([list("대한 국은")])
    answers = [[(tag, 1.0) for tag in ("B-LOC", "I-LOC", "I-LOC", "I-LOC", "O")]]
    [[entity]] = tagging.results(output, sentences, answers)
    assert (entity["text"], entity["start"], entity["end"]) == ("대한 국", 0, 4)
    assert tagging.columns_of(sentences, output) == [["대한 국은"]]


def test_sentences_without_words_cannot_be_scored():
    pipe = keras_bert.pipeline(model_of(NAMES))
    with pytest.raises(ValueError, match="the sentences: no word .* nothing to score"):
        pipe.evaluate(TaggedSentences([[]], [[]]))
