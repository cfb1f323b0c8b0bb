"""Pairs for next sentence prediction: properties of single pairs, and distributions."""

import hashlib

import numpy as np
import pytest

from keras_bert.pretraining import hash_random, pairs
from tests import prose


def inspect(documents, drawn, length):
    """Check each pair; return the sentences of first texts and of true second texts."""
    starts = documents.sentence_starts.tolist()
    sentence_of = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    document_of = np.repeat(np.arange(len(documents)), np.diff(documents.document_starts))
    used = []
    for first, second, is_random in zip(
        drawn.first.tolist(), drawn.second.tolist(), drawn.is_random.tolist(), strict=True
    ):
        assert first[0] < first[1] and second[0] < second[1]
        assert first[1] - first[0] + second[1] - second[0] + 3 <= length
        a = range(sentence_of[first[0]], sentence_of[first[1] - 1] + 1)
        b = range(sentence_of[second[0]], sentence_of[second[1] - 1] + 1)
        # Each text is a sequence of sentences of one document.
        assert len({document_of[s] for s in a}) == len({document_of[s] for s in b}) == 1
        is_full = first[1] - first[0] + second[1] - second[0] + 3 == length
        is_cut = any(
            start > starts[sentences[0]] or end < starts[sentences[-1] + 1]
            for (start, end), sentences in ((first, a), (second, b))
        )
        assert is_full or not is_cut  # nothing is cut unnecessarily
        if is_random:
            assert document_of[a[0]] != document_of[b[0]]
            used += a
        else:
            assert document_of[a[0]] == document_of[b[0]]
            assert b[0] == a[-1] + 1 or (is_full and b[0] > a[-1])
            used += [*a, *b]
    return used


@pytest.mark.parametrize("length", [8, 20, 64, 128, 512])
def test_properties_of_each_pair(length):
    documents = prose.in_memory(prose.documents(300, seed=length, words=(1, 40)))
    drawn = pairs.draw(documents, length, key=length)
    used = inspect(documents, drawn, length)
    if length >= 64:  # no sentence is cut entirely
        assert len(used) == len(set(used))
    total = len(documents.sentence_starts) - 1
    # Cutting may drop entire sentences.
    assert len(used) <= total
    if length == 512:
        assert sorted(used) == list(range(total))


@pytest.mark.parametrize("sentences", [(1, 20), (1, 4), (40, 40)])
def test_half_of_the_pairs_are_random(sentences):
    count = 2 if sentences == (40, 40) else 3000
    documents = prose.in_memory(prose.documents(count, seed=7, sentences=sentences))
    drawn = [pairs.draw(documents, 64, key=key) for key in range(100 if count == 2 else 3)]
    inspect(documents, drawn[0], 64)
    share = np.concatenate([each.is_random for each in drawn]).mean()
    assert share == pytest.approx(0.5, abs=0.02)


def test_random_documents_are_uniformly_distributed():
    documents = prose.in_memory([[["zab"]]] * 20)
    found = [pairs.draw(documents, 16, key=key).second[:, 0] for key in range(400)]
    counts = np.bincount(np.concatenate(found), minlength=20)
    assert counts.sum() == 8000
    assert counts.min() > 320 and counts.max() < 480  # 400 +- 4 standard deviations


def test_starts_of_random_texts_are_uniformly_distributed():
    documents = prose.in_memory([[["zab"]], [["zab"]] * 10])
    seconds = []
    for key in range(2000):
        drawn = pairs.draw(documents, 16, key=key, short_share=0.0)
        seconds += drawn.second[drawn.is_random & (drawn.first[:, 0] == 0), 0].tolist()
    counts = np.bincount(seconds, minlength=11)
    assert counts[0] == 0 and counts[1:].sum() == 2000
    assert counts[1:].min() > 140 and counts[1:].max() < 260


