"""`vocab`, `records` and `pretrain`."""

import argparse
import json

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert.cli import pretraining
from keras_bert.pretraining import records, vocabulary
from tests import prose
from tests.cli.shared import run

pytestmark = pytest.mark.usefixtures("eager")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"lowercase": True, "strip_accents": True, "split_cjk": True}),
        (["--keep-accents"], {"lowercase": True, "strip_accents": False, "split_cjk": True}),
        (
            ["--cased", "--no-split-cjk"],
            {"lowercase": False, "strip_accents": False, "split_cjk": False},
        ),
    ],
)
def test_vocab(tmp_path, capsys, options, expected):
    words = ["Crème", "brûlée", "play", "playing", "한국어", "日本", "films", "good"]
    texts = [" ".join(words[n % 5 :]) + ("" if n % 20 else " unseen☃") for n in range(1, 201)]
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "a.txt").write_text("\n\n".join(texts), encoding="utf-8")
    folder = tmp_path / "vocabulary"
    size = ("--size", 70, "--min-frequency", 3, "--max-bytes", 10**6)
    assert run("vocab", tmp_path / "corpus", "--output", folder, *size, *options) == 0
    pieces, found = vocabulary.read(folder)
    assert len(pieces) == 70 and found == expected
    assert ("C" in pieces) == ("--cased" in options)
    assert not set(pieces) & {"☃", "##☃"}  # it is in the held-out documents alone
    first, where, *lines = capsys.readouterr().out.splitlines()
    assert first == f"70 tokens from 200 documents in {folder}"
    assert where.startswith("on held-out documents (10), ")
    values = {line.rsplit(maxsplit=1)[0].strip(): line.rsplit(maxsplit=1)[1] for line in lines}
    assert float(values["unknown"].removesuffix("%")) > 5
    assert float(values["tokens per word"]) >= 1
    assert float(values["whole words"].removesuffix("%")) > 20


@pytest.mark.parametrize(
    ("text", "options", "apart"),
    [
        ("한국어 문장 low lower lowest\n" * 9, (), True),
        ("한국어 문장 low lower lowest\n" * 9, ("--keep-accents",), False),
        ("한국 low\n" * 2 + "low lower lowest\n" * 99, (), False),  # English that names a place
    ],
)
def test_vocab_says_when_it_takes_hangul_apart(tmp_path, capsys, text, options, apart):
    file = tmp_path / "a.txt"
    file.write_text(text, encoding="utf-8")
    assert run("vocab", file, "--output", tmp_path / "out", "--size", 32, *options) == 0
    assert ("Hangul syllables are split" in capsys.readouterr().out) == apart


def test_vocab_of_one_document_is_tried_on_it(tmp_path, capsys):
    file = tmp_path / "a.txt"
    file.write_bytes(b"low lower lowest \xff\n" * 9)
    assert run("vocab", file, "--output", tmp_path / "out", "--size", 24) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("on the corpus, 27 words:")
    mended = "9 lines with invalid UTF-8, replaced by U+FFFD; first: a.txt, line 1"
    assert lines[-1] == mended


CONFIG = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16,
    "max_position_embeddings": 32, "hidden_act": "gelu_new",
}  # fmt: skip


