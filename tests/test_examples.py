"""The examples run, in a small mode, and the data beside them is what its README says."""

import collections
import os
import pathlib
import re
import subprocess
import sys

import pytest

import keras_bert.hub
from keras_bert.finetuning import data

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def test_quickstart():
    try:
        keras_bert.hub.find("minilm")
    except OSError as error:
        pytest.skip(str(error))
    result = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py", "--epochs", "1", "--limit", "64"],
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""  # no log noise, no warnings
    for number in range(1, 6):
        assert f"\n{number}. " in result.stdout
    assert "[CLS] unbelievable : the cafe ref ##und ##ed me ! [SEP]" in result.stdout
    answers = result.stdout.split("\n5. ")[1].splitlines()[1:]
    assert len(answers) == 4
    assert all(re.match(r"  [a-z]+ +0\.\d\d  \S", line) for line in answers)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_support_data(split):
    examples = data.read(EXAMPLES / "data" / f"support_{split}.tsv", text="text", label="label")
    assert len(examples.label_names()) == 7
    counts = collections.Counter(re.sub(r"\W+", " ", text.lower()) for text in examples.texts)
    assert max(counts.values()) == 1
    assert 0.1 < examples.majority_share() < 0.25
    readme = (EXAMPLES / "data" / "README.md").read_text(encoding="utf-8")
    assert str(len(examples)) in readme


def test_no_message_is_in_both_splits():
    train, dev = (
        set(data.read(EXAMPLES / "data" / f"support_{s}.tsv", text="text").texts)
        for s in ("train", "dev")
    )
    assert not train & dev