def test_first_texts_end_anywhere():
    """The boundary between first and true second texts is uniformly distributed."""
    documents = prose.in_memory([[["zab", "."]] * 5] * 2000)
    drawn = pairs.draw(documents, 64, key=2, short_share=0.0)
    counts = np.bincount(np.diff(drawn.first[~drawn.is_random])[:, 0] // 2, minlength=5)
    assert counts[0] == 0 and counts[1:5].min() > 0.8 * counts[1:5].max() - 200


def test_a_tenth_of_the_pairs_is_shorter():
    documents = prose.in_memory(prose.documents(6, seed=9, sentences=(2000, 2000), words=(4, 9)))
    drawn = pairs.draw(documents, 256, key=3)
    longest = 2 * 19  # maximum tokens of a sentence: the deviation from the target length
    short = (drawn.lengths < 256 - longest).mean()
    # A tenth have a uniformly distributed target; some others are ends of documents.
    assert 0.06 < short < 0.16
    assert (pairs.draw(documents, 256, key=4, short_share=0).lengths < 200).mean() < 0.06
    every = pairs.draw(documents, 256, key=5, short_share=1.0).lengths
    assert np.percentile(every, 10) < 60 < 180 < np.percentile(every, 90)


def test_single_sentence_documents_make_random_pairs():
    documents = prose.in_memory(prose.documents(50, seed=10, sentences=(1, 1)))
    drawn = pairs.draw(documents, 64, key=6)
    assert len(drawn) == 50 and drawn.is_random.all()
    assert sorted(inspect(documents, drawn, 64)) == list(range(50))


@pytest.mark.parametrize("count", [0, 1])
def test_one_document_raises(count):
    documents = prose.in_memory(prose.documents(count))
    with pytest.raises(ValueError, match=f"needs at least two documents; received {count}"):
        pairs.draw(documents, 64, key=7)
    pairs.draw(documents, 64, key=7, next_sentence=False)  # single texts


@pytest.mark.parametrize("length", [-1, 0, 3, 7])
def test_too_short_length_raises(length):
    with pytest.raises(ValueError, match=f"sequence_length must be at least 8; received {length}"):
        pairs.draw(prose.in_memory(prose.documents(9)), length, key=3)


def test_single_texts():
    documents = prose.in_memory(prose.documents(300, seed=11, words=(1, 40)))
    drawn = pairs.draw(documents, 64, key=9, next_sentence=False)
    assert drawn.special == 2 and not drawn.second.any() and not drawn.is_random.any()
    assert drawn.lengths.max() == 64
    assert (drawn.lengths == np.diff(drawn.first)[:, 0] + 2).all()
    first = drawn.first[np.argsort(drawn.first[:, 0])]
    assert (first[1:, 0] >= first[:-1, 1]).all()  # no overlap
    document_of = np.repeat(np.arange(300), np.diff(documents.document_starts))
    of_piece = np.repeat(document_of, np.diff(documents.sentence_starts))
    assert (of_piece[first[:, 0]] == of_piece[first[:, 1] - 1]).all()
    # Only tokens that exceed the length of a text are missing.
    cut = first[1:, 0] > first[:-1, 1]
    is_full = np.diff(first)[:, 0] == 62
    assert cut.any() and (is_full[:-1] | is_full[1:])[cut].all()


def test_long_sentence_is_cut_at_both_ends():
    documents = prose.in_memory([[prose.WORDS * 3], [["zab"]]])
    starts = set()
    for key in range(50):
        drawn = pairs.draw(documents, 32, key=key, next_sentence=False)
        at = drawn.first[np.argmax(drawn.lengths)]
        assert np.diff(at) == 30
        starts.add(int(at[0]))
    assert len(starts) > 10 and 40 < np.mean(list(starts)) < 65


def test_golden():
    """The pairs are equal on every machine and Python; these numbers must never change."""
    documents = prose.in_memory(
        [[prose.WORDS[: 1 + (7 * d + 3 * s) % 23] for s in range(1 + d % 9)] for d in range(60)]
    )
    drawn = pairs.draw(documents, 48, key=hash_random.key_of(0, 0, 0))
    table = np.column_stack([drawn.first, drawn.second, drawn.is_random]).astype("<i8")
    assert table[:3].tolist() == GOLDEN_ROWS
    assert hashlib.sha256(table.tobytes()).hexdigest()[:16] == GOLDEN_HASH


GOLDEN_ROWS = [
    [1656, 1669, 2302, 2306, 1],
    [2998, 3020, 3020, 3035, 0],
    [1343, 1351, 1354, 1391, 0],
]
GOLDEN_HASH = "dbed3adb0d2b2e62"
