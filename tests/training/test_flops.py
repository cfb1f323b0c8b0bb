"""Operations of a step, compared to XLA's count, and the peak rates of devices."""

import pytest

import keras_bert
from keras_bert.training import flops

COUNT = """
import jax, keras, numpy as np
import keras_bert
from keras_bert import heads
from keras_bert.training import flops
layers, hidden, length, predictions = 1, 768, 128, 20
encoder = keras_bert.BertEncoder(vocab_size=2000, hidden_size=hidden, num_hidden_layers=layers,
    num_attention_heads=hidden // 64, intermediate_size=4 * hidden)
model = heads.pretraining(encoder)
inputs = {key: np.ones((2, length), "int32") for key in model.input}
inputs["masked_lm_positions"] = np.zeros((2, predictions), "int32")
state = [[v.value for v in variables]
         for variables in (model.trainable_variables, model.non_trainable_variables)]
def forward(*state_and_inputs):
    return model.stateless_call(*state_and_inputs, training=False)[0]
cost = jax.jit(forward).lower(*state, inputs).cost_analysis()
row = flops.of_sequence(encoder.bert_config, length, predictions)
print("ratio", cost["flops"] / 2 / (row / 3))
"""


@pytest.mark.slow
def test_count_equals_xla(python):
    ratio = float(python("-c", COUNT, backend="jax").partition("ratio ")[2].split()[0])
    # XLA also counts softmax, GELU and LayerNorm.
    assert 0.99 < ratio < 1.05, ratio


def test_counts_for_bert_base():
    base = keras_bert.BertEncoder(
        vocab_size=99, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=16,
    ).bert_config | {
        "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072,
    }  # fmt: skip
    # Six operations per weight and position, and some for attention.
    weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
    for length in (128, 512):
        assert 1 < flops.of_encoder(base, length) / (6 * weights * length) < 1.12
    one = flops.of_sequence(base, 128, 20)
    # Each output position goes through the last layer, except for its queries, keys and values.
    position = 768**2 + 2 * 768 * 3072 + 2 * 128 * 768
    assert flops.of_sequence(base, 128, 20, pairs=3) - one == 6 * 2 * (768**2 + position)
    assert flops.of_sequence(base, 128, 21) - one == 6 * (768**2 + 768 * 30522 + position)


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12), ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 NVL", 835e12), ("NVIDIA H200 NVL", 835e12), ("NVIDIA GH200 480GB", 989e12),
        ("NVIDIA A100-SXM4-40GB", 312e12), ("NVIDIA RTX A1000", None),
        ("NVIDIA L4", 121e12), ("NVIDIA L40S", 362e12), ("GeForce RTX 4090", None),
        ("Tesla T4", 65e12), ("NVIDIA T400", None), ("Quadro T4000", None),
        ("Tesla V100-SXM2-16GB", 125e12), ("Tesla V100-PCIE-16GB", 112e12),
        ("TPU v4", 275e12), ("TPU v4 lite", 138e12), ("TPU v5 lite", 197e12),
        ("TPU v5p", 459e12), ("TPU v6 lite", 918e12), ("cpu", None),
    ],
)  # fmt: skip
def test_stated_peak(device, peak):
    assert flops.stated_peak(device) == peak


def test_unknown_device_is_measured():
    # A wide range, because the machine may be busy.
    assert 1e8 < flops.peak() < 1e16
