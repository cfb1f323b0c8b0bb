"""Question: what do the methods of the guides give on small data?

The script measures the figures in the pictures of the guides, and writes them to the file
docs/_static/figures.json. `docs/pictures.py` draws them. The model is MiniLM, and the data is that
of examples/data, unless a function says otherwise. The peers are plain baselines, such as a
logistic regression on vectors.

    python benchmarks/guide_figures.py                 # those that need only examples/data
    python benchmarks/guide_figures.py grid lora
    KERAS_BACKEND=jax python benchmarks/guide_figures.py loops    # or torch
    python benchmarks/guide_figures.py --shared ../shared continued pretraining

The last command needs data that is not in the repository, see benchmarks/README.md.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np

import keras_bert
from keras_bert.runtime import processor

ROOT = pathlib.Path(__file__).resolve().parents[1]
DATA = ROOT / "examples" / "data"
FILE = ROOT / "docs" / "_static" / "figures.json"
MESSAGE = "I was charged twice this month, please look into it"


def messages():
    """Return the training and dev messages of the support team."""
    return [keras_bert.read(DATA / f"support_{part}.tsv") for part in ("train", "dev")]


def train(train_set, dev_set, model=None, **options):
    """Fine-tune MiniLM, or a model, by the recipe of the guides."""
    recipe = {"epochs": 3, "batch_size": 16, "learning_rate": 1e-4, "show_progress": False}
    return keras_bert.finetune(
        model or keras_bert.load("minilm"), train_set, dev_set, **{**recipe, **options}
    )


def last_score(metrics, name="accuracy"):
    """Return the dev score of the last epoch, which was not selected on the dev data."""
    return metrics["history"][-1][name]


def _rounded(array, digits):
    """Return an array as nested lists."""
    return np.asarray(array, "float64").round(digits).tolist()


def mean(values):
    """Return the mean, rounded."""
    return round(statistics.mean(values), 4)


def classification():
    """Measure the confusion matrix of the guide on text classification."""
    from sklearn.metrics import confusion_matrix

    train_set, dev_set = messages()
    bert = keras_bert.load("minilm")
    model, metrics = keras_bert.finetune(bert, train_set, dev_set, show_progress=False)
    answers = keras_bert.pipeline(model)(dev_set.texts)
    labels = train_set.label_names()
    matrix = confusion_matrix(
        dev_set.labels, [answer["label"] for answer in answers], labels=labels
    )
    found = keras_bert.inspect.attributions(model, MESSAGE)
    return {
        "labels": labels,
        "matrix": matrix.tolist(),
        "accuracy": round(metrics["accuracy"], 4),
        "attributions": {
            "target": found.target,
            "words": [[word["text"], round(float(word["score"]), 3)] for word in found.words],
        },
    }


def curves():
    """Measure the losses and the dev accuracy of six epochs."""
    _, metrics = train(*messages(), epochs=6, contrastive=False)
    names = ("epoch", "loss", "dev_loss", "accuracy")
    return [{name: round(row[name], 4) for name in names} for row in metrics["history"]]


def multi_label():
    """Measure the probabilities of the labels of one message."""
    train_set, _ = messages()
    urgent = ("!", "urgent", "asap", "immediately")
    sets = [
        [label, "urgent"] if any(word in text.lower() for word in urgent) else [label]
        for text, label in zip(train_set.texts, train_set.labels, strict=True)
    ]
    parts = [
        keras_bert.Examples(train_set.texts[rows], label_sets=sets[rows])
        for rows in (slice(320), slice(320, None))
    ]
    model, metrics = train(*parts, epochs=8)
    text = "The app crashes again, fix it immediately!"
    answers = keras_bert.pipeline(model)(text, top_k=8)
    return {
        "text": text,
        "answers": [[answer["label"], round(answer["score"], 3)] for answer in answers],
        "micro_f1": round(last_score(metrics, "micro_f1"), 3),
    }


def tagging():
    """Tag a message."""
    parts = [
        keras_bert.read(DATA / f"entities_{part}.conll", task="tagging")
        for part in ("train", "dev")
    ]
    model, metrics = train(*parts, epochs=8, learning_rate=3e-4)
    text = "Torsten Falk here: it should have been in Aalborg on 8 December."
    found = keras_bert.pipeline(model)(text)
    return {
        "text": text,
        "entities": [[each["start"], each["end"], each["tag"]] for each in found],
        "f1": round(metrics["f1"], 3),
    }


def question_answering():
    """Measure the start and end probabilities of the tokens of a context."""
    parts = [
        keras_bert.read(DATA / f"manual_{part}.json", task="question_answering")
        for part in ("train", "dev")
    ]
    model, metrics = train(
        *parts, epochs=10, batch_size=12, learning_rate=2e-4, max_length=96, fixed_length=True
    )
    dev_set = parts[1]
    found = keras_bert.pipeline(model)(question=dev_set.questions, context=dev_set.contexts)
    right = [
        index
        for index, (answer, expected) in enumerate(zip(found, dev_set.answers, strict=True))
        if answer["answer"] in [text for text, _ in expected]
    ]
    chosen = min(right, key=lambda index: len(dev_set.contexts[index]))
    question, context = dev_set.questions[chosen], dev_set.contexts[chosen]
    tokenizer = keras_bert.heads.find_encoder(model).preprocessor
    inputs = tokenizer([question], [context])
    logits = [np.array(each)[0] for each in model(inputs).values()]
    ids = np.array(inputs["input_word_ids"])[0]
    # The context without the last [SEP].
    shown = np.flatnonzero(np.array(inputs["input_type_ids"])[0])[:-1]
    tokens = [tokenizer.vocabulary[token] for token in ids[shown]]
    chances = []
    for values in logits:
        values = np.exp(values[shown] - values[shown].max())
        chances.append([round(float(each), 3) for each in values / values.sum()])
    return {
        "question": question, "tokens": tokens, "start": chances[0], "end": chances[1],
        "answer": found[chosen]["answer"], "f1": round(metrics["f1"], 3),
    }  # fmt: skip


def embeddings():
    """Measure similarities of six sentences, and project the messages on a plane."""
    texts = [
        "How do I get my money back?", "I would like a refund, please.",
        "Where is my parcel?", "The package has not arrived.",
        "The app crashes at the start.", "I cannot open the program.",
    ]  # fmt: skip
    embed = keras_bert.pipeline("minilm")
    vectors = embed.encode(texts)
    train_set, _ = messages()
    corpus = embed.encode(train_set.texts, normalize=True)
    query = embed.encode(["my parcel is late"], normalize=True)
    from sklearn.manifold import TSNE

    *points, star = TSNE(metric="cosine", init="pca", random_state=0).fit_transform(
        np.concatenate([corpus, query])
    )
    nearest, _ = keras_bert.search.top_k(query, corpus, k=3)
    return {
        "texts": texts,
        "similarity": _rounded(embed.similarity(vectors, vectors), 2),
        "points": _rounded(points, 2),
        "labels": list(train_set.labels),
        "query": _rounded(star, 2),
        "nearest": nearest[0].tolist(),
    }


def imbalanced():
    """Measure precision and recall of a rare label, with and without weights of classes."""
    from sklearn.metrics import precision_recall_curve

    parts = []
    for data, share in zip(messages(), (8, 1), strict=True):
        rows = list(zip(data.texts, data.labels, strict=True))
        praise = [row for row in rows if row[1] == "praise"]
        rows = [row for row in rows if row[1] != "praise"] + praise[: len(praise) // share]
        labels = ["praise" if label == "praise" else "other" for _, label in rows]
        parts.append(keras_bert.Examples([text for text, _ in rows], labels=labels))
    curves = {}
    for name, options in (("none", {}), ("balanced", {"class_weight": "balanced"})):
        scores, at_half = [], []
        for seed in range(3):
            model, metrics = train(*parts, metric="mcc", seed=seed, **options)
            answers = keras_bert.pipeline(model)(parts[1].texts, top_k=None)
            scores.append(
                [
                    next(each["score"] for each in answer if each["label"] == "praise")
                    for answer in answers
                ]
            )
            report = keras_bert.pipeline(model).evaluate(parts[1])["report"]["praise"]
            at_half.append([report["precision"], report["recall"], report["f1"]])
        expected = np.array(parts[1].labels) == "praise"
        precision, recall, _ = precision_recall_curve(expected, np.mean(scores, axis=0))
        curves[name] = {
            "precision": precision.round(3).tolist(), "recall": recall.round(3).tolist(),
            "at_half": [mean(each) for each in zip(*at_half, strict=True)],
        }  # fmt: skip
        print(name, curves[name]["at_half"], flush=True)
    return curves


def layers():
    """Measure a logistic regression on the mean of each layer, and on sums of layers."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train_set, dev_set = messages()
    bert = keras_bert.load("minilm", sequence_length=64)
    inputs = [bert.preprocessor(part.texts) for part in (train_set, dev_set)]
    rows = []
    choices = [(str(layer + 1), (layer,)) for layer in range(6)]
    for name, chosen in [*choices, ("sum of 3 to 6", (-4, -3, -2, -1))]:
        features = keras_bert.heads.features(bert, chosen, "sum")
        pooling = keras_bert.layers.SentencePooling("mean", normalize=False)
        model = keras.Model(features.input, pooling(features.output, features.input["input_mask"]))
        vectors = [np.array(model(each)) for each in inputs]
        fit = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000))
        fit.fit(vectors[0], train_set.labels)
        rows.append([name, round(fit.score(vectors[1], dev_set.labels), 3)])
    return rows


