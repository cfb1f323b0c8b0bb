"""`vocab`, `records` and `pretrain`: from raw text to a BERT."""

import collections
import inspect
import itertools
import pathlib
import re
import statistics

import keras_bert
from keras_bert import heads
from keras_bert.checkpoints import folder, google, huggingface
from keras_bert.cli import arguments
from keras_bert.pretraining import corpus, records, vocabulary
from keras_bert.pretraining import train as pretraining
from keras_bert.runtime import distribution
from keras_bert.runtime.terminal import progress, waiting
from keras_bert.text.preprocessor import VOCABULARY_FILE
from keras_bert.training import report

# Layers and width of the models that Google published.
_SIZES = {"tiny": (2, 128), "mini": (4, 256), "small": (4, 512), "medium": (8, 512)}
_SIZES |= {"base": (12, 768), "large": (24, 1024)}

# What the history says of a part of a run, and is of no use at its end.
_OF_A_LINE = ("learning_rate", "seconds")
_RATES = ("tokens_per_second", "sequences_per_second", "flop_utilization")
_BERT_KEYS = tuple(inspect.signature(keras_bert.BertEncoder).parameters)[:12]

# Every so many documents one is held out, to see how a vocabulary fits what it has not seen.
_HELD_OUT_EVERY, _HELD_OUT_BYTES = 20, 8 << 20

_HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]")
_HANGUL_SHARE = 0.01  # of the characters, from which on a corpus is Korean too


def make_vocabulary(args):
    """Learns a vocabulary and prints how it fits the documents that were held out."""
    arguments.check_folder(args.output)
    corpus.check_outside(args.output, args.corpus)
    counts: collections.Counter[str] = collections.Counter()
    held_out: list[corpus.Document] = []
    options = {
        "lowercase": not args.cased,
        "strip_accents": not (args.cased or args.keep_accents),
        "split_cjk": not args.no_split_cjk,
    }
    documents = corpus.documents(args.corpus, counts=counts)
    first = next(documents, None)
    if first is None:
        raise ValueError(f"{' '.join(args.corpus)}: holds no documents")
    with waiting("Learning the vocabulary"):
        pieces = vocabulary.train(
            _holding_out(itertools.chain([first], documents), held_out),
            args.size,
            min_frequency=args.min_frequency,
            max_bytes=args.max_bytes,
            **options,
        )
    vocabulary.write(args.output, pieces, **options)
    with waiting("Trying it on texts"):
        preprocessor = keras_bert.Preprocessor(pieces, **options)
        seen = not any(document.paragraphs() for document in held_out)
        if seen:  # too few documents to spare one
            some = itertools.islice(corpus.documents(args.corpus), 50 * _HELD_OUT_EVERY)
            held_out = list(some)
        found = vocabulary.coverage(held_out, preprocessor)
    print(f"{len(pieces):,} pieces from {counts['documents']:,} documents in {args.output}")
    where = "the corpus itself" if seen else f"{len(held_out):,} documents held out"
    print(f"on {where}, {found['words']:,} words:")
    print(f"  unknown          {found['unknown']:.3%}")
    print(f"  pieces a word    {found['pieces_per_word']:.2f}")
    print(f"  whole words      {found['whole']:.1%}")
    characters = sum(len(document.text) for document in held_out)
    hangul = sum(len(_HANGUL.findall(document.text)) for document in held_out)
    if options["strip_accents"] and hangul > _HANGUL_SHARE * characters:
        print("syllables of Hangul are taken apart; --cased or --keep-accents keeps them whole")
    _print_mended(counts)


def _print_mended(counts):
    """What of a corpus was not read as it stands in its files."""
    for key, what in (
        ("invalid_utf8", "lines with bytes that are not UTF-8, now U+FFFD"),
        ("long_lines", "lines cut, which had more than 4 MB"),
        ("long_documents", "documents cut, which had more than 4 MB (blank lines end one)"),
    ):
        if counts.get(key):
            print(f"mended: {counts[key]:,} {what}; the first: {counts[f'{key}_at']}")


def _holding_out(documents, held_out):
    """All but a few documents, which go to a list."""
    size = 0
    for index, document in enumerate(documents, 1):
        if index % _HELD_OUT_EVERY == 0 and size < _HELD_OUT_BYTES:
            held_out.append(document)
            size += len(document.text)
        else:
            yield document


def make_records(args):
    """Tokenizes a corpus once."""
    arguments.check_folder(args.output)
    corpus.files(args.corpus)  # before the wait for a vocabulary
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
    made = records.Records(args.output)
    print(f"{counts['documents']:,} documents, {counts['sentences']:,} sentences, "
          f"{counts['pieces']:,} pieces in {args.output}")  # fmt: skip
    print(f"  held out         {made.counts('eval')['documents']:,} documents")
    print(f"  unknown          {counts['unknown_pieces'] / counts['pieces']:.3%}")
    _print_mended(counts)
    if made.counts()["documents"] < 2:
        print("next sentences are drawn from other documents, of which there are none: put blank "
              "lines between documents, or pretrain with --no-next-sentence")  # fmt: skip
    elif counts["sentences"] == counts["documents"]:
        print("no document has a second sentence: pretrain with --no-next-sentence")
    if made.counts("eval")["documents"] < 2:
        print("fewer than two documents are held out: pretraining will not be evaluated; a larger "
              "--held-out holds out more")  # fmt: skip


