"""`vocab`, `records` and `pretrain`: train a BERT from raw text."""

import collections
import itertools
import pathlib
import re

import keras_bert
from keras_bert import heads
from keras_bert.checkpoints import canonical, folder, huggingface
from keras_bert.cli import options, reading, writing
from keras_bert.pretraining import corpus, records, vocabulary
from keras_bert.pretraining import train as pretraining
from keras_bert.provenance import MODEL_FILE
from keras_bert.runtime import distribution
from keras_bert.runtime.packages import import_tensorflow
from keras_bert.runtime.terminal import metrics_table, print_line, progress, waiting
from keras_bert.tasks import registry
from keras_bert.tasks.masked_tokens.task import MaskedTokens
from keras_bert.text.preprocessor import VOCABULARY_FILE

# Layers and hidden size of the models that Google published.
_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}

# Counts of `corpus.documents` -> text of the note.
_REPAIRS = {
    "invalid_utf8": "lines with invalid UTF-8, replaced by U+FFFD",
    "long_lines": "lines split at 4 MB",
    "long_documents": "documents split at 4 MB (blank lines separate documents)",
    "other_namespaces": "pages left out, because they are no articles",
    "redirects": "pages left out, because they are redirects",
    "other_models": "pages left out, because they are not wikitext",
    "empty_pages": "pages left out, because they are empty",
    "older_revisions": "older revisions of articles left out",
}

# Files of models and records, which need the vocabulary in their folder.
_FILES_WITH_VOCABULARY = (
    "config.json", "bert_config.json", MODEL_FILE, "*.safetensors", records.MANIFEST,
)  # fmt: skip

# One of this many documents is held out, to test the vocabulary on unseen text.
_HELD_OUT_EVERY = 20
_HELD_OUT_BYTES = 8 << 20

_HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]")
_HANGUL_SHARE = 0.01  # of the characters; above it, the corpus counts as Korean


def make_vocabulary(args: options.Vocab) -> None:
    """Learn a vocabulary, and print how well it fits the held-out documents."""
    writing.check_folder(args.output)
    _check_no_model(args.output)
    corpus.check_outside(args.output, args.corpus)
    counts: collections.Counter[str] = collections.Counter()
    held_out: list[corpus.Document] = []
    tokenizer_options = {
        "lowercase": not args.cased,
        "strip_accents": not (args.cased or args.keep_accents),
        "split_cjk": not args.no_split_cjk,
    }
    with waiting("Learning the vocabulary"):
        tokens = vocabulary.train(
            _holding_out(corpus.documents(args.corpus, counts=counts), held_out),
            args.size,
            min_frequency=args.min_frequency,
            max_bytes=args.max_bytes,
            **tokenizer_options,
        )
    vocabulary.write(args.output, tokens, **tokenizer_options)
    print_line(f"{len(tokens):,} tokens from {counts['documents']:,} documents in {args.output}")
    _print_coverage(keras_bert.Preprocessor(tokens, **tokenizer_options), held_out, args.corpus)
    _print_repairs(counts)


def _check_no_model(path):
    """Raise an error if a folder has a model or records, whose vocabulary must not change."""
    for pattern in _FILES_WITH_VOCABULARY:
        for file in pathlib.Path(path).glob(pattern):
            raise ValueError(f"{file} needs the vocabulary in its folder. Use another --output")


def _print_coverage(preprocessor, documents, paths):
    """Print how well a vocabulary fits held-out documents, or the corpus if there are none."""
    where = f"held-out documents ({len(documents):,})"
    if not any(document.paragraphs() for document in documents):
        where = "the corpus"
        documents = list(itertools.islice(corpus.documents(paths), 50 * _HELD_OUT_EVERY))
    with waiting("Testing the vocabulary"):
        coverage = vocabulary.coverage(documents, preprocessor)
    print_line(f"on {where}, {coverage['words']:,} words:")
    print_line(f"  unknown          {coverage['unknown']:.3%}")
    print_line(f"  tokens per word  {coverage['tokens_per_word']:.2f}")
    print_line(f"  whole words      {coverage['whole']:.1%}")
    characters = sum(len(document.text) for document in documents)
    hangul = sum(len(_HANGUL.findall(document.text)) for document in documents)
    if preprocessor.strip_accents and hangul > _HANGUL_SHARE * characters:
        print_line(
            "Hangul syllables are split into letters. Use --cased or --keep-accents to keep them "
            "whole"
        )


def _print_repairs(counts):
    """Print how many lines and documents of the corpus were changed while reading."""
    for key, text in _REPAIRS.items():
        if counts.get(key):
            print_line(f"{counts[key]:,} {text}; first: {counts[f'{key}_at']}")


def _holding_out(documents, held_out):
    """Yield most documents, and append every 20th document to `held_out`, up to 8 MiB."""
    size = 0
    for index, document in enumerate(documents, 1):
        if index % _HELD_OUT_EVERY == 0 and size < _HELD_OUT_BYTES:
            held_out.append(document)
            size += len(document.text)
        else:
            yield document


