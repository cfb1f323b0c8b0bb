"""Lines of the command line, and a record of the Python calls that a line leads to."""

import contextlib
import copy
import dataclasses
import functools
import inspect
import json
import math
import shlex
import types
import typing
from collections.abc import Sequence

import keras_bert
from keras_bert import heads
from keras_bert import inspect as inspect_model
from keras_bert.cli import options
from keras_bert.data import tabular
from keras_bert.pipelines import factory
from keras_bert.pretraining import corpus, records, vocabulary
from keras_bert.pretraining import train as pretraining
from keras_bert.runtime import distribution
from keras_bert.server import app, models
from keras_bert.tasks import prediction_files, reader, registry
from keras_bert.tasks.embedding import nearest
from keras_bert.tasks.embedding.precision import QuantizedVectors
from keras_bert.tasks.embedding.retrieval import RetrievalData
from keras_bert.tasks.reranking.data import RankingExamples
from keras_bert.training import finetuning, search
from tests import tiny
from tests.cli import shared

_FINETUNE = "--model {encoder} --train {csv} --output {out} --format csv"
_PAIRS = "--model {encoder} --train {table} --output {out} --task embedding --text-pair other"
_PROMPTS = "--prompt 'a: ' --corpus-prompt 'b: '"
# Of each command: a line with what it requires. The options that are not in `LINES` are added.
REQUIRED = {
    "info": "{encoder}",
    "finetune": _FINETUNE,
    "evaluate": "{classifier} --input {csv} --format csv",
    "predict": "{classifier} --input {csv} --format csv --output {out}",
    "embed": "{embedder} --input {csv} --output {out}.npy --format csv",
    "search": "{csv} good --model {embedder} --format csv",
    "mine": "{csv} --text-pair other --model {embedder} --output {out}.tsv --format csv "
    "--margin -2",
    "fill": "{masked} [MASK]",
    "explain": "{classifier} good --output {out}.html",
    "vocab": "{corpus} --output {out} --size 40 --min-frequency 1 --max-bytes 100",
    "records": "{corpus} --vocab {encoder} --output {out}",
    "pretrain": "--records {records} --output {out} --size tiny",
    "convert": "{encoder} {out} --to huggingface",
    "export": "{classifier} {out}",
    "serve": "{served} --trusted --port 0 --host 127.0.0.2",
}
# Options that name a file or a column, or that need other options.
LINES = {
    "finetune": [
        f"{_FINETUNE} --dev {{csv}} --search",
        "--model {encoder} --train {lines} --output {out} --task multi_label --no-header --text 1 "
        "--label 2 --separator ;",
        "--model {encoder} --train {tags} --output {out} --task tagging --word 2 --tag 1",
        "--model {encoder} --train {questions} --output {out} --task question_answering "
        "--characters",
        f"{_PAIRS} --pooling max --negatives label --keep-layers 0",
        f"{_PAIRS} --label score --score-range 0 5",
        f"{_PAIRS} --teacher {{embedder}}",
        "--model {encoder} --glue {glue} --output {out}",
    ],
    "evaluate": [
        "{label_sets} --input {lines} --no-header --text 1 --label 2 --separator ;",
        "{tagger} --input {tags} --word 2 --tag 1",
        "{reader} --input {questions} --characters",
        "{pair} --input {table} --text-pair other",
        "{encoder} --input {beir} --task embedding --pooling max --split dev " + _PROMPTS,
        "{reranker} --input {beir} --retriever {embedder} --candidates 3",
    ],
    "predict": [
        "{label_sets} --input {lines} --no-header --text 1 --separator ;",
        "{tagger} --input {tags} --word 2",
        "{pair} --input {table} --text-pair other --task pair",
        "{onnx} so good --engine onnx",
    ],
    "embed": [
        "{encoder} --input {lines} --output {out}.npy --no-header --text 1 --pooling max "
        "--prompt 'a: '",
        "{embedder} --input {table} --output {out}.npz --vector-precision ubinary",
    ],
    "search": [
        "{lines} good --model {encoder} --no-header --text 1 --pooling max --rerank {reranker} "
        f"--candidates 7 {_PROMPTS}",
        "{table} good --model {embedder} --vectors {vectors}",
    ],
    "mine": [
        "{lines} --text-pair 3 --model {encoder} --output {out}.tsv --no-header --text 1 --count 2 "
        f"--margin -2 --pooling max {_PROMPTS}",
    ],
    "explain": ["{pair} good bad --output {out}.html --target good --steps 2"],
    "vocab": [
        "{corpus} --output {out} --size 40 --min-frequency 1 --cased",
        "{corpus} --output {out} --size 40 --min-frequency 1 --keep-accents --no-split-cjk",
    ],
    "pretrain": [
        "--records {records} --output {out} --config {config}",
        "--records {records} --output {out} --model {masked} --dtype float32 --trusted",
        "--records {records} --output {out} --size tiny --strategy one-device --no-next-sentence "
        "--lengths 16 32 --max-predictions 3 4",
        "--records {records} --output {out} --size tiny --model-parallel 2",
    ],
    "convert": ["{encoder} {out} --to huggingface --ignore name"],
    "export": [
        "{label_sets} {out} --dev {lines} --no-header --text 1 --label 2 --separator ;",
        "{tagger} {out} --dev {tags} --word 2 --tag 1",
        "{pair} {out} --dev {table} --text-pair other",
        "{masked} {out} --task masked_tokens",
        "{classifier} {out} --precision bfloat16",
    ],
    "serve": ["{classifier} --port 0 --precision bfloat16"],
}


