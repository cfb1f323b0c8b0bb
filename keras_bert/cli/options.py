"""The options of each command: one class per command, and classes of options that commands share.

A field without a default is required. The docstring has the help of each field as `name: help`. Its
first line describes the command, or is the title above shared options. This module imports neither
Keras nor TensorFlow, so `--help` and errors in options are fast.
"""

import argparse
import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, dataclass_transform

COMMANDS: dict[str, type["Options"]] = {}


def option(default: Any, **settings: Any) -> Any:
    """Return a field with a default and with settings of `ArgumentParser.add_argument`."""
    return dataclasses.field(default=default, metadata=settings)


def argument(default: Any = dataclasses.MISSING) -> Any:
    """Return a field that is a positional argument, not an option."""
    return dataclasses.field(default=default, metadata={"positional": True})


def _number(kind, lowest, highest, name):
    """Return a parser of numbers from `lowest` to `highest`, which argparse calls `name`."""

    def parse(text):
        value = kind(text)
        if not lowest <= value <= highest:
            raise ValueError
        return value

    parse.__name__ = name
    return parse


def _number_or_text(text):
    try:
        return int(text)
    except ValueError:
        return text


PositiveInt = Annotated[int, _number(int, 1, sys.maxsize, "positive int")]
NonNegativeInt = Annotated[int, _number(int, 0, sys.maxsize, "int of at least 0")]
PositiveFloat = Annotated[float, _number(float, math.ulp(0), sys.float_info.max, "positive float")]
NonNegativeFloat = Annotated[float, _number(float, 0, sys.float_info.max, "float of at least 0")]
Fraction = Annotated[float, _number(float, 0, 1, "fraction (0 to 1)")]
Column = Annotated[int | str, _number_or_text]
Task = Annotated[str, lambda text: text.replace("-", "_")]
Loss = Literal[
    "multiple_negatives_ranking",
    "triplet",
    "cosent",
    "cosine_similarity",
    "contrastive",
    "binary_cross_entropy",
    "multiple_negatives",
    "margin_mse",
    "listnet",
]


@dataclass_transform(kw_only_default=True, field_specifiers=(option, argument))
class Options:
    """A command, or options that commands share. Each subclass becomes a dataclass.

    Args:
        run: Function of a command, as "module.function" in `keras_bert.cli`.
        files: Names of the options that are input files.
        needs_keras: If True, import Keras before the function. Commands of `Computation` run
            without it on the graph of an export.
    """

    run: ClassVar[str]
    files: ClassVar[Sequence[str]]
    needs_keras: ClassVar[bool]

    def __init_subclass__(cls, run="", files=(), needs_keras=True):
        dataclasses.dataclass(kw_only=True)(cls)
        cls.run = run
        cls.files = files
        cls.needs_keras = needs_keras
        if run:
            COMMANDS[cls.__name__.lower()] = cls


class Trusted(Options):
    """Model.

    trusted: allow code in the model to run; use only for models you trust
    """

    trusted: bool = False


class NamedModel(Trusted):
    """Model.

    model: name (see keras-bert list), hf:org/name, folder, .zip or .keras file
    """

    model: str = argument()


class TextColumn(Options):
    """Columns of the file.

    text: column of the text (default: text). A trained model uses the columns of its training,
        except those that you give
    header: whether the first row names the columns (default: yes). With --no-header, name columns
        by number, from 1
    """

    text: str | None = None
    header: bool | None = option(None, action=argparse.BooleanOptionalAction)


class Columns(TextColumn):
    """Columns of the file.

    text_pair: column of the second text of a pair
    separator: separator of the labels of one text (default: ,)
    word: tagging: column of the word (default: 1)
    """

    text_pair: str | None = None
    separator: str | None = None
    word: Column | None = None


class Labels(Columns):
    """Columns of the file.

    label: column of the label (default: label). Multi-label: also the columns of 0 and 1 of each
        label, such as toxic,obscene
    tag: tagging: column of the tag (default: -1, the last)
    """

    label: str | None = None
    tag: Column | None = None


class FileFormat(Options):
    """Columns of the file.

    format: file format (default: by extension)
    """

    format: Literal["tsv", "csv", "jsonl", "conll", "conllu"] | None = None