def long_documents():
    """Measure the accuracy on messages within other text, and the time of a text by its length."""
    squad = json.loads((DATA / "manual_train.json").read_text())
    filler = [part["context"] for article in squad["data"] for part in article["paragraphs"]]
    draw = np.random.default_rng(0)
    parts = {}
    for place in ("beginning", "anywhere"):
        parts[place] = []
        for data in messages():
            texts = []
            for text in data.texts:
                others = [filler[i] for i in draw.choice(len(filler), 4, replace=False)]
                index = 0 if place == "beginning" else draw.integers(len(others) + 1)
                texts.append(" ".join([*others[:index], text, *others[index:]]))
            parts[place].append(keras_bert.Examples(texts, labels=data.labels))
    rows = []
    ways = (
        ("128 tokens, truncated", {"max_length": 128}),
        ("128 tokens, windows", {"max_length": 128, "long_texts": "window"}),
        ("512 tokens", {"max_length": 512}),
    )
    for name, options in ways:
        for place, data in parts.items():
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _, metrics = train(*data, epochs=4, **options)
            seconds = time.perf_counter() - start
            rows.append([name, place, round(last_score(metrics), 3), round(seconds)])
            print(rows[-1], flush=True)
    tokenizer = keras_bert.load("minilm", sequence_length=512).preprocessor
    inputs = tokenizer(parts["anywhere"][1].texts)
    length = float(np.array(inputs["input_mask"]).sum(axis=1).mean())
    return {"rows": rows, "tokens": round(length), "milliseconds": _time_by_length()}