def kind_of(field):
    """Return the type of a field without `None`, and True for a list."""
    kind = field.type
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = typing.get_args(kind)[0]
    is_list = typing.get_origin(kind) is Sequence
    return (typing.get_args(kind)[0], True) if is_list else (kind, False)


def example(field):
    """Return words of the command line that set an option to a valid value, not the default."""
    kind, _ = kind_of(field)
    flag = f"--{field.name.replace('_', '-')}"
    if kind is bool:
        return flag
    if typing.get_origin(kind) is typing.Literal:
        value = next(value for value in typing.get_args(kind) if value != field.default)
    elif typing.get_origin(kind) is typing.Annotated:
        value = (3 if field.default != 3 else 7) if typing.get_args(kind)[0] is int else 0.25
    else:
        value = {int: 3, float: 0.25, str: "name"}[kind]
    return f"{flag} {value}"


def lines_of(command):
    """Return lines that set each option of a command to a value that is not its default."""
    lines = LINES.get(command, [])
    words = {word for line in lines for word in shlex.split(line)}
    others = [REQUIRED[command]]
    for field in dataclasses.fields(options.COMMANDS[command]):
        flag = f"--{field.name.replace('_', '-')}"
        negated = flag.replace("--", "--no-", 1)
        if not field.metadata.get("positional") and not {flag, negated} & words:
            others += [] if flag in REQUIRED[command].split() else [example(field)]
    return [" ".join(others), *lines]


def files(folder):
    """Write models and data to a folder. Return the paths by their name in a line."""
    encoder = tiny.encoder(num_hidden_layers=1, initializer_range=0.5)
    prompts = {"query": "so good ", "passage": "bad "}
    labels = ["bad", "good"]
    heads_of = {
        "encoder": encoder,
        "embedder": heads.embedder(encoder, prompts=prompts, default_prompt="query"),
        "classifier": heads.classifier(encoder, labels=labels),
        "pair": heads.classifier(encoder, labels=labels, pairs=True),
        "label_sets": heads.classifier(encoder, labels=labels, multi_label=True),
        "tagger": heads.tagger(encoder, labels=["O", "B-a"]),
        "reader": heads.span_selector(encoder),
        "reranker": heads.reranker(encoder),
        "masked": heads.masked_lm(encoder),
    }
    for name, model in heads_of.items():
        keras_bert.save(model, folder / name)
    keras_bert.export(heads_of["classifier"], folder / "onnx", format="onnx")
    keras_bert.export(heads_of["classifier"], folder / "served")
    rows = [["text", "label", "other", "score"]]
    rows += [
        [text + end, label, f"{text} film{end}", "1.5"]
        for end in ("", " this")
        for label, text in tiny.ROWS[:4]
    ]
    contents = {
        "table": "".join("\t".join(row) + "\n" for row in rows),
        "lines": "".join("\t".join(row) + "\n" for row in rows[1:]),
        "csv": "".join(",".join(row) + "\n" for row in rows),
        "tags": "O this x\nB-a film x\n\n" * 4,
        "questions": shared.QUESTIONS,
        "corpus": "so good\nbad film\n\nits story, told at length\n\n" * 40,
        "config": json.dumps(
            {
                "hidden_size": 24,
                "num_attention_heads": 2,
                "num_hidden_layers": 1,
                "intermediate_size": 8,
            }
        ),
        "RTE/train.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n",
        "RTE/dev.tsv": "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tentailment\n",
        "beir/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\tc2\t1\nq2\tc4\t1\n",
        "beir/qrels/dev.tsv": "query-id\tcorpus-id\tscore\nq3\tc0\t1\n",
    }
    texts = ["this film is good", "bad", "so bad a film", "films", "is this good", "goodly"]
    for name, start in (("corpus", "c"), ("queries", "q")):
        lines = [
            json.dumps({"_id": f"{start}{row}", "text": text}) for row, text in enumerate(texts)
        ]
        contents[f"beir/{name}.jsonl"] = "\n".join(lines)
    paths = {name: folder / name for name in (*heads_of, *contents, "onnx", "served", "beir")}
    paths |= {name: (folder / name).with_suffix(suffix) for name, suffix in _SUFFIXES.items()}
    for name, content in contents.items():
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        paths[name].write_text(content)
    paths |= {name: folder / name for name in ("vectors.npz", "vocab", "records")}
    preprocessor = encoder.preprocessor
    vocabulary.write(paths["vocab"], preprocessor.vocabulary)
    records.build(paths["corpus"], paths["records"], preprocessor, workers=1)
    embed = ["embed", paths["embedder"], "--input", paths["table"], "--output"]
    assert shared.run(*embed, paths["vectors.npz"], "--vector-precision", "ubinary") == 0
    return paths | {"glue": folder / "RTE", "vectors": paths["vectors.npz"]}


