"""`keras_bert.bulk`: exported models under Apache Beam. `make test-older` runs these tests."""

import importlib.util
import json
import pathlib
import tempfile

import pytest

beam = pytest.importorskip("apache_beam", reason="apache-beam is not installed")

import numpy as np  # noqa: E402
import pyarrow  # noqa: E402
from pyarrow import parquet  # noqa: E402

import keras_bert  # noqa: E402
from keras_bert import bulk, heads  # noqa: E402
from tests import tiny  # noqa: E402

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples/bulk/predict.py"
TEXTS = ["so good", "", "한국어 good", "bad " * 50, "\x00", "good 🙂"]
BAD_LINES = {
    b'{"id": 1, "txt": "x"}': "the row has no 'text'; it has id, txt",
    b'{"id": 2, "text": 3}': "'text' must be a str; received 3",
    b"not json": "JSONDecodeError",
    b"[1]": "not a JSON object",
    b"\xff": "UnicodeDecodeError",
    b'{"text": "\\ud800"}': "surrogates not allowed",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Exports of several heads on one encoder."""
    folder = tmp_path_factory.mktemp("exports")
    encoder = tiny.encoder(num_hidden_layers=1, initializer_range=0.3)
    models = {
        "classification": heads.classifier(encoder, labels=["no", "yes", "unclear"]),
        "labels": heads.classifier(encoder, labels=["no", "yes"], multi_label=True),
        "embedding": heads.embedder(encoder),
        "tagging": heads.tagger(encoder, labels=["O", "B-X"]),
        "choice": heads.multiple_choice(encoder),
        "questions": heads.span_selector(encoder),
    }
    for name, model in models.items():
        keras_bert.export(model, folder / name)
        if name in ("classification", "labels", "embedding"):
            keras_bert.export(model, folder / f"{name}-onnx", format="onnx")
    models["classification"].save(folder / "classification.keras")
    return folder


def answers(model, rows, **options):
    """Return the answered rows and the rejected ones, as written to JSON Lines."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with beam.Pipeline(runner="BundleBasedDirectRunner") as pipeline:
            outputs = pipeline | beam.Create(rows) | bulk.Predict(model, trusted=True, **options)
            for file, output in zip(("predicted", "rejected"), outputs, strict=True):
                output | f"Write{file}" >> bulk.WriteRows(folder / file)
        return read_lines(folder, "predicted"), read_lines(folder, "rejected")


def read_lines(folder, name):
    files = sorted(folder.glob(f"{name}-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_bytes().splitlines()]


def test_answers_are_those_of_the_pipeline(folder):
    rows = [{"id": index, "text": text} for index, text in enumerate(TEXTS)]
    classify = keras_bert.pipeline(folder / "classification.keras")
    expected = classify(TEXTS, top_k=None)
    for name in ("classification", "classification-onnx"):
        predicted, rejected = answers(folder / name, rows, batch_size=4)
        assert rejected == []
        for row, ranked in zip(sorted(predicted, key=lambda row: row["id"]), expected, strict=True):
            assert row["text"] == TEXTS[row["id"]]
            assert row["label"] == ranked[0]["label"]
            scores = {each["label"]: each["score"] for each in ranked}
            by_label = [scores[label] for label in ("no", "yes", "unclear")]
            np.testing.assert_allclose(row["probabilities"], by_label, atol=1e-5)
            np.testing.assert_allclose(row["score"], max(by_label), atol=1e-5)


@pytest.mark.parametrize("name", ["labels", "embedding"])
def test_onnx_folders_answer_like_saved_models(folder, name):
    rows = [{"id": row, "text": text} for row, text in enumerate(TEXTS)]
    both = [
        sorted(answers(folder / each, rows)[0], key=lambda row: row["id"])
        for each in (name, f"{name}-onnx")
    ]
    for one, other in zip(*both, strict=True):
        assert list(sorted(one)) == list(sorted(other))
        for column, value in one.items():
            if isinstance(value, (float, list)):
                np.testing.assert_allclose(other[column], value, atol=1e-5)
            else:
                assert other[column] == value


def test_padding_is_removed(folder):
    rows = [{"text": "so good film"}, {"text": "bad"}, {"text": ""}]
    predicted, _ = answers(folder / "tagging", rows)
    assert {row["text"]: len(row["tag"]) for row in predicted} == {
        "so good film": 3, "bad": 1, "": 0
    }  # fmt: skip
    assert all("count" not in row for row in predicted)


def test_rows_of_other_tasks(folder):
    rows = [{"text": "a", "choices": ["good", "bad"]}, {"text": "b", "choices": ["so"] * 3}]
    predicted, rejected = answers(folder / "choice", rows)
    assert rejected == [], "rows with other numbers of choices are computed on their own"
    assert sorted(len(row["probabilities"]) for row in predicted) == [2, 3]
    predicted, rejected = answers(folder / "questions", [{"question": "so", "context": "good"}])
    assert predicted[0]["context"] == "good" and 0 <= predicted[0]["score"] <= 1


def test_columns_and_their_names(folder):
    rows = [{"id": 7, "sentence": "good", "score": 5, "other": 1}]
    options = {"columns": {"text": "sentence"}, "keep": ["id", "score"]}
    [row], _ = answers(folder / "classification", rows, **options)
    assert (row["id"], row["score"]) == (7, 5)
    assert set(row) == {"id", "score", "label", "predicted_score", "probabilities"}


def run_example(*arguments):
    spec = importlib.util.spec_from_file_location("predict", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(["--trusted", *map(str, arguments)])


def test_example_with_two_processes(folder, tmp_path, capsys):
    lines = [json.dumps({"id": n, "text": TEXTS[n % len(TEXTS)]}).encode() for n in range(2000)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([*lines, *BAD_LINES, b""]) + b"\n")
    run_example(
        folder / "classification", "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out",
        "--keep", "id", "--direct_num_workers", 2, "--direct_running_mode", "multi_processing",
    )  # fmt: skip
    assert "predicted: 2000" in (out := capsys.readouterr().out) and "rejected: 6" in out
    predicted = read_lines(tmp_path / "out", "predicted")
    assert sorted(row["id"] for row in predicted) == list(range(2000))
    reasons = [row["reason"] for row in read_lines(tmp_path / "out", "rejected")]
    for message in BAD_LINES.values():
        assert sum(message in reason for reason in reasons) == 1, message
    assert all("temp" not in path.name for path in (tmp_path / "out").iterdir())


def test_parquet_in_and_out(folder, tmp_path):
    table = pyarrow.table({"id": range(5), "text": TEXTS[:4] + [None], "when": [1.5] * 5})
    parquet.write_table(table, tmp_path / "in.parquet")
    run_example(
        folder / "classification", "--input", tmp_path / "in.parquet", "--output", tmp_path / "out",
        "--parquet",
    )  # fmt: skip
    found = parquet.read_table(list((tmp_path / "out").glob("predicted-*.parquet")))
    assert found.schema.field("id").type == pyarrow.int64()
    assert found.schema.field("probabilities").type == pyarrow.list_(pyarrow.float64())
    assert sorted(found["id"].to_pylist()) == [0, 1, 2, 3]
    [rejected] = read_lines(tmp_path / "out", "rejected")
    assert rejected["row"]["id"] == 4 and "must be a str; received None" in rejected["reason"]


def test_json_lines_to_parquet(folder, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "good", "tags": [1]}\n{"text": "bad", "x": 1}\n')
    run_example(
        folder / "embedding", "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out",
        "--parquet",
    )  # fmt: skip
    rows = parquet.read_table(list((tmp_path / "out").glob("*.parquet"))).to_pylist()
    assert {(row["text"], row["tags"]) for row in rows} == {("good", "[1]"), ("bad", None)}
    assert all(len(row["embedding"]) == 8 for row in rows)


def test_wrong_models_and_inputs(folder, tmp_path, capsys):
    for model in (tmp_path / "missing", folder):  # the folder has several
        with pytest.raises(Exception, match="must hold one exported model"):
            answers(model, [{"text": "good"}])
    with pytest.raises(ValueError, match="trusted=True"):
        bulk.ExportHandler(folder / "classification").load_model()
    with pytest.raises(ValueError, match="the format of reviews.csv must be one of text, jsonl"):
        bulk.ReadRows("reviews.csv")
    with pytest.raises(OSError, match="No files found"):
        beam.Pipeline() | bulk.ReadRows(str(tmp_path / "*.txt"))
    with pytest.raises(SystemExit):
        run_example(
            folder / "classification", "--input", tmp_path / "*.txt", "--output", tmp_path / "out"
        )
    assert f"argument --input: no file matches {tmp_path}/*.txt" in capsys.readouterr().err


class Model:
    """A model that fails for some texts, or from a call on."""

    inputs = ("text",)

    def __init__(self, fails_for=(), works=True):
        self.fails_for, self.works, self.calls = fails_for, works, 0

    def __call__(self, rows):
        self.calls += 1
        if not self.works:
            raise ConnectionError("the device is gone")
        if any(row["text"] in self.fails_for for row in rows):
            raise ValueError("cannot answer this")
        return [{"label": "yes"} for _ in rows]


def test_a_row_that_fails_is_rejected_alone():
    rows = [{"text": str(number)} for number in range(16)]
    found = bulk.ExportHandler("unused").run_inference(rows, Model(fails_for=("3", "12")))
    rejected = [answer.row["text"] for answer in found if isinstance(answer, bulk.Rejected)]
    assert rejected == ["3", "12"] and found[0] == {"text": "0", "label": "yes"}


@pytest.mark.parametrize("count", [1, 16])
def test_an_outage_rejects_no_rows(count):
    model = Model(works=False)
    with pytest.raises(ConnectionError, match="the device is gone"):
        bulk.ExportHandler("unused").run_inference([{"text": "a"}] * count, model)
    assert model.calls == 2  # the rows and a sample