class Pooling(Options):
    """Embeddings.

    pooling: how the token vectors become one vector (default: the pooling of the model)
    """

    pooling: (
        Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"] | None
    ) = None


class Prompts(Pooling):
    """Embeddings.

    prompt: prompt of the queries, a name of the model's prompts or a text (default: the default
        prompt of the model)
    corpus_prompt: prompt of the texts to find (default: the default prompt of the model)
    """

    prompt: str | None = None
    corpus_prompt: str | None = None


class Characters(Options):
    """Question answering.

    characters: compute F1 over characters; default for KorQuAD files
    """

    characters: bool | None = None


class Precision(Options):
    """Computation.

    precision: dtype of the matmuls (default: that of the model). bfloat16 is faster on GPUs and on
        processors with AVX512-BF16 or AMX, and exports are about half as large; float16 is for
        JAX and torch
    """

    precision: Literal["float32", "bfloat16", "float16"] | None = None


class Computation(Precision, NamedModel):
    """Computation.

    batch_size: sequences
    engine: what computes: onnx or openvino for the graph of an export, or keras (default: keras if
        the folder has a Keras model, else its graph)
    """

    batch_size: PositiveInt = 32
    engine: Literal["keras", "onnx", "openvino"] | None = None


class TrainingDtype(Options):
    """Machine.

    dtype: dtype of the training (default: that of --model, float32 for a checkpoint or a new
        model). auto: mixed_bfloat16 on TPUs, GPUs, and with TensorFlow on processors with
        AVX512-BF16 or AMX; mixed_float16 on GPUs before Ampere; otherwise float32
    rematerialize: save memory, at the cost of time
    """

    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"] | None = None
    rematerialize: bool = False


class List(Options, run="doctor.list_models", needs_keras=False):
    """List the models that have a name."""


class Doctor(Options, run="doctor.doctor", needs_keras=False):
    """Print versions, devices, the cache and missing packages, for reports of bugs."""


class Info(NamedModel, run="models.info"):
    """Print a model's sizes, vocabulary and labels."""


class FinetuneData(Options):
    """Data.

    train: TSV (without quoting), CSV or JSON Lines. Embedding: one or several files of pairs of
        texts with --text and --text-pair; with --label, their scores. Without --text-pair, texts
        whose classes are in --label, or texts without labels (SimCSE). Tagging: CoNLL columns or
        CoNLL-U. Question answering: SQuAD's JSON. Multiple choice: JSON Lines with the keys text,
        choices (a list) and label (index of the correct choice, from 0), or SWAG's CSV
    dev: file to score the model on after each epoch (default: no scores). Embedding: also a folder
        in the format of BEIR, whose qrels/dev.tsv is read, or TREC
    glue: folder of a GLUE task with its original name (MRPC, SST-2, ...); replaces --train, --dev,
        --task and the columns
    negatives: embedding, sparse_embedding, reranking: columns of hard negatives
    score_range: embedding: the lowest and the highest score in --label, which are scaled to 0 and 1
    limit: train on the first rows only (default: all)
    """

    train: Sequence[str] | None = None
    dev: str | None = None
    glue: str | None = None
    negatives: Sequence[str] | None = option(None, metavar="COLUMN")
    score_range: Sequence[float] | None = option(None, nargs=2, metavar=("LOW", "HIGH"))
    limit: PositiveInt | None = None


