"""Tagging: CoNLL files, one label a word at its first piece, windows, entities, words of texts."""

import functools
import random
import warnings

import keras
import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.data.batching import Batches
from keras_bert.tasks import tagging
from keras_bert.tasks.tagging import TaggedSentences
from tests import tiny

INVISIBLE = "\u200b"  # dropped by Google's tokenizer, so a word of it alone has no piece
NAMES = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
# Each number is one piece, so that the ids tell which word stands where.
NUMBERS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "##x", "##y", *(f"w{n}" for n in range(400))]


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def model_of(labels, pieces=tiny.PIECES, lowercase=True):
    return cached_model(tuple(labels), tuple(pieces), lowercase)


@functools.cache  # nothing here changes a model
def cached_model(labels, pieces, lowercase):
    encoder = keras_bert.BertEncoder(
        vocab_size=len(pieces), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32,
        preprocessor=preprocessor(pieces, lowercase),
    )  # fmt: skip
    return heads.tagger(encoder, labels=labels)


@functools.cache
def preprocessor(pieces=tuple(tiny.PIECES), lowercase=True):
    return keras_bert.Preprocessor(pieces, lowercase=lowercase)


# --- Sentences -----------------------------------------------------------------------------


def test_both_halves_of_a_type_are_labels():
    sentences = TaggedSentences([["a", "b", "c"]], [["I-x", "B-a", "O"]])
    assert sentences.label_names() == ["O", "B-a", "B-x", "I-a", "I-x"]
    assert len(sentences) == 1


def test_tags_that_are_not_bio_stay_as_they_are():
    sentences = TaggedSentences([["a", "b"], ["c"]], [["VERB", "NOUN"], [3]])
    assert sentences.label_names() == ["3", "NOUN", "VERB"]
    assert sentences.tags == [["VERB", "NOUN"], ["3"]]


def test_majority_counts_words_not_sentences():
    assert TaggedSentences([["a"], ["b", "c", "d"]], [["X"], ["Y"] * 3]).majority_share() == 0.75


@pytest.mark.parametrize(
    ("words", "tags", "message"),
    [
        ([["a"], ["b"]], [["O"]], "here: tags must be for as many sentences as the words, 2;"),
        (
            [["a"], ["b", "c"]],
            [["O"], ["O"]],
            "here, sentence 2: must have a tag for each of its 2",
        ),
        ([["a"], []], [["O"], []], "here, sentence 2: has no words"),
        ([["a"], ["b", 3]], None, "here, sentence 2: its words must be strings; received 3"),
        (["ab"], None, "here, sentence 1: its words must be a list of strings; received one str"),
        (
            [["a", "b"]],
            ["OO"],
            "here, sentence 1: its tags must be a list of strings; received one",
        ),
    ],
)
def test_bad_sentences_are_an_error(words, tags, message):
    with pytest.raises(ValueError, match=message):
        TaggedSentences(words, tags, source="here")


# --- Files ---------------------------------------------------------------------------------


def test_separators_and_sentence_ends(tmp_path):
    wanted = ([["Ann", "left"], ["Go"]], [["B-PER", "O"], ["O"]])
    for name, text in {
        "tabs": "Ann\tB-PER\nleft\tO\n\nGo\tO\n\n",
        "spaces": "Ann  B-PER \nleft O\n\nGo O",  # no last line end
        "windows": "\ufeffAnn\tB-PER\r\nleft\tO\r\n\r\n\r\nGo\tO\r\n",
        "wnut": "\t\nAnn\tB-PER\nleft\tO\n\t\nGo\tO\n\t\n",  # a lone tab ends a sentence
    }.items():
        sentences = tagging.read(write(tmp_path / name, text))
        assert (sentences.words, sentences.tags) == wanted, name
    assert sentences.source == str(tmp_path / "wnut")


def test_columns_are_counted_from_either_end(tmp_path):
    file = write(tmp_path / "a", "1 Ann NNP B-NP B-PER\n2 left VBD B-VP O\n")
    assert tagging.read(file, word=2).tags == [["B-PER", "O"]]
    assert tagging.read(file, word=2, tag=3).tags == [["NNP", "VBD"]]
    assert tagging.read(file, word=-4, tag=-2).words == [["Ann", "left"]]
    assert tagging.read(file, word=2, tag=None).tags is None