def _time_by_length():
    """Return the milliseconds per text for texts of several lengths, batches of 16."""
    model = keras_bert.heads.classifier(keras_bert.load("minilm"), num_classes=2)
    predict = model.predict_on_batch
    found = []
    for length in (32, 64, 128, 256, 512):
        ids = np.full((16, length), 2000, "int32")
        inputs = {
            "input_word_ids": ids, "input_mask": np.ones_like(ids),
            "input_type_ids": np.zeros_like(ids),
        }  # fmt: skip
        predict(inputs)
        times = []
        for _ in range(7):
            start = time.perf_counter()
            predict(inputs)
            times.append(time.perf_counter() - start)
        found.append([length, round(statistics.median(times) / 16 * 1e3, 2)])
    return found


def grid():
    """Measure the accuracy for several learning rates and batch sizes, two seeds each."""
    train_set, dev_set = messages()
    rows = []
    for rate in (3e-5, 1e-4, 3e-4):
        for size in (8, 16, 32):
            scores = []
            for seed in range(2):
                options = {"learning_rate": rate, "batch_size": size, "contrastive": False}
                _, metrics = train(train_set, dev_set, seed=seed, **options)
                scores.append(last_score(metrics))
            rows.append([rate, size, mean(scores)])
            print(rows[-1], flush=True)
    return rows


