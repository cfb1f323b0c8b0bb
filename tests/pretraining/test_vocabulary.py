"""Vocabularies learned from text: words as the tokenizer has them, sizes, places, files."""

import collections
import errno
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

from keras_bert import Preprocessor
from keras_bert.pretraining import corpus, vocabulary
from keras_bert.text import unicode_tables
from tests import fuzz, reference_tokenizer

ROOT = pathlib.Path(__file__).parents[2]
OPTIONS = [
    {"lowercase": True, "strip_accents": True, "split_cjk": True},
    {"lowercase": True, "strip_accents": False, "split_cjk": True},
    {"lowercase": False, "strip_accents": False, "split_cjk": False},
    {"lowercase": False, "strip_accents": True, "split_cjk": True},
]


def texts(count=400, seed=3):
    """Words of a few stems and endings, in several scripts."""
    generator = random.Random(seed)
    stems = ["play", "walk", "Sing", "jump", "Crème", "naïve", "한국", "사람", "学校", "日本語"]
    stems += ["привет", "Ελλάς", "don't", "3.14", "x-ray", "ab", "cd", "ef"]
    ends = ["", "s", "ed", "ing", "er", "은", "는", "이다", "!", "?", ",", "ly"]

    def word():
        return "".join(generator.choice(part) for part in (stems, stems, ends))

    return [" ".join(word() for _ in range(12)) for _ in range(count)]


@pytest.mark.parametrize("options", OPTIONS)
def test_words_are_those_of_the_tokenizer(options):
    for text in fuzz.random_texts(4_000, seed=11, allowed=reference_tokenizer.stable):
        expected = reference_tokenizer.basic_tokens(text, **options)
        expected = collections.Counter(word for word in expected if len(word) <= 200)
        assert vocabulary.count_words([text], **options) == expected, ascii(text)


def test_words_of_documents_strings_and_chunks(monkeypatch):
    documents = [
        corpus.Document("a", "One two.\nTwo"),
        corpus.Document("b", "'''One'''", "wikitext"),
    ]
    expected = {"one": 2, "two": 2, ".": 1}
    assert vocabulary.count_words(documents) == expected
    monkeypatch.setattr(vocabulary, "_CHUNK", 1)
    assert vocabulary.count_words(["One two.", "Two", "One"]) == expected


def test_accents_are_stripped_by_default_where_case_is():
    assert set(vocabulary.count_words(["Crème"])) == {"creme"}
    assert set(vocabulary.count_words(["Crème"], lowercase=False)) == {"Crème"}


def test_many_words_lose_the_rarest(monkeypatch):
    monkeypatch.setattr(vocabulary, "_MANY_WORDS", 3)
    monkeypatch.setattr(vocabulary, "_CHUNK", 1)
    assert vocabulary.count_words(["a a a b b c c d e"]) == {"a": 3, "b": 2, "c": 2}


@pytest.mark.parametrize("size", [60, 150, 999, 1000, 1100])
def test_the_size_is_exact_and_the_special_pieces_have_their_places(size):
    generator = random.Random(1)
    words = [
        "".join(generator.choices("abcdefghij", k=generator.randrange(2, 9))) for _ in range(3000)
    ]
    pieces = vocabulary.train([" ".join(words)], size, min_frequency=1)
    assert len(pieces) == len(set(pieces)) == size
    ids = {piece: index for index, piece in enumerate(pieces)}
    assert ids["[PAD]"] == 0
    first = 100 if size >= 1000 else 1
    found = [ids[f"[{name}]"] for name in ("UNK", "CLS", "SEP", "MASK")]
    assert found == list(range(first, first + 4))


def test_the_places_are_those_of_googles_files(shared):
    for name in ("uncased", "cased"):
        pieces = (shared / f"vocab/bert-base-{name}-vocab.txt").read_text("utf-8").split("\n")
        for index, piece in enumerate(vocabulary.GOOGLE_PLACES):
            unused = piece.startswith("[unused")
            assert pieces[index].startswith("[unused") if unused else pieces[index] == piece
    assert tuple(pieces[: len(vocabulary.GOOGLE_PLACES)]) == vocabulary.GOOGLE_PLACES  # the cased


