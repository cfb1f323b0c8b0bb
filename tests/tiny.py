"""A BERT small enough for tests: a vocabulary of whole words and a few weights."""

PIECES = [
    "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
    "good", "bad", "film", "a", "##ly", "##s", "!", "this", "is", "so", "한", "##국", "국어",
]  # fmt: skip


def encoder(**options):
    """A `BertEncoder` of width 8 with a preprocessor over `PIECES`."""
    import keras

    import keras_bert

    keras.utils.set_random_seed(7)
    return keras_bert.BertEncoder(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        preprocessor=keras_bert.Preprocessor(PIECES, sequence_length=8, max_sequence_length=32),
        **options,
    )
