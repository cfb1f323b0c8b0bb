"""Records: their content, resumed builds, errors, and memory."""

import hashlib
import tracemalloc

import filelock
import numpy as np
import pytest

from keras_bert.pretraining import records, workers
from tests import damage, prose


def contents(folder):
    """Return the files of a folder of records without the lock."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != ".lock"}


def documents(made, split):
    """Return documents as lists of sentences of ids."""
    found = made.read(made.shards(split))
    sentences = np.split(found.pieces, found.sentence_starts[1:-1])
    starts = found.document_starts
    return [[s.tolist() for s in sentences[a:b]] for a, b in zip(starts, starts[1:], strict=False)]


# --- Content ---


def test_documents_equal_tokenizing_by_hand(tmp_path):
    given = prose.documents(300, seed=1)
    made = prose.build(tmp_path, given, held_out=0.1)
    train, held_out = documents(made, "train"), documents(made, "eval")
    expected = {"train": [], "eval": []}
    for number, document in enumerate(prose.ids(given)):
        # The choice of held-out documents depends only on the index.
        expected["eval" if (number + 1) * 2654435761 % 2**32 < 0.1 * 2**32 else "train"].append(
            document
        )
    assert (train, held_out) == (expected["train"], expected["eval"])
    assert len(made.shards()) > 10
    assert made.shards()[:2] == ["train-00000.tfrecord", "train-00001.tfrecord"]
    sentences = [s for d in given for s in d]
    counts = made.manifest["counts"]
    assert counts["documents"] == 300
    assert counts["sentences"] == len(sentences)
    assert counts["pieces"] == sum(map(len, sentences))
    assert counts["unknown_pieces"] == counts["invalid_utf8"] == 0
    for split, split_documents in expected.items():
        lengths = [len(sentence) for document in split_documents for sentence in document]
        assert made.counts(split) == {
            "documents": len(split_documents), "sentences": len(lengths), "pieces": sum(lengths),
        }  # fmt: skip


def test_what_was_left_out_or_replaced_is_counted(tmp_path):
    file = tmp_path / "corpus.txt"
    file.write_bytes("Zab unknown 語 zab.\n\nZed \udcff.\n".encode("utf-8", "surrogateescape"))
    manifest = records.build([file], tmp_path / "records", prose.preprocessor(), workers=1)
    assert manifest["counts"]["unknown_pieces"] == 2
    assert manifest["counts"]["invalid_utf8"] == 1
    page = "<page><ns>0</ns>{}<revision><text>Zab zed.</text></revision></page>"
    pages = page.format("") + page.format("<redirect/>")
    made = prose.build(tmp_path / "dump", f"<mediawiki>{pages}</mediawiki>")
    assert made.manifest["counts"]["redirects"] == made.manifest["counts"]["documents"] == 1


@pytest.mark.parametrize("words", [127, 128, 129, 300, 1000])
def test_long_sentences_are_cut_into_similar_parts(tmp_path, words):
    given = [[prose.WORDS[:3] + ["."], (prose.WORDS * 30)[:words], prose.WORDS[3:5] + ["."]]]
    text = prose.text(given).replace(". Zab", ".\nZab")
    text = text[: text.rindex(given[0][2][0].capitalize())] + "\n" + "Zib zid.\n"
    made = prose.build(tmp_path, text)
    found = made.read(made.shards())
    number = {piece: index for index, piece in enumerate(prose.PIECES)}
    expected = [*given[0][0], *given[0][1], "zib", "zid", "."]
    assert found.pieces.tolist() == [number[piece] for piece in expected]
    lengths = np.diff(found.sentence_starts)
    parts = -(-words // 128)
    assert len(lengths) == 2 + parts and lengths.sum() == len(expected)
    assert lengths[0] == 4 and lengths[-1] == 3
    assert lengths[1:-1].max() <= 128 and np.ptp(lengths[1:-1]) <= 1


def test_documents_without_tokens_are_omitted(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_PART_BYTES", 1)
    made = prose.build(tmp_path, "Zab zed.\n\n\u200b\u200b\n\nZed. \u200b\n")
    assert [len(document) for document in documents(made, "train")] == [1, 1]
    assert made.counts()["documents"] == 2
    assert made.manifest["counts"]["documents"] == 3


def test_large_vocabulary_has_wider_ids(tmp_path):
    pieces = [*prose.PIECES, *(f"x{number}" for number in range(2**16))]
    (tmp_path / "corpus.txt").write_text("Zab x65530.\n")
    folder = tmp_path / "records"
    records.build([tmp_path / "corpus.txt"], folder, prose.preprocessor(pieces), held_out=0.0,
                  workers=1)  # fmt: skip
    made = records.Records(folder)
    assert made.manifest["settings"]["piece_type"] == "<u4"
    (document,) = documents(made, "train")
    assert document[0][1] == pieces.index("x65530") > 2**16 - 1


def test_tensorflow_reads_the_files(tmp_path):
    import tensorflow as tf

    given = prose.documents(40)
    made = prose.build(tmp_path, given)
    names = ("pieces", "sentence_lengths")
    features = {name: tf.io.FixedLenFeature([], tf.string) for name in names}
    files = [str(made.folder / name) for name in made.shards()]
    for example, expected in zip(
        tf.data.TFRecordDataset(files).as_numpy_iterator(), prose.ids(given), strict=True
    ):
        row = tf.io.parse_example([example], features)
        types = [made.manifest["settings"][key] for key in ("piece_type", "length_type")]
        pieces, lengths = (
            np.frombuffer(row[name].numpy()[0], dtype)
            for name, dtype in zip(names, types, strict=True)
        )
        assert np.split(pieces, np.cumsum(lengths)[:-1])[0].tolist() == expected[0]
        assert pieces.tolist() == sum(expected, [])


def test_preprocessor_equals_that_of_the_build(tmp_path):
    (tmp_path / "corpus.txt").write_text("ZAB.\n")
    given = prose.preprocessor(lowercase=False, strip_accents=False)
    folder = tmp_path / "records"
    records.build([tmp_path / "corpus.txt"], folder, given, held_out=0.0, workers=1)
    made = records.Records(folder)
    again = made.preprocessor(max_sequence_length=64)
    assert again.vocabulary == given.vocabulary
    assert (again.lowercase, again.strip_accents, again.max_sequence_length) == (False, False, 64)
    assert made.manifest["counts"]["unknown_pieces"] == 1
    file = folder / "vocab.txt"
    file.write_text(file.read_text().replace("zab", "zap"))
    with pytest.raises(ValueError, match="made with another vocabulary"):
        made.preprocessor()
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"vocab\.txt"):
        made.preprocessor()


# --- The same bytes, whatever happened ---


def test_bytes_do_not_depend_on_workers_and_parts(tmp_path, monkeypatch):
    given = prose.documents(200, seed=2)
    expected = contents(prose.build(tmp_path / "a", given, held_out=0.1).folder)
    assert len(expected) > 20
    monkeypatch.setattr(records, "_PART_BYTES", 300)
    assert contents(prose.build(tmp_path / "b", given, held_out=0.1).folder) == expected
    assert contents(prose.build(tmp_path / "c", given, held_out=0.1, workers=2).folder) == expected


def test_second_build_does_nothing(tmp_path):
    given = prose.documents(50)
    made = prose.build(tmp_path, given)
    files = [*made.folder.glob("*.tfrecord"), made.folder / "records.json"]
    before = {file: file.stat().st_mtime_ns for file in files}
    seen = []
    again = prose.build(tmp_path, given, on_progress=seen.append)
    assert again.manifest == made.manifest and not seen
    assert {file: file.stat().st_mtime_ns for file in files} == before


class Stop(Exception):
    pass


@pytest.mark.parametrize("workers", [1, 2])
def test_stopped_build_resumes_with_the_next_shard(tmp_path, monkeypatch, workers):
    given = prose.documents(200, seed=3)
    expected = contents(prose.build(tmp_path / "a", given, held_out=0.1).folder)
    monkeypatch.setattr(records, "_PART_BYTES", 500)
    size, read = len(prose.text(given)), []

    def stop(done):
        read.append(done)
        if done > size / 3:
            raise Stop

    for _ in range(2):
        with pytest.raises(Stop):
            prose.build(tmp_path / "b", given, held_out=0.1, workers=workers, on_progress=stop)
        assert not list((tmp_path / "b" / "records").glob(".*.tfrecord"))
    with pytest.raises(ValueError, match="the records are incomplete"):
        records.Records(tmp_path / "b" / "records")
    progress = []
    options = {"held_out": 0.1, "workers": workers, "on_progress": progress.append}
    if workers == 1:
        made = prose.build(tmp_path / "b", given, **options)
        assert progress == sorted(progress) and progress[-1] < size * 0.5  # the remaining text
    else:  # a shard was deleted in the meantime
        min((tmp_path / "b" / "records").glob("*.tfrecord")).unlink()
        made = prose.build(tmp_path / "b", given, **options)
    assert contents(made.folder) == expected


# --- What is refused ---


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "the corpus contains no text: corpus.txt"),
        ("\x7f\u200b \n", {}, "the corpus contains no text: corpus.txt"),
        ("Zab.", {"held_out": 1.0}, "held_out must be at least 0 and below 1; received 1.0"),
        ("Zab.", {"shard_bytes": 0}, "shard_bytes must be an integer of at least 1"),
        ("Zab.", {"shard_bytes": 2**40}, "shard_bytes must be at most"),
        ("Zab.", {"folder": "corpus/records"}, "records: must not be inside the corpus"),
        ("Zab.", {"paths": "none"}, "no such file"),
        ("Zab.", {"pieces": prose.PIECES[:4] + prose.PIECES[5:]}, r"vocabulary has no \[MASK\]"),
    ],
)
def test_a_refused_build_leaves_no_records(tmp_path, monkeypatch, text, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "corpus.txt").write_text(text)
    options = {"paths": "corpus", "folder": "records", "pieces": prose.PIECES, **options}
    preprocessor = prose.preprocessor(options.pop("pieces"))
    with pytest.raises(ValueError, match=message):
        records.build(preprocessor=preprocessor, workers=1, **options)
    assert not list(tmp_path.rglob("*.tfrecord"))
    (tmp_path / "b.txt").write_text("Zab. Bad.\n")
    assert records.build("b.txt", "records", prose.preprocessor(), workers=1)


def test_edited_corpus_is_refused(tmp_path):
    made = prose.build(tmp_path, prose.documents(30))
    text = (tmp_path / "corpus.txt").read_text()
    for at in (0, len(text) - 4):
        with pytest.raises(ValueError, match="the records were made with another corpus; use"):
            prose.build(tmp_path, text[:at] + "X" + text[at + 1 :])
    assert prose.build(tmp_path, text).manifest == made.manifest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"held_out": 0.2}, "held_out=0.0; received 0.2; use another folder"),
        ({"shard_bytes": 7}, "shard_bytes=2000; received 7"),
        ({"pieces": [*prose.PIECES[:-1], "new", "."]}, "with another vocabulary; use"),
        ({"lowercase": False}, "lowercase=True; received False"),
    ],
)
def test_changed_settings_are_refused(tmp_path, change, message):
    made = prose.build(tmp_path, prose.documents(30))
    before, change = contents(made.folder), dict(change)
    options = {"held_out": 0.0, "shard_bytes": 2000, "workers": 1}
    options |= {key: change.pop(key) for key in options if key in change}
    preprocessor = prose.preprocessor(**{"pieces": prose.PIECES, **change})
    with pytest.raises(ValueError, match=message):
        records.build([tmp_path / "corpus.txt"], made.folder, preprocessor, **options)
    assert contents(made.folder) == before


def test_damaged_files_raise(tmp_path):
    made = prose.build(tmp_path, prose.documents(60), held_out=0.1)

    def read():
        again = records.Records(made.folder)
        again.preprocessor()
        found = [again.read(again.shards(split)) for split in records.SPLITS]
        assert sum(map(len, found)) == 60

    files = [made.folder / name for name in contents(made.folder)]
    damage.check(files, read, times=150)
    # Damage to the data is always detected.
    numbers = [file for file in files if file.suffix == ".tfrecord" or file.name == "records.json"]
    assert damage.check(numbers, read, times=150, seed=1) <= 3  # white space in the manifest


@pytest.mark.parametrize("content", ["", "{", "[]", "5", "{}", '{"sha256": ""}', "\ufffd"])
def test_broken_manifest_raises(tmp_path, content):
    made = prose.build(tmp_path, "Zab.\n")
    (made.folder / "records.json").write_text(content)
    for call in (lambda: records.Records(made.folder), lambda: prose.build(tmp_path, "Zab.\n")):
        with pytest.raises(ValueError, match=r"records\.json .*; delete it and run `keras-bert"):
            call()


FAULTS = {
    "a file above": lambda m: m["shards"][0]["files"][0].update(file="../secret"),
    "an absolute path": lambda m: m["shards"][0]["files"][0].update(file="/etc/passwd"),
    "no shards": lambda m: m.pop("shards"),
    "no settings": lambda m: m.pop("settings"),
    "a list of settings": lambda m: m.update(settings=[]),
    "a shard that is a string": lambda m: m.update(shards=["x"]),
    "a count that is a string": lambda m: m["shards"][0]["files"][0].update(pieces="9"),
    "a negative count": lambda m: m["shards"][0]["files"][0].update(pieces=-9),
    "another type": lambda m: m["settings"].update(piece_type="O"),
    "an unknown split": lambda m: m["shards"][0]["files"][0].update(split="\x1b[2J"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_manifest_of_a_stranger_raises(tmp_path, fault):
    """The hash of the manifest is right: a stranger can compute it, too."""
    made = prose.build(tmp_path, prose.documents(9))
    FAULTS[fault](made.manifest)
    records.write_manifest(made.folder, made.manifest)
    for call in (
        lambda: records.Records(made.folder),
        lambda: prose.build(tmp_path, prose.documents(9)),
    ):
        with pytest.raises(ValueError, match=r"records\.json is broken .*; delete it") as caught:
            call()
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [b"\xff" * 100, b"\0" * 99, bytes(8) + b"\0" * 8, (2).to_bytes(8, "little") + bytes(6) + b"x"],
)
def test_shard_of_a_stranger_raises(tmp_path, content):
    made = prose.build(tmp_path, prose.documents(9))
    entry = made.manifest["shards"][0]["files"][0]
    (made.folder / entry["file"]).write_bytes(content)
    entry["sha256"] = hashlib.sha256(content).hexdigest()
    with pytest.raises(ValueError, match=r"\.tfrecord is broken .*; run the same"):
        made.read([entry["file"]])


def test_tokens_outside_the_vocabulary_raise(tmp_path):
    made = prose.build(tmp_path, prose.documents(9))
    made.manifest["settings"]["vocab_size"] = 2
    with pytest.raises(ValueError, match="a token is not in the vocabulary"):
        made.read(made.shards())


@pytest.mark.parametrize("broken", [None, b"something else"])
def test_broken_shard_raises_and_is_rebuilt(tmp_path, broken):
    made = prose.build(tmp_path, prose.documents(120))
    name = made.shards()[1]
    file = made.folder / name
    content = file.read_bytes()
    file.unlink()
    if broken is not None:
        file.write_bytes(broken)
    assert len(made.read(made.shards()[:1]))
    with pytest.raises(ValueError, match=f"{name} is missing or has changed .* run the same"):
        made.read(made.shards())
    others = [made.folder / other for other in made.shards() if other != name]
    assert len(others) > 3
    before = [other.stat().st_mtime_ns for other in others]
    again = prose.build(tmp_path, prose.documents(120))
    assert file.read_bytes() == content
    assert [other.stat().st_mtime_ns for other in others] == before  # only this shard is rebuilt
    assert again.manifest == made.manifest


def test_a_shard_of_a_changed_corpus_is_not_rebuilt(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_hash_of_ends", lambda file: "")
    made = prose.build(tmp_path, prose.documents(60))
    (made.folder / made.shards()[1]).unlink()
    text = prose.text(prose.documents(60))
    with pytest.raises(ValueError, match="the corpus has changed .* use another folder"):
        prose.build(tmp_path, text[::-1])


def test_another_process_that_makes_records_raises(tmp_path):
    (tmp_path / "records").mkdir()
    lock = filelock.FileLock(tmp_path / "records" / ".lock")
    with lock, pytest.raises(ValueError, match="another process is making records"):
        prose.build(tmp_path, "Zab.\n")


# --- Memory, and without TensorFlow ---


def test_worker_processes_read_only_a_little_ahead():
    import time

    drawn = []

    def inputs():
        for number in range(60):
            drawn.append(number)
            yield number, f"Zab {number}."

    found = workers.apply(str.upper, inputs(), 2)
    for number in range(10):
        assert next(found) == (number, f"ZAB {number}.")
        time.sleep(0.02)
        assert len(drawn) <= number + 6
    assert [number for number, _ in found] == list(range(10, 60))


@pytest.mark.slow
def test_memory_does_not_grow_with_the_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_PART_BYTES", 2**17)
    preprocessor = prose.preprocessor()
    part = prose.text(prose.documents(2500, seed=6, sentences=(4, 12)))
    assert len(part) > 500_000
    peaks = []
    for times in (1, 1, 5):
        file = tmp_path / f"{len(peaks)}.txt"
        file.write_text(part * times)
        tracemalloc.start()
        try:
            options = {"workers": 1, "shard_bytes": 2**18}
            records.build(file, tmp_path / f"records {len(peaks)}", preprocessor, **options)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[2] < 1.2 * peaks[1]
