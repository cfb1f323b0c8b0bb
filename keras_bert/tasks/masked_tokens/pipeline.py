"""The pipeline of masked tokens."""

from keras_bert.tasks.text import TextPipeline


class MaskedTokensPipeline(TextPipeline):
    """Pipeline of `heads.masked_lm` and `heads.pretraining`."""

    options = ("top_k",)
    chunk = 256  # the logits of a masked token take 4 bytes per token of the vocabulary

    def __init__(self, engine, **options):
        super().__init__(engine, **options)
        self._pairs = False
        self.columns = ("text",)

    def _check_data(self, examples, scored=False):
        if scored:
            raise ValueError(
                "evaluate and errors do not apply to masked tokens. Use keras-bert pretrain "
                "--held-out, which scores a model while it is trained"
            )
        super()._check_data(examples)
