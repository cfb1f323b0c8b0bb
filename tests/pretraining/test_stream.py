"""Streams: the content of batches, resuming at any position, and workers."""

import collections
import itertools

import keras
import numpy as np
import pytest

from keras_bert.pretraining.records import Documents, Records
from keras_bert.pretraining.stream import Stream, StreamPosition
from tests import prose

PAD, UNK, CLS, SEP, MASK = range(5)
GIVEN = prose.documents(120, seed=21, words=(2, 9))


@pytest.fixture
def made(tmp_path):
    """Return records of several shards with held-out documents."""
    found = prose.build(tmp_path, GIVEN, held_out=0.1, shard_bytes=1500)
    assert len(found.shards()) > 6
    return found


def small(made, rows=4, length=48, **options):
    return Stream(made, rows, length, **{"shards_in_memory": 3, **options})


def equal(a, b):
    keras.tree.assert_same_structure(a, b)
    for x, y in zip(keras.tree.flatten(a), keras.tree.flatten(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def texts(batch):
    """Yield the pairs of a batch: tuples (masked ids, type ids, positions, labels, is random)."""
    inputs, targets, weights = batch
    for row in range(len(inputs["input_word_ids"])):
        ids, types = inputs["input_word_ids"][row], inputs["input_type_ids"][row]
        filled = weights["masked_lm"][row] > 0
        positions = inputs["masked_lm_positions"][row][filled]
        labels = targets["masked_lm"][row][filled]
        text_ids = inputs["text_ids" if "text_ids" in inputs else "input_mask"][row]
        for key in {"input_word_ids", "input_type_ids", "position_ids"} & inputs.keys():
            assert not inputs[key][row][text_ids == 0].any()
        if "next_sentence" in targets and "text_ids" in inputs:
            assert not weights["next_sentence"][row, text_ids.max(initial=0) :].any()
        for number in range(1, text_ids.max(initial=0) + 1):
            at = np.flatnonzero(text_ids == number)
            assert (np.diff(at) == 1).all()
            mine = np.isin(positions, at)
            random = ()
            if "next_sentence" in targets:
                place = (row, number - 1) if "text_ids" in inputs else row
                assert weights["next_sentence"][place] == 1
                random = int(targets["next_sentence"][place])
            if "position_ids" in inputs:
                assert (inputs["position_ids"][row][at] == np.arange(len(at))).all()
                if "cls_positions" in inputs:
                    assert inputs["cls_positions"][row][number - 1] == at[0]
            yield (
                tuple(ids[at].tolist()), tuple(types[at].tolist()),
                tuple((positions[mine] - at[0]).tolist()), tuple(labels[mine].tolist()), random,
            )  # fmt: skip


def unmasked(text):
    """Return the original tokens of each text of a pair."""
    ids, _, positions, labels, _ = text
    ids = np.array(ids)
    ids[list(positions)] = labels
    ends = np.flatnonzero(ids == SEP)
    assert ids[0] == CLS and ends[-1] == len(ids) - 1
    return tuple(tuple(part[1:].tolist()) for part in np.split(ids, ends)[: len(ends)])


def epoch(stream, number=0):
    """Return the pairs of an epoch in order."""
    found = stream.batches(StreamPosition(number), epochs=number + 1)
    return [text for _, batch in found for text in texts(batch)]


# --- Content of batches ---


def shapes(arrays):
    assert {array.dtype.name for array in arrays.values()} <= {"int32", "float32"}
    return {name: array.shape for name, array in arrays.items()}


@pytest.mark.parametrize("next_sentence", [True, False])
def test_a_batch(made, next_sentence):
    stream = small(made, next_sentence=next_sentence)
    assert stream.predictions_in_row == 8  # 15% of 48, and some
    _, (inputs, targets, weights) = next(stream.batches())
    assert shapes(inputs) == {
        "input_word_ids": (4, 48), "input_mask": (4, 48), "input_type_ids": (4, 48),
        "masked_lm_positions": (4, 8),
    }  # fmt: skip
    of_tasks = {"masked_lm": (4, 8)} | ({"next_sentence": (4,)} if next_sentence else {})
    assert shapes(targets) == shapes(weights) == of_tasks


def test_a_packed_batch(made):
    stream = small(made, length=128, packed=True)
    assert (stream.texts_in_row, stream.predictions_in_row, stream.rows) == (8, 24, 4)
    _, (inputs, targets, weights) = next(stream.batches())
    assert shapes(inputs) == {
        "input_word_ids": (4, 128), "input_type_ids": (4, 128), "position_ids": (4, 128),
        "text_ids": (4, 128), "masked_lm_positions": (4, 24), "cls_positions": (4, 8),
    }  # fmt: skip
    assert shapes(targets) == shapes(weights) == {"masked_lm": (4, 24), "next_sentence": (4, 8)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("next_sentence", [False, True])
def test_example_has_the_shapes_of_a_batch_and_no_rows(made, packed, next_sentence):
    stream = small(made, packed=packed, next_sentence=next_sentence)
    example, (_, batch) = stream.example(), next(stream.batches())
    equal(example, keras.tree.map_structure(lambda array: array[:0], batch))


def contains(sentences, part):
    """Return True if a document contains a sequence of tokens."""
    flat = [piece for sentence in sentences for piece in sentence]
    return any(flat[at : at + len(part)] == list(part) for at in range(len(flat)))


@pytest.mark.parametrize("packed", [False, True])
def test_pairs_are_parts_of_the_documents(made, packed):
    documents = [d for n, d in enumerate(prose.ids(GIVEN)) if not held_out(n)]
    found = epoch(small(made, packed=packed))
    for text in found:
        first, second = unmasked(text)
        ids, types, positions, labels, is_random = text
        assert types == (0,) * (len(first) + 2) + (1,) * (len(second) + 1)
        assert len(ids) <= 48 and 1 <= len(positions) <= 8
        assert not set(labels) & {PAD, CLS, SEP, MASK}
        assert any(contains(d, first) for d in documents)
        assert any(contains(d, second) for d in documents)
        if len(ids) < 48:  # nothing was cut
            follows = any(contains(d, first + second) for d in documents)
            assert follows != bool(is_random)
    assert 0.4 < np.mean([text[-1] for text in found]) < 0.6


def held_out(number, share=0.1):
    return (number + 1) * 2654435761 % 2**32 < share * 2**32


def test_evaluation_uses_held_out_documents(made):
    documents = [d for n, d in enumerate(prose.ids(GIVEN)) if held_out(n)]
    assert len(documents) == made.counts("eval")["documents"] > 5
    found = epoch(small(made, split="eval"))
    for first, second in map(unmasked, found):
        for part in (first, second):
            assert any(contains(d, part) for d in documents)
    # Evaluation uses the order of the files.
    assert found == epoch(small(made, split="eval"))


def test_each_sentence_occurs_once_per_epoch(made):
    stream = small(made, length=512, next_sentence=False)
    expected = collections.Counter(
        tuple(s) for n, d in enumerate(prose.ids(GIVEN)) if not held_out(n) for s in d
    )
    stop = prose.PIECES.index(".")
    for number in (0, 3):
        pieces = [piece for text in epoch(stream, number) for piece in unmasked(text)[0]]
        ends = np.flatnonzero(np.array(pieces) == stop) + 1
        sentences = [tuple(part.tolist()) for part in np.split(pieces, ends[:-1])]
        assert collections.Counter(sentences) == expected


def test_pairs_do_not_depend_on_the_batch_size(made):
    expected = epoch(small(made, 1))
    assert len(expected) > 100
    for rows in (4, 7, 1000):
        assert epoch(small(made, rows)) == expected
    packed = [epoch(small(made, rows, packed=True)) for rows in (1, 5)]
    assert packed[0] == packed[1]


@pytest.mark.parametrize("options", [{}, {"whole_words": True}, {"next_sentence": False}])
def test_packed_rows_have_the_same_pairs_and_masks(made, options):
    plain = epoch(small(made, **options))
    packed = epoch(small(made, packed=True, **options))
    assert collections.Counter(plain) == collections.Counter(packed)
    assert len(set(plain)) > 0.9 * len(plain)


@pytest.mark.parametrize("share", [0.02, 0.15, 0.4])
@pytest.mark.parametrize("next_sentence", [True, False])
def test_shortest_texts_fit_the_predictions(tmp_path, share, next_sentence):
    """At least one token is masked per text, also for small shares."""
    made = prose.build(tmp_path, [[["zab"]]] * 50, shard_bytes=10**6)
    options = {"packed": True, "next_sentence": next_sentence, "masked_share": share}
    for length in (16, 128):
        stream = Stream(made, 2, length, **options)
        count = sum(weights["masked_lm"].sum() for _, (_, _, weights) in stream.batches(epochs=1))
        assert count >= 50


# --- Different masks and pairs in each epoch ---


def test_epochs_have_different_masks_and_pairs(made):
    stream = small(made, length=512, next_sentence=False, short_share=0.0)
    first, second = epoch(stream, 0), epoch(stream, 1)
    texts_of = [collections.Counter(map(unmasked, found)) for found in (first, second)]
    assert texts_of[0] == texts_of[1]
    assert list(map(unmasked, first)) != list(map(unmasked, second))
    same = set(first) & set(second)
    assert len(same) < 0.2 * len(first)  # some short texts get the same masks
    pairs_of = [set(map(unmasked, epoch(small(made), number))) for number in (0, 1)]
    assert len(pairs_of[0] & pairs_of[1]) < 0.5 * len(pairs_of[0])


def test_epochs_and_windows_have_different_masks(tmp_path):
    """The rows are otherwise equal: texts of one length."""
    made = prose.build(tmp_path, [[prose.WORDS[:30]]] * 60, shard_bytes=1)
    stream = small(made, 30, next_sentence=False, short_share=0.0, shards_in_memory=30)
    batches = [batch for _, batch in stream.batches(epochs=2)]
    assert len(batches) == 4  # two windows, twice
    positions = [batch[0]["masked_lm_positions"] for batch in batches]
    for a, b in itertools.combinations(positions, 2):
        assert (a == b).all(axis=1).mean() < 0.1


def test_seed(made):
    first = epoch(small(made, seed=1))
    assert first == epoch(small(made, seed=1))
    assert set(map(unmasked, first)) != set(map(unmasked, epoch(small(made, seed=2))))
    assert epoch(small(made, seed=-1))


def test_epochs_have_different_orders_of_shards(made):
    stream = small(made, shards_in_memory=1)
    orders = []
    for number in range(3):
        read = []
        made.read = lambda names, read=read: read.extend(names) or type(made).read(made, names)
        epoch(stream, number)
        orders.append(read)
    assert all(sorted(order) == made.shards() for order in orders)
    assert len({tuple(order) for order in orders}) == 3


# --- Resuming ---


@pytest.mark.parametrize("packed", [False, True])
def test_stream_resumes_at_any_batch(made, packed):
    options = {"packed": packed, "rows": 4 if packed else 6}
    every = list(itertools.islice(small(made, **options).batches(), 75))
    places = [place for place, _ in every]
    assert places == sorted(places) and len(set(places)) == 75
    assert {place.epoch for place in places} >= {0, 1, 2}
    assert {place.window for place in places} >= {0, 1, 2}
    stream = small(made, **options)
    for number in range(0, 72):
        again = itertools.islice(stream.batches(places[number]), 2)
        for (place, batch), (expected, then) in zip(again, every[number + 1 :], strict=False):
            assert place == expected
            equal(batch, then)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_together_equal_one(made, packed, workers):
    size = 6
    alone = itertools.islice(small(made, size, packed=packed).batches(), 50)
    streams = [
        small(made, size, packed=packed, worker=(index, workers)) for index in range(workers)
    ]
    assert {stream.rows for stream in streams} == {size // workers}
    theirs = [itertools.islice(stream.batches(), 50) for stream in streams]
    for (place, batch), *parts in zip(alone, *theirs, strict=True):
        assert {other for other, _ in parts} == {place}
        equal(keras.tree.map_structure(lambda *x: np.concatenate(x), *(b for _, b in parts)), batch)


def test_last_batch_of_an_epoch(made):
    count = len(epoch(small(made, 1)))
    rows = next(rows for rows in (4, 6, 10) if count % rows)
    batches = [batch for _, batch in small(made, rows).batches(epochs=1)]
    sizes = [len(batch[0]["input_word_ids"]) for batch in batches]
    assert sizes == [rows] * (count // rows) + [count % rows]
    batches = list(small(made, rows, worker=(0, 2)).batches(epochs=1))
    assert len(batches) == count // rows
    # Without a limit the stream continues with the next epoch.
    endless = itertools.islice(small(made, rows).batches(), count // rows + 1)
    place, last = list(endless)[-1]
    assert len(last[0]["input_word_ids"]) == rows and place.epoch == 1


# --- Errors ---


def test_documents_without_sentences(made, monkeypatch):
    nothing = np.zeros(0, np.int64)
    empty = Documents(nothing, np.zeros(1, np.int64), np.zeros(3, np.int64))
    monkeypatch.setattr(Records, "read", lambda records, names: empty)
    with pytest.raises(ValueError, match="no document has enough sentences"):
        next(small(made).batches())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "batch_size must be a multiple of the 1 workers; received 0"),
        ({"rows": 5, "worker": (0, 2)}, "a multiple of the 2 workers; received 5"),
        ({"split": "test"}, "contains no documents of the split 'test'"),
        ({"length": 7}, "sequence_length must be at least 8; received 7"),
    ],
)
def test_errors(made, options, message):
    with pytest.raises(ValueError, match=message):
        next(small(made, **options).batches())
