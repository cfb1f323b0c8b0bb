"""Question: how long do `import keras_bert` and `load` take, beside their peers?

Each figure is the median over fresh processes that take turns: the import of keras_bert after
that of keras; loading one local MiniLM folder by keras_bert, by KerasHub's `from_preset` (its
backbone and its tokenizer) and by transformers.

    python benchmarks/load_time.py

Needs keras-hub, transformers and torch beside keras_bert.
"""

import argparse
import os
import statistics
import subprocess
import sys

import keras_bert.hub

IMPORT = """
import time, keras
start = time.perf_counter()
import keras_bert
print(time.perf_counter() - start)
"""
LOAD = """
import sys, time
{imports}
start = time.perf_counter()
{load}
print(time.perf_counter() - start)
"""
LOADERS = {
    "keras_bert": LOAD.format(
        imports="import keras_bert, tensorflow\nkeras_bert.load",
        load="bert = keras_bert.load(sys.argv[1]); bert.preprocessor.tokenizer",
    ),
    "keras_hub": LOAD.format(
        imports="import keras_hub, tensorflow_text",
        load="keras_hub.models.BertBackbone.from_preset(sys.argv[1])\n"
        "keras_hub.models.BertTokenizer.from_preset(sys.argv[1])",
    ),
    "transformers": LOAD.format(
        imports="import torch\nfrom transformers import AutoModel, AutoTokenizer",
        load="AutoModel.from_pretrained(sys.argv[1]); AutoTokenizer.from_pretrained(sys.argv[1])",
    ),
}


def run(program, *arguments):
    """Seconds that a program prints as its last line."""
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow",
             "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(result.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    folder = str(keras_bert.hub.find("minilm"))
    imports = [run(IMPORT) for _ in range(args.rounds)]
    print(f"import keras_bert after keras: {statistics.median(imports):.3f} s")
    seconds = {name: [] for name in LOADERS}
    for _ in range(args.rounds):
        for name, program in LOADERS.items():
            seconds[name].append(run(program, folder))
    for name, values in seconds.items():
        print(f"load MiniLM, {name}: {statistics.median(values):.2f} s")
    ratios = [
        ours / theirs
        for ours, theirs in zip(seconds["keras_bert"], seconds["keras_hub"], strict=True)
    ]
    print(f"keras_bert takes {statistics.median(ratios):.2f} of keras_hub's time")


if __name__ == "__main__":
    main()