def test_a_file_of_words_alone_can_be_asked_for_words(tmp_path):
    file = write(tmp_path / "a", "# Ann left.\nAnn\nleft\n\n#\ntag\n")
    assert tagging.read(file, tag=None).words == [["Ann", "left"], ["#", "tag"]]


def test_conllu_by_another_name_is_no_conll(tmp_path):
    """Its first column is a number, and the last one says nothing of most words."""
    rows = "# sent_id = a\n1\tAnn\tAnn\tPROPN\t_\t_\t2\tnsubj\t_\t_\n"
    variants = rows, rows.replace("\n1\t", "\n1-2\t"), rows.replace("\n1\t", "\n0.1\t")
    for name, content in zip(("a.txt", "b.txt", "c.txt"), variants, strict=True):
        file = write(tmp_path / name, content)
        with pytest.raises(ValueError, match=r"line 2: looks like CoNLL-U, .*--format conllu"):
            tagging.read(file)
    file = tmp_path / "a.txt"
    assert tagging.read(file, format="conllu").tags == [["PROPN"]]
    assert tagging.read(file, word=2, tag=4).tags == [["PROPN"]]  # what is asked for is there
    with pytest.raises(ValueError, match="limit .* must be at least 1; received 0"):
        tagging.read(file, limit=0)


def test_what_are_characters():
    """A few words among many characters change nothing; half of them do."""
    characters = [list("서울에서 만나요")] * 25
    assert tagging.are_characters(characters)
    assert tagging.are_characters([*characters, ["URL"]])
    assert not tagging.are_characters([*characters, ["그리고"] * 50])
    assert not tagging.are_characters([["I", "a", "go"]])
    assert not tagging.are_characters([[], []])


def test_json_is_no_conll(tmp_path):
    with pytest.raises(ValueError, match="line 1: is JSON; tags are read from CoNLL columns"):
        tagging.read(write(tmp_path / "a", '{"a": "b c"}\n{"d": "e f"}\n'))


def test_docstart_is_no_word_and_ends_a_sentence(tmp_path):
    text = "-DOCSTART- -X- -X- O\n\nAnn NNP I-NP O\n-DOCSTART- -X-\nBob NNP I-NP O\n"
    assert tagging.read(write(tmp_path / "a", text)).words == [["Ann"], ["Bob"]]


def test_hashes_are_words_wherever_they_can_be(tmp_path):
    # KLUE-NER: each character a row, comments of one or two columns.
    comments = "## 컬럼명 : CHAR\tNE_TAG\n## 주석 : ##\n## 1\t<한국:LC> #\n"
    korean = "한\tB-LC\n국\tI-LC\n \tO\n#\tO\n"
    sentences = tagging.read(write(tmp_path / "a", comments + korean))
    assert sentences.words == [["한", "국", " ", "#"]]
    # Tweets: a sentence may begin with a hash, and a hash may stand alone.
    tweets = "#fail\tO\n#\tO\n##\tO\n\n#\tB-x\n1\tO\n"
    sentences = tagging.read(write(tmp_path / "b", tweets))
    assert sentences.words == [["#fail", "#", "##"], ["#", "1"]]
    assert tagging.read(write(tmp_path / "e", "#\tO\n")).words == [["#"]]
    # With spaces between columns only the number of columns can tell.
    spaces = "# id = 3\n# O\n1 O\n"
    assert tagging.read(write(tmp_path / "c", spaces)).words == [["#", "1"]]
    # GermEval: the comment has a tab after its hash.
    german = "#\thttp://x.y [2009-10-17]\n1\tAnn\tB-PER\tO\n"
    assert tagging.read(write(tmp_path / "d", german), word=2, tag=3).words == [["Ann"]]


def test_words_may_hold_other_white_space(tmp_path):
    text = "10 000\tNUM\na\u2028b\x85\tX\n\u00a0\tO\n"
    assert tagging.read(write(tmp_path / "a", text)).words == [["10 000", "a\u2028b\x85", "\u00a0"]]
    text = "10\u00a0000 NUM\n"
    assert tagging.read(write(tmp_path / "b", text)).words == [["10\u00a0000"]]


CONLLU = """# text = Don't "go"
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t0\troot\t_\t_
2\tn't\tnot\tPART\tRB\t_\t1\tadv\t_\t_
3\t#\t#\tSYM\tNN\t_\t1\tdep\t_\t_
3.1\tgone\tgo\tVERB\t_\t_\t_\t_\t_\t_

# sent_id = 2
1\t10 000\t_\tNUM\tCD\tNumForm=Digit\t0\troot\t_\tSpaceAfter=No
"""


