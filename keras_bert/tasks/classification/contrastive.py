"""Contrastive training of classifiers, for few texts per class.

The encoder is trained on pairs of texts of the same class, and the head is a logistic regression on
its vectors.

Source: Tunstall et al. (2022), Efficient few-shot learning without prompts. The paper compares
the two texts of a pair; we compare every two texts of a batch.
"""

import collections
import functools

from keras_bert.data.examples import Examples
from keras_bert.runtime.escaping import shown
from keras_bert.tasks import head_start
from keras_bert.tasks.embedding.data import EmbeddingExamples
from keras_bert.tasks.task import ContrastiveTraining, HeadStart

# With at most this mean number of texts per class, contrastive training is the default.
MOST_TEXTS_PER_CLASS = 64
_PAIRS_PER_EPOCH = 450  # approximately
_MOST_PAIRS_PER_TEXT = 8
# The vectors have length 1. With C=1, the probabilities would be too even.
_HEAD = HeadStart(max_sequences=None, fit=functools.partial(head_start.fit_labels, c=10.0))


def plan(encoder, train, options, recipe):
    """Return the `ContrastiveTraining` of `Examples`, or `None` to train on the labels.

    `options` and `recipe` are the `ClassificationOptions` and the other arguments of `finetune`.
    """
    # It imports Keras.
    from keras_bert.tasks.classification.class_contrast import ClassContrast

    if options.contrastive is not None and not isinstance(options.contrastive, bool):
        raise ValueError(
            f"contrastive must be True, False or None; received {shown(options.contrastive)}"
        )
    if options.contrastive is False:
        return None
    requirement = _missing_requirement(encoder, train, options, recipe)
    if requirement is not None:
        if options.contrastive:
            raise ValueError(f"contrastive=True needs {requirement}")
        return None
    classes = len(set(train.labels))
    if options.contrastive is None:
        # A user chooses an optimizer's rate and steps for the training on the labels.
        has_many_texts = len(train) > MOST_TEXTS_PER_CLASS * classes
        if has_many_texts or recipe.optimizer is not None:
            return None
    pairs_per_text = min(max(round(_PAIRS_PER_EPOCH / len(train)), 1), _MOST_PAIRS_PER_TEXT)
    pairs = EmbeddingExamples.of_classes(_with_partners(train), recipe.seed, pairs_per_text)
    return ContrastiveTraining(pairs, ClassContrast(), _HEAD)


def _with_partners(train):
    """Return the texts whose class has another text. Only the head is fitted to the other ones."""
    counts = collections.Counter(train.labels)
    rows = [row for row, label in enumerate(train.labels) if counts[label] > 1]
    return Examples(
        [train.texts[row] for row in rows],
        labels=[train.labels[row] for row in rows],
        source=train.source,
    )


def _missing_requirement(encoder, train, options, recipe):
    """Return the end of the error "contrastive=True needs ...", or `None` if nothing is missing."""
    if encoder is None:
        return "a new head. Give the encoder, keras_bert.heads.find_encoder(model)"
    if recipe.loss is not None:
        return "its own loss. Remove loss"
    if recipe.batch_size is not None and recipe.batch_size < 4:
        return f"a batch_size of at least 4; received {recipe.batch_size}"
    if options.long_texts == "window":
        return 'the beginning of each text; received long_texts="window"'
    if train.labels is None or train.text_pairs is not None:
        return f"single texts with one label each; {train.source} has others"
    if encoder.pooling is None:
        return f"a pooling, which {encoder.name!r} lacks. Pass pooling='mean' to keras_bert.load"
    if not encoder.trainable_variables:
        return f"an encoder that is trained; {encoder.name!r} is frozen"
    counts = collections.Counter(train.labels)
    if sum(count > 1 for count in counts.values()) < 2:
        return f"two classes with two texts each; {train.source} has fewer"
    return None