@pytest.mark.slow
def test_records_and_pretrain(tmp_path, capsys):
    """From a text to a model in a few steps, in two phases, and on from there."""
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(prose.text(prose.documents(200, seed=41)) + "Zab unknown.\n")
    vocab = tmp_path / "vocab"
    options = {"lowercase": True, "strip_accents": True, "split_cjk": True}
    vocabulary.write(vocab, prose.PIECES, **options)
    command = ["records", corpus, "--vocab", vocab, "--output", tmp_path / "records"]
    command += ["--held-out", "0.1", "--workers", "1"]
    assert run(*command) == 0
    made = records.Records(tmp_path / "records")
    counts = made.manifest["counts"]
    output = capsys.readouterr().out
    assert output.splitlines() == [
        f"201 documents, {counts['sentences']:,} sentences, {counts['pieces']:,} tokens in "
        f"{tmp_path / 'records'}",
        f"  held out         {made.counts('eval')['documents']} documents",
        f"  unknown          {1 / counts['pieces']:.3%}",
    ]
    assert run(*command) == 0
    assert capsys.readouterr().out == output
    assert run(*command[:-3], "0.2", *command[-2:]) == 1
    assert "held_out=0.1; received 0.2" in capsys.readouterr().err

    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    command = [
        "pretrain", "--records", tmp_path / "records", "--output", tmp_path / "run",
        "--config", config, "--steps", 2, "--lengths", 16, 32, "--first-share", 0.5,
        "--batch-size", 4, "--warmup-steps", 1, "--log-every", 1, "--save-every", 1,
    ]  # fmt: skip
    assert run(*command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"saved in {tmp_path / 'run'}"
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["sequence_length"] for line in lines] == [16, 32]
    model = keras_bert.load(tmp_path / "run", task="auto")
    encoder = keras_bert.heads.find_encoder(model)
    assert encoder.bert_config | CONFIG == encoder.bert_config
    assert encoder.bert_config["vocab_size"] == len(prose.PIECES)
    assert encoder.preprocessor.vocabulary == tuple(prose.PIECES)
    assert keras_bert.heads.find_task(model) == "pretraining"

    # Its heads can be served.
    assert run("export", tmp_path / "run", tmp_path / "fill", "--task", "masked_tokens") == 0
    assert "candidates" in (tmp_path / "fill" / "README.md").read_text(encoding="utf-8")

    # Given again it is done already; with other settings it is another run.
    assert run(*command) == 0
    assert "; the run is complete\n" in capsys.readouterr().err
    assert run(*command, "--seed", 1) == 1
    assert "use another folder" in capsys.readouterr().err

    # In another folder it is the same, whatever was drawn before.
    keras.utils.set_random_seed(99)
    command[4] = tmp_path / "again"
    assert run(*command) == 0
    again = keras_bert.load(tmp_path / "again", task="auto")
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_pretraining_goes_on_with_all_weights(tmp_path):
    """Both heads' too, in another dtype than that of the model on disk."""
    bert = keras_bert.BertEncoder(**CONFIG, vocab_size=len(prose.PIECES))
    bert.preprocessor = keras_bert.Preprocessor(prose.PIECES)
    before = keras_bert.heads.pretraining(bert)
    keras_bert.save(before, tmp_path / "model")
    args = argparse.Namespace(
        model=str(tmp_path / "model"), size=None, config=None, dtype="mixed_bfloat16",
        rematerialize=True, no_next_sentence=False, trusted=False,
    )  # fmt: skip
    model = pretraining._trained_model(args)
    encoder = keras_bert.heads.find_encoder(model)
    assert (encoder.dtype_policy.name, encoder.rematerialize) == ("mixed_bfloat16", True)
    assert encoder.preprocessor.vocabulary == tuple(prose.PIECES)
    for a, b in zip(before.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    args.no_next_sentence = True
    half = pretraining._trained_model(args).get_layer("masked_lm").get_weights()
    for a, b in zip(before.get_layer("masked_lm").get_weights(), half, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_second_phase_that_is_too_short_is_known_before_the_first(tmp_path, capsys):
    prose.build(tmp_path, prose.documents(20))
    command = ["pretrain", "--records", tmp_path / "records", "--output", tmp_path / "run"]
    assert run(*command, "--size", "tiny", "--steps", 10, "--lengths", 16, 7) == 1
    assert "sequence_length must be an integer of at least 8; received 7" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("corpus", "when_made", "error"),
    [
        (
            "Zab. Zeb.\nZib.\n",
            "Separate documents by blank lines, or pretrain with --no-next-sentence",
            "separate documents by blank lines, or use --no-next-sentence",
        ),
        (
            "".join(f"{word}.\n\n" for word in prose.WORDS[:9]),
            "no document has a second sentence. Pretrain with --no-next",
            "needs second sentences; no document",
        ),
    ],
    ids=["one document", "one sentence per document"],
)
def test_records_without_next_sentences(tmp_path, capsys, corpus, when_made, error):
    file = tmp_path / "corpus.txt"
    file.write_bytes(b"Caf\xe9 one. " + corpus.encode())
    vocab = tmp_path / "vocab"
    vocabulary.write(vocab, prose.PIECES, lowercase=True, strip_accents=True, split_cjk=True)
    made = tmp_path / "records"
    assert run("records", file, "--vocab", vocab, "--output", made, "--workers", 1) == 0
    output = capsys.readouterr().out
    assert when_made in output
    assert "fewer than two documents are held out" in output
    assert "1 lines with invalid UTF-8, replaced by U+FFFD; first: corpus.txt, line 1" in output
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    command = ["pretrain", "--records", made, "--output", tmp_path / "run", "--config", config,
               "--steps", 1, "--lengths", 8, "--batch-size", 2]  # fmt: skip
    assert run(*command) == 1
    assert error in capsys.readouterr().err


def test_pretraining_without_next_sentences(tmp_path):
    prose.build(tmp_path, "".join(f"{word}.\n\n" for word in prose.WORDS[:9]))
    config = tmp_path / "bert_config.json"
    # Published configs have such keys.
    config.write_text(json.dumps(CONFIG | {"directionality": "bidi", "model_type": "bert"}))
    command = ["pretrain", "--records", tmp_path / "records", "--output", tmp_path / "run",
               "--config", config, "--steps", 1, "--lengths", 8, "--batch-size", 2]  # fmt: skip
    assert run(*command, "--no-next-sentence") == 0
