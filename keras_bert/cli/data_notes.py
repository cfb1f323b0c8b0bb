"""Notes about training data that does not suit the model."""

from keras_bert.pretraining import vocabulary
from keras_bert.runtime.terminal import print_line

_SAMPLE = 1000  # texts
# Limits for a warning that the vocabulary does not fit the texts. A vocabulary of the same language
# needs 1.0 to 1.8 tokens per word, one of Hangul syllables 2.7, and at most 1.3% of the words are
# unknown. MiniLM's needs 5.4 for Korean reviews, and 25% of the words are unknown.
_MANY_TOKENS = 3
_MANY_UNKNOWN = 0.05


def print_before_training(name, examples, preprocessor):
    """Print what does not fit between the data and the tokenizer of the model `name`."""
    if preprocessor is None:  # `finetune` raises an error
        return
    note = note_of_vocabulary(examples, preprocessor, name)
    if note is not None:
        print_line(note)


def note_of_vocabulary(examples, preprocessor, name):
    """Return a note if the vocabulary does not fit the language of the texts; else `None`."""
    try:
        fits = vocabulary.coverage(examples.sample_of_texts(_SAMPLE), preprocessor)
    except ValueError:  # the texts have no words
        return None
    if fits["tokens_per_word"] < _MANY_TOKENS and fits["unknown"] < _MANY_UNKNOWN:
        return None
    return (
        f"the vocabulary of {name} does not fit these texts: {fits['tokens_per_word']:.1f} tokens "
        f"per word, {fits['unknown']:.1%} unknown. Use a model for their language or subject"
    )