def _preprocessor_of(name):
    """The preprocessor of a folder with a vocabulary alone, or of a model."""
    if pathlib.Path(name, VOCABULARY_FILE).is_file():
        pieces, options = vocabulary.read(name)
        return keras_bert.Preprocessor(pieces, **options)
    preprocessor = heads.find_encoder(keras_bert.load(name, task="auto")).preprocessor
    if preprocessor is None:
        raise ValueError(f"the model {name} has no vocabulary")
    return preprocessor


def pretrain(args):
    """Trains a BERT from records."""
    import keras

    for path in (args.records, args.output):
        if "://" in path:
            raise ValueError(
                f"{path}: must be a folder of this machine; mount the bucket (gcsfuse), or see "
                "pretraining.google_records"
            )
    if args.config and args.size is not None:
        raise ValueError("--config is in place of --size; give one of them")
    made = records.Records(args.records)
    arguments.check_folder(args.output)
    arguments.check_log_folder(args.tensorboard)
    if len(args.lengths) > 2:
        raise ValueError(f"--lengths takes one or two numbers; received {len(args.lengths)}")
    most = args.max_predictions or [None]
    if len(most) not in (1, len(args.lengths)):
        raise ValueError(
            "--max-predictions takes one number, or one for each of --lengths; received "
            f"{len(most)}"
        )
    phases = pretraining.two_phases(
        args.steps,
        args.batch_size,
        (*args.lengths, args.lengths[-1])[:2],
        1.0 if len(args.lengths) == 1 else args.first_share,
        (*most, most[-1])[:2],
    )
    with distribution.scope(args.strategy, model_parallel=args.model_parallel):
        # Before the model: its first weights are drawn, too, and alike in all processes.
        keras.utils.set_random_seed(args.seed)
        if args.model:
            model = _model_to_go_on_with(args)
        else:
            model = keras_bert.BertEncoder(
                **_bert_config(args, made),
                dtype=args.dtype,
                rematerialize=args.rematerialize,
                preprocessor=made.preprocessor(),
            )
            if args.no_next_sentence:
                model = heads.masked_lm(model)
        _, history = pretraining.pretrain(
            model,
            made,
            args.output,
            phases,
            learning_rate=args.learning_rate,
            warmup_steps=args.warmup_steps,
            optimizer=args.optimizer,
            gradient_accumulation_steps=args.accumulate,
            packed=args.packed,
            whole_words=args.whole_words,
            seed=args.seed,
            log_every=args.log_every,
            save_every=args.save_every,
            eval_every=args.eval_every,
            keep=args.keep,
            tensorboard=args.tensorboard,
        )
    last = {key: value for key, value in history[-1].items() if key not in _OF_A_LINE}
    # Of its last phase: the last line may be of a few steps.
    phase = [line for line in history if line["sequence_length"] == last["sequence_length"]]
    last |= {key: statistics.median(line[key] for line in phase) for key in _RATES}
    print(report.table(last | {"minutes": sum(record["seconds"] for record in history) / 60}))
    print(f"saved in {args.output}")


def _model_to_go_on_with(args):
    if args.size is not None or args.config:
        raise ValueError("--size and --config are of a new model; --model has its own")
    options = arguments.encoder_options(args)
    model = arguments.load(args, task="auto")
    has = heads.find_task(model)
    if has not in ("pretraining", "masked_lm"):  # the encoder alone, with fresh heads
        encoder = heads.find_encoder(model)
        encoder = encoder.with_options(**options) if options else encoder
        return heads.masked_lm(encoder) if args.no_next_sentence else encoder
    task = "masked_lm" if args.no_next_sentence else has
    if task == has and not options:
        return model
    return arguments.load(args, task=task, **options)


def _bert_config(args, made):
    """The configuration of a new model for records."""
    config = {
        "vocab_size": made.manifest["settings"]["vocab_size"],
        "max_position_embeddings": max(512, *args.lengths),
    }
    if args.config:
        given = folder.read_json(pathlib.Path(args.config))
        given = {key: value for key, value in given.items() if not _means_nothing(key, value)}
        unknown = sorted(given.keys() - set(_BERT_KEYS))
        if unknown:
            raise ValueError(f"{args.config}: {', '.join(unknown)}: no key of a BERT's config")
        if given.get("vocab_size", config["vocab_size"]) != config["vocab_size"]:
            raise ValueError(
                f"{args.config}: vocab_size must be that of the records, {config['vocab_size']}; "
                f"received {given['vocab_size']}"
            )
        return config | given
    layers, hidden = _SIZES[args.size or "base"]
    return config | {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
    }


def _means_nothing(key, value):
    """Whether it is something that the published files say, and that changes no computation."""
    required = huggingface.REQUIRED_VALUES
    return (
        key in google.DROPPED_KEYS
        or key in huggingface.DROPPED_KEYS
        or (key in required and required[key] == value)
    )
