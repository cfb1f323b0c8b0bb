"""Conversion between a format's tensors and canonical weights, by a name table."""

import numpy as np

from keras_bert.checkpoints import canonical, name_tables
from keras_bert.checkpoints.name_tables import Layout, rule

TABLE = {"pooler/dense/kernel": rule("pool.weight", layout=Layout.TRANSPOSED)}
CONFIG = dict.fromkeys(canonical.SIZES, 2) | {"num_hidden_layers": 1}


def test_reading_transposes_a_kernel():
    tensors = {"pool.weight": np.array([[1.0, 2.0], [3.0, 4.0]])}
    weights = name_tables.read_weights(
        "a.bin", TABLE, CONFIG, {"pool.weight": (2, 2)}, tensors.__getitem__
    )
    assert weights["pooler/dense/kernel"].tolist() == [[1, 3], [2, 4]]
    assert weights["pooler/dense/kernel"].dtype == np.float32


def test_writing_is_the_inverse_of_reading():
    weights = {"pooler/dense/kernel": np.array([[1.0, 3.0], [2.0, 4.0]])}
    tensors = name_tables.to_source(TABLE, CONFIG, weights, format="mine")
    assert tensors["pool.weight"].tolist() == [[1, 2], [3, 4]]


def test_a_table_of_modules():
    table = name_tables.table(
        {"pooler/dense": "pool", "layer_{i}/attention/qkv": ("{i}.q", "{i}.k", "{i}.v")},
        {"masked_lm/output_bias": rule("bias")},
        variables={"kernel": "weight"},
        separator=".",
        layouts={"pooler/dense/kernel": Layout.TRANSPOSED},
    )
    assert table == {
        "layer_{i}/attention/qkv/kernel": rule("{i}.q.weight", "{i}.k.weight", "{i}.v.weight"),
        "layer_{i}/attention/qkv/bias": rule("{i}.q.bias", "{i}.k.bias", "{i}.v.bias"),
        "pooler/dense/kernel": rule("pool.weight", layout=Layout.TRANSPOSED),
        "pooler/dense/bias": rule("pool.bias"),
        "masked_lm/output_bias": rule("bias"),
    }
    entries = name_tables.expand(table, CONFIG)
    assert [source for entry in entries for source in entry.sources][:3] == [
        "0.q.weight", "0.k.weight", "0.v.weight",
    ]  # fmt: skip
