"""Question: how good is `finetune` with 8, 16 or 64 texts per class, and how long does it take?

`finetune` with its default arguments, SetFit with 20 pairs of each kind per text (its paper's
setting), and logistic regression on frozen vectors start from the same weights: MiniLM, and for
Korean an encoder that `embedding_quality.py` trains on Wikipedia. A process per library and run,
in turns. Figures are means and standard deviations over the seeds, which also draw the texts.

- `support`: the support messages of the examples, seven classes.
- `sst2`: opinions on films, two classes.
- `nsmc`: Korean opinions on films, two classes.
- `wnut17`: tweets with entities of one type, six types.

    .venv-peers/bin/python benchmarks/few_examples.py ../shared

Needs torch, sentence-transformers and setfit 1.2 (`pip install --no-deps setfit evaluate`).
"""

import argparse
import collections
import csv
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ROOT = pathlib.Path(__file__).parents[1]
LIBRARIES = ("regression", "ours", "setfit")
MOST_TEST_TEXTS = 1000


def tsv(path, text, label):
    """Return (text, label) of the rows of a file with a header."""
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row[text], row[label]) for row in rows if row[text]]


def tweets(*paths):
    """Return (text, type) of the tweets whose entities have one type."""
    import keras_bert

    rows = []
    for path in paths:
        data = keras_bert.read(path, "tagging", format="conll")
        for words, tags in zip(data.words, data.tags, strict=True):
            types = {tag.partition("-")[2] for tag in tags if tag != "O"}
            if len(types) == 1:
                rows.append((" ".join(words), types.pop()))
    return rows


def read_set(name, shared):
    """Return the texts that training texts are drawn from, and the test texts."""
    if name == "support":
        folder = ROOT / "examples/data"
        return [tsv(folder / f"support_{part}.tsv", "text", "label") for part in ("train", "dev")]
    if name == "sst2":
        return [
            tsv(shared / f"data/sst2/{part}.tsv", "sentence", "label") for part in ("train", "dev")
        ]
    if name == "nsmc":
        folder = shared / "data/nsmc"
        return [
            tsv(folder / f"ratings_{part}.txt", "document", "label") for part in ("train", "test")
        ]
    folder = shared / "data/wnut17"
    return (
        tweets(folder / "wnut17train.conll"),
        tweets(folder / "emerging.dev.conll", folder / "emerging.test.annotated"),
    )


def draw(rows, texts_per_class, seed):
    """Return up to some texts per class, in random order."""
    rows = list(dict.fromkeys(rows))
    random.Random(seed).shuffle(rows)
    texts_of_label = collections.defaultdict(list)
    for text, label in rows:
        texts_of_label[label].append(text)
    drawn = [
        (text, label)
        for label, texts in sorted(texts_of_label.items())
        for text in texts[:texts_per_class]
    ]
    random.Random(seed).shuffle(drawn)
    return drawn


def train_korean_encoder(shared):
    """Return an encoder that learned which paragraph a first sentence belongs to."""
    import embedding_quality

    import keras_bert

    rows = []
    for text in embedding_quality.wikipedia(shared, "ko", 60_000):
        first, dot, rest = text.partition(". ")
        if dot and len(rest) > 40:
            rows.append((first, rest))
    encoder = embedding_quality.korean_encoder([text for row in rows for text in row])
    data = keras_bert.EmbeddingExamples(rows[:20_000])
    model = embedding_quality.train(encoder, data, 0, epochs=3, learning_rate=3e-4)
    return keras_bert.heads.find_encoder(model)


def of_ours(encoder, train, test, seed):
    """Return the accuracy and the seconds of `finetune`."""
    import keras_bert

    bert = keras_bert.load(encoder)
    start = time.perf_counter()
    texts, labels = zip(*train, strict=True)
    model, _ = keras_bert.finetune(
        bert, keras_bert.Examples(texts, labels=labels), seed=seed, show_progress=False
    )
    seconds = time.perf_counter() - start
    texts, labels = zip(*test, strict=True)
    answers = keras_bert.pipeline(model).evaluate(keras_bert.Examples(texts, labels=labels))
    return answers["accuracy"], seconds


