"""BERT in NumPy, from a checkpoint's tensors with Hugging Face's names: the expected numbers."""

import numpy as np
import scipy.special

ACTIVATIONS = {
    "gelu": lambda x: x * scipy.special.ndtr(x),
    "gelu_new": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * scipy.special.expit(x),
}


def encode(tensors, config, ids, types=None):
    """Return the outputs of the last layer, (batch, seq, hidden), for sequences without padding."""
    table = {name: np.asarray(array, np.float64) for name, array in tensors.items()}
    heads = config["num_attention_heads"]
    epsilon = config.get("layer_norm_eps", 1e-12)
    activate = ACTIVATIONS[config.get("hidden_act", "gelu")]
    types = np.zeros_like(ids) if types is None else types

    def dense(x, name):
        return x @ table[f"{name}.weight"].T + table[f"{name}.bias"]

    def split(x):
        return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)  # (batch, heads, seq, size)

    x = table["bert.embeddings.word_embeddings.weight"][ids]
    x = x + table["bert.embeddings.position_embeddings.weight"][: ids.shape[1]]
    x = x + table["bert.embeddings.token_type_embeddings.weight"][types]
    x = layer_norm(table, x, "bert.embeddings.LayerNorm", epsilon)
    if "bert.embeddings_project.weight" in table:
        x = dense(x, "bert.embeddings_project")
    for index in range(config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{index}"
        query, key, value = (
            split(dense(x, f"{layer}.attention.self.{part}")) for part in ("query", "key", "value")
        )
        logits = query @ key.swapaxes(-1, -2) / np.sqrt(query.shape[-1])
        context = scipy.special.softmax(logits, axis=-1) @ value
        context = context.transpose(0, 2, 1, 3).reshape(x.shape)
        context = dense(context, f"{layer}.attention.output.dense")
        x = layer_norm(table, x + context, f"{layer}.attention.output.LayerNorm", epsilon)
        y = activate(dense(x, f"{layer}.intermediate.dense"))
        y = dense(y, f"{layer}.output.dense")
        x = layer_norm(table, x + y, f"{layer}.output.LayerNorm", epsilon)
    return x


def pool(tensors, sequence):
    """Return the outputs of the pooler, (batch, hidden)."""
    kernel = tensors["bert.pooler.dense.weight"].T
    return np.tanh(sequence[:, 0] @ kernel + tensors["bert.pooler.dense.bias"])


def classify(tensors, sequence):
    """Return the logits of BertForSequenceClassification, (batch, classes)."""
    pooled = pool(tensors, sequence)
    return pooled @ tensors["classifier.weight"].T + tensors["classifier.bias"]


def predict_tokens(tensors, config, sequence, matrix, bias):
    """Return the logits of BertForMaskedLM, (batch, seq, vocab), for an output matrix."""
    name = "cls.predictions.transform"
    x = sequence @ tensors[f"{name}.dense.weight"].T + tensors[f"{name}.dense.bias"]
    x = ACTIVATIONS[config.get("hidden_act", "gelu")](x)
    x = layer_norm(tensors, x, f"{name}.LayerNorm", config.get("layer_norm_eps", 1e-12))
    return x @ matrix.T + bias


def layer_norm(tensors, x, name, epsilon):
    centered = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centered**2, axis=-1, keepdims=True)
    scaled = centered / np.sqrt(variance + epsilon)
    return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]