@pytest.mark.parametrize("options", OPTIONS)
def test_every_piece_can_be_found(options):
    pieces = vocabulary.train(texts(), 250, **options)
    assert len(pieces) == 250
    tokenizer = Preprocessor(pieces, **options).tokenizer
    whole = {index: piece for index, piece in enumerate(pieces) if index > 4}
    words = {index: piece for index, piece in whole.items() if not piece.startswith("##")}
    assert tokenizer.tokenize(list(words.values())).to_list() == [[index] for index in words]
    tables = unicode_tables.tables()
    for piece in set(whole.values()) - set(words.values()):
        inner = piece.removeprefix("##")
        assert vocabulary.count_words(["a" + inner], **options) == {"a" + inner: 1}
        assert not any(tables.punctuation[ord(char)] for char in inner)


def test_a_word_that_is_frequent_is_a_piece():
    pieces = vocabulary.train(["the cat sat on the mat"] * 50 + ["xylophones"], 28)
    assert {"the", "cat", "sat", "mat"} < set(pieces)
    assert "##xyl" not in pieces and "xylophones" not in pieces


def test_punctuation_and_ideographs_are_no_parts_of_pieces():
    pieces = vocabulary.train(["don't stop-it 学校 (now)"] * 9, 30)
    assert {"'", "-", "学", "校", "("} < set(pieces)
    assert not [piece for piece in pieces[5:] if len(piece) > 1 and set(piece) & set("'-学校(")]


def test_rare_characters_give_way(monkeypatch):
    monkeypatch.setattr(vocabulary, "_SMALL_ALPHABET", 10)
    rare = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))
    pieces = vocabulary.train([*texts(), rare * 3], 155)
    assert len(pieces) == 155 and "a" in pieces
    assert not set(pieces) & set(rare)
    assert len([piece for piece in pieces[5:] if len(piece.removeprefix("##")) == 1]) <= 150 * 0.4


SCRIPT = """
import sys
from keras_bert.pretraining import vocabulary
from tests.pretraining.test_vocabulary import texts
sys.stdout.buffer.write("\\n".join(vocabulary.train(texts(2000), 300)).encode())
"""


def test_two_processes_learn_the_same_pieces():
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "TOKENIZERS_PARALLELISM": "false"}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr.decode()
    pieces = vocabulary.train(texts(2000), 300)
    assert run.stdout.decode().split("\n") == pieces
    for _ in range(3):  # ties would hang on the seed of a hash table, another each time
        assert vocabulary.train(texts(2000), 300) == pieces


def test_frequencies_are_scaled_to_what_the_trainer_sees(monkeypatch):
    expected = vocabulary.train(texts(), 150)
    monkeypatch.setattr(vocabulary, "_MANY_OCCURRENCES", 2_000)
    scaled = vocabulary.train(texts(), 150)
    assert len(scaled) == 150
    assert len(set(scaled) & set(expected)) > 130


def test_a_share_of_the_documents_is_spread_over_all_of_them():
    documents = [f"document{index} of many" for index in range(1000)]
    kept = vocabulary._sample(iter(documents), 2_000)
    assert 1_000 < sum(map(len, kept)) <= 2_000
    assert kept == documents[:: documents.index(kept[1])]
    assert vocabulary._sample(iter(documents), 10**9) == documents
    pieces = vocabulary.train(["few"] + ["many"] * 5, 20, max_bytes=8, min_frequency=1)
    assert pieces == vocabulary.train(["few", "many"], 20, min_frequency=1)


# --- Errors ---


@pytest.mark.parametrize(
    "documents", [[], [""], ["\u200b \n"], [corpus.Document("a", "{{x}}", "wikitext")]]
)
def test_a_corpus_without_words_is_an_error(documents):
    with pytest.raises(ValueError, match="the corpus holds no words"):
        vocabulary.train(documents, 100)
    with pytest.raises(ValueError, match="the corpus holds no words"):
        vocabulary.coverage(documents, Preprocessor(list(vocabulary.SPECIAL)))


