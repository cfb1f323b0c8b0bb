"""Notes about training data that does not suit the model."""

import numpy as np

from keras_bert.data import conll
from keras_bert.data.embedding_examples import EmbeddingExamples
from keras_bert.pretraining import vocabulary
from keras_bert.runtime.terminal import print_line
from keras_bert.tasks import tagging
from keras_bert.text.words import split_words

_SAMPLE = 1000  # texts
# Limits for a warning that the vocabulary does not fit the texts. A vocabulary of the same language
# needs 1.0 to 1.8 tokens per word, one of Hangul syllables 2.7, and at most 1.3% of the words are
# unknown. MiniLM's needs 5.4 for Korean reviews, and 25% of the words are unknown.
_MANY_TOKENS = 3
_MANY_UNKNOWN = 0.05
# Limit for a warning about words with punctuation, such as "n't" and links. The English Web
# Treebank has 2.4%, WNUT-17 11%.
_MANY_SPLIT = 0.02


def print_before_training(name, examples, preprocessor):
    """Print what does not fit between the data and the tokenizer of the model `name`."""
    if preprocessor is None:  # `finetune` raises an error
        return
    for note in (
        note_of_vocabulary(examples, preprocessor, name),
        note_of_words(examples, preprocessor),
    ):
        if note is not None:
            print_line(note)


def note_of_words(examples, preprocessor):
    """Return a note if many words in the training data contain punctuation, else `None`."""
    if not isinstance(examples, conll.TaggedSentences):
        return None
    sentences = examples.words[:_SAMPLE]
    if tagging.are_characters(sentences):
        return None
    words = [word for sentence in sentences for word in sentence]
    split, _ = split_words(words, preprocessor.python_tokenizer)
    share = np.mean([len(parts) > 1 for parts in split])
    if share < _MANY_SPLIT:
        return None
    return (
        f"{share:.1%} of the words contain punctuation. Texts on the command line and in a "
        "SavedModel are split at punctuation; predict --input keeps words as they are in the file"
    )


def note_of_vocabulary(examples, preprocessor, name):
    """Return a note if the vocabulary does not fit the language of the texts; else `None`."""
    if isinstance(examples, conll.TaggedSentences):
        texts = [" ".join(words) for words in examples.words[:_SAMPLE]]
    elif isinstance(examples, EmbeddingExamples):
        texts = [text for row in examples.texts[:_SAMPLE] for text in row]
    else:
        texts = getattr(examples, "texts", None) or examples.contexts
    try:
        fits = vocabulary.coverage(texts[:_SAMPLE], preprocessor)
    except ValueError:  # the texts have no words
        return None
    if fits["tokens_per_word"] < _MANY_TOKENS and fits["unknown"] < _MANY_UNKNOWN:
        return None
    return (
        f"the vocabulary of {name} does not fit these texts: {fits['tokens_per_word']:.1f} tokens "
        f"per word, {fits['unknown']:.1%} unknown. Use a model for their language or subject"
    )