def lora():
    """Measure full training, LoRA and a frozen encoder, then int8 in Keras and in ONNX Runtime."""
    train_set, dev_set = messages()
    rows = []
    for name in ("all weights", "LoRA, rank 8", "head only"):
        scores, seconds = [], []
        for seed in range(2):
            bert = keras_bert.load("minilm")
            model = keras_bert.heads.classifier(bert, labels=train_set.label_names())
            if name.startswith("LoRA"):
                bert.enable_lora(rank=8)
            if name == "head only":
                bert.trainable = False
            rate = 1e-3 if name != "all weights" else 1e-4
            start = time.perf_counter()
            model, metrics = train(
                train_set, dev_set, model, epochs=6, learning_rate=rate, seed=seed
            )
            seconds.append(time.perf_counter() - start)
            scores.append(last_score(metrics))
        trained = sum(weight.shape.num_elements() for weight in model.trainable_variables)
        rows.append([name, trained, mean(scores), round(statistics.mean(seconds))])
        print(rows[-1], flush=True)
    return {"training": rows, "int8": _int8(train_set, dev_set)}


def _int8(train_set, dev_set):
    """Return name, MB, accuracy and milliseconds for 32 texts of float32 and int8 models."""
    model, _ = train(train_set, dev_set, contrastive=False)
    texts = dev_set.texts[:32]
    rows = []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = pathlib.Path(folder)
        keras_bert.save(model, folder / "float32.keras")
        quantized = keras_bert.load(folder / "float32.keras")
        quantized.quantize("int8")
        keras_bert.save(quantized, folder / "int8.keras")
        keras_bert.export(model, folder / "onnx", format="onnx")
        keras_bert.export(model, folder / "onnx8", format="onnx", quantize="int8")
        for name, path in (
            ("Keras, float32", "float32.keras"), ("Keras, int8", "int8.keras"),
            ("ONNX Runtime, float32", "onnx"), ("ONNX Runtime, int8", "onnx8"),
        ):  # fmt: skip
            path = folder / path
            files = [path] if path.is_file() else list(path.rglob("*.onnx*"))
            size = sum(each.stat().st_size for each in files)
            classify = keras_bert.pipeline(path)
            accuracy = classify.evaluate(dev_set)["accuracy"]
            times = []
            for _ in range(12):
                start = time.perf_counter()
                classify(texts)
                times.append(time.perf_counter() - start)
            milliseconds = round(statistics.median(times[2:]) * 1e3, 1)
            rows.append([name, round(size / 1e6, 1), round(accuracy, 3), milliseconds])
            print(rows[-1], flush=True)
    return rows


