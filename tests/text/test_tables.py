"""The lookup tables of the tokenizer's graph."""

from keras_bert.text import tables


def test_code_points_of_a_string():
    assert tables.code_points("aé\ud800").tolist() == [97, 233, 0xD800]


def test_the_alphabet_has_the_characters_of_all_tokens():
    arrays = tables.lookup_tables({"[UNK]": 0, "a": 1}, True, True, True)
    assert arrays["alphabet_size"] == 7  # "[UNK]", "a", and 0 for every other character
