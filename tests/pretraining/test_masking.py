"""Masking: shares, special tokens, whole words, and reproducible random numbers."""

import hashlib

import numpy as np
import pytest

from keras_bert.pretraining import hash_random, masking
from tests import prose

NUMBER = {piece: index for index, piece in enumerate(prose.PIECES)}
PAD, UNK, CLS, SEP, MASK = range(5)
MORE = [*prose.SPECIAL, "[unused1]", "[unused22]", *prose.WORDS, "##s", "##ly", ".", "[", "[x]"]


def sequences(rows, length=64, seed=0, pieces=prose.PIECES):
    """[CLS] words [SEP] words [SEP] [PAD]...: ids and lengths."""
    random = np.random.default_rng(seed)
    words = [index for index, piece in enumerate(pieces) if piece not in prose.SPECIAL]
    ids = random.choice(words, (rows, length)).astype(np.int32)
    lengths = random.integers(8, length + 1, rows)
    lengths[: rows // 2] = length
    ids[:, 0] = CLS
    ids[np.arange(rows), lengths // 3] = ids[np.arange(rows), lengths - 1] = SEP
    ids[np.arange(length) >= lengths[:, None]] = PAD
    return ids, lengths


def check(masked, positions, labels, count, ids, lengths, most):
    """Check each row; return the mask, bool (rows, seq)."""
    at = np.zeros(ids.shape, bool)
    assert masked.dtype == positions.dtype == labels.dtype == np.int32
    assert positions.shape == labels.shape == (len(ids), most)
    for row in range(len(ids)):
        n = int(count[row])
        assert n <= most
        here = positions[row, :n]
        assert (np.diff(here) > 0).all()
        assert not positions[row, n:].any() and not labels[row, n:].any()
        assert (labels[row, :n] == ids[row, here]).all()
        assert (here < lengths[row]).all()
        at[row, here] = True
    assert not np.isin(ids[at], [CLS, SEP, PAD]).any()
    assert (masked[~at] == ids[~at]).all()
    return at


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize(("most", "share"), [(1, 0.15), (5, 0.15), (40, 0.15), (40, 0.5)])
def test_properties_of_each_row(whole_words, most, share):
    ids, lengths = sequences(200)
    before = ids.copy()
    masker = masking.Masker(prose.PIECES, most, share, whole_words=whole_words)
    found = masker.mask(ids, lengths, 5, np.arange(200))
    at = check(*found, ids, lengths, most)
    assert (ids == before).all()  # not changed in place
    budget = np.clip(np.round(share * lengths), 1, most)
    assert (at.sum(1) <= budget).all() if whole_words else (at.sum(1) == budget).all()


def test_shares_over_many_tokens():
    ids, lengths = sequences(20_000, 64, seed=1)
    lengths[:] = 60
    ids[:, 60:], ids[:, 59] = PAD, SEP
    masker = masking.Masker(prose.PIECES, 20)
    masked, positions, labels, count = masker.mask(ids, lengths, 7, np.arange(20_000))
    assert (count == 9).all()  # 15% of 60
    rows = np.arange(20_000)[:, None]
    now = masked[rows, positions[:, :9]]
    labels = labels[:, :9]
    total = now.size
    assert total == 180_000
    # Tolerance of 5 standard deviations. A random token equals the original one at times.
    ordinary = len(prose.PIECES) - 5
    assert (now == MASK).mean() == pytest.approx(0.8, abs=0.005)
    assert (now == labels).mean() == pytest.approx(0.1 + 0.1 / ordinary, abs=0.004)
    other = now[(now != MASK) & (now != labels)]
    assert len(other) / total == pytest.approx(0.1 - 0.1 / ordinary, abs=0.004)
    # Random tokens are uniformly distributed over all tokens except special ones.
    counts = np.bincount(other, minlength=len(prose.PIECES))
    assert not counts[:5].any()
    expected = len(other) / ordinary
    assert abs(counts[5:] - expected).max() < 6 * expected**0.5
    # Positions are equally likely and independent.
    words = (ids[:, :59] != SEP)[:, 1:]
    at = np.zeros(ids.shape, bool)
    np.put_along_axis(at, positions[:, :9], True, axis=1)
    share = at[:, 1:59].sum(0) / words.sum(0)
    assert abs(share - 9 / 57).max() < 6 * (0.16 / 20_000) ** 0.5
    neighbours = (at[:, 1:58] & at[:, 2:59]).mean()
    assert neighbours == pytest.approx((9 / 57) * (8 / 56), rel=0.15)
    # The replacement is independent of the choice and the position.
    assert np.corrcoef(now.ravel() == MASK, positions[:, :9].ravel())[0, 1] < 0.02


def test_random_tokens_are_never_special_or_unused():
    ids, lengths = sequences(3000, pieces=MORE, seed=3)
    masked, positions, labels, count = masking.Masker(MORE, 20).mask(
        ids, lengths, 3, np.arange(3000)
    )
    new = set(masked[masked != ids].tolist()) - {MASK}
    assert new == {index for index, piece in enumerate(MORE) if index > 6}


def test_at_least_one_token_unless_the_text_is_empty():
    ids = np.array([[CLS, 9, SEP, 0, 0], [CLS, SEP, SEP, 0, 0], [0] * 5], np.int32)
    for whole_words in (False, True):
        masker = masking.Masker(prose.PIECES, 3, whole_words=whole_words)
        found = masker.mask(ids, np.array([3, 3, 0]), 0, range(3))
        assert found[3].tolist() == [1, 0, 0]
        assert found[1].tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]
        check(*found, ids, [3, 3, 0], 3)
        empty = masker.mask(ids[:0], np.zeros(0, int), 0, [])
        assert [array.shape for array in empty] == [(0, 5), (0, 3), (0, 3), (0,)]


# --- Whole words ---


def words_of(ids, length):
    """Return the positions of each word; [CLS] and [SEP] end words."""
    words = []
    for position in range(length):
        if ids[position] in (CLS, SEP):
            words.append([])
        elif ids[position] == NUMBER["##s"] and words and words[-1]:
            words[-1].append(position)
        else:
            words.append([position])
    return [word for word in words if word]


def test_whole_words_are_masked():
    random = np.random.default_rng(4)
    ids, lengths = sequences(400, seed=4)
    endings = (random.random(ids.shape) < 0.4) & (ids > MASK)
    ids[endings] = NUMBER["##s"]  # also after [CLS] and [SEP], as in texts that begin within a word
    masker = masking.Masker(prose.PIECES, 12, whole_words=True)
    found = masker.mask(ids, lengths, 11, np.arange(400))
    at = check(*found, ids, lengths, 12)
    several = 0
    for row in range(400):
        words = words_of(ids[row], lengths[row])
        budget = min(12, max(1, round(0.15 * int(lengths[row]))))
        for word in words:
            assert at[row, word].all() or not at[row, word].any(), (row, word)
            several += len(word) > 1 and at[row, word[0]]
        # A word is skipped only if it exceeds the budget.
        left = budget - at[row].sum()
        assert not [w for w in words if len(w) <= left and not at[row, w[0]]], row
    assert several > 300


def test_tokens_of_a_word_are_replaced_independently():
    """Each token of a masked word is replaced independently, as in Google's code."""
    ids = np.tile(np.array([CLS, 9, NUMBER["##s"], SEP], np.int32), (4000, 1))
    masker = masking.Masker(prose.PIECES, 2, 0.5, whole_words=True)
    masked, *_, count = masker.mask(ids, np.full(4000, 4), 0, np.arange(4000))
    assert (count == 2).all()
    both = (masked[:, 1:3] == MASK).all(1).mean()
    assert both == pytest.approx(0.64, abs=0.03)


# --- Random numbers depend only on the key, the number and the position ---


@pytest.mark.parametrize("whole_words", [False, True])
def test_masks_do_not_depend_on_the_batch(whole_words):
    ids, lengths = sequences(60)
    numbers = np.random.default_rng(0).permutation(1000)[:60]
    masker = masking.Masker(prose.PIECES, 12, whole_words=whole_words)
    together = masker.mask(ids, lengths, 2**64 - 1, numbers)
    order = np.random.default_rng(1).permutation(60)
    shuffled = masker.mask(ids[order], lengths[order], 2**64 - 1, numbers[order])
    wider = masker.mask(np.pad(ids, ((0, 0), (0, 30))), lengths, 2**64 - 1, numbers)
    np.testing.assert_array_equal(wider[0][:, :64], together[0])
    for a, b, c in zip(together[1:], shuffled[1:], wider[1:], strict=True):
        np.testing.assert_array_equal(a[order], b)
        np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(together[0][order], shuffled[0])
    for row in (0, 31, 59):
        alone = masker.mask(ids[[row]], lengths[[row]], 2**64 - 1, numbers[[row]])
        for a, b in zip(alone, together, strict=True):
            np.testing.assert_array_equal(a[0], b[row])


@pytest.mark.parametrize("whole_words", [False, True])
def test_golden(whole_words):
    """The masks are equal on every machine; these numbers must never change."""
    ids = np.array(
        [[CLS, *(5 + (7 * row + column) % 46 for column in range(40)), SEP] for row in range(30)]
    )
    masker = masking.Masker(prose.PIECES, 9, whole_words=whole_words)
    found = masker.mask(ids, np.full(30, 42), hash_random.key_of(1, 2), np.arange(30))
    table = np.concatenate([found[0], found[1], found[2]], axis=1).astype("<i4")
    assert found[1][0].tolist() == GOLDEN_POSITIONS[whole_words]
    assert hashlib.sha256(table.tobytes()).hexdigest()[:16] == GOLDEN_HASH[whole_words]


GOLDEN_POSITIONS = {False: [7, 9, 20, 22, 24, 32, 0, 0, 0], True: [7, 9, 20, 22, 24, 32, 0, 0, 0]}
GOLDEN_HASH = {False: "921ec3cab4bec9ce", True: "bb6c2f3e1bc6739a"}