_SUFFIXES = {
    "table": ".tsv",
    "lines": ".tsv",
    "questions": ".json",
    "config": ".json",
    "tags": ".conll",
}


class Calls:
    """Records the arguments of public functions and methods that a command calls.

    `is_end` says that a call is the last one of a command: it raises an error, so that nothing is
    trained or written.
    """

    def __init__(self, patch):
        self.made = []
        for owner, name, is_end in _recorded():
            patch.setattr(owner, name, self._recording(getattr(owner, name), is_end))

    def _recording(self, function, is_end):
        signature = inspect.signature(function)

        @functools.wraps(function)
        def recorded(*args, **keywords):
            bound = signature.bind(*args, **keywords)
            bound.apply_defaults()
            arguments = {}
            for name, value in bound.arguments.items():
                is_dict = name == "options" or signature.parameters[name].kind.name == "VAR_KEYWORD"
                arguments |= value if is_dict else {name: value}
            if function.__name__ == "finetune":
                arguments["freeze"] = not arguments["encoder"].trainable
            if isinstance(arguments.get("examples"), keras_bert.Examples):
                arguments["texts"] = arguments["examples"].texts
            arguments[function.__name__] = True
            self.made.append((function, arguments, bound))
            if is_end:
                raise ValueError(END)
            return function(*args, **keywords)

        return recorded

    def errors(self, names, value, other):
        """Repeat the calls with a value of an argument, with another value; yield the errors."""
        for function, arguments, bound in self.made:
            for name in names:
                if _text(arguments.get(name)) != _text(value):
                    continue
                changed = _with_argument(bound, name, other)
                try:
                    result = function(*changed.args, **changed.kwargs)
                    if inspect.isgenerator(result):
                        next(result)
                    if isinstance(result, contextlib.AbstractContextManager):
                        result.__enter__()
                except (ValueError, TypeError) as error:
                    yield str(error)

    def values(self, *names):
        """Return all values of the arguments with one of some names."""
        return [call[name] for _, call, _ in self.made for name in names if name in call]


def _text(value):
    return str(list(value) if isinstance(value, (tuple, list)) else value)


def _with_argument(bound, name, value):
    """Return a copy of the arguments of a call, of which one has another value."""
    bound = copy.copy(bound)
    bound.arguments = dict(bound.arguments)
    if name in bound.arguments:
        bound.arguments[name] = value
    for other, options_of_call in bound.arguments.items():
        if isinstance(options_of_call, dict) and name in options_of_call:
            bound.arguments[other] = options_of_call | {name: value}
    return bound


END = "the last call of the command"


def _recorded():
    ends = [
        (finetuning, "finetune"), (search, "grid"), (pretraining, "pretrain"), (records, "build"),
        (keras_bert, "convert"), (keras_bert, "export"), (app, "make"),
    ]  # fmt: skip
    passed = [
        (keras_bert, "load"), (keras_bert, "pipeline"), (factory, "find_graph"), (tabular, "read"),
        (tabular, "read_in_parts"), (tabular, "read_glue"), (reader, "read"),
        (prediction_files, "lines"), (nearest, "top_k"), (corpus, "documents"), (app, "Limits"),
        (app, "listen"), (RankingExamples, "of_retrieval"), (QuantizedVectors, "of"),
        (QuantizedVectors, "load"), (distribution, "scope"), (pretraining, "Recipe"),
        (pretraining, "two_phases"), (keras_bert, "BertEncoder"), (heads, "masked_lm"),
        (keras_bert.BertEncoder, "with_options"), (keras_bert.BertEncoder, "keep_layers"),
        (vocabulary, "train"), (vocabulary, "read"), (records, "Records"), (models, "find"),
        (models, "load"), (RetrievalData, "with_prompts"), (inspect_model, "attributions"),
    ]  # fmt: skip
    for task in registry.TASKS:
        passed += [(type(task), name) for name in ("read", "read_in_parts", "of_texts")]
        names = ("answers", "encode", "mine_negatives", "as_teacher", "rank")
        passed += [(task.pipeline, name) for name in names if hasattr(task.pipeline, name)]
    calls = [(owner, name, True) for owner, name in ends]
    return calls + [(owner, name, False) for owner, name in dict.fromkeys(passed)]


def bad_values(field):
    """Return values outside of the limits or choices of an option."""
    kind, _ = kind_of(field)
    if typing.get_origin(kind) is typing.Literal:
        return ["no-such-value"]
    if typing.get_origin(kind) is not typing.Annotated or kind in (options.Column, options.Task):
        return []
    parse = typing.get_args(kind)[1]
    bad = []
    for value in (-1, 0, 1.5) if typing.get_args(kind)[0] is int else (-1.0, 0.0, 2.0, math.nan):
        try:
            parse(str(value))
        except ValueError:
            bad.append(value)
    return bad
