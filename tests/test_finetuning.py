"""Reading labelled files, batches of like lengths, training, and answers."""

import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.finetuning import batches, data, predict, train
from tests import tiny

ROWS = [
    ("good", "this film is good!"), ("bad", "bad film"), ("good", "so good"), ("bad", "so bad!"),
] * 8  # fmt: skip


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_formats_agree(tmp_path):
    tsv = write(tmp_path / "a.tsv", "id\ttext\tlabel\n1\tsays \"hi, you\tx\n\n2\tb's\ty\n")
    csv = write(tmp_path / "a.csv", 'id,text,label\r\n1,"says ""hi, you",x\r\n2,b\'s,y\r\n')
    jsonl = write(
        tmp_path / "a.jsonl",
        '{"text": "says \\"hi, you", "label": "x"}\n\n{"text": "b\'s", "label": "y"}\n',
    )
    bare = write(tmp_path / "plain", "\ufeffx\tsays \"hi, you\r\ny\tb's")
    for examples in (
        data.read(tsv, text="text", label="label"),
        data.read(csv, text="text", label="label"),
        data.read(jsonl, text="text", label="label"),
        data.read(bare, text="2", label="1", format="tsv", header=False),
    ):
        assert examples.texts == ['says "hi, you', "b's"]
        assert examples.labels == ["x", "y"]


def test_csv_fields_may_span_lines_and_be_long(tmp_path):
    long = "word " * 100_000
    file = write(tmp_path / "a.csv", f'text,label\n"two\nlines",1\n{long},2\n')
    assert data.read(file, text="text", label="label").texts == ["two\nlines", long]


def test_unicode_line_ends_stay_inside_a_field(tmp_path):
    file = write(tmp_path / "a.tsv", "text\tlabel\na\u2028b\x85c\x0cd\te\n")
    assert data.read(file, text="text").texts == ["a\u2028b\x85c\x0cd"]


def test_numbers_are_labels_and_sort_by_value(tmp_path):
    rows = "".join(json.dumps({"text": "a", "label": n}) + "\n" for n in (10, 9, 2))
    examples = data.read(write(tmp_path / "a.jsonl", rows), text="text", label="label")
    assert examples.label_names() == ["2", "9", "10"]


def test_a_blank_line_is_a_text_where_lines_are_texts(tmp_path):
    file = write(tmp_path / "a.txt", "good\n\nbad\n")
    assert data.read(file, text="1", header=False).texts == ["good", "", "bad"]


def test_limit_and_pairs(tmp_path):
    file = write(tmp_path / "a.tsv", "a\tb\n1\t2\n3\t4\n5\t6\n")
    examples = data.read(file, text="a", text_pair="b", limit=2)
    assert (examples.texts, examples.text_pairs) == (["1", "3"], ["2", "4"])


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a.tsv", "text\tlabel\na\tb\nc\n", {}, r"a\.tsv, row 3: must have 2 columns; received 1"),
        ("a.tsv", "text\tlabel\na\tb\tc\n", {}, r"a\.tsv, row 2: must have 2 columns; received 3"),
        ("a.tsv", "text\tlabel\ttext\na\tb\tc\n", {}, r"has two columns 'text'"),
        ("a.tsv", "text\tlabel\na\t\n", {}, r"a\.tsv, row 2: the label is empty"),
        ("a.csv", 'text,label\n"a,b\nc,d\n', {}, r"a\.csv, after row 1: unexpected end of data"),
        ("a.tsv", "text\tlabel\na\tb\n", {"text_pair": "text"}, r"each column has one use"),
        ("a.jsonl", "[" * 200_000, {}, r"a\.jsonl, line 1: is not JSON"),
        ("a.tsv", "x\ty\na\tb\n", {}, r"a\.tsv: has no column 'text'; its columns are x, y"),
        ("a.tsv", "text\tlabel\n", {}, r"a\.tsv: holds no rows"),
        ("a.tsv", "", {}, r"a\.tsv: holds no rows"),
        ("a.tsv", b"text\tlabel\n\xff\tb\n", {}, r"a\.tsv: must be UTF-8; received the byte 0xff"),
        ("a.dat", "a", {}, r"a\.dat: the format must be one of tsv, csv, jsonl; received '\.dat'"),
        ("a.tsv", "a\tb\n", {"header": False}, r"without a header a column is a number from 1"),
        ("a.jsonl", "{", {}, r"a\.jsonl, line 1: is not JSON"),
        ("a.jsonl", "[1]", {}, r"a\.jsonl, line 1: must be a JSON object"),
        ("a.jsonl", '{"text": "a"}', {}, r"a\.jsonl, line 1: has no key 'label'"),
        ("a.jsonl", '{"text": null, "label": "a"}', {}, r"'text' must be a string; received null"),
        (
            "a.jsonl",
            '{"text": 3, "label": "a"}',
            {},
            r"line 1: 'text' must be a string; received 3",
        ),
        ("a.jsonl", '{"text": "3", "label": null}', {}, r"'label' must be a string; received null"),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        data.read(write(tmp_path / name, content), text="text", label="label", **options)
    assert "\n" not in str(caught.value)