def multiple_choice():
    """Measure the accuracy of the guide on multiple choice with more examples and epochs."""
    titles = {
        "account": "Help with signing in", "billing": "Question about a charge",
        "bug": "Something does not work", "cancel": "Wants to cancel",
        "delivery": "Where is the parcel?", "praise": "Says thanks",
        "refund": "Wants the money back",
    }  # fmt: skip
    parts = []
    for seed, data in enumerate(messages()):
        draw = np.random.default_rng(seed)
        choices, answers = [], []
        for label in data.labels:
            row = list(draw.choice([t for name, t in titles.items() if name != label], 2, False))
            row = [str(each) for each in row]
            answers.append(int(draw.integers(3)))
            row.insert(answers[-1], titles[label])
            choices.append(row)
        parts.append((data.texts, choices, answers))
    dev_set = keras_bert.Choices(*parts[1])
    rows = []
    for count in (120, 420):
        train_set = keras_bert.Choices(*[each[:count] for each in parts[0]])
        _, metrics = train(
            train_set, dev_set, epochs=4, batch_size=8, max_length=48, fixed_length=True
        )
        rows.append([count, round(last_score(metrics), 3)])
        print(rows[-1], flush=True)
    return rows


def loops():
    """Measure the time of a step of `fit` and of a loop, in ms, on the current backend."""
    train_set, _ = messages()
    found = {}
    for name, step_of in (("fit", None), ("loop", LOOPS[keras.backend.backend()])):
        keras.utils.set_random_seed(0)
        model = keras_bert.heads.classifier(
            keras_bert.load("minilm"), labels=train_set.label_names()
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # 5 of 420 texts are truncated
            batches = train_set.to_dataset(model, 16, shuffle=True, pad=64)
        optimizer = keras_bert.optimizers.adamw(1e-4, total_steps=200, warmup_steps=1)
        optimizer.build(model.trainable_variables)
        loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss_of, jit_compile=keras.backend.backend() == "jax")
        step = step_of(model, optimizer, loss_of) if step_of else None
        times = []
        for _ in range(4):  # the first pass compiles
            start = time.perf_counter()
            if step is None:
                model.fit(batches, shuffle=False, verbose=0)
            else:
                for inputs, targets in batches:
                    inputs = {key: value.numpy() for key, value in inputs.items()}
                    float(step(inputs, targets.numpy()))
            times.append((time.perf_counter() - start) / len(batches))
        found[name] = round(min(times[1:]) * 1e3)
    values = json.loads(FILE.read_text()).get("loops", {"values": {}})["values"]
    return {**values, keras.backend.backend(): found}


def _tensorflow_loop(model, optimizer, loss_of):
    import tensorflow as tf

    @tf.function
    def step(inputs, targets):
        with tf.GradientTape() as tape:
            loss = loss_of(targets, model(inputs, training=True))
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables))  # noqa: B905
        return loss

    return step


