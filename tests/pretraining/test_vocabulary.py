"""Vocabularies learned from text: words, sizes, special tokens, coverage and files."""

import collections
import errno
import pathlib
import random
import sys

import pytest

from keras_bert import Preprocessor
from keras_bert.pretraining import corpus, vocabulary
from keras_bert.text import unicode_tables
from keras_bert.text.python_tokenizer import PythonTokenizer
from tests import fuzz, reference_tokenizer

ROOT = pathlib.Path(__file__).parents[2]
OPTIONS = [
    {"lowercase": True, "strip_accents": True, "split_cjk": True},
    {"lowercase": True, "strip_accents": False, "split_cjk": True},
    {"lowercase": False, "strip_accents": False, "split_cjk": False},
    {"lowercase": False, "strip_accents": True, "split_cjk": True},
]


def count_words(documents, lowercase=True, **options):
    tokenizer = PythonTokenizer(["[UNK]"], lowercase=lowercase, **options)
    return vocabulary.count_words(documents, tokenizer)


def texts(count=400, seed=3):
    """Return texts of a few stems and endings, in several scripts."""
    generator = random.Random(seed)
    stems = ["play", "walk", "Sing", "jump", "Crème", "naïve", "한국", "사람", "学校", "日本語"]
    stems += ["привет", "Ελλάς", "don't", "3.14", "x-ray", "ab", "cd", "ef"]
    ends = ["", "s", "ed", "ing", "er", "은", "는", "이다", "!", "?", ",", "ly"]

    def word():
        return "".join(generator.choice(part) for part in (stems, stems, ends))

    return [" ".join(word() for _ in range(12)) for _ in range(count)]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("count", [500, pytest.param(4_000, marks=pytest.mark.slow)])
def test_words_equal_those_of_the_reference_tokenizer(options, count):
    for text in fuzz.random_texts(count, seed=11, allowed=reference_tokenizer.stable):
        expected = reference_tokenizer.basic_tokens(text, **options)
        expected = collections.Counter(word for word in expected if len(word) <= 200)
        assert count_words([text], **options) == expected, ascii(text)


def test_words_of_documents_strings_and_chunks(monkeypatch):
    documents = [
        corpus.Document("a", "One two.\nTwo"),
        corpus.Document("b", "'''One'''", "wikitext"),
    ]
    expected = {"one": 2, "two": 2, ".": 1}
    assert count_words(documents) == expected
    monkeypatch.setattr(vocabulary, "_CHUNK", 1)
    assert count_words(["One two.", "Two", "One"]) == expected

    assert set(count_words(["Crème"])) == {"creme"}
    assert set(count_words(["Crème"], lowercase=False)) == {"Crème"}


def test_the_rarest_of_too_many_words_are_dropped(monkeypatch):
    monkeypatch.setattr(vocabulary, "_MAX_WORDS", 3)
    monkeypatch.setattr(vocabulary, "_CHUNK", 1)
    assert count_words(["a a a b b c c d e"]) == {"a": 3, "b": 2, "c": 2}


@pytest.mark.parametrize("size", [60, 999, 1000])
def test_the_size_is_exact_and_special_tokens_have_fixed_ids(size):
    generator = random.Random(1)
    words = [
        "".join(generator.choices("abcdefghij", k=generator.randrange(2, 9))) for _ in range(3000)
    ]
    tokens = vocabulary.train([" ".join(words)], size, min_frequency=1)
    assert len(tokens) == len(set(tokens)) == size
    ids = {token: index for index, token in enumerate(tokens)}
    assert ids["[PAD]"] == 0
    first = 100 if size >= 1000 else 1
    found = [ids[f"[{name}]"] for name in ("UNK", "CLS", "SEP", "MASK")]
    assert found == list(range(first, first + 4))


def test_the_first_tokens_equal_those_of_googles_files(shared):
    for name in ("uncased", "cased"):
        tokens = (shared / f"vocab/bert-base-{name}-vocab.txt").read_text("utf-8").split("\n")
        for index, token in enumerate(vocabulary.GOOGLE_FIRST_TOKENS):
            unused = token.startswith("[unused")
            assert tokens[index].startswith("[unused") if unused else tokens[index] == token
    assert (
        tuple(tokens[: len(vocabulary.GOOGLE_FIRST_TOKENS)]) == vocabulary.GOOGLE_FIRST_TOKENS
    )  # the cased


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_the_tokenizer_can_produce_every_token(options):
    tokens = vocabulary.train(texts(), 250, **options)
    assert len(tokens) == 250
    tokenizer = Preprocessor(tokens, **options).tokenizer
    whole = {index: token for index, token in enumerate(tokens) if index > 4}
    words = {index: token for index, token in whole.items() if not token.startswith("##")}
    assert tokenizer.tokenize(list(words.values())).to_list() == [[index] for index in words]
    tables = unicode_tables.tables()
    for token in set(whole.values()) - set(words.values()):
        inner = token.removeprefix("##")
        assert count_words(["a" + inner], **options) == {"a" + inner: 1}
        assert not any(tables.punctuation[ord(char)] for char in inner)