class FinetuneRecipe(Options):
    """Recipe; the defaults are those of the paper.

    epochs: passes over the data (default: 3)
    batch_size: sequences, rows of texts or lists of documents (default: 32, for lists divided by
        the documents of the longest one)
    learning_rate: peak rate (default: 5e-5)
    warmup: fraction of the steps in which the rate rises
    schedule: the rate after the warm-up (default: linear decay to 0)
    max_length: maximum tokens per sequence (default: 128; question answering: 384). Longer texts
        are truncated, or split into windows in tagging and question answering
    loss: embedding (default: cosent for scored pairs, else multiple_negatives_ranking); reranking
        (default: multiple_negatives without scores and negatives, listnet for queries with several
        documents, else binary_cross_entropy; with a --teacher, give margin_mse)
    num_negatives: reranking with multiple_negatives: documents of other queries (default: 4)
    matryoshka_dims: embedding: also train the first numbers of each vector, for these widths
    gradient_caching: embedding: compare the rows of all batches of an optimizer step with one
        another (needs --gradient-accumulation-steps)
    sampling: embedding: how the batches of several --train files take turns (default:
        proportional)
    document_regularizer_weight: sparse_embedding: FLOPS regularization of the documents (default:
        3e-5)
    query_regularizer_weight: sparse_embedding: FLOPS regularization of the queries (default: 5e-5)
    stride: tagging and question answering: tokens between the starts of two windows in training
        (question answering: 128)
    class_weight: classification: give rare labels more weight
    contrastive: classification: train the encoder on pairs of texts, then the head on its vectors
        (default: for up to 64 texts per label)
    gradient_accumulation_steps: batches per optimizer step
    metric: metric that selects the best epoch (default: the first one printed). Classification:
        accuracy, f1 (with two labels, of the label that sorts last), macro_f1 (three or more
        labels), mcc. Multi-label: micro_f1, macro_f1, exact_match. Regression: pearson, spearman,
        rmse. Embedding: spearman, mrr@10. Sparse embedding: mrr@10. Reranking: mrr@10, ndcg@10,
        map@100. Tagging: f1, precision, recall, accuracy. Question answering: f1, exact_match. All
        tasks: dev_loss
    patience: stop after this many epochs without improvement
    evaluate_every: also score --dev after every N batches; a fraction such as 0.25 is a part of an
        epoch
    seed: seed of head, order and dropout
    fixed_length: one shape for all batches, for TPUs
    tensorboard: write logs for TensorBoard
    """

    epochs: PositiveInt | None = None
    batch_size: PositiveInt | None = None
    learning_rate: NonNegativeFloat | None = None
    warmup: Fraction = 0.1
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    max_length: PositiveInt | None = None
    loss: Loss | None = None
    num_negatives: NonNegativeInt | None = None
    matryoshka_dims: Sequence[PositiveInt] | None = option(None, metavar="WIDTH")
    gradient_caching: bool | None = None
    sampling: Literal["proportional", "round_robin"] | None = None
    document_regularizer_weight: NonNegativeFloat | None = None
    query_regularizer_weight: NonNegativeFloat | None = None
    stride: PositiveInt | None = None
    class_weight: Literal["balanced"] | None = None
    contrastive: bool | None = option(None, action=argparse.BooleanOptionalAction)
    gradient_accumulation_steps: PositiveInt = 1
    metric: str | None = None
    patience: PositiveInt | None = None
    evaluate_every: PositiveFloat | None = option(None, metavar="N")
    seed: int = 0
    fixed_length: bool = False
    tensorboard: str | None = option(None, metavar="FOLDER")


class Finetune(
    TrainingDtype, FinetuneRecipe, Characters, Pooling, FileFormat, Labels, FinetuneData,
    NamedModel,
    run="training.finetune", files=["train", "dev"],
):  # fmt: skip
    """Train a model on a labeled file.

    model: encoder to start from, or a trained model, whose head is kept if it has all labels of
        --train
    task: what the model learns: classification, pair, multi_label, regression, tagging,
        question_answering, multiple_choice, embedding, sparse_embedding or reranking (default:
        classification)
    text: column of the text (default: text)
    keep_layers: keep only these layers of the encoder, from 0
    teacher: a model to imitate. embedding: an embedder: its vectors of the texts in --train, or
        with --loss cosent or cosine_similarity its scores of the pairs. Scores and negatives in
        --train are not used. reranking: a reranker, with --loss margin_mse
    freeze: train only the head
    search: try the 18 recipes of the paper (batch size 16 or 32; learning rate 5e-5, 3e-5 or 2e-5;
        2 to 4 epochs) and keep the best. Options that you give are not searched; for lists
        to rerank, give --batch-size, because 16 lists are many. A search that was stopped starts
        over
    output: folder for the model, metrics.json and plots
    """

    model: str = "minilm"
    task: Task | None = None
    keep_layers: Sequence[int] | None = option(None, metavar="NUMBER")
    teacher: str | None = option(None, metavar="MODEL")
    freeze: bool = False
    search: bool = False
    output: str