def _jax_loop(model, optimizer, loss_of):
    import jax

    def loss_and_state(trainable, fixed, inputs, targets):
        logits, fixed = model.stateless_call(trainable, fixed, inputs, training=True)
        return loss_of(targets, logits), fixed

    @jax.jit
    def compiled(trainable, fixed, state, inputs, targets):
        gradient = jax.value_and_grad(loss_and_state, has_aux=True)
        (loss, fixed), gradients = gradient(trainable, fixed, inputs, targets)
        trainable, state = optimizer.stateless_apply(state, gradients, trainable)
        return trainable, fixed, state, loss

    variables = (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    values = [[variable.value for variable in each] for each in variables]

    def step(inputs, targets):
        *values[:], loss = compiled(*values, inputs, targets)
        return loss

    return step


def _torch_loop(model, optimizer, loss_of):
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    loss_of = torch.nn.CrossEntropyLoss()

    def step(inputs, targets):
        inputs = {name: torch.tensor(value) for name, value in inputs.items()}
        loss = loss_of(model(inputs, training=True), torch.tensor(targets).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


LOOPS = {"tensorflow": _tensorflow_loop, "jax": _jax_loop, "torch": _torch_loop}


def continued(shared):
    """Measure continued pretraining of MiniLM, with a new masked LM head, and 500 rows of SST-2."""
    model = keras_bert.heads.masked_lm(keras_bert.load("minilm", dtype="mixed_bfloat16"))
    return _continue(shared, "minilm", model, steps=800, rows=500)


def _continue(shared, start, model, steps, rows):
    """Continue the pretraining of a model on SST-2's sentences, and fine-tune on some of its rows.

    Returns a dict: the `curve` of the losses, and the `scores`, mean and deviation of three seeds,
    before (from `start`, a name or path) and after.
    """
    from keras_bert.pretraining import records
    from keras_bert.pretraining import train as pretraining

    folder = pathlib.Path(shared) / "data" / "sst2"
    columns = {"text": "sentence", "label": "label"}
    sentences = keras_bert.read(folder / "train.tsv", **columns).texts
    dev_set = keras_bert.read(folder / "dev.tsv", **columns)
    train_set = keras_bert.read(folder / "train.tsv", **columns, limit=rows)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "corpus.txt").write_text("\n\n".join(sentences))
        preprocessor = keras_bert.heads.find_encoder(model).preprocessor
        records.build(work / "corpus.txt", work / "records", preprocessor, workers=1, held_out=0.01)
        phase = pretraining.Phase(steps, sequence_length=32, batch_size=64)
        _, history = pretraining.pretrain(
            model, records.Records(work / "records"), work / "model",
            pretraining.Recipe([phase], learning_rate=2e-4),
            log_every=40, save_every=400, eval_rows=512, show_progress=False,
        )  # fmt: skip
        scores = {}
        for name, path in (("before", start), ("after", work / "model")):
            found = []
            for seed in range(3):
                bert = keras_bert.heads.find_encoder(keras_bert.load(path, dtype="float32"))
                head = keras_bert.heads.classifier(bert, labels=train_set.label_names())
                _, metrics = train(train_set, dev_set, head, batch_size=32, seed=seed)
                found.append(last_score(metrics))
            scores[name] = [mean(found), round(statistics.stdev(found), 4)]
            print(name, scores[name], flush=True)
    names = ("step", "loss", "eval_loss")
    curve = [{name: each[name] for name in names if name in each} for each in history]
    return {"curve": curve, "scores": scores}


def pretraining(shared):
    """Measure 2,000 steps of examples/pretrain.py, and their continuation on SST-2's sentences."""
    corpus = pathlib.Path(shared) / "corpus"
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        files = [corpus / f"en_{name}.txt.xz" for name in ("wiki", "books")]
        script = ROOT / "examples" / "pretrain.py"
        command = [sys.executable, script, *files, "--steps", "2000", "--output", folder]
        subprocess.run(command, check=True)
        lines = (folder / "model" / "history.jsonl").read_text().splitlines()
        model = keras_bert.load(folder / "model", task="masked_tokens")
        found = _continue(shared, folder / "model", model, steps=1500, rows=6000)
    history = [json.loads(line) for line in lines]
    names = ("step", "loss", "eval_masked_lm_accuracy", "eval_next_sentence_accuracy")
    history = [{name: each[name] for name in names if name in each} for each in history]
    return {"history": history, "continued": found}


FIGURES = {
    each.__name__: each
    for each in (
        classification, curves, multi_label, tagging, question_answering, embeddings,
        imbalanced, layers, long_documents, grid, lora, multiple_choice, loops,
    )
}  # fmt: skip
SHARED = {each.__name__: each for each in (continued, pretraining)}


def main():
    """Measure figures, and write them to the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *FIGURES, *SHARED])
    parser.add_argument("--shared", help="folder of the data that is not in the repository")
    args = parser.parse_args()
    if not args.shared and set(args.names) & set(SHARED):
        parser.error(f"{', '.join(SHARED)} need --shared FOLDER")
    names = args.names or list(FIGURES) + (list(SHARED) if args.shared else [])
    for name in names:
        start = time.perf_counter()
        keras.utils.set_random_seed(0)
        figure = FIGURES[name]() if name in FIGURES else SHARED[name](args.shared)
        found = json.loads(FILE.read_text()) if FILE.exists() else {}
        found[name] = {"processor": processor.instruction_sets(), "values": figure}
        FILE.write_text(json.dumps(found, ensure_ascii=False) + "\n")
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
