"""Pairs of a query and a document as sequences of token ids. It does not import Keras."""

import numpy as np

from keras_bert.text.encoded_texts import EncodedTexts


class EncodedPairs(EncodedTexts):
    """Tokenized pairs of a query and a document, for scores."""

    def __init__(self, tokenizer, examples, max_length, in_windows=False):
        self.targets = None
        if examples.scores is not None:
            self.targets = np.array(examples.flat_scores(), np.float32)[:, None]
        super().__init__(
            tokenizer, examples.pairs(), max_length, targets=self.targets, in_windows=in_windows
        )
        self.has_targets = False