class Evaluate(
    Computation, Characters, Prompts, FileFormat, Labels, NamedModel,
    run="inference.evaluate", files=["input"],
):  # fmt: skip
    """Score a trained model on a labeled file.

    model: folder or .keras file of a fine-tuned model, or folder of an ONNX or OpenVINO export
    task: score as another task: embedding scores the embeddings of any model
    input: file for the model's task. Embeddings: pairs, or a folder in the format of BEIR or TREC,
        or SQuAD's JSON, to search for the paragraph of each question. With --text and --text-pair,
        also give --label if the pairs have scores
    split: embeddings, reranking: the file in qrels/ of a folder
    retriever: reranking: bm25, or an embedder; it finds the documents of the folder to rerank
    candidates: reranking: number of documents to rerank (default: 50)
    """

    task: Task | None = None
    input: str
    split: str = "test"
    retriever: str | None = option(None, metavar="MODEL")
    candidates: PositiveInt | None = None


class Predict(
    Computation, FileFormat, Columns, NamedModel, run="inference.predict_texts", files=["input"]
):
    """Predict for texts or a file with a trained model.

    model: folder or .keras file of a fine-tuned model, or folder of an ONNX or OpenVINO export
    task: what the model does, if its files do not say it, such as pair
    texts: texts. Pairs: two texts. Question answering: a question and a context. Multiple choice: a
        text and its choices. Tagging splits texts at white space and punctuation, or into
        characters if the training data was split so. Or give --input
    input: file for the model's task, of any size. Multiple choice: JSON Lines with the keys text
        and choices (a list), or SWAG's CSV
    output: file for the predictions, in the order of the input. The extension selects the format:
        .jsonl, .csv, .json (question answering: SQuAD's predictions file), any other:
        tab-separated. Default, and -: standard output
    probabilities: classification and multiple choice: also write the probability of every class
    """

    task: Task | None = None
    texts: Sequence[str] = argument(())
    input: str | None = None
    output: str | None = None
    probabilities: bool = False


class Embed(
    Computation, Pooling, FileFormat, TextColumn, NamedModel, run="inference.embed", files=["input"]
):
    """Write a vector for each text of a file.

    model: an encoder: name, hf:org/name, folder or .keras file; or an exported embedder
    input: TSV, CSV or JSON Lines file, or a .txt file with a text per line
    output: .npy file for the vectors; for a vector precision other than float32, .npz
    prompt: comes before each text: a name of the model's prompts or a text (default: the model's
        default prompt)
    truncate_dim: keep that many first numbers of each vector
    vector_precision: bytes of each number: float32 has 4, int8 and uint8 have 1, binary and ubinary
        have one bit. The ranges of int8 and uint8 are those of all vectors
    """

    input: str
    output: str
    prompt: str | None = None
    truncate_dim: PositiveInt | None = None
    vector_precision: Literal["float32", "int8", "uint8", "binary", "ubinary"] = "float32"


class Search(
    Computation, Prompts, FileFormat, TextColumn, NamedModel, run="inference.find", files=["file"]
):
    """Find the texts of a file that are nearest to a query.

    file: TSV, CSV or JSON Lines file, or a .txt file with a text per line
    query: text to search for
    model: an encoder or embedder: name, hf:org/name, folder or .keras file; or an export of one
    vectors: .npz file that embed --vector-precision wrote for this file (default: embed the texts,
        and keep their vectors in the cache)
    top: number of texts
    rerank: a reranker, or an export of one, that orders the nearest texts
    candidates: number of texts to rerank (default: 50)
    """

    file: str = argument()
    query: str = argument()
    model: str = "minilm"
    vectors: str | None = None
    top: PositiveInt = 5
    rerank: str | None = option(None, metavar="MODEL")
    candidates: PositiveInt | None = None


