"""Tests of labeled texts: their columns and what is checked."""

import decimal
import itertools

import numpy as np
import pytest

from keras_bert.data.examples import Examples


def test_columns_become_lists():
    columns = Examples(np.array(["a", "b"]), labels=np.array([1, 0]))
    assert (columns.texts, columns.labels) == (["a", "b"], [1, 0])
    assert columns.label_names() == [0, 1]


@pytest.mark.parametrize(
    ("texts", "columns", "message"),
    [
        ("good", {}, "texts must be a list of strings; received one string"),
        (["good", 3], {}, "texts must be strings; received 3"),
        (["a", "b"], {"text_pairs": ["b"]}, "the same length as texts, 2; received 1"),
        (["a", "b"], {"labels": ["x"]}, "labels must have the same length as texts, 2; received 1"),
        (["a", "b"], {"scores": [1, "nan"]}, "scores must be numbers; received 'nan'"),
        (["a", "b"], {"scores": [1, 1e39]}, "received 1e[+]39.* At most 1e[+]18"),
        (["a", "b"], {"scores": [1, 10**400]}, "scores must be numbers; received 1000"),
        (["a", "b"], {"label_sets": [["x"], "y,z"]}, "must be lists of labels; received 'y,z'"),
        (["a", "b"], {"labels": ["x", "y"], "scores": [1, 2]}, "only one of labels, label_sets"),
    ],
)
def test_malformed_columns_are_rejected(texts, columns, message):
    with pytest.raises(ValueError, match=message):
        Examples(texts, **columns)


@pytest.mark.parametrize("label", [None, "", float("nan"), decimal.Decimal("nan"), b"p"])
def test_missing_labels_are_rejected(label):
    for column in ({"labels": [label, "x"]}, {"label_sets": [[label], ["x"]]}):
        with pytest.raises(
            ValueError, match="labels must (not be missing|be strings or numbers); received"
        ):
            Examples(["a", "b"], **column)


def test_types_of_label_sets_and_scores():
    sets = Examples(["a", "b", "c"], label_sets=[["x", 10], (), np.array([9])])
    assert sets.label_sets == [("x", "10"), (), ("9",)]
    assert sets.label_names() == ["10", "9", "x"]
    assert Examples(["a", "b"], scores=np.array([1, 2.5])).scores == [1.0, 2.5]
    assert Examples(["a", "b"], scores=["1", "-2e1"]).scores == [1.0, -20.0]


def test_nan_among_numeric_labels():
    """NaN cannot be compared with numbers, so the order must not depend on that of a set."""
    names = ["10", "nan", "1", "2"]
    for order in itertools.permutations(names):
        examples = Examples(["a"] * 4, labels=list(order))
        assert examples.label_names() == ["1", "10", "2", "nan"]


def test_a_label_of_several_types_is_once_in_a_set():
    assert Examples(["x"], label_sets=[[1, "1"]]).label_sets == [("1",)]
