"""Question: how fast and how exactly are texts embedded on a CPU, against sentence-transformers?

MiniLM embeds sentences of SST-2 and paragraphs of Wikipedia in each engine of both libraries, in
float32, bfloat16 and int8. int8 of OpenVINO is calibrated on the same 300 other sentences. Each
round is a new process per engine. Its first call is timed, without loading the model, and then the
second call. Figures are medians of the rounds, which alternate. The cosine is that with float32.

    .venv-peers/bin/python benchmarks/embed_speed.py ../shared

`--only` chooses engines by a part of their names. The engines of files run in the environment that
`make test-older` makes, see `--consumers`.

Needs torch and sentence-transformers.
"""

import argparse
import json
import lzma
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

BATCH = 32
LENGTH = 512  # tokens of the longest text
CALIBRATION = 300
INSTRUCTIONS = "qint8_avx512_vnni"  # the fastest of the peer's int8 files for ONNX Runtime here
# Name of an engine, and True if it runs in the environment of the consumers.
ENGINES = {
    "keras_bert TensorFlow float32": False,
    "keras_bert TensorFlow bfloat16": False,
    "keras_bert ONNX float32": True,
    "keras_bert ONNX int8": True,
    "keras_bert OpenVINO float32": True,
    "keras_bert OpenVINO bfloat16": True,
    "keras_bert OpenVINO int8": True,
    "peer torch float32": False,
    "peer torch bfloat16": False,
    "peer ONNX float32": True,
    "peer ONNX int8": True,
    "peer OpenVINO float32": True,
    "peer OpenVINO bfloat16": True,
    "peer OpenVINO int8": True,
}
# Our engine, that of the peer, and the ratio of the speeds that we aim at in the first and the
# second call.
GOALS = (
    ("keras_bert OpenVINO bfloat16", "peer OpenVINO bfloat16", 1.0, 1.2),
    ("keras_bert OpenVINO int8", "peer OpenVINO int8", None, 1.2),
)


def read_texts(shared, sentences, paragraphs):
    file = shared / "data" / "sst2" / "train.tsv"
    rows = file.read_text(encoding="utf-8").splitlines()[1:]
    sst2 = [row.split("\t")[0] for row in rows]
    with lzma.open(shared / "corpus" / "en_wiki.txt.xz", "rt", encoding="utf-8") as corpus:
        lines = [line.strip() for line in corpus if line.strip()][:paragraphs]
    texts = {f"{sentences:,} sentences": sst2[:sentences], f"{paragraphs:,} paragraphs": lines}
    return texts, sst2[-CALIBRATION:]


def load(name, folder):
    """Return a function from texts to vectors."""
    library, engine, precision = name.split()
    if library == "keras_bert":
        return load_ours(engine, precision, folder)
    import sentence_transformers

    options = {"device": "cpu"}
    source = folder / "peer"
    if engine == "torch":
        import torch

        torch.set_num_threads(os.cpu_count())
        options["model_kwargs"] = {"dtype": getattr(torch, precision)}
    elif engine == "ONNX":
        file = f"model_{INSTRUCTIONS}.onnx" if precision == "int8" else "model.onnx"
        options |= {"backend": "onnx", "model_kwargs": {"file_name": f"onnx/{file}"}}
    else:
        hint = "bf16" if precision == "bfloat16" else "f32"
        file = "openvino_model_int8.xml" if precision == "int8" else "openvino_model.xml"
        kwargs = {"file_name": f"openvino/{file}", "ov_config": {"INFERENCE_PRECISION_HINT": hint}}
        options |= {"backend": "openvino", "model_kwargs": kwargs}
    model = sentence_transformers.SentenceTransformer(str(source), **options)
    model.max_seq_length = LENGTH
    return lambda texts: model.encode(texts, batch_size=BATCH, normalize_embeddings=True)


def load_ours(engine, precision, folder):
    import keras_bert

    if engine == "TensorFlow":
        return keras_bert.pipeline("minilm", precision=precision)
    format = engine.lower()
    is_int8 = precision == "int8"
    options = {"precision": precision} if format == "openvino" and not is_int8 else {}
    return keras_bert.pipeline(folder / f"{format}{' int8' if is_int8 else ''}", **options)


def write_ours(folder, texts):
    """Export our model to each kind of folder."""
    import keras_bert

    model = keras_bert.load("minilm", task="embedding", sequence_length=LENGTH)
    encoder = keras_bert.heads.find_encoder(model)
    encoder.preprocessor = encoder.preprocessor.with_options(max_sequence_length=LENGTH)
    for format in ("onnx", "openvino"):
        keras_bert.export(model, folder / format, format=format)
        dev = keras_bert.Examples(texts)
        keras_bert.export(model, folder / f"{format} int8", format=format, quantize="int8", dev=dev)
    keras_bert.save(model, folder / "peer", format="sentence_transformers")


