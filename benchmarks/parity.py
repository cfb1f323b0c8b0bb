"""Question: do the outputs equal those of Hugging Face transformers, on each backend?

MiniLM with its published weights, float32, CPU: unpadded, padded and all-padding rows. The script
prints the difference from transformers, and the difference of both from the same model in float64,
to distinguish rounding from errors.

    python benchmarks/parity.py

Needs transformers, torch and jax.
"""

import os
import subprocess
import sys

import numpy as np

TEXTS = ["The quick brown fox jumps.", "naïve café, Ørsted 한국어 日本語 " * 9, "why?", "a b", "x"]


def compare():
    """Print the differences on the backend of this process."""
    import keras
    import torch
    import transformers

    import keras_bert
    from keras_bert.text.preprocessor import Preprocessor

    bert = keras_bert.load("minilm")
    reader = Preprocessor(bert.preprocessor.vocabulary, sequence_length=None)
    rows = reader(TEXTS)
    inputs = {key: np.array(keras.ops.convert_to_numpy(value)) for key, value in rows.items()}
    inputs["input_word_ids"][-1], inputs["input_mask"][-1] = 0, 0  # all padding
    ours = bert(inputs, training=False)
    ours = {
        key: keras.ops.convert_to_numpy(ours[key]) for key in ("sequence_output", "pooled_output")
    }
    model = transformers.AutoModel.from_pretrained(keras_bert.hub.resolve.find("minilm")).eval()

    def run():
        with torch.no_grad():
            outputs = model(
                torch.tensor(inputs["input_word_ids"]),
                attention_mask=torch.tensor(inputs["input_mask"]),
                token_type_ids=torch.tensor(inputs["input_type_ids"]),
            )
        return {
            "sequence_output": outputs.last_hidden_state.numpy(),
            "pooled_output": outputs.pooler_output.numpy(),
        }

    theirs = run()
    model.double()
    exact = run()
    mask = inputs["input_mask"] == 1
    beside = ~mask & mask.any(axis=1, keepdims=True)
    parts = {
        "pooled_output": ("pooled_output", ...),
        "sequence_output at text": ("sequence_output", mask),
        "sequence_output of an all-padding row": ("sequence_output", ~(mask | beside)),
        "sequence_output at padding beside a text": ("sequence_output", beside),
    }
    for title, (name, where) in parts.items():

        def largest(a, b, name=name, where=where):
            return np.abs(a[name] - b[name])[where].max()

        print(
            f"{keras.backend.backend()}, {title}: {largest(ours, theirs):.1e} from transformers; "
            f"from float64: ours {largest(ours, exact):.1e}, transformers "
            f"{largest(theirs, exact):.1e}"
        )


def main():
    if "KERAS_BACKEND" in os.environ and sys.argv[1:] == ["--one"]:
        compare()
        return
    for backend in ("tensorflow", "jax", "torch"):
        subprocess.run(
            [sys.executable, __file__, "--one"],
            env={**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
            stderr=subprocess.DEVNULL,
            check=True,
        )


if __name__ == "__main__":
    main()
