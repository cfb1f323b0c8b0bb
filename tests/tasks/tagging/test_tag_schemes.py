"""Tests of the schemes of tags: which tags mark entities, and which entities they mark."""

import pytest

from keras_bert.tasks.tagging.tag_schemes import entities, find_scheme

GOLD = ["B-PER", "I-PER", "I-PER", "O", "S-LOC", "B-LOC", "E-LOC"]
SPANS = {("PER", 0, 3), ("LOC", 4, 5), ("LOC", 5, 7)}


def written(form, letters, outside="O"):
    """Return the tags of `GOLD` in another form; `letters` maps positions to letters."""
    tags = []
    for tag in GOLD:
        position, _, type = tag.partition("-")
        letter = letters.get(position, position)
        tags.append(form.format(letter, type) if type else outside)
    return tags


@pytest.mark.parametrize("form", ["{0}-{1}", "{0}_{1}", "{1}-{0}", "{1}_{0}"])
@pytest.mark.parametrize("letters", [{}, {"I": "M"}, {"I": "M", "S": "W"}, {"E": "L", "S": "U"}])
@pytest.mark.parametrize("outside", ["O", "-"])
def test_forms_and_letters_of_a_scheme_mark_the_same_entities(form, letters, outside):
    tags = written(form, letters, outside)
    scheme = find_scheme(tags)
    assert entities(tags, scheme) == SPANS
    # An entity that lacks its last word is another entity.
    assert not entities([*tags[:2], outside], scheme) & SPANS


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["I-PER", "I-PER", "B-PER", "O"], {("PER", 0, 2), ("PER", 2, 3)}),  # IOB1
        (["B-PER", "B-PER", "I-PER"], {("PER", 0, 1), ("PER", 1, 3)}),  # BIO
        (["B", "I", "O", "B"], {("entity", 0, 2), ("entity", 3, 4)}),
        (["B", "M", "E", "S"], {("entity", 0, 3), ("entity", 3, 4)}),  # word segmentation
        (["B-WORK_OF_ART", "I-WORK_OF_ART"], {("WORK_OF_ART", 0, 2)}),
        (["B-cell-B", "B-cell-I", "DNA-B", "O"], {("B-cell", 0, 2), ("DNA", 2, 3)}),
        (["B-PER", "X", "I-PER"], {("PER", 0, 1), ("X", 1, 2), ("PER", 2, 3)}),
        (["U-PER", "O"], {("PER", 0, 1)}),
        (["PER", "PER", "O", "PER", "LOC"], {("PER", 0, 2), ("PER", 3, 4), ("LOC", 4, 5)}),
    ],
)
def test_entities(tags, expected):
    assert entities(tags, find_scheme(tags)) == expected


@pytest.mark.parametrize(
    "tags", [["NOUN", "VERB"], ["O", "N", "V"], ["O"], [], ["-", "NN_X"], ["E-mail", "S-bahn"]]
)
def test_other_tags_mark_no_entities(tags):
    assert find_scheme(tags) is None
