"""Small Hugging Face folders for tests, and their canonical weights."""

import json

import numpy as np
from safetensors.numpy import save_file

from keras_bert.checkpoints import canonical

# All sizes differ, so that mixing up two of them fails a test.
SIZES = dict(zip(canonical.SIZES, (11, 4, 2, 2, 6, 8, 3), strict=True))
H, FF, V = 4, 6, 11
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
CASED = [*VOCABULARY[:-1], "Paris"]
IDS = np.array([[2, 5, 6, 7, 3], [2, 9, 8, 10, 3]])
INPUTS = {
    "input_word_ids": IDS,
    "input_mask": np.ones_like(IDS),
    "input_type_ids": np.zeros_like(IDS),
}


def fill(shapes):
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def encoder_tensors(pooler=True, embedding_size=H):
    shapes = {
        "bert.embeddings.word_embeddings.weight": (V, embedding_size),
        "bert.embeddings.position_embeddings.weight": (8, embedding_size),
        "bert.embeddings.token_type_embeddings.weight": (3, embedding_size),
        "bert.embeddings.LayerNorm.weight": (embedding_size,),
        "bert.embeddings.LayerNorm.bias": (embedding_size,),
    }
    if embedding_size != H:
        shapes["bert.embeddings_project.weight"] = (H, embedding_size)
        shapes["bert.embeddings_project.bias"] = (H,)
    for i in range(2):
        for name, shape in {
            "attention.self.query": (H, H),
            "attention.self.key": (H, H),
            "attention.self.value": (H, H),
            "attention.output.dense": (H, H),
            "intermediate.dense": (FF, H),
            "output.dense": (H, FF),
        }.items():
            shapes[f"bert.encoder.layer.{i}.{name}.weight"] = shape
            shapes[f"bert.encoder.layer.{i}.{name}.bias"] = shape[:1]
        for name in ("attention.output", "output"):
            shapes[f"bert.encoder.layer.{i}.{name}.LayerNorm.weight"] = (H,)
            shapes[f"bert.encoder.layer.{i}.{name}.LayerNorm.bias"] = (H,)
    if pooler:
        shapes |= {"bert.pooler.dense.weight": (H, H), "bert.pooler.dense.bias": (H,)}
    return fill(shapes)


def pretraining_tensors(embedding_size=H):
    return fill(
        {
            "cls.predictions.transform.dense.weight": (embedding_size, H),
            "cls.predictions.transform.dense.bias": (embedding_size,),
            "cls.predictions.transform.LayerNorm.weight": (embedding_size,),
            "cls.predictions.transform.LayerNorm.bias": (embedding_size,),
            "cls.predictions.bias": (V,),
            "cls.seq_relationship.weight": (2, H),
            "cls.seq_relationship.bias": (2,),
        }
    )


def expected_weights(tensors):
    """Return the canonical weights, independently of the table under test."""
    renamed = {
        "embeddings/word_embeddings/embeddings": "bert.embeddings.word_embeddings.weight",
        "embeddings/position_embeddings/embeddings": "bert.embeddings.position_embeddings.weight",
        "embeddings/token_type_embeddings/embeddings": (
            "bert.embeddings.token_type_embeddings.weight"
        ),
        "embeddings/layer_norm/gamma": "bert.embeddings.LayerNorm.weight",
        "embeddings/layer_norm/beta": "bert.embeddings.LayerNorm.bias",
        "masked_lm/layer_norm/gamma": "cls.predictions.transform.LayerNorm.weight",
        "masked_lm/layer_norm/beta": "cls.predictions.transform.LayerNorm.bias",
        "masked_lm/output_bias": "cls.predictions.bias",
    }
    dense = {
        "pooler/dense": "bert.pooler.dense",
        "masked_lm/transform": "cls.predictions.transform.dense",
        "next_sentence": "cls.seq_relationship",
        "classifier": "classifier",
        "span_selector": "qa_outputs",
    }
    expected = {}
    for i in range(SIZES["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}"
        dense[f"layer_{i}/attention/output"] = f"{layer}.attention.output.dense"
        dense[f"layer_{i}/intermediate"] = f"{layer}.intermediate.dense"
        dense[f"layer_{i}/output"] = f"{layer}.output.dense"
        for ours, theirs in {"attention_layer_norm": "attention.output", "output_layer_norm": "output"}.items():  # fmt: skip # noqa: E501
            renamed[f"layer_{i}/{ours}/gamma"] = f"{layer}.{theirs}.LayerNorm.weight"
            renamed[f"layer_{i}/{ours}/beta"] = f"{layer}.{theirs}.LayerNorm.bias"
        parts = [f"{layer}.attention.self.{part}" for part in ("query", "key", "value")]
        expected[f"layer_{i}/attention/qkv/kernel"] = np.concatenate(
            [tensors[f"{part}.weight"].T for part in parts], axis=1
        )
        expected[f"layer_{i}/attention/qkv/bias"] = np.concatenate(
            [tensors[f"{part}.bias"] for part in parts]
        )
    expected |= {ours: tensors[theirs] for ours, theirs in renamed.items() if theirs in tensors}
    for ours, theirs in dense.items():
        if f"{theirs}.weight" in tensors:
            expected[f"{ours}/kernel"] = tensors[f"{theirs}.weight"].T
            expected[f"{ours}/bias"] = tensors[f"{theirs}.bias"]
    return expected


def assert_weights(found, expected):
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == np.float32, name
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def write_json(file, value):
    file.write_text(json.dumps(value))


def edit_json(file, **changes):
    """Replace values of a JSON file."""
    content = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(content | changes), encoding="utf-8")


def make_folder(path, tensors=None, vocabulary=None, **config):
    path.mkdir(exist_ok=True)
    write_json(path / "config.json", {**SIZES, "model_type": "bert", **config})
    if tensors is not None:
        save_file(tensors, path / "model.safetensors")
    if vocabulary is not None:
        (path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    return path