def test_punctuation_and_ideographs_are_separate_tokens():
    tokens = vocabulary.train(["don't stop-it 学校 (now)"] * 9, 30)
    assert {"'", "-", "学", "校", "("} < set(tokens)
    assert not [token for token in tokens[5:] if len(token) > 1 and set(token) & set("'-学校(")]


def test_rare_characters_are_left_out(monkeypatch):
    monkeypatch.setattr(vocabulary, "_SMALL_ALPHABET", 10)
    rare = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))
    tokens = vocabulary.train([*texts(), rare * 3], 155)
    assert len(tokens) == 155 and "a" in tokens
    assert not set(tokens) & set(rare)
    assert len([token for token in tokens[5:] if len(token.removeprefix("##")) == 1]) <= 150 * 0.4


def test_each_training_learns_the_same_tokens():
    tokens = vocabulary.train(texts(), 150)
    for _ in range(3):  # each training has another hash seed
        assert vocabulary.train(texts(), 150) == tokens


def test_large_counts_are_scaled_down(monkeypatch):
    expected = vocabulary.train(texts(), 150)
    monkeypatch.setattr(vocabulary, "_MAX_OCCURRENCES", 2_000)
    scaled = vocabulary.train(texts(), 150)
    assert len(scaled) == 150
    assert len(set(scaled) & set(expected)) > 130


def test_max_bytes_selects_every_nth_document():
    tokens = vocabulary.train(["few"] + ["many"] * 5, 20, max_bytes=8, min_frequency=1)
    assert tokens == vocabulary.train(["few", "many"], 20, min_frequency=1)


# --- Errors ---


@pytest.mark.parametrize(
    "documents", [[], [""], ["\u200b \n"], [corpus.Document("a", "{{x}}", "wikitext")]]
)
def test_a_corpus_without_words_is_an_error(documents):
    with pytest.raises(ValueError, match="corpus has no words"):
        vocabulary.train(documents, 100)
    with pytest.raises(ValueError, match="corpus has no words"):
        vocabulary.coverage(documents, Preprocessor(list(vocabulary.SPECIAL)))


SYLLABLES = [chr(0xAC00 + number) for number in range(400)]


@pytest.mark.parametrize(
    "documents",
    [
        ["low lower lowest"] * 3,
        # Fewer characters fit into a smaller vocabulary.
        ["".join(SYLLABLES[start : start + 4]) for start in range(0, 400, 4)] * 2,
    ],
)
def test_a_size_above_the_tokens_of_the_corpus_is_an_error_with_the_maximum(documents):
    with pytest.raises(ValueError, match=r"size must be at most (\d+), .* received 2000") as error:
        vocabulary.train(documents, 2000)
    possible = int(str(error.value).split("at most ")[1].split(",")[0])
    assert len(vocabulary.train(documents, possible)) == possible
    with pytest.raises(ValueError, match=rf"at most {possible},"):
        vocabulary.train(documents, possible + 1)


@pytest.mark.parametrize("size", [3, 5])
def test_a_size_without_room_for_learned_tokens_is_an_error(size):
    with pytest.raises(ValueError, match=f"size must be .*at least 6; received {size}"):
        vocabulary.train(["low lower"] * 3, size)


def test_without_tokenizers_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"run: pip install"):
        vocabulary.train(["a b"] * 9, 7)


# --- Coverage and files ---


def test_coverage():
    tokens = [*vocabulary.SPECIAL, "play", "##ing", "##ed", "chess", ","]
    preprocessor = Preprocessor(tokens)
    documents = ["Playing chess, playing", corpus.Document("a", "played Go\nchess")]
    expected = {"words": 7, "unknown": 1 / 7, "tokens_per_word": 9 / 6, "whole": 3 / 7}
    assert vocabulary.coverage(documents, preprocessor) == expected

    of_unknown = {"words": 2, "unknown": 1.0, "tokens_per_word": 0.0, "whole": 0.0}
    assert vocabulary.coverage(["a b"], Preprocessor(list(vocabulary.SPECIAL))) == of_unknown


@pytest.mark.parametrize("options", OPTIONS)
def test_write_and_read(tmp_path, options):
    tokens = vocabulary.train(texts(), 120, **options)
    vocabulary.write(tmp_path / "a" / "b", tokens, **options)
    assert vocabulary.read(tmp_path / "a" / "b") == (tokens, options)
    assert sorted(file.name for file in (tmp_path / "a" / "b").iterdir()) == [
        "tokenizer_config.json",
        "vocab.txt",
    ]
    Preprocessor(tmp_path / "a" / "b" / "vocab.txt", **options)


@pytest.mark.parametrize("ending", [".txt", ".json"])
def test_a_full_disk_keeps_the_existing_vocabulary(tmp_path, monkeypatch, ending):
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
    assert pathlib.Path(found.value.filename).name in before  # not the temporary file
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_token_with_white_space_around_it_is_an_error_with_the_file(tmp_path):
    with pytest.raises(ValueError) as found:
        vocabulary.write(tmp_path, [*vocabulary.SPECIAL, "a "])
    assert str(found.value).startswith(f"{tmp_path / 'vocab.txt'}: ")
    assert not list(tmp_path.iterdir())