def test_conllu(tmp_path):
    file = write(tmp_path / "a.conllu", CONLLU)
    sentences = tagging.read(file)
    assert sentences.words == [["Do", "n't", "#"], ["10 000"]]
    assert sentences.tags == [["AUX", "PART", "SYM"], ["NUM"]]
    assert tagging.read(file, tag=5).tags == [["VBP", "RB", "NN"], ["CD"]]
    assert tagging.read(file, tag=6).tags == [["_", "_", "_"], ["NumForm=Digit"]]
    assert tagging.read(file, tag=10).tags[1] == ["SpaceAfter=No"]
    assert tagging.read(file, word=3, tag=None).words[0] == ["do", "not", "#"]
    other = write(tmp_path / "a.txt", CONLLU)
    assert tagging.read(other, format="conllu").words == sentences.words


def test_limit(tmp_path):
    file = write(tmp_path / "a", "a O\n\nb O\n\nc\n")  # what is not asked for is not checked
    assert tagging.read(file, limit=2).words == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("a", "a\tO\n\nb\n", {}, "a, line 3: must have 2 columns separated by tabs, as line 1 has"),
        (
            "a",
            "# x y\na O\nb c O\n",
            {},
            "line 3: must have 2 columns separated by spaces, as line 2",
        ),
        ("a", "a\tO\nb O\n", {}, "a, line 2: must have 2 columns separated by tabs"),
        ("a", "a\tO\n#b\n", {}, "a, line 2: must have 2 columns"),
        ("a", "\na\n", {}, "line 2: must have column 1 for the word and another, -1, for the tag;"),
        ("a", "a O\n", {"tag": 3}, "another, 3, for the tag; received 2 columns"),
        ("a", "a O\n", {"word": -3}, "column -3 for the word"),
        ("a", "a O\n", {"word": 3, "tag": None}, "must have column 3 for the word; received 2"),
        ("a", "a\tO\nb\t\n", {}, "a, line 2: the tag is empty"),
        ("a", "a\tO\nb\t \n", {}, "a, line 2: the tag is empty"),
        ("a", "a\tO\n\tO\n", {}, "a, line 2: the word is empty"),
        ("a", "", {}, "a: holds no sentences"),
        ("a", "-DOCSTART- O\n\n", {}, "a: holds no sentences"),
        ("a", b"a\tO\n\n\xe9t\xe9\tO\n", {}, "a, line 3: must be UTF-8; received the byte 0xe9"),
        ("a", b"a\tO\r\nb\tO\rc\tO\r\n", {}, r"a, line 2: lines must end in \\n or \\r\\n"),
        ("a", b"\xef\xbb\xbf\xffa\tO\n", {}, "a, line 1: must be UTF-8; received the byte 0xff"),
        (
            "a",
            "a O\n",
            {"format": "xml"},
            "the format must be one of conll, conllu; received 'xml'",
        ),
        ("a", "a O\n", {"word": 0}, "column of the word must be a number from 1, .* received 0"),
        ("a", "a O\n", {"word": None}, "column of the word must be a number .* received None"),
        ("a", "a O\n", {"tag": "2"}, "column of the tag must be a number .* received '2'"),
        (
            "a.conllu",
            "1\ta\n",
            {},
            r"a\.conllu, line 1: must have 10 columns separated by tabs; rec",
        ),
        ("a.conllu", CONLLU.replace("AUX", "_"), {}, r"a\.conllu, line 3: the tag is empty"),
        (
            "a.conllu",
            CONLLU.replace("3\t#", "x\t#"),
            {},
            "line 5: must begin with an index such as",
        ),
    ],
)
def test_bad_files_are_named(tmp_path, name, content, options, message):
    with pytest.raises(ValueError, match=message) as caught:
        tagging.read(write(tmp_path / name, content), **options)
    assert "\n" not in str(caught.value)


# --- Windows -------------------------------------------------------------------------------


