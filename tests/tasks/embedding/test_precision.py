"""Vectors of 8 bits and 1 bit: their numbers, their search, their files."""

import warnings

import numpy as np
import pytest

import keras_bert
from keras_bert.tasks.embedding import nearest as search
from keras_bert.tasks.embedding.nearest import QuantizedVectors, calibrate, quantize
from tests import tiny

SCALAR, BINARY = ("int8", "uint8"), ("binary", "ubinary")
WORDS = ["good", "bad", "film", "so good", "bad film", "this film", "a", "b"] * 16


def vectors_of(count, width, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return search.unit_length(vectors)


@pytest.mark.peers
@pytest.mark.parametrize("width", [384, 13, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("precision", ["float32", *SCALAR, *BINARY])
def test_numbers_are_those_of_sentence_transformers(precision, dtype, width):
    peer = pytest.importorskip("sentence_transformers.util.quantization")
    vectors = vectors_of(500, width).astype(dtype)
    vectors[:, -1] = 0.25  # a range of size 0
    vectors[0] = 0  # not above 0
    cases = [{}]
    if precision in SCALAR:
        ranges = calibrate(vectors[100:350])  # other vectors are outside of them
        cases += [{"ranges": ranges}, {"calibration_embeddings": vectors[:150]}]
    for options in cases:
        expected = peer.quantize_embeddings(vectors, precision, **options)
        ranges = options.get("ranges")
        if "calibration_embeddings" in options:
            ranges = calibrate(options["calibration_embeddings"])
        found = quantize(vectors, precision, ranges)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
    single = {"ranges": ranges} if precision in SCALAR else {}
    expected = peer.quantize_embeddings(vectors[3], precision, **single)
    np.testing.assert_array_equal(quantize(vectors[3], precision, **single), expected)


def test_few_vectors_show_no_ranges():
    with pytest.warns(UserWarning, match="come from 99 vectors"):
        quantize(vectors_of(99, 4), "int8")
    with pytest.raises(ValueError, match="need several vectors.*calibration"):
        quantize(vectors_of(1, 4), "uint8")
    assert quantize(np.zeros((0, 9)), "int8").shape == (0, 9)
    assert quantize(np.zeros((0, 9)), "binary").shape == (0, 2)


def test_ranges_of_other_vectors():
    vectors = vectors_of(200, 8)
    with pytest.warns(UserWarning, match="outside the ranges"):
        quantize(vectors * 5, "int8", calibrate(vectors))


def corpus_of(vectors, precision):
    with warnings.catch_warnings():
        return QuantizedVectors.of(vectors, precision)


@pytest.mark.parametrize("kind", ["cosine", "dot"])
@pytest.mark.parametrize("block", [2**22, 700])
@pytest.mark.parametrize("precision", SCALAR)
def test_scores_of_8_bits_are_those_of_decoded_vectors(monkeypatch, precision, block, kind):
    monkeypatch.setattr(search, "_BLOCK", block)
    vectors, queries = vectors_of(300, 20) * 3 + 1, vectors_of(5, 20, 1)
    stored = corpus_of(vectors, precision)
    step = (vectors.max(axis=0) - vectors.min(axis=0)) / 255
    assert (np.abs(stored.decode() - vectors) <= step * 0.51).all()
    expected = search.top_k(queries, stored.decode(), 7, kind)
    indices, scores = search.top_k(queries, stored, 7, kind)
    np.testing.assert_allclose(scores, expected[1], atol=1e-5)
    assert np.mean(indices == expected[0]) > 0.9


@pytest.mark.parametrize("block", [2**22, 700])
@pytest.mark.parametrize("width", [64, 20, 130])
@pytest.mark.parametrize("precision", BINARY)
def test_scores_of_1_bit_count_equal_signs(monkeypatch, precision, width, block):
    monkeypatch.setattr(search, "_BLOCK", block)
    vectors, queries = vectors_of(300, width), vectors_of(5, width, 1)
    stored = corpus_of(vectors, precision)
    signs = np.where(vectors > 0, 1, -1)
    np.testing.assert_array_equal(stored.decode(), signs)
    for kind, unit in (("dot", 1), ("cosine", width)):
        _, scores = search.top_k(queries, stored, 300, kind, rescore_multiplier=0)
        expected = -np.sort(-(np.where(queries > 0, 1, -1) @ signs.T) / unit, axis=1)
        np.testing.assert_allclose(scores, expected, atol=1e-6)
    # The float32 query scores all candidates again.
    found = search.top_k(queries, stored, 10, "dot", rescore_multiplier=30)
    expected = search.top_k(queries, signs.astype("float32"), 10, "dot")
    np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("precision", ["int8", "binary"])
def test_originals_on_disk_rescore_the_candidates(tmp_path, precision):
    vectors, queries = vectors_of(400, 64), vectors_of(6, 64, 1)
    stored = corpus_of(vectors, precision)
    np.save(tmp_path / "vectors.npy", vectors)
    originals = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    expected = search.top_k(queries, vectors, 5)
    found = search.top_k(queries, stored, 5, rescore_multiplier=80, originals=originals)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    np.testing.assert_array_equal(found[0], expected[0])
    # A result that is no candidate cannot come back.
    few = search.top_k(queries, stored, 5, rescore_multiplier=1, originals=originals)
    candidates = search.top_k(queries, stored, 5, rescore_multiplier=0)
    np.testing.assert_array_equal(np.sort(few[0]), np.sort(candidates[0]))


def test_fewer_vectors_than_k():
    stored = corpus_of(np.eye(3, 8, dtype="float32"), "binary")
    indices, scores = search.top_k(np.eye(1, 8)[0], stored, 5)
    assert (indices[0, 0], indices.shape, scores.shape) == (0, (1, 3), (1, 3))
    empty = QuantizedVectors(np.zeros((0, 1), np.int8), "binary")
    assert search.top_k(np.ones(8), empty, 5)[0].shape == (1, 0)


@pytest.mark.parametrize("precision", [*SCALAR, *BINARY])
def test_files(tmp_path, precision):
    vectors = vectors_of(120, 13)
    stored = corpus_of(vectors, precision)
    stored.save(tmp_path / "vectors.npz")
    again = QuantizedVectors.load(tmp_path / "vectors.npz")
    assert (again.precision, again.width, len(again)) == (precision, 13, 120)
    found, expected = (search.top_k(vectors[:3], each, 3) for each in (again, stored))
    np.testing.assert_array_equal(found, expected)
    mapped = np.memmap(tmp_path / "raw", again.values.dtype, "w+", shape=again.values.shape)
    mapped[:] = again.values
    on_disk = QuantizedVectors(mapped, precision, again.ranges, 13)
    np.testing.assert_array_equal(search.top_k(vectors[:3], on_disk, 3), expected)


def embedder(**options):
    return keras_bert.heads.embedder(tiny.encoder(num_hidden_layers=1, **options))


def test_files_know_their_model(tmp_path):
    pipe, other = (keras_bert.pipeline(embedder(initializer_range=size)) for size in (0.5, 0.1))
    path = tmp_path / "vectors.npz"
    QuantizedVectors.of(pipe.encode(WORDS), "binary", pipe=pipe).save(path)
    assert len(QuantizedVectors.load(path, pipe)) == len(WORDS)
    with pytest.raises(ValueError, match="vectors of another model"):
        QuantizedVectors.load(path, other)
    path.write_bytes(b"broken")
    with pytest.raises(ValueError, match="does not hold quantized vectors"):
        QuantizedVectors.load(path)
    np.savez(path, vectors=np.eye(2))
    with pytest.raises(ValueError, match="does not hold quantized vectors"):
        QuantizedVectors.load(path)


def test_encode():
    pipe = keras_bert.pipeline(embedder(initializer_range=0.5))
    options = {"normalize": True, "truncate_dim": 5}
    floats = pipe.encode(WORDS, **options)
    for precision in ("float32", *SCALAR, *BINARY):
        found = pipe.encode(WORDS, precision=precision, **options)
        np.testing.assert_array_equal(found, quantize(floats, precision))
    # One text, with the ranges of a corpus: its texts, its embeddings, or the ranges.
    ranges = calibrate(floats)
    expected = quantize(pipe.encode("film", **options), "int8", ranges)
    for calibration in ({"calibration": WORDS}, {"calibration": floats}, {"ranges": ranges}):
        found = pipe.encode("film", precision="int8", **calibration, **options)
        np.testing.assert_array_equal(found, expected)
    assert pipe.encode("film", precision="binary", **options).shape == (1,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "int4"}, "precision must be one of"),
        ({"prompt": 3}, "prompt must be the name of a prompt"),
        ({"precision": "binary", "calibration": WORDS}, "apply to int8"),
        ({"precision": "int8"}, "need several vectors"),
        ({"precision": "int8", "ranges": np.zeros((2, 3))}, r"shape \(2, 8\)"),
        ({"precision": "int8", "ranges": [[0] * 8, [1] * 8], "calibration": WORDS}, "not both"),
    ],
)
def test_encode_refuses(options, message):
    pipe = keras_bert.pipeline(embedder())
    with pytest.raises(ValueError, match=message):
        pipe.encode("film", **options)
    with pytest.raises(ValueError, match="takes a text or a list"):
        pipe.encode(iter(WORDS), precision="binary")


