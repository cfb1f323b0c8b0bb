"""Notes on a vocabulary of another language."""

import keras_bert
from keras_bert import Examples
from keras_bert.text import vocabulary_fit
from tests import tiny
from tests.cli.shared import run

KOREAN = ["좋은 영화", "재미없는 영화"] * 14


def test_notes():
    tokenizer = keras_bert.Preprocessor(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "film"]
    ).python_tokenizer
    note = vocabulary_fit.note(["좋은 영화", "good film"] * 20, "a.tsv", tokenizer)
    assert note.startswith(
        "a.tsv: the vocabulary does not fit the texts: 50.0% of the words are unknown, and the "
        "others have 1.0 tokens."
    )
    for texts in (["good film"] * 40, ["좋은 영화"], [" "], []):
        assert vocabulary_fit.note(texts, "a.tsv", tokenizer) is None


def test_finetune_tells_it(capsys):
    data = Examples(KOREAN, labels=["good", "bad"] * 14)
    keras_bert.finetune(tiny.encoder(), data, epochs=1, contrastive=False)
    assert "the examples: the vocabulary does not fit the texts" in capsys.readouterr().err


def test_commands_tell_it(tmp_path, capsys):
    model, file = tmp_path / "model.keras", tmp_path / "a.tsv"
    keras_bert.save(tiny.encoder(pooling="mean"), model)
    file.write_text("text\n" + "\n".join(KOREAN) + "\n", encoding="utf-8")
    assert run("search", file, "영화", "--model", model, "--text", "text") == 0
    assert f"{file}: the vocabulary does not fit the texts" in capsys.readouterr().err