def test_batches_cover_all_rows_with_little_padding():
    rng = np.random.default_rng(0)
    texts = ["good " * int(n) for n in rng.integers(0, 40, 500)]
    tokenized = batches.TokenizedTexts(tiny.encoder().preprocessor, data.Examples(texts), 32)
    assert tokenized.lengths.max() == 32
    plan = batches.Batches(tokenized, np.arange(500), 16, seed=(3, 0))
    assert sorted(np.concatenate(plan.batches)) == list(range(500))
    padded = sum(len(rows) * tokenized.lengths[rows].max() for rows in plan.batches)
    assert padded < 1.1 * tokenized.lengths.sum()
    again = batches.Batches(tokenized, np.arange(500), 16, seed=(3, 0))
    other = batches.Batches(tokenized, np.arange(500), 16, seed=(3, 1))
    assert all((a == b).all() for a, b in zip(plan.batches, again.batches, strict=True))
    assert not np.array_equal(plan.batches[0], other.batches[0])
    inputs, targets, weights = plan[5]
    assert (targets == plan.batches[5]).all()
    assert inputs["input_word_ids"].shape[1] == tokenized.lengths[targets].max()
    assert (inputs["input_mask"].sum(axis=1) == tokenized.lengths[targets]).all()
    assert weights.tolist() == [1.0] * len(targets)


def test_fixed_lengths_keep_the_shapes_few():
    texts = ["good " * n for n in range(30)] * 3
    tokenized = batches.TokenizedTexts(tiny.encoder().preprocessor, data.Examples(texts), 32)
    plan = batches.Batches(tokenized, np.zeros(90, int), 8, seed=0, fixed_lengths=True)
    shapes, weight = set(), 0
    for index in range(len(plan)):
        inputs, _, weights = plan[index]
        shapes.add(inputs["input_word_ids"].shape)
        weight += weights.sum()
    assert shapes == {(8, 16), (8, 24), (8, 32)}
    assert weight == 90


def examples(rows=ROWS, **options):
    return data.Examples([text for _, text in rows], labels=[label for label, _ in rows], **options)


def test_training_learns_and_scores(capsys):
    model, metrics = train.finetune_classifier(
        tiny.encoder(), examples(), examples(), epochs=30, batch_size=8, learning_rate=1e-2,
        max_length=16,
    )  # fmt: skip
    assert metrics["accuracy"] == 1.0
    assert metrics["majority"] == 0.5
    assert metrics["examples_per_second"] > 0
    assert predict.classify(model, ["so good", "bad"])[0][0] == "good"
    assert predict.classify(model, []) == []
    assert capsys.readouterr().out == ""


def test_a_seed_gives_the_same_run():
    def weights(seed):
        keras.utils.set_random_seed(99)
        model, _ = train.finetune_classifier(
            tiny.encoder(), examples(), epochs=1, batch_size=8, seed=seed, show_progress=False
        )
        return [keras.ops.convert_to_numpy(variable) for variable in model.trainable_variables]

    first, second, other = weights(1), weights(1), weights(2)
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert not all(np.allclose(a, b, atol=1e-6) for a, b in zip(first, other, strict=True))


def test_pairs_train_and_answer():
    pairs = data.Examples(
        ["good", "good", "bad", "bad"] * 4, ["good", "bad"] * 8, ["same", "other"] * 8
    )
    model, _ = train.finetune_classifier(
        tiny.encoder(), pairs, epochs=1, batch_size=8, show_progress=False
    )
    assert keras_bert.heads.find_output(model).pairs
    assert len(predict.classify(model, ["good"], ["bad"])) == 1
    with pytest.raises(ValueError, match="reads pairs of texts; the call has single texts"):
        predict.classify(model, ["good"])


