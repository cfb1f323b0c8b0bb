"""`search`: the texts of a file that are nearest to a query. `mine`: hard negatives."""

import hashlib
import os
import sys

import numpy as np

import keras_bert
from keras_bert import search
from keras_bert.cli import arguments, options, reading, writing
from keras_bert.data import tabular
from keras_bert.model_structure import find_encoder
from keras_bert.provenance import digest_of_weights
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write, cache_folder
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import inference, prediction_files
from keras_bert.untrusted import containers


def find(args: options.Search) -> None:
    """Print the texts of a file with the highest similarity to a query, and their rows."""
    columns = reading.columns_of(args)
    examples = tabular.read(
        args.file, text=columns["text"], header=columns["header"], format=args.format
    )
    numbers = [number for number, text in enumerate(examples.texts, 1) if text.strip()]
    texts = [examples.texts[number - 1] for number in numbers]
    if not texts:
        raise ValueError(f"{args.file} has no texts to search")
    if not args.query.strip():
        raise ValueError("the query is empty. Give a text to search for")
    embed = _pipeline(args)
    query = embed.encode(args.query, prompt=args.prompt)
    # The config holds the pooling and the layers after it.
    config = str(embed.model.get_config())
    vocabulary = "\n".join(find_encoder(embed.model).preprocessor.vocabulary)
    settings = [digest_of_weights(embed.model), config, vocabulary, str(args.corpus_prompt)]
    vectors = _cached_vectors(embed, texts, args, settings, len(query))
    indices, scores = search.top_k(query, vectors, args.top, embed.output.similarity)
    for index, score in zip(indices[0], scores[0], strict=True):
        print_line(f"{score:.4f}\t{numbers[index]}\t{printable(texts[index])}")


def mine(args: options.Mine) -> None:
    """Write the rows of a file with hard negatives."""
    writing.check_output(args.output, args.file)
    columns = reading.columns_of(args)
    pairs = reading.read(args.file, "embedding", {**columns, "label": None}, args.format)
    found = _pipeline(args).mine_negatives(
        pairs, args.count, margin=args.margin, prompt=args.prompt,
        corpus_prompt=args.corpus_prompt,
    )  # fmt: skip
    numbers = range(1, args.count + 1)
    names = [columns["text"], args.text_pair, *(f"negative_{number}" for number in numbers)]
    rows = prediction_files.table_lines(args.output, names, found.texts)
    with atomic_write(args.output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in rows)
    print_line(f"{len(found)} rows written to {args.output}")


def _pipeline(args):
    model = inference.as_embedder(arguments.load(args, task="auto"), args.pooling)
    return keras_bert.pipeline(model, batch_size=args.batch_size, precision=args.precision)


def _cached_vectors(embed, texts, args, settings, width):
    """Return the vectors of the texts, from the user's cache if they fit.

    They are not beside the texts, because then their author could also give false vectors.
    """
    key = hashlib.sha256()
    for part in (*settings, str(args.precision), *texts):
        data = part.encode("utf-8", "surrogatepass")
        key.update(len(data).to_bytes(8, "little") + data)
    wanted = np.frombuffer(key.digest(), np.uint8)
    try:
        cache = _cache_of(args.file)
    except RuntimeError as error:  # the user has no home folder
        print_line(f"the vectors are not saved: {error}", file=sys.stderr)
        return embed.encode(texts, prompt=args.corpus_prompt)
    try:
        found = containers.read_npz(cache)
        if np.array_equal(found["key"], wanted):
            vectors = found["vectors"]
            if (vectors.dtype, vectors.shape) != (np.float32, (len(texts), width)):
                raise ValueError(f"vectors of the shape {vectors.shape}, {vectors.dtype}")
            if not np.isfinite(vectors).all():
                raise ValueError("NaN or infinity")
            return vectors
        print_line(
            f"{cache} belongs to other texts, another model or prompt; recomputing the vectors",
            file=sys.stderr,
        )
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        print_line(f"{cache} is broken ({error}); recomputing the vectors", file=sys.stderr)
    vectors = embed.encode(texts, prompt=args.corpus_prompt)
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(cache) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, key=wanted, vectors=vectors)
    except OSError as error:  # the cache may be read-only
        print_line(f"the vectors were not saved: {error}", file=sys.stderr)
    return vectors


def _cache_of(texts_file):
    """Return the file of the vectors in the cache, one for each file of texts."""
    path = os.path.realpath(texts_file)
    name = hashlib.sha256(os.fsencode(path)).hexdigest()
    return cache_folder() / "vectors" / f"{name}.npz"