class Mine(
    Computation, Prompts, FileFormat, TextColumn, NamedModel, run="inference.mine", files=["file"]
):
    """Add hard negatives to a file of pairs, to train embeddings.

    file: TSV, CSV or JSON Lines file of queries and positives; the negatives are other positives
    text_pair: column of the positives (default: that of the model's training)
    output: .tsv, .csv or .jsonl file with the columns of the texts and negative_1, negative_2, ...
    model: an encoder or embedder, or an export of one
    count: negatives per row
    margin: a negative is less similar than the positive by at least this; 0: no limit
    """

    file: str = argument()
    text_pair: str | None = None
    output: str
    model: str = "minilm"
    count: PositiveInt = 1
    margin: float = 0.05


class Fill(Computation, NamedModel, run="inference.fill_masks"):
    """Predict the tokens at [MASK] in texts.

    model: a checkpoint with a masked LM head, or an export of one
    texts: texts with [MASK]
    top: candidates per mask
    """

    texts: Sequence[str] = argument()
    top: PositiveInt = 5


class Explain(NamedModel, run="models.explain"):
    """Write an HTML page on what a model looks at in a text.

    text: text. Question answering: the question
    text_pair: second text of a pair. Question answering: the context. Multiple choice: one of the
        choices
    output: HTML file
    target: output to explain. Classes: a label (default: the predicted one). Tagging: the index of
        a word, from 0. Question answering: start or end (default: start). Masked tokens: a token
        for the first [MASK] (default: the most probable one). Embeddings: a text to compare with
    steps: points at which the gradient is computed
    """

    text: str = argument()
    text_pair: str | None = argument(None)
    output: str
    target: str | None = None
    steps: PositiveInt = 50


class Vocab(Options, run="pretraining.make_vocabulary"):
    """Learn a vocabulary from your own text.

    corpus: files, folders, patterns: text, JSON Lines, MediaWiki dumps
    output: folder for vocab.txt and its options
    size: exact number of tokens
    cased: keep upper case and accents
    keep_accents: keep accents and whole Hangul syllables
    no_split_cjk: do not split ideographs into words
    min_frequency: minimum frequency of a token
    max_bytes: learn from this many bytes, sampled evenly (default: all)
    """

    corpus: Sequence[str] = argument()
    output: str
    size: PositiveInt = 30522
    cased: bool = False
    keep_accents: bool = False
    no_split_cjk: bool = False
    min_frequency: PositiveInt = 2
    max_bytes: PositiveInt | None = None


class Records(Options, run="pretraining.make_records"):
    """Tokenize a corpus once, for pretraining.

    corpus: files, folders, patterns, as for vocab
    vocab: folder that vocab wrote, a vocab.txt, or a model with a vocabulary
    output: folder for the records
    held_out: fraction of the documents kept for evaluation
    workers: processes that split text (default: one per core)
    """

    corpus: Sequence[str] = argument()
    vocab: str
    output: str
    held_out: Fraction = 0.01
    workers: PositiveInt | None = None


class PretrainRecipe(Options):
    """Recipe; the defaults are those of the paper.

    steps: optimizer steps
    lengths: sequence length of each phase (default: 128 512)
    first_share: fraction of the steps in the first phase
    batch_size: sequences per step, over all devices and accumulated batches
    max_predictions: masked tokens per sequence, for both lengths or for each (default: 15%)
    learning_rate: peak rate
    warmup_steps: steps in which the rate rises (default: 10000, at most 10% of --steps)
    optimizer: the optimizer
    whole_words: mask whole words
    no_next_sentence: single texts, masked LM only
    seed: random seed
    """

    steps: PositiveInt = 1_000_000
    lengths: Sequence[PositiveInt] = (128, 512)
    first_share: Fraction = 0.9
    batch_size: PositiveInt = 256
    max_predictions: Sequence[PositiveInt] | None = option(None, metavar="N")
    learning_rate: NonNegativeFloat = 1e-4
    warmup_steps: NonNegativeInt | None = None
    optimizer: Literal["adamw", "lamb"] = "adamw"
    whole_words: bool = False
    no_next_sentence: bool = False
    seed: int = 0


class PretrainMachine(TrainingDtype):
    """Machine.

    strategy: auto, one-device, mirrored, multi-worker, tpu[:NAME]
    model_parallel: JAX: devices that share each weight matrix, for models too large for one
    packed: pack several pairs into each row; no padding
    gradient_accumulation_steps: parts in which a step's batch is computed, to save memory
    """

    strategy: str = "auto"
    model_parallel: PositiveInt = 1
    packed: bool = False
    gradient_accumulation_steps: PositiveInt = 1