def test_columns_of_any_kind_are_lists_of_strings():
    columns = data.Examples(np.array(["a", "b"]), labels=np.array([1, 0]))
    assert (columns.texts, columns.labels) == (["a", "b"], ["1", "0"])
    assert columns.label_names() == ["0", "1"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("good",), "texts must be a list of strings; received one string"),
        ((["good", None],), "texts must be strings; received None"),
        ((["good", 3],), "texts must be strings; received 3"),
        ((["a"], ["b", "c"]), "text_pairs must be as many as the texts, 1; received 2"),
        ((["a"], None, ["x", "y"]), "labels must be as many as the texts, 1; received 2"),
    ],
)
def test_bad_columns_are_an_error(columns, message):
    with pytest.raises(ValueError, match=message):
        data.Examples(*columns)


def test_labels_may_be_numbers():
    texts, labels = [text for _, text in ROWS], [int(label == "good") for label, _ in ROWS]
    numbers = data.Examples(texts, labels=labels)
    model, metrics = train.finetune_classifier(
        tiny.encoder(), numbers, numbers, epochs=30, batch_size=8, learning_rate=1e-2,
        max_length=16,
    )  # fmt: skip
    assert metrics["accuracy"] == 1.0
    assert predict.classify(model, np.array(["so good"]))[0][0] == "1"


def test_divergence_is_an_error():
    with pytest.raises(ValueError, match="training diverged, the loss is"):
        train.finetune_classifier(
            tiny.encoder(), examples(), epochs=2, batch_size=8, learning_rate=float("inf")
        )


def test_a_kept_preprocessor_does_not_keep_keras_from_compiling():
    from keras.src.trainers.trainer import model_supports_jit

    encoder = tiny.encoder()
    assert model_supports_jit(keras_bert.heads.classifier(encoder, 2))
    text = keras.Input(shape=(), dtype="string")
    assert not model_supports_jit(keras.Model(text, encoder(encoder.preprocessor(text))))


def test_a_tokenizer_is_traced_once():
    tokenizer = tiny.encoder().preprocessor.tokenizer
    assert batches.tokenize_function(tokenizer) is batches.tokenize_function(tokenizer)


@pytest.mark.parametrize("option", ["epochs", "batch_size"])
def test_bad_numbers_are_an_error(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1; received 0"):
        train.finetune_classifier(tiny.encoder(), examples(), **{option: 0})


def test_predictions_do_not_depend_on_their_batch():
    model = keras_bert.heads.classifier(tiny.encoder(initializer_range=1.0), 3)
    texts = ["good " * 9, "bad", "this is " * 12, "", "so good film"]
    together = predict.probabilities(model, data.Examples(texts), batch_size=2)
    alone = [predict.probabilities(model, data.Examples([text]))[0] for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.ptp(together, axis=0).max() > 0.01  # the texts do differ, so their order counts


@pytest.mark.parametrize(
    ("train_rows", "dev_rows", "message"),
    [
        (
            [("good", "a")] * 3,
            None,
            "needs at least two labels to tell apart; received only 'good'",
        ),
        (
            ROWS,
            [("odd", "a")],
            "the dev file: has the label 'odd', which is none of the model's: bad, good",
        ),
    ],
)
def test_bad_labels_are_an_error(train_rows, dev_rows, message):
    dev = examples(dev_rows, source="the dev file") if dev_rows else None
    with pytest.raises(ValueError, match=message):
        train.finetune_classifier(
            tiny.encoder(), examples(train_rows, source="the training file"), dev
        )


def test_missing_labels_and_vocabulary_are_an_error():
    with pytest.raises(ValueError, match="has no labels to learn from"):
        train.finetune_classifier(tiny.encoder(), data.Examples(["a"]))
    encoder = tiny.encoder()
    encoder.preprocessor = None
    with pytest.raises(ValueError, match="has no preprocessor"):
        train.finetune_classifier(encoder, examples())
    with pytest.raises(ValueError, match="has no preprocessor"):
        predict.classify(keras_bert.heads.classifier(encoder, 2), ["a"])
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="must hold one BertEncoder"):
        predict.classify(plain, ["a"])
