"""Terminal output."""

import os
import subprocess
import sys

import pytest

from keras_bert.runtime import terminal
from keras_bert.runtime.terminal import progress, quiet_imports


def test_quiet_imports_hide_stderr(capfd):
    with quiet_imports():
        os.write(2, b"noise")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


@pytest.mark.parametrize(
    ("error", "expected"), [(ImportError, "the reason"), (KeyboardInterrupt, "")]
)
def test_quiet_imports_show_the_output_of_a_failed_import(error, expected, capfd):
    with pytest.raises(error), quiet_imports():
        os.write(2, b"the reason")
        raise error
    assert capfd.readouterr().err == expected


def test_progress_in_a_notebook_is_one_line(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with progress("{task.fields[loss]}") as bar:
        task = bar.add_task("Epoch 1", total=2, loss="0.25")
        now[0] += 2
        bar.advance(task)
        bar.advance(task)
    assert capsys.readouterr().err == "Epoch 1: 50%, 0.25\rEpoch 1: 100%, 0.25\r\n"
    with progress(show=False) as bar:
        bar.add_task("Epoch 1", total=2)
    assert capsys.readouterr().err == ""


def test_no_progress_bar_without_a_terminal(capfd):
    with progress("{task.fields[loss]}") as bar:
        bar.advance(bar.add_task("Working", total=2, loss=1.0), 2)
    assert capfd.readouterr() == ("", "")


def test_command_line_shows_no_logs():
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    result = subprocess.run(
        [sys.executable, "-m", "keras_bert", "info", "x"],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr.startswith("keras-bert: 'x' is ")
    assert result.stderr.count("\n") == 1


@pytest.mark.slow
def test_quiet_keeps_a_script_quiet(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import sys
import keras_bert
assert "keras" not in sys.modules
keras_bert.quiet()
import tensorflow as tf
for _ in range(9):  # TensorFlow warns of retracing
    tf.function(lambda x: x)(1)
    tf.function(lambda x: x, jit_compile=True)(tf.ones(3))
preprocessor = keras_bert.Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
print(preprocessor(["good"])["input_word_ids"].shape)
raise SystemExit("errors are shown")
""")
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    # The script imports this checkout, whether or not the package is installed.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    result = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=environment, check=False
    )
    assert (result.stdout, result.stderr) == ("(1, 128)\n", "errors are shown\n")


def test_a_line_per_minute_without_a_terminal(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    with progress("loss {task.fields[loss]}", "{task.fields[rate]}") as bar:
        task = bar.add_task("Epoch 1 of 3", total=200, loss="-", rate="")
        for number in range(1, 14):
            now[0] += 10
            bar.update(task, completed=number * 10, loss=f"{1 / number:.2f}", rate="")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["Epoch 1 of 3: 30%, loss 0.17", "Epoch 1 of 3: 60%, loss 0.08"]
    with progress(show=False) as bar:
        now[0] += 100
        bar.advance(bar.add_task("Predicting", total=None), 5)
    with progress() as bar:
        task = bar.add_task("Predicting", total=None)
        now[0] += 100
        bar.advance(task, 5)
    assert capsys.readouterr().err == "Predicting: 5\n"