def random_sentences(seed, count=40):
    """Sentences of words with 0 to 9 pieces, each tag another, so that it names its word."""
    draw = random.Random(seed)
    words = []
    for _ in range(count):
        numbers = iter(draw.sample(range(400), 120))
        words.append([])
        for _ in range(draw.choice([1, 5, 60])):
            kind, tail = draw.random(), draw.choice(["", "", "x", "yx", "xyxyxyxy"])
            if kind < 0.1:
                words[-1].append(draw.choice([INVISIBLE, " ", ""]))
            elif kind < 0.15:
                words[-1].append(f"w{next(numbers)} w{next(numbers)}")
            else:
                words[-1].append(f"w{next(numbers)}{tail}")
    place = iter(range(count * 60))
    return TaggedSentences(words, [[f"t{next(place)}" for _ in row] for row in words])


def ids_of(word):
    """What Google's tokenizer makes of such a word."""
    parts = [(part.rstrip("xy"), part.lstrip("w0123456789")) for part in word.split()]
    return [
        NUMBERS.index(piece)
        for number, tail in parts
        if number != INVISIBLE
        for piece in (number, *(f"##{char}" for char in tail))
    ]


def everything(encoded, extra=0):
    """All windows as one batch."""
    return encoded.batch(np.arange(len(encoded)), int(encoded.lengths.max()) + extra)


@pytest.mark.parametrize(("max_length", "stride"), [(3, None), (7, 1), (12, 10), (24, None)])
def test_windows_answer_for_each_word_once_and_where_it_has_the_most_around_it(max_length, stride):
    room = max_length - 2
    sentences = random_sentences(seed=max_length)
    labels = sorted(tag for row in sentences.tags for tag in row)
    encoded = tagging.encode(model_of(labels, NUMBERS), sentences, max_length, stride=stride)
    inputs, targets, weights = everything(encoded)
    assert len(encoded) > len(sentences)

    answered, row = [], 0
    for words, tags in zip(sentences.words, sentences.tags, strict=True):
        cut = [ids_of(word)[:room] for word in words]
        edges = np.cumsum([0, *map(len, cut)]).tolist()
        text = [piece for word in cut for piece in word]
        spans, owners = [], {}
        while spans[-1][1] < len(text) if spans else text:
            ids = inputs["input_word_ids"][row, 1 : encoded.lengths[row] - 1].tolist()
            # The first of a word's pieces tells the word; others may well be the same.
            starts = [at for at in edges if ids == text[at : at + len(ids)]]
            assert len(set(starts)) == 1
            span = (starts[0], starts[0] + len(ids))
            assert span[1] in edges
            assert len(ids) <= room
            if spans:
                assert spans[-1][0] < span[0] <= spans[-1][1] < span[1]
            for position in np.flatnonzero(weights[row]):
                word = tags.index(labels[targets[row, position]])
                assert edges[word] == span[0] + position - 1
                owners[word] = len(spans)
                answered.append(word)
            spans.append(span)
            row += 1
        assert sorted(owners) == [n for n, word in enumerate(cut) if word]
        for word, owner in owners.items():
            # The ends of the sentence take nothing away from a word.
            around = [
                min(
                    edges[word] - start if start else len(text),
                    limit - edges[word + 1] if limit < len(text) else len(text),
                )
                for start, limit in spans
            ]
            assert around[owner] == max(around)
    assert row == len(encoded)
    with_pieces = sum(bool(ids_of(word)) for words in sentences.words for word in words)
    assert len(answered) == (weights > 0).sum() == with_pieces
    assert encoded.words_without_pieces == len(labels) - with_pieces


def test_a_quarter_of_the_room_overlaps():
    sentences = TaggedSentences([[f"w{n}" for n in range(40)]])
    model = model_of(NAMES, NUMBERS)
    for stride, starts in ((None, [0, 12, 24]), (8, [0, 8, 16, 24]), (16, [0, 16, 32])):
        encoded = tagging.encode(model, sentences, max_length=18, stride=stride)
        first = everything(encoded)[0]["input_word_ids"][:, 1]
        assert first.tolist() == [NUMBERS.index(f"w{n}") for n in starts]
        assert encoded.lengths.tolist() == [min(16, 40 - n) + 2 for n in starts]
    assert encoded.max_length == 18