def of_regression(encoder, train, test, seed):
    """The same for a logistic regression on the vectors of the encoder."""
    from sklearn.linear_model import LogisticRegression

    import keras_bert

    embed = keras_bert.pipeline(keras_bert.load(encoder), task="embedding")
    start = time.perf_counter()
    texts, labels = zip(*train, strict=True)
    regression = LogisticRegression(max_iter=1000).fit(embed.encode(texts), labels)
    seconds = time.perf_counter() - start
    texts, labels = zip(*test, strict=True)
    return regression.score(embed.encode(texts), labels), seconds


def of_setfit(encoder, train, test, seed):
    """The same for SetFit; `encoder` is a folder of sentence-transformers."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    labels = sorted({label for _, label in train})
    model = SetFitModel.from_pretrained(str(encoder), labels=labels)
    data = Dataset.from_list(
        [{"text": text, "label": labels.index(label)} for text, label in train]
    )
    arguments = TrainingArguments(
        output_dir=f"{encoder}-setfit", num_iterations=20, seed=seed, report_to="none",
        save_strategy="no", show_progress_bar=False,
    )  # fmt: skip
    start = time.perf_counter()
    Trainer(model=model, args=arguments, train_dataset=data).train()
    seconds = time.perf_counter() - start
    answers = model.predict([text for text, _ in test], show_progress_bar=False)
    hits = sum(str(answer) == label for answer, (_, label) in zip(answers, test, strict=True))
    return hits / len(test), seconds


WORKERS = {"ours": of_ours, "regression": of_regression, "setfit": of_setfit}


def in_process(library, encoder, data_file, seed):
    """Return the accuracy and the seconds of a worker in a new process."""
    command = [sys.executable, __file__, str(data_file), "--worker", library, str(encoder),
               "--seeds", str(seed)]  # fmt: skip
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def show(values, digits):
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.{digits}f} ± {spread:.{digits}f}"


def compare(name, size, args, folder, encoders):
    """Print the accuracy and the seconds of each library."""
    pool, test = read_set(name, args.shared)
    random.Random(0).shuffle(test)
    data_file = folder / "data.json"
    results = {library: [] for library in args.libraries}
    for seed in range(args.seeds):
        rows = draw(pool, size, seed)
        data_file.write_text(json.dumps([rows, test[:MOST_TEST_TEXTS]]), encoding="utf-8")
        for library in sorted(results, reverse=bool(seed % 2)):
            language = "korean" if name == "nsmc" else "english"
            encoder = encoders[language, library == "setfit"]
            results[library].append(in_process(library, encoder, data_file, seed))
    for library, runs in results.items():
        accuracies, seconds = zip(*runs, strict=True)
        print(
            f"{name}, {size} texts per class, {library}: accuracy {show(accuracies, 3)}, "
            f"{show(seconds, 1)} s",
            flush=True,
        )


def make_encoders(names, shared, folder, korean):
    """Return {(language, for SetFit): name or path of an encoder}."""
    import keras_bert

    encoders = {("english", False): "minilm"}
    berts = {"english": keras_bert.load("minilm")}
    if "nsmc" in names:
        encoders["korean", False] = korean or folder / "korean.keras"
        if korean is None:
            keras_bert.save(train_korean_encoder(shared), encoders["korean", False])
        berts["korean"] = keras_bert.load(encoders["korean", False])
    for language, bert in berts.items():
        encoders[language, True] = folder / language
        model = keras_bert.heads.embedder(bert)
        keras_bert.save(model, encoders[language, True], format="sentence_transformers")
    return encoders


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path, help="folder with data/ and corpus/")
    parser.add_argument("--sets", nargs="+", default=["support", "sst2", "nsmc", "wnut17"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 16, 64])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument("--korean", type=pathlib.Path, help="a Korean encoder; default: train one")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        library, encoder = args.worker
        train, test = json.loads(args.shared.read_text(encoding="utf-8"))
        print(json.dumps(WORKERS[library](encoder, train, test, args.seeds)))
        return
    from keras_bert.runtime import processor

    print(f"instruction sets: {' '.join(processor.instruction_sets())}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        encoders = make_encoders(args.sets, args.shared, folder, args.korean)
        for size in args.sizes:
            for name in args.sets:
                compare(name, size, args, folder, encoders)


if __name__ == "__main__":
    main()