class PretrainRun(Options):
    """Run; the same command resumes a run that was stopped.

    log_every: steps
    save_every: steps
    eval_every: steps (default: --save-every)
    keep: checkpoints kept
    tensorboard: write logs for TensorBoard
    """

    log_every: PositiveInt = 100
    save_every: PositiveInt = 1000
    eval_every: PositiveInt | None = None
    keep: PositiveInt = 3
    tensorboard: str | None = option(None, metavar="FOLDER")


class Pretrain(
    PretrainRun, PretrainMachine, PretrainRecipe, Trusted,
    run="pretraining.pretrain", files=["config"],
):  # fmt: skip
    """Train a BERT from records.

    records: folder that records wrote
    output: folder for checkpoints, curves and the model
    model: continue from this model, which must have the records' vocabulary. A model whose only
        head is that of masked LM is trained without next sentence prediction
    size: size of a new model (default: base)
    config: bert_config.json of a new model, instead of --size
    """

    records: str
    output: str
    model: str | None = None
    size: Literal["tiny", "mini", "small", "medium", "base", "large"] | None = None
    config: str | None = None


class Convert(NamedModel, run="models.convert"):
    """Write a model in another library's format.

    path: empty folder to write to; for keras also a .keras file
    to: format to write
    drop: part to leave out; repeat the option for several parts
    ignore: tensor of the checkpoint to leave out, such as 'cls.chain.*'; repeat the option for
        several patterns
    hidden_act: activation to write instead of the model's own
    source_format: format to read, for a folder with several
    """

    path: str = argument()
    to: Literal["keras", "huggingface", "google", "keras_hub", "sentence_transformers"]
    drop: (
        Sequence[Literal["pooler", "masked_lm", "next_sentence", "classifier", "span_selector"]]
        | None
    ) = option(None, action="append", nargs=None)
    ignore: Sequence[str] | None = option(None, action="append", nargs=None, metavar="PATTERN")
    hidden_act: Literal["gelu", "gelu_new", "relu"] | None = None
    source_format: (
        Literal["keras", "huggingface", "google", "keras_hub", "sentence_transformers",
                "model_garden", "saved_model", "peft"]
        | None
    ) = None  # fmt: skip


class Export(Precision, Labels, NamedModel, run="models.export", files=["dev"]):
    """Write a SavedModel, or a folder for ONNX Runtime, OpenVINO or LiteRT.

    model: folder or .keras file of a trained model; or an encoder, by name or folder
    path: model folder for TensorFlow Serving; each export is the next version. An encoder is
        exported as a pair, preprocess and encoder
    task: head of a pretrained model to export (default: the encoder, as a pair)
    format: saved_model: strings in, for TensorFlow Serving (default). onnx, openvino: ids in, in
        the layout of Hugging Face. litert: ids in, for phones
    quantize: onnx, openvino, litert: int8 weights; openvino needs --dev to calibrate
    dev: labeled file; the model card states how far a SavedModel in bfloat16, or int8, agrees with
        float32
    license: license of the source weights, for the model card (default: that of a known name)
    """

    path: str = argument()
    task: Task | None = None
    format: Literal["saved_model", "onnx", "openvino", "litert"] = "saved_model"
    quantize: Literal["int8"] | None = None
    dev: str | None = None
    license: str | None = None


class Serve(Precision, Trusted, run="serving.serve"):
    """Serve a model over HTTP, with a web page, on this machine.

    model: SavedModels: a model folder, a version or several models; or a trained model
    trusted: allow code in the model to run, and SavedModels, also your own, which are programs; use
        only for models you trust
    host: address to listen on (default: 127.0.0.1, this machine only)
    port: port to listen on; 0: any free port
    max_body: maximum bytes per request (default: 1 MiB)
    max_text: maximum bytes per text (default: 64 KiB)
    max_rows: maximum rows per request
    """

    model: str = argument()
    host: str = "127.0.0.1"
    port: int = 8501
    max_body: PositiveInt = 2**20
    max_text: PositiveInt = 2**16
    max_rows: PositiveInt = 1024
