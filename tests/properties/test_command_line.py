"""The command line agrees with the Python calls that it stands for, in value and in refusals.

The options come from `keras_bert.cli.options`, so a new option is in these tests.
"""

import dataclasses
import pathlib
import shlex

import numpy as np
import pytest

import keras_bert
from keras_bert.cli import options
from keras_bert.cli.parser import parse
from keras_bert.tasks.embedding.retrieval import read as read_retrieval
from tests import tiny
from tests.cli.shared import run
from tests.properties import command_lines

pytestmark = pytest.mark.usefixtures("eager")

# Options with another name in Python, or whose value is a part of another argument.
RENAMED = {
    # A Python function has one model, one file, or one folder.
    "model": ["name", "source", "path"],
    "teacher": ["name"],
    "retriever": ["model"],
    "rerank": ["model"],
    "train": ["data", "path"],
    "dev": ["data", "path"],
    "input": ["data", "path"],
    "file": ["data", "path"],
    "vectors": ["path"],
    "corpus": ["paths"],
    "glue": ["folder"],
    "records": ["folder"],
    "output": ["folder"],
    "vocab": ["path", "name"],
    # Keras, NumPy and the peers have these names.
    "to": ["format"],
    "source_format": ["format"],
    "top": ["top_k", "k"],
    "candidates": ["top_k", "k"],
    "query": ["query", "inputs"],
    "keep_layers": ["layers"],
    "vector_precision": ["precision"],
    "first_share": ["share"],
    "strategy": ["name"],
    "task": ["name"],
    "pooling": ["mode"],
    "lengths": ["sequence_length"],
    # An object has one prompt; data have one per side.
    "prompt": ["query"],
    "corpus_prompt": ["prompt", "corpus"],
    # A flag that is the opposite of an argument, or selects the function.
    "cased": ["lowercase"],
    "keep_accents": ["strip_accents"],
    "no_split_cjk": ["split_cjk"],
    "no_next_sentence": ["masked_lm"],
    "search": ["grid"],
    # A size or a file of sizes.
    "size": ["hidden_size"],
    "config": ["hidden_size"],
}
# The value in Python, if it is not that of the option.
RECIPE = {field.name: field for field in dataclasses.fields(options.FinetuneRecipe)}
VALUES = {"cased": False, "keep_accents": False, "no_split_cjk": False, "tiny": 128, "config": 24}
CASES = [
    (command, line)
    for command in command_lines.REQUIRED
    for line in command_lines.lines_of(command)
]


# Where Python refuses a value that the repeated calls of a line do not refuse.
REFUSED_ELSEWHERE = {
    # The options of all tasks are in one line of `finetune`. There is a test of their limits below.
    **{("finetune", name): "" for name in RECIPE},
    ("embed", "truncate_dim"): "EmbeddingPipeline.width_of",
    ("fill", "top"): "Pipeline.__call__",
    ("serve", "max_body"): "the server is not a part of the Python API",
    ("serve", "max_text"): "",
    ("serve", "max_rows"): "",
}


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return command_lines.files(tmp_path_factory.mktemp("files"))


def words_of(line, paths, folder):
    return [word.format(**paths, out=folder / "out") for word in shlex.split(line)]


def given_of(command, words):
    """Return the options of a line that are not the defaults, with their values in Python."""
    _, args = parse([command, *words])
    given = {}
    for field in dataclasses.fields(args):
        value = getattr(args, field.name)
        if value != field.default and value not in ([], None):
            given[field.name] = VALUES.get(field.name, VALUES.get(str(value), value))
    return given


def arrives(value, values):
    texts = {str(list(value) if isinstance(value, tuple) else value) for value in values}
    parts = {str(part) for part in value} if isinstance(value, list) else {str(value)}
    is_written = isinstance(value, str) and pathlib.Path(value).exists()
    return str(value) in texts or parts <= texts or is_written


@pytest.mark.parametrize(("command", "line"), CASES)
def test_options_are_arguments_in_python(command, line, paths, tmp_path, monkeypatch, capsys):
    """Each value of a line arrives in a call. The calls refuse what the command line refuses."""
    words = words_of(line, paths, tmp_path)
    calls = command_lines.Calls(monkeypatch)
    run(command, *words)
    error = capsys.readouterr().err
    monkeypatch.undo()
    required = given_of(command, words_of(command_lines.REQUIRED[command], paths, tmp_path))
    is_first = line == command_lines.lines_of(command)[0]
    fields = {field.name: field for field in dataclasses.fields(options.COMMANDS[command])}
    for name, value in given_of(command, words).items():
        if name in required and not is_first:
            continue
        names = [name, *RENAMED.get(name, ())]
        values = calls.values(*names)
        assert arrives(value, values), (name, value, values, error)
        for bad in command_lines.bad_values(fields[name]):
            assert is_refused(command, [*words, f"--{name.replace('_', '-')}", str(bad)])
            bad = [bad] if isinstance(value, list) else bad
            if (command, name) not in REFUSED_ELSEWHERE:
                errors = list(calls.errors(names, value, bad))
                assert any(name in error for error in errors for name in names), (name, bad, errors)


def is_refused(command, words):
    try:
        parse([command, *words])
    except SystemExit as stopped:
        return stopped.code == 2
    return False


