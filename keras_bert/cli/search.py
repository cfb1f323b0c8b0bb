"""`search`: the texts of a file that are nearest to a query. `mine`: hard negatives."""

import hashlib
import os
import sys

import numpy as np

import keras_bert
from keras_bert.cli import arguments, options, reading, writing
from keras_bert.data import tabular
from keras_bert.model_structure import find_encoder
from keras_bert.provenance import digest_of_weights
from keras_bert.runtime.escaping import printable
from keras_bert.runtime.files import atomic_write, cache_folder
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import prediction_files
from keras_bert.tasks.embedding import nearest as search
from keras_bert.tasks.embedding.head import as_embedder
from keras_bert.untrusted import containers


def find(args: options.Search) -> None:
    """Print the texts of a file with the highest similarity to a query, and their rows."""
    columns = reading.columns_of(args)
    examples = tabular.read(
        args.file, text=columns["text"], header=columns["header"], format=args.format
    )
    rows = [row for row, text in enumerate(examples.texts, 1) if text.strip()]
    texts = [examples.texts[row - 1] for row in rows]
    if not texts:
        raise ValueError(f"{args.file} has no texts to search")
    if not args.query.strip():
        raise ValueError("the query is empty. Give a text to search for")
    embed = _pipeline(args)
    query = embed.encode(args.query, prompt=args.prompt)
    vectors = _vectors(embed, texts, args)
    indices, scores = search.top_k(query, vectors, args.top, embed.output.similarity)
    for index, score in zip(indices[0], scores[0], strict=True):
        print_line(f"{score:.4f}\t{rows[index]}\t{printable(texts[index])}")


def mine(args: options.Mine) -> None:
    """Write the rows of a file with hard negatives."""
    writing.check_output(args.output, args.file)
    columns = reading.columns_of(args)
    pairs = reading.read(args.file, "embedding", {**columns, "label": None}, args.format)
    mined = _pipeline(args).mine_negatives(
        pairs, args.count, margin=args.margin, prompt=args.prompt,
        corpus_prompt=args.corpus_prompt,
    )  # fmt: skip
    numbers = range(1, args.count + 1)
    names = [columns["text"], args.text_pair, *(f"negative_{number}" for number in numbers)]
    rows = prediction_files.table_lines(args.output, names, mined.texts)
    with atomic_write(args.output) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in rows)
    print_line(f"{len(mined)} rows written to {args.output}")


def _pipeline(args):
    model = as_embedder(arguments.load(args, task="auto"), args.pooling)
    return keras_bert.pipeline(model, batch_size=args.batch_size, precision=args.precision)


def _vectors(embed, texts, args):
    """Return the vectors of the texts, from the user's cache if they fit.

    They are not beside the texts, because then their author could also give false vectors.
    """
    key = _key(embed, texts, args)
    vectors = _read_cache(args.file, key, (len(texts), embed.model.output_shape[-1]))
    if vectors is None:
        vectors = embed.encode(texts, prompt=args.corpus_prompt)
        _write_cache(args.file, key, vectors)
    return vectors


def _key(embed, texts, args):
    """Return a hash of everything that determines the vectors, as an array."""
    key = hashlib.sha256()
    settings = (
        digest_of_weights(embed.model),
        str(embed.model.get_config()),  # the pooling and the layers after it
        "\n".join(find_encoder(embed.model).preprocessor.vocabulary),
        str(args.corpus_prompt),
        str(args.precision),
    )
    for part in (*settings, *texts):
        data = part.encode("utf-8", "surrogatepass")
        key.update(len(data).to_bytes(8, "little") + data)
    return np.frombuffer(key.digest(), np.uint8)


def _read_cache(file, key, shape):
    """Return the cached vectors, or `None` if there are none with this key and shape."""
    try:
        path = _cache_path(file)
        arrays = containers.read_npz(path)
        if not np.array_equal(arrays["key"], key):
            print_line(
                f"{path} belongs to other texts, another model or prompt; recomputing the vectors",
                file=sys.stderr,
            )
            return None
        vectors = arrays["vectors"]
        if (vectors.dtype, vectors.shape) != (np.float32, shape):
            raise ValueError(f"vectors of the shape {vectors.shape}, {vectors.dtype}")
        if not np.isfinite(vectors).all():
            raise ValueError("NaN or infinity")
        return vectors
    except (FileNotFoundError, RuntimeError):  # RuntimeError: the user has no home folder
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        print_line(f"{path} is broken ({error}); recomputing the vectors", file=sys.stderr)
        return None


def _write_cache(file, key, vectors):
    try:
        path = _cache_path(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, key=key, vectors=vectors)
    except (OSError, RuntimeError) as error:  # the cache may be read-only
        print_line(f"the vectors were not saved: {error}", file=sys.stderr)


def _cache_path(file):
    """Return the file of the vectors in the cache, one for each file of texts."""
    path = os.path.realpath(file)
    name = hashlib.sha256(os.fsencode(path)).hexdigest()
    return cache_folder() / "vectors" / f"{name}.npz"
