"""Question: how long does an exported model take on a CPU, compared with ONNX Runtime and OpenVINO?

MiniLM with a classifier of random weights runs in all engines, in one process. They alternate after
a few calls each. Each figure is the median of the calls, from strings to logits or probabilities:

- keras_bert: `keras_bert.export` in float32 and in bfloat16
- ONNX Runtime: transformers' model, exported by `torch.onnx.export` and optimized by
  `onnxruntime.transformers`, in float32 and with its dynamic int8 quantization
- OpenVINO: the file of `torch.onnx.export`, in float32 and in bfloat16, hint LATENCY
- keras_bert's ONNX export in ONNX Runtime, float32 and int8, and its OpenVINO export, float32 and
  bfloat16, all with keras_bert's tokenizer in Python

The peers use transformers' fast tokenizer, pad to the longest text of the batch, and truncate where
keras_bert does. "64 mixed" is 32 sentences of SST-2 and 32 paragraphs of SQuAD.

    python benchmarks/serve_engines.py ../shared/data

Needs torch, transformers, onnx, onnxruntime and openvino. bfloat16 is fast only on processors with
AVX512-BF16 or AMX; the output names the instruction sets.
"""

import argparse
import contextlib
import functools
import importlib.metadata
import io
import json
import os
import pathlib
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import numpy as np
import onnx
import onnxruntime
import openvino
import tensorflow as tf
import torch
import transformers
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers import optimizer
from served_latency import LABELS, TEXT

import keras_bert
import keras_bert.hub.resolve
from keras_bert.data import tabular
from keras_bert.exporting import graph_folder
from keras_bert.exporting.graph_predictor import GraphPredictor
from keras_bert.runtime.processor import instruction_sets

THREADS = os.cpu_count()
BLOCK = 6  # calls with a single text before the next engine
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# Our engine, the peer, and the ratio of the times that we aim at, for each set of texts.
GOALS = {
    "20 words": (("float32", "ort float32", 1.3), ("bfloat16", "ort float32", 0.95)),
    "32 texts": (
        ("float32", "ort float32", 0.65), ("bfloat16", "ort int8", 0.75),
        ("bfloat16", "openvino bfloat16", 1.3),
    ),
    "64 mixed": (("float32", "ort float32", 0.4),),
}  # fmt: skip
ONNX_GOALS = (
    ("onnx float32", "ort float32", 1.05), ("onnx int8", "ort int8", 1.05),
    ("our openvino float32", "openvino float32", 1.0),
    ("our openvino bfloat16", "openvino bfloat16", 1.0),
)  # fmt: skip


def read_texts(data):
    rows = tabular.read(data / "sst2" / "dev.tsv", text="sentence", label="label").texts
    squad = json.loads((data / "squad11" / "dev.json").read_text(encoding="utf-8"))
    paragraphs = [item["context"] for page in squad["data"] for item in page["paragraphs"]]
    return {
        "20 words": [TEXT],
        "5 words": [" ".join(TEXT.split()[:5])],
        "32 texts": rows[:32],
        "64 mixed": [text for pair in zip(rows[:32], paragraphs, strict=False) for text in pair],
    }


def our_engines(model, folder):
    engines = {}
    for precision in ("float32", "bfloat16"):
        version = keras_bert.export(model, folder / precision, precision=precision)
        loaded = tf.saved_model.load(str(version))
        engines[precision] = lambda texts, loaded=loaded: loaded.signatures["serving_default"](
            text=tf.constant(texts)
        )["probabilities"].numpy()
    return engines


def our_graph_engines(model, folder):
    """Return engines for the ONNX and OpenVINO folders of keras_bert."""
    engines = {}
    for name, quantize in (("onnx float32", None), ("onnx int8", "int8")):
        path = keras_bert.export(model, folder / name, format="onnx", quantize=quantize)
        graph = graph_folder.find_graph(path)
        predictor = GraphPredictor.open(graph)
        predictor.session._session = onnx_session(str(graph.file))
        engines[name] = functools.partial(outputs_of, predictor)
    path = keras_bert.export(model, folder / "openvino", format="openvino")
    for precision in ("float32", "bfloat16"):
        predictor = GraphPredictor.open(graph_folder.find_graph(path), precision)
        engines[f"our openvino {precision}"] = functools.partial(outputs_of, predictor)
    return engines


def outputs_of(predictor, texts):
    """Return the probabilities of a `GraphPredictor` for texts."""
    return np.array(predictor.answers(keras_bert.Examples(texts), batch_size=len(texts)))


def onnx_session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    options.log_severity_level = 3
    # Threads that spin after a call would slow down the engine that comes next.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"])