def write_peer(folder, texts):
    """Write the files of the peer's engines with its own exporters."""
    import nncf
    import sentence_transformers
    from optimum.intel import openvino

    source = str(folder / "peer")
    for backend in ("onnx", "openvino"):
        model = sentence_transformers.SentenceTransformer(
            source, backend=backend, model_kwargs={"export": True}
        )
        model.save_pretrained(str(folder / f"peer {backend}"))
        for file in (folder / f"peer {backend}" / backend).iterdir():
            target = folder / "peer" / backend / file.name
            target.parent.mkdir(exist_ok=True)
            file.rename(target)
        if backend == "onnx":
            sentence_transformers.export_dynamic_quantized_onnx_model(
                model, "avx512_vnni", str(folder / "peer"), file_suffix=INSTRUCTIONS
            )
    # As its `export_static_quantized_openvino_model` does, on our texts.
    options = {"padding": "max_length", "max_length": 384, "truncation": True}
    rows = [dict(model.tokenizer(text, return_tensors="np", **options)) for text in texts]
    quantizer = openvino.OVQuantizer.from_pretrained(model.transformers_model)
    config = openvino.OVConfig(quantization_config=openvino.OVQuantizationConfig())
    quantizer.quantize(nncf.Dataset(rows), save_directory=folder / "peer int8", ov_config=config)
    for file in (folder / "peer int8" / "openvino").iterdir():
        file.rename(folder / "peer" / "openvino" / f"openvino_model_int8{file.suffix}")


def measure(name, folder, texts, reference):
    """Print the seconds of two calls, and the mean cosine with the reference."""
    import numpy as np

    embed = load(name, folder)
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        vectors = np.asarray(embed(texts), np.float32)
        seconds.append(time.perf_counter() - start)
    if not reference.exists():
        np.save(reference, vectors)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)  # bfloat16 is not exactly of length 1
    cosine = float((vectors * np.load(reference)).sum(axis=1).mean())
    print(json.dumps([*seconds, cosine]))


def run(python, arguments, backend):
    """Run this script in another process; return the last line that it prints."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "HF_HUB_OFFLINE": "1"}
    result = subprocess.run(
        [python, __file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
    )
    if result.returncode:
        raise RuntimeError(result.stderr[-3000:])
    return result.stdout.splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shared", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--paragraphs", type=int, default=500)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--consumers", default=".venv-older/bin/python")
    parser.add_argument("--folder", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--task", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    texts, calibration = read_texts(args.shared, args.sentences, args.paragraphs)
    if args.task:
        name, title = args.task
        if name == "write":
            writers = {"ours": write_ours, "peer": write_peer}
            writers[title](args.folder, calibration)
            print()
        else:
            file = args.folder / f"{title.replace(' ', '_')}.npy"
            measure(name, args.folder, texts[title], file)
        return
    from keras_bert.runtime.processor import instruction_sets

    print(f"{os.cpu_count()} cores: {' '.join(instruction_sets())}", flush=True)
    engines = [name for name in ENGINES if any(part in name for part in args.only)]
    engines = ["keras_bert TensorFlow float32", *engines]  # the reference
    engines = list(dict.fromkeys(engines))
    with tempfile.TemporaryDirectory() as folder:
        arguments = [args.shared, "--folder", folder]
        arguments += ["--sentences", args.sentences, "--paragraphs", args.paragraphs]
        for writer in ("ours", "peer"):
            run(args.consumers, [*arguments, "--task", "write", writer], "torch")
        for title, rows in texts.items():
            runs = {name: [] for name in engines}
            for _ in range(args.rounds):
                for name in engines:
                    python = args.consumers if ENGINES[name] else sys.executable
                    backend = "torch" if ENGINES[name] else "tensorflow"
                    line = run(python, [*arguments, "--task", name, title], backend)
                    runs[name].append(json.loads(line))
            report(title, len(rows), runs)


def report(title, count, runs):
    print(f"{title}: texts/s in the first and the second call, mean cosine")
    speeds = {}
    for name, rounds in runs.items():
        first, second, cosine = (statistics.median(column) for column in zip(*rounds, strict=True))
        speeds[name] = count / first, count / second
        print(f"    {name:32} {count / first:6.0f} {count / second:6.0f}  {cosine:.4f}")
    for name, peer, *goals in GOALS:
        if name not in speeds or peer not in speeds:
            continue
        for call, goal, ours, theirs in zip(
            ("first", "second"), goals, speeds[name], speeds[peer], strict=True
        ):
            wanted = "" if goal is None else f", goal {goal}"
            print(f"    {call} call: {name} / {peer}: {ours / theirs:.2f}{wanted}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