def test_of_a_word_too_long_the_first_pieces_are_kept():
    sentences = TaggedSentences([["w1", "w2" + "x" * 8, "w3"]], [["O", "B-PER", "O"]])
    encoded = tagging.encode(model_of(NAMES, NUMBERS), sentences, max_length=6)
    inputs, targets, weights = everything(encoded)
    ids = [[NUMBERS[piece] for piece in row] for row in inputs["input_word_ids"]]
    assert ids == [
        ["[CLS]", "w1", "[SEP]", "[PAD]", "[PAD]", "[PAD]"],
        ["[CLS]", "w2", "##x", "##x", "##x", "[SEP]"],
        ["[CLS]", "w3", "[SEP]", "[PAD]", "[PAD]", "[PAD]"],
    ]
    np.testing.assert_allclose(
        weights.sum(axis=1), [1 / 3] * 3, rtol=1e-6
    )  # a word in each of three
    assert targets[:, 1].tolist() == [0, 1, 0]


def test_a_batch_to_the_letter():
    sentences = TaggedSentences(
        [["so", "badly", "!"], ["film"], [INVISIBLE, "goods", "\u00a0"]],
        [["O", "B-LOC", "I-LOC"], ["B-PER"], ["O", "I-PER", "O"]],
    )
    encoded = tagging.encode(model_of(NAMES), sentences, max_length=32)
    assert encoded.lengths.tolist() == [6, 3, 4]
    inputs, targets, weights = encoded.batch([2, 0], 7)
    assert [[tiny.PIECES[piece] for piece in row] for row in inputs["input_word_ids"]] == [
        ["[CLS]", "good", "##s", "[SEP]", "[PAD]", "[PAD]", "[PAD]"],
        ["[CLS]", "so", "bad", "##ly", "!", "[SEP]", "[PAD]"],
    ]
    assert inputs["input_mask"].tolist() == [[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 0]]
    assert list(inputs) == ["input_word_ids", "input_mask", "input_type_ids"]
    assert not inputs["input_type_ids"].any()
    assert targets.tolist() == [[0, 2, 0, 0, 0, 0, 0], [0, 0, 3, 0, 4, 0, 0]]
    # Five words in three sentences, so 5 / 3 in each and 10 / 3 in a batch of two.
    expected = [[0, 0.3, 0, 0, 0, 0, 0], [0, 0.3, 0.3, 0, 0.3, 0, 0]]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    arrays = (*inputs.values(), targets, weights)
    assert [array.dtype for array in arrays] == [np.int32] * 4 + [np.float32]
    assert {array.shape for array in arrays} == {(2, 7)}
    assert (encoded.words_without_pieces, encoded.cut_words) == (2, 0)


def test_words_longer_than_a_window_are_cut_and_counted():
    sentences = TaggedSentences([["badly" * 2, "so", "bad" + "ly" * 4]])
    encoded = tagging.encode(model_of(NAMES), sentences, max_length=4)
    assert encoded.cut_words == 1


def test_words_of_short_and_long_sentences_count_alike():
    sentences = TaggedSentences([["so"] * size for size in (1, 9) * 8], [["O"] * 1, ["O"] * 9] * 8)
    encoded = tagging.encode(model_of(NAMES), sentences, max_length=32)
    batches = Batches(encoded, 4, seed=0)
    weights = [batches[index][2] for index in range(len(batches))]
    assert {array.shape[1] for array in weights} == {3, 11}  # each batch of one kind
    assert len({weight for array in weights for weight in array[array > 0]}) == 1
    assert np.mean([array.sum() for array in weights]) == pytest.approx(1)


def test_without_tags_there_are_no_targets():
    encoded = tagging.encode(model_of(NAMES), TaggedSentences([["so", "bad"], []]), 32)
    inputs, targets, weights = encoded.batch([0], 4)
    assert inputs["input_mask"].tolist() == [[1, 1, 1, 1]]
    assert (targets, weights) == (None, None)


def test_korean_words_are_cut_into_pieces():
    sentences = TaggedSentences([["한국", "국어", "한"]], [["B-LOC", "O", "O"]])
    model = model_of(NAMES, lowercase=False)
    inputs, targets, weights = everything(tagging.encode(model, sentences, 32))
    pieces = [tiny.PIECES[piece] for piece in inputs["input_word_ids"][0]]
    assert pieces == ["[CLS]", "한", "##국", "국어", "한", "[SEP]"]
    np.testing.assert_allclose(weights, [[0, 1 / 3, 0, 1 / 3, 1 / 3, 0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 2}, "max_length must be at least 3; received 2"),
        ({"stride": 7}, "stride must be from 1 to max_length - 2, 6; received 7"),
        ({"stride": 0}, "stride must be from 1 to max_length - 2, 6; received 0"),
    ],
)
def test_bad_windows_are_an_error(options, message):
    with pytest.raises(ValueError, match=message):
        tagging.encode(model_of(NAMES), TaggedSentences([["so"]]), **{"max_length": 8, **options})