INT8 = QuantizedVectors(np.zeros((3, 8), np.int8), "int8", np.tile([[0.0], [1.0]], 8))
BITS = QuantizedVectors(np.zeros((3, 1), np.int8), "binary")
QUERY = np.ones(8, np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: search.top_k(QUERY[:5], BITS), "same width; received 5 and 8"),
        (lambda: search.top_k(QUERY.astype(np.int8), BITS), "queries must be float32"),
        (lambda: search.similarity(QUERY, BITS), "second must be float32"),
        (lambda: search.top_k(QUERY, INT8, kind="euclidean"), "one of cosine, dot"),
        (lambda: search.top_k(QUERY, INT8, originals=np.ones((4, 8))), r"array \(3, 8\)"),
        (lambda: search.top_k(QUERY, np.ones((3, 8)), originals=np.ones((3, 8))), "applies to"),
        (lambda: search.top_k(QUERY, BITS, rescore_multiplier=-1), "at least 0"),
        (lambda: search.top_k(QUERY, INT8, originals=np.ones((3, 8), np.int8)), "must be float32"),
        (lambda: QuantizedVectors(INT8.values, "int8"), "need the ranges"),
        (lambda: QuantizedVectors(INT8.values, "uint8", INT8.ranges), "must have the type uint8"),
        (lambda: QuantizedVectors(INT8.values, "int8", np.zeros((2, 9))), r"shape \(2, 8\)"),
        (lambda: QuantizedVectors(BITS.values, "binary", width=9), "cannot have the width 9"),
        (lambda: QuantizedVectors(BITS.values, "float32"), "precision must be one of"),
        (lambda: QuantizedVectors(None, "binary"), "values must be an array of numbers"),
        (lambda: QuantizedVectors.of(INT8.values, "binary"), "quantized already"),
        (lambda: quantize([[np.nan]], "binary"), "must not hold NaN"),
        (lambda: quantize(np.eye(2), "binary", INT8.ranges), "ranges apply to"),
        (lambda: calibrate([[np.nan], [1.0]] * 50), "must not hold NaN"),
    ],
)
def test_wrong_inputs(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "ranges", [[[0], [np.inf]], [[-3e38], [3e38]], [[np.nan], [1]], [[1], [0]]]
)
def test_ranges_that_are_none(ranges):
    with pytest.raises(ValueError, match="ranges"):
        quantize(np.ones((2, 1), np.float32), "int8", ranges)


@pytest.mark.parametrize("width", ["8", 8.0, -1, 9])
def test_files_with_another_width(width, tmp_path):
    stored = QuantizedVectors.of(np.eye(8), "binary")
    stored.save(tmp_path / "vectors.npz")
    arrays = dict(np.load(tmp_path / "vectors.npz"))
    np.savez(tmp_path / "vectors.npz", **{**arrays, "width": width})
    with pytest.raises(ValueError, match="does not hold quantized vectors .*width"):
        QuantizedVectors.load(tmp_path / "vectors.npz")
