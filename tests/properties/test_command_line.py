"""The command line agrees with the Python call that it stands for, in value and in refusals.

The options come from `keras_bert.cli.options`, so a new option is in these tests.
"""

import dataclasses
import inspect
import types
import typing
from collections.abc import Sequence

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from keras_bert.cli import options
from keras_bert.tasks import registry
from keras_bert.tasks.embedding.retrieval import read as read_retrieval
from tests import tiny
from tests.cli.shared import TEXTS, run

pytestmark = pytest.mark.usefixtures("eager")

RECIPE = {field.name: field for field in dataclasses.fields(options.FinetuneRecipe)}
PARAMETERS = set(inspect.signature(keras_bert.finetune).parameters)
TASK_OPTIONS = {
    name for task in registry.names() for name in registry.by_name(task).training_options.names()
}
# Commands that write files of their own or run a program, and stand for no single Python call.
OTHER_COMMANDS = {"list", "doctor", "info", "serve", "explain", "vocab", "records", "pretrain"}
# Options that name files, columns and machines, or that the tests of their command compare.
NOT_VALUES = {
    "model", "trusted", "engine", "precision", "dtype", "rematerialize", "batch_size", "header",
    "word", "tag", "separator", "input", "output", "file", "path", "train", "dev", "glue",
    "negatives", "score_range", "limit", "label", "text", "text_pair", "format", "characters",
    "keep_layers", "teacher", "freeze", "search", "task", "split", "retriever", "candidates",
    "texts", "query", "license", "quantize", "to", "drop", "hidden_act", "ignore", "rerank",
    "vectors", "probabilities", "null_threshold", "pooling", "long_texts", "max_answer_length",
    "metrics",
}  # fmt: skip


def kind_of(field):
    """Return the type of a field without `None`, and True for a list."""
    kind = field.type
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = typing.get_args(kind)[0]
    is_list = typing.get_origin(kind) is Sequence
    return (typing.get_args(kind)[0], True) if is_list else (kind, False)


def example(field):
    """Return a valid value that is not the default, and a value that must be refused, if any."""
    kind, is_list = kind_of(field)
    if typing.get_origin(kind) is typing.Literal:
        value = next(value for value in typing.get_args(kind) if value != field.default)
        bad = "no-such-value"
    elif kind is bool:
        return True, None
    elif typing.get_origin(kind) is typing.Annotated:
        value = 3 if typing.get_args(kind)[0] is int else 0.25
        bad = -1
    else:
        value, bad = {int: (3, None), str: ("name", None)}[kind]
    return ([value] if is_list else value), ([bad] if is_list else bad)


