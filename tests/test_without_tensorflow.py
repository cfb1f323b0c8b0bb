"""What an environment without TensorFlow can do, and what says that it needs TensorFlow.

`make test-no-tensorflow` runs this file with JAX and with torch. With TensorFlow it is skipped.
"""

import importlib.util
import json
import sys
import threading

import keras
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny
from tests.cli.shared import run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is not None, reason="TensorFlow is installed"
)
INSTALL = r"needs TensorFlow; run: pip install .*\[tensorflow\]'"


def test_commands(tmp_path, capsys):
    keras_bert.save(tiny.encoder(), tmp_path / "encoder")
    rows = "".join(f"{text}\t{label}\n" for label, text in tiny.ROWS)
    file = tmp_path / "train.tsv"
    file.write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    model = tmp_path / "out"
    common = ["--train", file, "--dev", file, "--epochs", 1, "--output", model]
    assert run("finetune", "--model", tmp_path / "encoder", *common) == 0, capsys.readouterr().err
    assert run("info", model) == 0
    assert run("evaluate", model, "--input", file) == 0
    assert run("predict", model, "so good") == 0
    assert run("explain", model, "so good", "--output", tmp_path / "why.html") == 0
    assert run("convert", model, tmp_path / "other", "--to", "huggingface") == 0
    assert run("embed", tmp_path / "encoder", "--input", file, "--output", tmp_path / "v.npy") == 0
    assert "tensorflow" not in sys.modules


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "encoder", "exported"],
        ["serve", "encoder"],
        ["records", "corpus.txt", "--vocab", "encoder", "--output", "made"],
        ["pretrain", "--records", "records", "--output", "run"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_that_need_tensorflow(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    keras_bert.save(tiny.encoder(), tmp_path / "encoder")
    (tmp_path / "corpus.txt").write_text("a film\n\nso good\n", encoding="utf-8")
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "manifest.json").write_text(json.dumps({}), encoding="utf-8")
    assert run(*arguments) == 1
    assert "TensorFlow" in capsys.readouterr().err
    assert not {"exported", "made", "run"} & {path.name for path in tmp_path.iterdir()}


def test_functions_that_need_tensorflow(tmp_path):
    model = heads.classifier(tiny.encoder(), labels=["a", "b"])
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow"):
        keras_bert.export(model, tmp_path / "exported")
    with pytest.raises(ValueError, match="only TensorFlow has string tensors"):
        tiny.encoder().preprocessor(keras.Input((), dtype="string"))
    with pytest.raises(ImportError, match=INSTALL):
        keras_bert.Examples(["a"]).to_dataset(model)
    with pytest.raises(ImportError, match=INSTALL):
        keras_bert.save(tiny.encoder(), tmp_path / "google", format="google")
    with pytest.raises(ImportError, match=INSTALL):
        _ = keras_bert.Tokenizer
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow"):
        keras_bert.HubLayer("a")
    assert not list(tmp_path.iterdir())


def test_no_thread_is_left_after_an_error_in_a_callback():
    def fail(batch, logs):
        raise RuntimeError("the callback fails")

    before = set(threading.enumerate())
    with pytest.raises(RuntimeError, match="the callback fails") as error:
        keras_bert.finetune(
            tiny.encoder(), tiny.examples(), batch_size=4, show_progress=False,
            callbacks=[keras.callbacks.LambdaCallback(on_train_batch_end=fail)],
        )  # fmt: skip
    threads = set(threading.enumerate()) - before
    for thread in threads:
        thread.join(timeout=10)
    assert not any(thread.is_alive() for thread in threads)
    assert error.traceback
