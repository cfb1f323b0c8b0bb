"""Makes minilm.npz: what Hugging Face transformers computes from the MiniLM weights.

    python tests/golden/make_minilm.py

Needs transformers and PyTorch. The file here was made on 2026-11-20 with transformers 5.23.0 and
torch 2.13.0 (CPU, float32, the default "sdpa" attention, which gives a row without any visible
key a context of zeros).
"""

import pathlib

import numpy as np
import torch
import transformers

import keras_bert.hub.resolve

# The first row is unpadded, the second padded, the third all padding; the fourth is a pair.
INPUT_WORD_IDS = [
    [101, 7592, 1010, 2088, 999, 2023, 2003, 1037, 3231, 1997, 14324, 102],
    [101, 14477, 20961, 3468, 102, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [101, 2339, 1029, 102, 2138, 1997, 2009, 1012, 102, 0, 0, 0],
]
INPUT_MASK = [[1] * 12, [1] * 5 + [0] * 7, [0] * 12, [1] * 9 + [0] * 3]
INPUT_TYPE_IDS = [[0] * 12, [0] * 12, [0] * 12, [0] * 4 + [1] * 5 + [0] * 3]


def main():
    model = transformers.AutoModel.from_pretrained(keras_bert.hub.resolve.find("minilm")).eval()
    with torch.no_grad():
        outputs = model(
            torch.tensor(INPUT_WORD_IDS),
            attention_mask=torch.tensor(INPUT_MASK),
            token_type_ids=torch.tensor(INPUT_TYPE_IDS),
        )
    np.savez_compressed(
        pathlib.Path(__file__).with_name("minilm.npz"),
        input_word_ids=np.array(INPUT_WORD_IDS, np.int32),
        input_mask=np.array(INPUT_MASK, np.int32),
        input_type_ids=np.array(INPUT_TYPE_IDS, np.int32),
        sequence_output=outputs.last_hidden_state.numpy(),
        pooled_output=outputs.pooler_output.numpy(),
    )


if __name__ == "__main__":
    main()
