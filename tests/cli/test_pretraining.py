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


def test_vocab_refuses_files_and_folders_of_models(tmp_path, capsys):
    (corpus := tmp_path / "a.txt").write_text("low lower lowest\n" * 9)
    assert run("vocab", corpus, "--output", corpus) == 1
    assert "the output must be a folder" in capsys.readouterr().err
    for name in ("config.json", "model.keras", "a.safetensors", "records.json"):
        (folder := tmp_path / f"{name} folder").mkdir()
        (folder / name).touch()
        assert run("vocab", corpus, "--output", folder, "--size", 24) == 1
        assert "Use another --output" in capsys.readouterr().err
        assert [path.name for path in folder.iterdir()] == [name]


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
    assert run(*command, "--size", "tiny") == 1
    assert "give one of --model, --size and --config" in capsys.readouterr().err
    assert run(*command) == 0
    output = capsys.readouterr().out
    assert output.splitlines()[-1] == f"saved in {tmp_path / 'run'}"
    files = {file.name for file in (tmp_path / "run").iterdir()} - {".lock"}
    assert files == {"checkpoints", "curves.png", "history.jsonl", "model.keras"}
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["sequence_length"] for line in lines] == [16, 32]
    assert {"eval_loss", "eval_masked_lm_accuracy", "eval_next_sentence_accuracy"} <= set(
        json.loads(lines[-1])
    )
    model = keras_bert.load(tmp_path / "run", task="auto")
    encoder = keras_bert.heads.find_encoder(model)
    assert encoder.bert_config | CONFIG == encoder.bert_config
    assert encoder.bert_config["vocab_size"] == len(prose.PIECES)
    assert encoder.preprocessor.vocabulary == tuple(prose.PIECES)
    assert keras_bert.heads.find_task(model) == "pretraining"

    # Its heads can be served, or the encoder alone.
    capsys.readouterr()
    assert run("export", tmp_path / "run", tmp_path / "fill", "--task", "masked_tokens") == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "fill" / "1")]
    card = (tmp_path / "fill" / "README.md").read_text(encoding="utf-8")
    assert "candidates" in card

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

    # Packed, with the other options, from that model.
    command = [
        "pretrain", "--records", tmp_path / "records", "--output", tmp_path / "on",
        "--model", tmp_path / "run", "--steps", 2, "--lengths", 32, "--batch-size", 4,
        "--packed", "--whole-words", "--no-next-sentence", "--optimizer", "lamb",
        "--gradient-accumulation-steps", 2, "--warmup-steps", 0, "--seed", 5,
        "--dtype", "mixed_bfloat16", "--max-predictions", 3,
    ]  # fmt: skip
    assert run(*command) == 0
    model = keras_bert.load(tmp_path / "on", task="auto")
    assert keras_bert.heads.find_task(model) == "masked_tokens"
    assert keras_bert.heads.find_encoder(model).dtype_policy.name == "mixed_bfloat16"

    capsys.readouterr()
    for options, message in (
        (("--size", "base"), "give one of --model, --size and --config"),
        (("--max-predictions", 3, 4), "--max-predictions one, or as many"),
        (("--output", "gs://mine/run"), "gs://mine/run must be a local folder"),
    ):
        assert run(*command, *options) == 1
        assert message in capsys.readouterr().err


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


def test_published_configs_make_new_models(tmp_path):
    prose.build(tmp_path, prose.documents(9))
    made = records.Records(tmp_path / "records")
    config = tmp_path / "bert_config.json"
    published = {"directionality": "bidi", "pooler_fc_size": 8, "model_type": "bert"}
    config.write_text(json.dumps(CONFIG | published))
    args = argparse.Namespace(config=str(config), lengths=[16], size=None)
    assert pretraining._bert_config(args, made).items() >= CONFIG.items()
    config.write_text(json.dumps(CONFIG | {"model_type": "gpt2"}))
    with pytest.raises(ValueError, match="model_type"):
        pretraining._bert_config(args, made)


def test_a_second_phase_that_is_too_short_is_known_before_the_first(tmp_path, capsys):
    prose.build(tmp_path, prose.documents(20))
    command = ["pretrain", "--records", tmp_path / "records", "--output", tmp_path / "run"]
    assert run(*command, "--size", "tiny", "--steps", 10, "--lengths", 16, 7) == 1
    assert "sequence_length must be an integer of at least 8; received 7" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_too_few_documents_are_said_when_records_are_made(tmp_path, capsys):
    file = tmp_path / "corpus.txt"
    file.write_text("Zab. Zeb.\nZib.\n")
    vocab = tmp_path / "vocab"
    vocabulary.write(vocab, prose.PIECES, lowercase=True, strip_accents=True, split_cjk=True)
    assert run("records", file, "--vocab", vocab, "--output", tmp_path / "r", "--workers", 1) == 0
    output = capsys.readouterr().out
    assert "Separate documents by blank lines, or pretrain with --no-next-sentence" in output
    assert "fewer than two documents are held out" in output
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    command = ["pretrain", "--records", tmp_path / "r", "--output", tmp_path / "run",
               "--config", config, "--steps", 1, "--lengths", 16, "--batch-size", 2]  # fmt: skip
    assert run(*command) == 1
    error = capsys.readouterr().err
    assert "separate documents by blank lines, or use --no-next-sentence" in error


def test_what_was_mended_in_a_corpus_is_said_with_its_place(tmp_path, capsys):
    corpus = tmp_path / "corpus.txt"
    lines = [prose.text([document]).encode() for document in prose.documents(40, seed=7)]
    lines.insert(3, b"Caf\xe9 one.\n\n")
    corpus.write_bytes(b"".join(lines))
    number = b"".join(lines[:3]).count(b"\n") + 1
    vocab = tmp_path / "vocab"
    vocabulary.write(vocab, prose.PIECES, lowercase=True, strip_accents=True, split_cjk=True)
    file = vocab / "vocab.txt"
    assert run("records", corpus, "--vocab", file, "--output", tmp_path / "r", "--workers", 1) == 0
    expected = "1 lines with invalid UTF-8, replaced by U+FFFD; first: corpus.txt, "
    assert f"{expected}line {number}" in capsys.readouterr().out


def test_documents_of_one_sentence_have_no_next_one(tmp_path, capsys):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("".join(f"{prose.PIECES[5 + number]}.\n\n" for number in range(9)))
    vocab = tmp_path / "vocab"
    vocabulary.write(vocab, prose.PIECES, lowercase=True, strip_accents=True, split_cjk=True)
    made = tmp_path / "records"
    assert run("records", corpus, "--vocab", vocab, "--output", made, "--workers", 1) == 0
    assert "no document has a second sentence. Pretrain with --no-next" in capsys.readouterr().out
    config = tmp_path / "bert_config.json"
    config.write_text(json.dumps(CONFIG))
    command = ["pretrain", "--records", made, "--output", tmp_path / "run", "--config", config,
               "--steps", 1, "--lengths", 8, "--batch-size", 2]  # fmt: skip
    assert run(*command) == 1
    assert "needs second sentences; no document" in capsys.readouterr().err
    assert run(*command, "--no-next-sentence") == 0