def test_an_unknown_tag_is_an_error():
    sentences = TaggedSentences([["so"], ["a", "b"]], [["O"], ["O", "B-FOO"]], source="dev.tsv")
    message = "dev.tsv, sentence 2: has the tag 'B-FOO', which is none of the model's: O, B-PER, "
    with pytest.raises(ValueError, match=message):
        tagging.encode(model_of(NAMES), sentences, 32)


def test_a_batch_that_cuts_is_an_error():
    encoded = tagging.encode(model_of(NAMES), TaggedSentences([["so", "bad"]]), 32)
    with pytest.raises(ValueError, match="the windows take 4 positions; received 3"):
        encoded.batch([0], 3)


# --- The model -----------------------------------------------------------------------------


def test_the_model_has_a_logit_for_each_label():
    sentences = TaggedSentences([["so", "bad"]], [["O", "B-PER"]])
    model = tagging.build(tiny.encoder(), sentences)
    assert heads.find_output(model).labels == ["O", "B-PER", "I-PER"]
    assert heads.find_output(model).task in tagging.HEADS


def test_loss_and_accuracy_are_of_the_first_pieces_alone():
    sentences = TaggedSentences([["badly", "goods", "so"], ["film"]], [["O", "B-PER", "O"], ["O"]])
    model = tagging.build(tiny.encoder(initializer_range=1.0), sentences)
    model.compile("sgd", **tagging.compile_options(model))
    inputs, targets, weights = everything(tagging.encode(model, sentences, 32))
    logits = keras.ops.convert_to_numpy(model(inputs))
    log = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    at = [(0, 1, 0), (0, 3, 1), (0, 5, 0), (1, 1, 0)]  # badly, goods, so, film
    loss = -sum(log[place] for place in at) / len(at)  # padding counts for nothing
    right = np.mean([logits[row, position].argmax() == label for row, position, label in at])
    result = model.test_on_batch(inputs, targets, weights, return_dict=True)
    np.testing.assert_allclose(result["loss"], loss, rtol=1e-5)
    np.testing.assert_allclose(result["accuracy"], right, rtol=1e-6)


# --- Answers -------------------------------------------------------------------------------


@pytest.mark.parametrize("max_length", [4, 20])
def test_decode_inverts_encode(max_length):
    sentences = random_sentences(seed=1)
    labels = ["O", *sorted(tag for row in sentences.tags for tag in row)]
    model = model_of(labels, NUMBERS)
    encoded = tagging.encode(model, sentences, max_length)
    _, targets, weights = everything(encoded, extra=3)
    # Where no word is answered for, anything may stand.
    noise = np.random.default_rng(0).normal(scale=50, size=(*targets.shape, len(labels)))
    right = 99.0 * np.eye(len(labels))[targets]
    outputs = list(np.where(weights[..., None] > 0, right, noise))
    answers = tagging.decode(model, sentences, encoded, outputs)
    for words, tags, answer in zip(sentences.words, sentences.tags, answers, strict=True):
        known = [bool(ids_of(word)) for word in words]
        wanted = [tag if has else "O" for tag, has in zip(tags, known, strict=True)]
        assert [tag for tag, _ in answer] == wanted
        assert [value for _, value in answer] == [float(has) for has in known]


def test_the_score_is_a_probability():
    sentences = TaggedSentences([["so"]])
    model = model_of(["a", "b"])
    encoded = tagging.encode(model, sentences, 8)
    [[(tag, value)]] = tagging.decode(model, sentences, encoded, [np.log([[1, 1], [1, 3], [1, 1]])])
    assert tag == "b"
    assert type(value) is float
    np.testing.assert_allclose(value, 0.75, rtol=1e-6)


def tagged(names, words, given):
    """The answers of a model whose logits say `given` for the words with pieces."""
    sentences = TaggedSentences(words)
    model = model_of(names)
    encoded = tagging.encode(model, sentences, 32)
    outputs = [
        99.0 * np.eye(len(names))[[names.index(tag) for tag in ("O", *row, "O")]] for row in given
    ]
    answers = tagging.decode(model, sentences, encoded, outputs)
    return [[tag for tag, _ in answer] for answer in answers]


