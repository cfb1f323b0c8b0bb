"""The pipeline of masked tokens."""

from keras_bert.tasks.text import TextPipeline


class MaskedTokensPipeline(TextPipeline):
    """Pipeline of `heads.masked_lm` and `heads.pretraining`."""

    options = ("top_k",)
    chunk = 256  # the logits of a masked token take 4 bytes per token of the vocabulary