def test_a_size_beyond_the_corpus_is_an_error_that_says_what_is_possible():
    documents = ["low lower lowest"] * 3
    with pytest.raises(ValueError, match=r"size must be at most (\d+), .* received 500") as error:
        vocabulary.train(documents, 500)
    possible = int(str(error.value).split("at most ")[1].split(",")[0])
    assert len(vocabulary.train(documents, possible)) == possible
    with pytest.raises(ValueError, match=rf"at most {possible},"):
        vocabulary.train(documents, possible + 1)


def test_a_size_beyond_all_ids_is_an_error():
    with pytest.raises(ValueError, match="size must be at most 2147483647; received 9"):
        vocabulary.train(["low lower"] * 3, 99_999_999_999)


@pytest.mark.parametrize("size", [3, 5])
def test_a_size_without_room_for_pieces_is_an_error(size):
    with pytest.raises(
        ValueError, match=rf"size must be a whole number of at least 6; received {size}"
    ):
        vocabulary.train(["low lower"] * 3, size)


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "9"])
@pytest.mark.parametrize("name", ["size", "min_frequency", "max_bytes"])
def test_numbers_must_be_positive_and_whole(name, value):
    with pytest.raises(ValueError, match=rf"{name} must be a whole number of at least"):
        vocabulary.train(["a"], **{"size": 50, name: value})


def test_without_the_trainer_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"pip install tokenizers"):
        vocabulary.train(["a b"] * 9, 7)


# --- Coverage and files ---


def test_coverage():
    pieces = [*vocabulary.SPECIAL, "play", "##ing", "##ed", "chess", ","]
    preprocessor = Preprocessor(pieces)
    documents = ["Playing chess, playing", corpus.Document("a", "played Go\nchess")]
    expected = {"words": 7, "unknown": 1 / 7, "pieces_per_word": 9 / 6, "whole": 3 / 7}
    assert vocabulary.coverage(documents, preprocessor) == expected
    assert vocabulary.coverage(documents, preprocessor.tokenizer) == expected


def test_coverage_of_nothing_but_unknown_words():
    preprocessor = Preprocessor(list(vocabulary.SPECIAL))
    found = vocabulary.coverage(["a b"], preprocessor)
    assert found == {"words": 2, "unknown": 1.0, "pieces_per_word": 0.0, "whole": 0.0}


@pytest.mark.parametrize("options", OPTIONS)
def test_files_come_back(tmp_path, options):
    pieces = vocabulary.train(texts(), 120, **options)
    vocabulary.write(tmp_path / "a" / "b", pieces, **options)
    assert vocabulary.read(tmp_path / "a" / "b") == (pieces, options)
    assert sorted(file.name for file in (tmp_path / "a" / "b").iterdir()) == [
        "tokenizer_config.json",
        "vocab.txt",
    ]
    Preprocessor(tmp_path / "a" / "b" / "vocab.txt", **options)


@pytest.mark.parametrize("ending", [".txt", ".json"])
def test_a_full_disk_leaves_the_vocabulary_that_was_there(tmp_path, monkeypatch, ending):
    vocabulary.write(tmp_path, [*vocabulary.SPECIAL, "a"])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write_text = pathlib.Path.write_text

    def full(path, text, **options):
        write_text(path, text[: len(text) // 2], **options)
        if path.suffix == ending:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_text", full)
    with pytest.raises(OSError, match="No space left") as found:
        vocabulary.write(tmp_path, [*vocabulary.SPECIAL, "b"], lowercase=False)
    assert pathlib.Path(found.value.filename).name in before  # and not the one beside it
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_piece_that_is_no_line_is_an_error_that_names_the_file(tmp_path):
    with pytest.raises(ValueError) as found:
        vocabulary.write(tmp_path, [*vocabulary.SPECIAL, "a "])
    assert str(found.value).startswith(f"{tmp_path / 'vocab.txt'}: a piece is a line")
    assert not list(tmp_path.iterdir())


def test_the_files_are_what_hugging_face_reads(tmp_path):
    vocabulary.write(tmp_path, [*vocabulary.SPECIAL, "a"], lowercase=False, split_cjk=False)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["do_lower_case"] is config["strip_accents"] is False
    assert config["tokenize_chinese_chars"] is False
    assert (tmp_path / "vocab.txt").read_bytes() == b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