@pytest.mark.parametrize(
    ("around", "gap"),
    [
        (["B-PER", "I-PER"], "I-PER"),
        (["I-PER", "I-PER"], "I-PER"),
        (["B-PER", "O"], "O"),
        (["B-PER", "B-PER"], "O"),
        (["B-PER", "I-LOC"], "O"),
        (["O", "I-PER"], "O"),
    ],
)
def test_a_space_ends_no_entity(around, gap):
    # KLUE-NER tags characters, and the space in a name is one of them.
    assert tagged(NAMES, [["so", " ", INVISIBLE, "bad"]], [around]) == [
        [around[0], gap, gap, around[1]]
    ]


def test_a_space_looks_no_further_than_the_next_word():
    given = ["B-PER", "O", "I-PER"]
    assert tagged(NAMES, [["so", " ", "bad", "film"]], [given]) == [["B-PER", "O", "O", "I-PER"]]


def test_entities_do_not_go_on_from_sentence_to_sentence():
    words = [["so", " "], [" ", "bad"]]
    assert tagged(NAMES, words, [["B-PER"], ["I-PER"]]) == [["B-PER", "O"], ["O", "I-PER"]]


def test_sentences_without_pieces_have_answers():
    words = [[INVISIBLE, " "], [], ["so"]]
    assert tagged(NAMES, words, [["B-PER"]]) == [["O", "O"], [], ["B-PER"]]
    assert tagged(NAMES, words[:2], []) == [["O", "O"], []]


def test_without_an_o_the_first_label_stands_in():
    sentences = TaggedSentences([[" "]])
    model = model_of(["NOUN", "VERB"])
    encoded = tagging.encode(model, sentences, 32)
    assert tagging.decode(model, sentences, encoded, []) == [[("NOUN", 0.0)]]


# --- Scores --------------------------------------------------------------------------------


def scores(gold, given):
    words = [["a"] * len(row) for row in gold]
    answers = [[(tag, 1.0) for tag in row] for row in given]
    return tagging.score(model_of(labels_of(gold, given)), TaggedSentences(words, gold), answers)


def labels_of(*columns):
    return sorted({tag for rows in columns for row in rows for tag in row} | {"O", "X"})


def test_entities_count_whole():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    given = [["B-PER", "O", "O", "B-LOC"], ["B-LOC", "B-PER"]]
    result = scores(gold, given)
    assert list(result) == ["f1", "precision", "recall", "accuracy", "majority"]
    assert result["precision"] == 2 / 4
    assert result["recall"] == 2 / 3
    np.testing.assert_allclose(result["f1"], 4 / 7)
    np.testing.assert_allclose(result["accuracy"], 4 / 6)
    np.testing.assert_allclose(result["majority"], 2 / 6)


def test_a_tagger_of_entities_is_scored_by_them_where_there_are_none():
    """Or a later epoch, which finds some, would have other metrics."""
    model, sentences = model_of(["B-PER", "O"]), TaggedSentences([["a"]], [["O"]])
    result = tagging.score(model, sentences, [[("O", 1.0)]])
    assert result["f1"] == 0 and result["accuracy"] == 1
    assert tuple(result)[:-1] == tagging.metric_names(model, sentences)


def test_answers_of_another_program_are_scored_by_the_tags_there():
    sentences = TaggedSentences([["a", "b"]], [["B-PER", "O"]])
    assert tagging.score(None, sentences, [[("B-PER", 1.0), ("O", 1.0)]])["f1"] == 1
    sentences = TaggedSentences([["a"]], [["NOUN"]])
    assert list(tagging.score(None, sentences, [[("NOUN", 1.0)]])) == ["accuracy", "majority"]


def test_parts_of_speech_have_no_entities():
    result = scores([["NOUN", "VERB", "NOUN"]], [["NOUN", "NOUN", "NOUN"]])
    assert list(result) == ["accuracy", "majority"]
    np.testing.assert_allclose(list(result.values()), 2 / 3)


def test_no_entities_are_no_division_by_zero():
    assert scores([["O", "O"]], [["O", "B-PER"]])["f1"] == 0
    assert scores([["B-PER"]], [["O"]])["precision"] == 0


