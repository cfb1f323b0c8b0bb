"""Warnings name the line of the user, in whatever folder it stands."""

import pathlib
import warnings

import pytest

import keras_bert
from keras_bert.text.tokenizer import WordPieceTokenizer
from tests import tiny

PACKAGE = pathlib.Path(keras_bert.__file__).parent
UPPER = ["[UNK]", *(letter + other for letter in "ABCDEFGHIJ" for other in "KLMNOPQRST")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("keras_bert.pipeline(tiny.encoder())", "has no pooling"),
        ("WordPieceTokenizer(UPPER, lowercase=True)", "does not fit this vocabulary"),
    ],
)
@pytest.mark.parametrize("folder", [f"{PACKAGE}_app", PACKAGE.parent / "app"])
def test_a_warning_names_the_line_of_the_user(untraced, line, message, folder):
    names = {"keras_bert": keras_bert, "tiny": tiny, "UPPER": UPPER}
    names["WordPieceTokenizer"] = WordPieceTokenizer
    file = str(pathlib.Path(folder, "main.py"))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        exec(compile(f"\n{line}", file, "exec"), names)
    (warning,) = [each for each in found if message in str(each.message)]
    assert (warning.filename, warning.lineno) == (file, 2)