def test_each_option_is_in_a_line(paths, tmp_path):
    for command, fields in options.COMMANDS.items():
        lines = command_lines.lines_of(command) if command in command_lines.REQUIRED else []
        given = [given_of(command, words_of(line, paths, tmp_path)) for line in lines]
        names = {name for options in given for name in options}
        assert names == {field.name for field in dataclasses.fields(fields)}, command


@pytest.mark.parametrize(
    ("name", "bad"),
    [(name, bad) for name in RECIPE for bad in command_lines.bad_values(RECIPE[name])],
)
def test_finetune_refuses_what_the_command_refuses(name, bad, paths):
    bad = [bad] if command_lines.kind_of(RECIPE[name])[1] else bad
    train = keras_bert.read(paths["table"])
    with pytest.raises(ValueError, match=name):
        keras_bert.finetune(tiny.encoder(num_hidden_layers=1), train, **{name: bad})


def test_pipelines_refuse_what_the_command_refuses(paths):
    pipe = keras_bert.pipeline(paths["masked"])
    for bad in (-1, 0):
        with pytest.raises(ValueError, match="top_k"):
            pipe("so [MASK]", top_k=bad)


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
    return [
        word for name, value in chosen.items() for word in (f"--{name.replace('_', '-')}", value)
    ]


@pytest.mark.parametrize("prompts", PROMPTS)
def test_evaluate_uses_the_prompts_of_the_pipeline(prompts, paths, capsys):
    lines = printed(
        capsys, "evaluate", paths["embedder"], "--input", paths["beir"], *flags(prompts)
    )
    pipe = keras_bert.pipeline(paths["embedder"])
    data = read_retrieval(paths["beir"])
    texts = pipe.output.prompts | {"": "", "bad ": "bad "}
    chosen = [texts[prompts.get(name, "query")] for name in ("prompt", "corpus_prompt")]
    expected = pipe.evaluate(data.with_prompts(*chosen))
    values = dict(line.split() for line in lines if len(line.split()) == 2)
    for name, value in expected.items():
        if isinstance(value, float):
            assert float(values[name]) == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize("prompts", PROMPTS)
def test_search_finds_what_the_pipeline_finds(prompts, paths, capsys):
    lines = printed(
        capsys, "search", paths["table"], "so good film", "--model", paths["embedder"],
        "--top", 3, *flags(prompts),
    )  # fmt: skip
    pipe = keras_bert.pipeline(paths["embedder"])
    texts = keras_bert.read(paths["table"]).texts
    query = pipe.encode("so good film", prompt=prompts.get("prompt"))
    vectors = pipe.encode(texts, prompt=prompts.get("corpus_prompt"))
    scores = np.sort(vectors @ query / np.linalg.norm(query) / np.linalg.norm(vectors, axis=1))
    assert [float(line.split("\t")[0]) for line in lines] == pytest.approx(
        scores[::-1][:3], abs=1e-4
    )


@pytest.mark.parametrize("chosen", [{}, {"prompt": "passage"}, {"truncate_dim": 4}])
def test_embed_writes_the_vectors_of_the_pipeline(chosen, paths, tmp_path, capsys):
    file = tmp_path / "a.npy"
    printed(
        capsys, "embed", paths["embedder"], "--input", paths["table"], "--output", file,
        *flags(chosen),
    )  # fmt: skip
    texts = keras_bert.read(paths["table"]).texts
    expected = keras_bert.pipeline(paths["embedder"]).encode(texts, **chosen)
    np.testing.assert_allclose(np.load(file), expected, atol=1e-6)


@pytest.mark.parametrize("chosen", [{"count": 1, "margin": -2}, {"count": 2, "margin": -2.0}])
def test_mine_writes_the_negatives_of_the_pipeline(chosen, paths, tmp_path, capsys):
    file = tmp_path / "mined.tsv"
    printed(
        capsys, "mine", paths["table"], "--text-pair", "other", "--model",
        paths["embedder"], "--output", file, *(f"--{name}={chosen[name]}" for name in chosen),
    )  # fmt: skip
    pairs = keras_bert.read(paths["table"], "embedding", text="text", text_pair="other")
    expected = keras_bert.pipeline(paths["embedder"]).mine_negatives(pairs, **chosen)
    rows = [tuple(line.split("\t")) for line in file.read_text().splitlines()[1:]]
    assert rows == [tuple(row) for row in expected.texts]


def test_evaluate_predict_and_fill_print_what_the_pipeline_returns(paths, capsys):
    pipe = keras_bert.pipeline(paths["classifier"])
    examples = keras_bert.read(paths["table"])
    lines = printed(capsys, "evaluate", paths["classifier"], "--input", paths["table"])
    assert f"{pipe.evaluate(examples)['accuracy']:.3f}" in " ".join(lines)
    rows = printed(capsys, "predict", paths["classifier"], "--input", paths["table"])
    results = [f"{result['label']}\t{result['score']:.4f}" for result in pipe(examples.texts)]
    assert [row for row in rows if row.startswith(tuple(results))] == rows[-len(results) :]
    candidates = printed(capsys, "fill", paths["masked"], "so [MASK]", "--top", 3)
    best = keras_bert.pipeline(paths["masked"])("so [MASK]", top_k=3)
    assert [line.split("\t")[1] for line in candidates] == [answer["token"] for answer in best]
