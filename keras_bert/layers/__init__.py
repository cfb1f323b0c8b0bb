"""The layers of BERT (Devlin et al., 2018, sections 3 and A.2), written with `keras.ops`.

Dimensions in shapes:
    batch: Number of sequences.
    seq: Number of positions per sequence, padding included.
    hidden: Width of the residual stream (`hidden_size`).
    heads: Number of attention heads.
    head: Width of an attention head, `hidden / heads`.
    inter: Width of the feed-forward layer (`intermediate_size`).
    vocab: Number of tokens in the vocabulary (`vocab_size`).

Every weight matrix belongs to a `keras.layers.Dense` or `keras.layers.Embedding`, so LoRA,
`quantize("int8")` and dtype policies work as in other Keras models.
"""

from keras_bert.layers.activations import activation
from keras_bert.layers.dropout import Dropout
from keras_bert.layers.embeddings import Embeddings
from keras_bert.layers.encoder_layers import SelfAttention, TransformerBlock
from keras_bert.layers.head_layers import (
    GatherTexts,
    MergeChoices,
    SplitChoices,
    WeightedSum,
    WithoutDropout,
)
from keras_bert.layers.initializers import initializer, without_initial_weights
from keras_bert.layers.masked_lm_head import MaskedLMHead
from keras_bert.layers.pooling import Pooler, SentencePooling, UnitLength
from keras_bert.layers.splade_head import SpladeHead
from keras_bert.layers.task_output import TaskOutput

__all__ = [
    "GatherTexts",
    "Dropout",
    "Embeddings",
    "MaskedLMHead",
    "MergeChoices",
    "Pooler",
    "SelfAttention",
    "SentencePooling",
    "SpladeHead",
    "SplitChoices",
    "TaskOutput",
    "TransformerBlock",
    "UnitLength",
    "WeightedSum",
    "WithoutDropout",
    "activation",
    "initializer",
    "without_initial_weights",
]