def argv_of(name, value):
    words = [f"--{name.replace('_', '-')}"]
    if value is not True:
        words += value if isinstance(value, list) else [value]
    return words


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders with an encoder, an embedder with prompts, a classifier, and data."""
    folder = tmp_path_factory.mktemp("models")
    encoder = tiny.encoder(num_hidden_layers=1, initializer_range=0.5)
    prompts = {"query": "so good ", "passage": "bad "}
    models = {
        "encoder": encoder,
        "embedder": heads.embedder(encoder, prompts=prompts, default_prompt="query"),
        "classifier": heads.classifier(encoder, labels=["bad", "good"]),
        "masked": heads.masked_lm(encoder),
    }
    for name, model in models.items():
        keras_bert.save(model, folder / name)
    (folder / "a.tsv").write_text(TEXTS)
    (folder / "pairs.tsv").write_text("text\tother\ngood film\tso good\nbad\ta film\nis\tthis is\n")
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    texts = ["this film is good", "bad", "so bad a film", "films", "is this good", "goodly"]
    for name, rows in (("corpus", texts), ("queries", texts[::-1])):
        lines = [f'{{"_id": "{name[0]}{row}", "text": "{text}"}}' for row, text in enumerate(rows)]
        (beir / f"{name}.jsonl").write_text("\n".join(lines))
    judged = "".join(f"q{row}\tc{(row * 2) % 6}\t1\n" for row in range(6))
    (beir / "qrels/test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return folder


@pytest.mark.parametrize("name", RECIPE)
def test_each_option_of_the_recipe_reaches_finetune(name, folders, tmp_path, monkeypatch):
    value, _ = example(RECIPE[name])
    calls = []

    def record(*args, **arguments):
        calls.append(arguments)
        raise ValueError("recorded")

    monkeypatch.setattr("keras_bert.training.finetuning.finetune", record)
    status = run(
        "finetune", "--model", folders / "encoder", "--train", folders / "a.tsv",
        "--output", tmp_path / "out", *argv_of(name, value),
    )  # fmt: skip
    assert status == 1
    assert calls[0][name] == value
    assert name in PARAMETERS | TASK_OPTIONS


@pytest.mark.parametrize(
    "name", [name for name in RECIPE if example(RECIPE[name])[1] not in (None, [None])]
)
def test_the_command_and_finetune_refuse_the_same(name, folders, tmp_path, capsys):
    _, bad = example(RECIPE[name])
    with pytest.raises(SystemExit) as stopped:
        run(
            "finetune", "--model", folders / "encoder", "--train", folders / "a.tsv",
            "--output", tmp_path / "out", *argv_of(name, bad),
        )  # fmt: skip
    assert stopped.value.code == 2
    assert f"--{name.replace('_', '-')}" in capsys.readouterr().err
    train = keras_bert.read(folders / "a.tsv")
    with pytest.raises(ValueError, match=name):
        keras_bert.finetune(tiny.encoder(num_hidden_layers=1), train, **{name: bad})


def printed(capsys, *arguments):
    """Return the lines that a command prints."""
    capsys.readouterr()
    assert run(*arguments) == 0
    return capsys.readouterr().out.splitlines()


PROMPTS = [
    {}, {"prompt": "passage"}, {"corpus_prompt": "passage"},
    {"prompt": "", "corpus_prompt": "bad "},
]  # fmt: skip


def flags(chosen):
    return [word for name, value in chosen.items() for word in argv_of(name, value)]


@pytest.mark.parametrize("prompts", PROMPTS)
def test_evaluate_uses_the_prompts_of_the_pipeline(prompts, folders, capsys):
    lines = printed(
        capsys, "evaluate", folders / "embedder", "--input", folders / "beir", *flags(prompts)
    )
    pipe = keras_bert.pipeline(folders / "embedder")
    data = read_retrieval(folders / "beir")
    texts = pipe.output.prompts | {"": "", "bad ": "bad "}
    chosen = [texts[prompts.get(name, "query")] for name in ("prompt", "corpus_prompt")]
    expected = pipe.evaluate(data.with_prompts(*chosen))
    values = dict(line.split() for line in lines if len(line.split()) == 2)
    for name, value in expected.items():
        if isinstance(value, float):
            assert float(values[name]) == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize("prompts", PROMPTS)
def test_search_finds_what_the_pipeline_finds(prompts, folders, capsys):
    lines = printed(
        capsys, "search", folders / "a.tsv", "so good film", "--model", folders / "embedder",
        "--top", 3, *flags(prompts),
    )  # fmt: skip
    pipe = keras_bert.pipeline(folders / "embedder")
    texts = keras_bert.read(folders / "a.tsv").texts
    query = pipe.encode("so good film", prompt=prompts.get("prompt"))
    vectors = pipe.encode(texts, prompt=prompts.get("corpus_prompt"))
    scores = np.sort(vectors @ query / np.linalg.norm(query) / np.linalg.norm(vectors, axis=1))
    assert [float(line.split("\t")[0]) for line in lines] == pytest.approx(
        scores[::-1][:3], abs=1e-4
    )


@pytest.mark.parametrize("chosen", [{}, {"prompt": "passage"}, {"truncate_dim": 4}])
def test_embed_writes_the_vectors_of_the_pipeline(chosen, folders, tmp_path, capsys):
    file = tmp_path / "a.npy"
    printed(
        capsys, "embed", folders / "embedder", "--input", folders / "a.tsv", "--output", file,
        *flags(chosen),
    )  # fmt: skip
    texts = keras_bert.read(folders / "a.tsv").texts
    expected = keras_bert.pipeline(folders / "embedder").encode(texts, **chosen)
    np.testing.assert_allclose(np.load(file), expected, atol=1e-6)


@pytest.mark.parametrize("chosen", [{"count": 1, "margin": -2}, {"count": 2, "margin": -2.0}])
def test_mine_writes_the_negatives_of_the_pipeline(chosen, folders, tmp_path, capsys):
    file = tmp_path / "mined.tsv"
    printed(
        capsys, "mine", folders / "pairs.tsv", "--text-pair", "other", "--model",
        folders / "embedder", "--output", file, *(f"--{name}={chosen[name]}" for name in chosen),
    )  # fmt: skip
    pairs = keras_bert.read(folders / "pairs.tsv", "embedding", text="text", text_pair="other")
    expected = keras_bert.pipeline(folders / "embedder").mine_negatives(pairs, **chosen)
    rows = [tuple(line.split("\t")) for line in file.read_text().splitlines()[1:]]
    assert rows == [tuple(row) for row in expected.texts]


def test_evaluate_predict_and_fill_print_what_the_pipeline_returns(folders, capsys):
    pipe = keras_bert.pipeline(folders / "classifier")
    examples = keras_bert.read(folders / "a.tsv")
    lines = printed(capsys, "evaluate", folders / "classifier", "--input", folders / "a.tsv")
    assert f"{pipe.evaluate(examples)['accuracy']:.3f}" in " ".join(lines)
    rows = printed(capsys, "predict", folders / "classifier", "--input", folders / "a.tsv")
    results = [f"{result['label']}\t{result['score']:.4f}" for result in pipe(examples.texts)]
    assert [row for row in rows if row.startswith(tuple(results))] == rows[-len(results) :]
    candidates = printed(capsys, "fill", folders / "masked", "so [MASK]", "--top", 3)
    best = keras_bert.pipeline(folders / "masked")("so [MASK]", top_k=3)
    assert [line.split("\t")[1] for line in candidates] == [answer["token"] for answer in best]


def test_every_option_is_compared_or_listed():
    compared = {*RECIPE, "prompt", "corpus_prompt", "truncate_dim", "top", "count", "margin"}
    for command, fields in options.COMMANDS.items():
        if command in OTHER_COMMANDS:
            continue
        names = {field.name for field in dataclasses.fields(fields)}
        missing = names - compared - NOT_VALUES - {"vector_precision"}
        assert not missing, f"compare the options {missing} of {command} with the Python call"