def test_to_score_takes_tags():
    with pytest.raises(ValueError, match="the test file: has no tags to score against"):
        tagging.score(
            model_of(NAMES), TaggedSentences([["a"]], source="the test file"), [[("O", 1.0)]]
        )


@pytest.mark.parametrize("prefixes", ["BI", "BIES"])
def test_scores_are_those_of_seqeval(prefixes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of what it imports
        metrics = pytest.importorskip("seqeval.metrics")
    draw = random.Random(0)
    names = ["O", *(f"{prefix}-{kind}" for prefix in prefixes for kind in ("PER", "LOC-x"))]
    for _ in range(300):  # files of 1 to 15 sentences; the tags are mostly malformed
        sizes = [draw.randint(1, 9) for _ in range(draw.randint(1, 15))]
        gold = [draw.choices(names, k=size) for size in sizes]
        gold[0][0] = "B-PER"  # seqeval warns where there is nothing to find
        given = [
            [tag if draw.random() < 0.7 else draw.choice(names) for tag in row] for row in gold
        ]
        given[-1][-1] = "I-PER"
        result = scores(gold, given)
        np.testing.assert_allclose(
            [result[name] for name in ("f1", "precision", "recall", "accuracy")],
            [
                metrics.f1_score(gold, given),
                metrics.precision_score(gold, given),
                metrics.recall_score(gold, given),
                metrics.accuracy_score(gold, given),
            ],
            atol=1e-12,
        )


def test_bilou_is_another_spelling_of_bioes():
    gold = [["U-X", "B-X", "I-X", "L-X", "O", "B-Y", "L-Y"]]
    given = [["U-X", "B-X", "I-X", "O", "O", "B-Y", "L-Y"]]
    result = scores(gold, given)
    assert (result["precision"], result["recall"]) == (2 / 3, 2 / 3)


# --- Files of answers, and texts -----------------------------------------------------------


def test_lines_can_be_read_again(tmp_path):
    sentences = TaggedSentences([["Ann", "left"], ["#", "10 000"]])
    answers = [[("B-PER", 0.98765), ("O", 1.0)], [("O", 0.5), ("O", 0.0)]]
    lines = list(tagging.lines(None, sentences, answers))
    assert lines[0] == "Ann\tB-PER\t0.9877"
    assert lines[2] == lines[5] == ""
    again = tagging.read(write(tmp_path / "a", "\n".join(lines)), tag=2)
    assert again.words == sentences.words
    assert again.tags == [["B-PER", "O"], ["O", "O"]]
    assert tagging.header(None) is None


def test_words_of_texts():
    tokenizer = preprocessor().tokenizer
    texts = [
        "So badly!!", "", "film", "bad", " \t" + INVISIBLE,
        "한국어, a\u0301 go" + INVISIBLE + "od 😀x",
    ]  # fmt: skip
    words, spans = tagging.sentences_of(texts, tokenizer)
    assert words == [
        ["So", "badly", "!", "!"], [], ["film"], ["bad"], [],
        ["한국어", ",", "a\u0301", f"go{INVISIBLE}od", "😀x"],
    ]  # fmt: skip
    for text, row, span in zip(texts, words, spans, strict=True):
        assert [text.encode()[start:limit].decode() for start, limit in span] == row
    assert spans[0] == [(0, 2), (3, 8), (8, 9), (9, 10)]
    assert tagging.sentences_of([], tokenizer) == ([], [])


def test_words_of_texts_have_the_pieces_of_the_texts():
    draw = random.Random(3)
    letters = "abdfgilmosy !,\u0301\u200b한국어中é\u2028ﬁ"
    texts = ["".join(draw.choices(letters, k=draw.randint(0, 40))) for _ in range(500)]
    tokenizer = preprocessor().tokenizer
    words, _ = tagging.sentences_of(texts, tokenizer)
    flat = [word for row in words for word in row]
    alone = iter(tokenizer.tokenize(flat).to_list())
    together = [[piece for _ in row for piece in next(alone)] for row in words]
    assert together == tokenizer.tokenize(texts).to_list()


@pytest.mark.parametrize("texts", ["one string", ["a", 3]])
def test_texts_that_are_no_strings_are_an_error(texts):
    with pytest.raises(ValueError, match="texts must be a list of strings; received"):
        tagging.sentences_of(texts, preprocessor().tokenizer)