def make_records(args: options.Records) -> None:
    """Tokenize a corpus once."""
    import_tensorflow("keras-bert records")
    writing.check_folder(args.output)
    corpus.files(args.corpus)  # raise errors before a vocabulary loads
    with progress(show=True) as bar:
        work = bar.add_task("Megabytes", total=None)
        manifest = records.build(
            args.corpus,
            args.output,
            _preprocessor_of(args.vocab),
            held_out=args.held_out,
            workers=args.workers,
            on_progress=lambda done: bar.update(work, completed=done // 10**6),
        )
    counts = manifest["counts"]
    corpus_records = records.Records(args.output)
    print_line(
        f"{counts['documents']:,} documents, {counts['sentences']:,} sentences, "
        f"{counts['pieces']:,} tokens in {args.output}"
    )
    print_line(f"  held out         {corpus_records.counts('eval')['documents']:,} documents")
    print_line(f"  unknown          {counts['unknown_pieces'] / counts['pieces']:.3%}")
    _print_repairs(counts)
    if corpus_records.counts()["documents"] < 2:
        print_line(
            "next sentence prediction needs at least two documents. Separate documents by blank "
            "lines, or pretrain with --no-next-sentence"
        )
    elif counts["sentences"] == counts["documents"]:
        print_line("no document has a second sentence. Pretrain with --no-next-sentence")
    if corpus_records.counts("eval")["documents"] < 2:
        print_line(
            "fewer than two documents are held out, so pretraining will not be evaluated. Use a "
            "larger --held-out"
        )


def _preprocessor_of(name):
    """Return the preprocessor of a folder with a vocabulary, of its vocab.txt, or of a model."""
    path = pathlib.Path(name)
    if path.name == VOCABULARY_FILE and path.is_file():
        name = path.parent
    if pathlib.Path(name, VOCABULARY_FILE).is_file():
        tokens, options = vocabulary.read(name)
        return keras_bert.Preprocessor(tokens, **options)
    preprocessor = heads.find_encoder(keras_bert.load(name)).preprocessor
    if preprocessor is None:
        raise ValueError(f"{name} has no vocabulary. Use a folder that keras-bert vocab wrote")
    return preprocessor


def pretrain(args: options.Pretrain) -> None:
    """Train a BERT from records."""
    import keras

    import_tensorflow("keras-bert pretrain")
    for path in (args.records, args.output):
        if "://" in path:
            raise ValueError(f"{path} must be a local folder. Mount the bucket (gcsfuse)")
    if sum(value is not None for value in (args.model, args.size, args.config)) > 1:
        raise ValueError("give one of --model, --size and --config")
    corpus_records = records.Records(args.records)
    writing.check_folder(args.output)
    recipe = _recipe(args)
    with distribution.scope(args.strategy, model_parallel=args.model_parallel):
        # Seed before the model is built: all processes then start with the same weights.
        keras.utils.set_random_seed(args.seed)
        _, history = pretraining.pretrain(
            _trained_model(args) if args.model else _new_model(args, corpus_records),
            corpus_records,
            args.output,
            recipe,
            log_every=args.log_every,
            save_every=args.save_every,
            eval_every=args.eval_every,
            keep=args.keep,
            tensorboard=args.tensorboard,
        )
    last = {name: value for name, value in history[-1].items() if name != "learning_rate"}
    print_line(metrics_table(last))
    print_line(f"saved in {args.output}")


def _recipe(args):
    phases = len(args.lengths)
    max_predictions = args.max_predictions or [None]
    if phases > 2 or len(max_predictions) not in (1, phases):
        raise ValueError(
            "--lengths takes one or two numbers, and --max-predictions one, or as many"
        )
    return pretraining.Recipe(
        pretraining.two_phases(
            args.steps,
            args.batch_size,
            lengths=(args.lengths[0], args.lengths[-1]),
            share=args.first_share if phases == 2 else 1.0,
            max_predictions=(max_predictions[0], max_predictions[-1]),
        ),
        learning_rate=args.learning_rate,
        warmup_steps=args.warmup_steps,
        optimizer=args.optimizer,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        packed=args.packed,
        whole_words=args.whole_words,
        seed=args.seed,
    )


def _new_model(args, corpus_records):
    encoder = keras_bert.BertEncoder(
        **_bert_config(args, corpus_records),
        dtype=reading.dtype_of(args),
        rematerialize=args.rematerialize,
        preprocessor=corpus_records.preprocessor(),
    )
    return heads.masked_lm(encoder) if args.no_next_sentence else encoder


def _trained_model(args):
    encoder_options = reading.encoder_options(args)
    model = reading.load_for_training(args)
    task = registry.find(model)
    if task is None or not task.reads_any_texts:  # use only the encoder, with fresh heads
        encoder = heads.find_encoder(model)
        if encoder_options:
            encoder = encoder.with_options(**encoder_options)
        return heads.masked_lm(encoder) if args.no_next_sentence else encoder
    wanted = MaskedTokens.name if args.no_next_sentence else task.name
    if wanted == task.name and not encoder_options:
        return model
    return reading.load(args, task=wanted, **encoder_options)


def _bert_config(args, corpus_records):
    """Return the config of a new model, with the vocabulary size of the records."""
    config = {
        "vocab_size": corpus_records.manifest["settings"]["vocab_size"],
        "type_vocab_size": 2,
        "max_position_embeddings": max(512, *args.lengths),
    }
    if not args.config:
        layers, hidden_size = _SIZES[args.size or "base"]
        return config | {
            "num_hidden_layers": layers,
            "hidden_size": hidden_size,
            "num_attention_heads": hidden_size // 64,
            "intermediate_size": 4 * hidden_size,
        }
    file = pathlib.Path(args.config)
    content = config | folder.read_json(file)
    return canonical.read_config(file, content, huggingface.ACTIVATIONS, huggingface.SILENT_KEYS)