def openvino_model(path, precision):
    settings = {
        "INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": THREADS,
        "PERFORMANCE_HINT": "LATENCY",
    }  # fmt: skip
    return openvino.Core().compile_model(path, "CPU", settings)


def torch_model(model, source):
    """Return transformers' model with the weights of a Keras model."""
    peer = transformers.AutoModelForSequenceClassification.from_pretrained(
        source, num_labels=len(LABELS)
    ).eval()
    kernel, bias = model.get_layer("logits").get_weights()
    peer.classifier.weight.data = torch.tensor(kernel.T.copy())
    peer.classifier.bias.data = torch.tensor(bias)
    return peer


def onnx_files(peer, tokenizer, folder):
    """Write the ONNX files; return the paths of float32, optimized float32 and int8."""
    paths = [str(folder / name) for name in ("model.onnx", "optimized.onnx", "int8.onnx")]
    example = tokenizer(["a b c", "d e"], return_tensors="pt", padding=True)
    dynamic = {name: {0: "batch", 1: "seq"} for name in INPUTS} | {"logits": {0: "batch"}}
    with contextlib.redirect_stdout(io.StringIO()):
        torch.onnx.export(
            peer, tuple(example[name] for name in INPUTS), paths[0], input_names=list(INPUTS),
            output_names=["logits"], dynamic_axes=dynamic, opset_version=17, dynamo=False,
        )  # fmt: skip
    config = peer.config
    optimizer.optimize_model(
        paths[0], "bert", num_heads=config.num_attention_heads, hidden_size=config.hidden_size
    ).save_model_to_file(paths[1])
    quantize_dynamic(
        paths[1], paths[2], weight_type=QuantType.QInt8,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )  # fmt: skip
    return paths


def peer_engines(model, source, folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    max_length = keras_bert.heads.find_encoder(model).preprocessor.max_sequence_length
    peer = torch_model(model, source)
    plain, optimized, int8 = onnx_files(peer, tokenizer, folder)

    def tokenize(texts):
        packed = tokenizer(
            texts, return_tensors="np", padding=True, truncation=True, max_length=max_length
        )
        return {name: packed[name] for name in INPUTS}

    engines = {}
    for name, path in (("ort float32", optimized), ("ort int8", int8)):
        session = onnx_session(path)
        engines[name] = lambda texts, session=session: session.run(None, tokenize(texts))[0]
    for name, precision in (("openvino float32", "f32"), ("openvino bfloat16", "bf16")):
        compiled = openvino_model(plain, precision)
        engines[name] = lambda texts, compiled=compiled: compiled(tokenize(texts))[0]
    return engines


def softmax(logits):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path, help="folder with sst2 and squad11")
    parser.add_argument("--rounds", type=int, default=30, help="for a single text")
    parser.add_argument("--only", nargs="+", help="names of sets of texts")
    args = parser.parse_args()
    torch.set_num_threads(THREADS)
    for name in ("tensorflow", "onnxruntime", "openvino", "torch", "transformers"):
        print(name, importlib.metadata.version(name))
    print(f"{THREADS} cores: {' '.join(instruction_sets())}")
    encoder = keras_bert.load("minilm")
    model = keras_bert.heads.classifier(encoder, labels=LABELS, pooling="pooler")
    source = str(keras_bert.hub.resolve.find("minilm"))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        engines = our_engines(model, folder) | our_graph_engines(model, folder)
        ours = set(engines)
        engines |= peer_engines(model, source, folder)
        for title, texts in read_texts(args.data).items():
            if args.only and title not in args.only:
                continue
            rounds = {1: args.rounds, 32: args.rounds // 3}.get(len(texts), 3)
            times = {name: [] for name in engines}
            for turn in range(rounds + 1):
                for name, run in engines.items():
                    for call in range(BLOCK if len(texts) == 1 else 2):
                        start = time.perf_counter()
                        run(texts)
                        # The first call finds the weights of the engine before in the caches.
                        if turn and call:
                            times[name].append(1000 * (time.perf_counter() - start))
            median = {name: statistics.median(values) for name, values in times.items()}
            print(f"{title}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in median.items()))
            expected = engines["float32"](texts)
            for name, run in engines.items():
                found = run(texts)
                found = found if name in ours else softmax(found)
                print(f"    {name}: largest difference {np.abs(found - expected).max():.1e}")
            for engine, peer, goal in (*GOALS.get(title, ()), *ONNX_GOALS):
                ratio = median[engine] / median[peer]
                print(f"    {engine} / {peer}: {ratio:.2f} (goal: at most {goal})")


if __name__ == "__main__":
    main()
