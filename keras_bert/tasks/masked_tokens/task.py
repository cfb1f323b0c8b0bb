"""Masked tokens: predict the tokens that [MASK] hides.

Source: section 3.1 of the BERT paper, task 1.
"""

import dataclasses
import typing

import numpy as np

from keras_bert.runtime.escaping import shown
from keras_bert.tasks import results
from keras_bert.tasks.activations import softmax
from keras_bert.tasks.masked_tokens.masks import MASK, EncodedMasks
from keras_bert.tasks.task import Options, Task
from keras_bert.tasks.text import TextPipeline


class MaskedTokensPipeline(TextPipeline):
    """Pipeline of `heads.masked_lm` and `heads.pretraining`."""

    options = ("top_k",)
    chunk = 256  # the logits of a masked token take 4 bytes per token of the vocabulary


@dataclasses.dataclass(frozen=True)
class MaskOptions(Options):
    """Options of the answers.

    top_k: Candidates per [MASK]; `None` for the whole vocabulary.
    """

    top_k: int | None = 5


class MaskedTokens(Task):
    """Masked tokens: predict the tokens that [MASK] hides."""

    name = "masked_tokens"
    answer_options = MaskOptions
    pipeline = MaskedTokensPipeline
    uses_pooler = False
    is_pretraining = True
    command_hint = "; use keras-bert fill"
    reads_any_texts = True
    weights_group: str | None = "masked_lm"
    head_fields = ("tied",)
    variable_outputs = frozenset(("candidates", "scores"))
    graph_rank = 3
    compared_options: typing.ClassVar = {"top_k": 1}  # the order of the others may differ
    hub_tag = "fill-mask"
    meanings: typing.ClassVar = {"text": "UTF-8, with [MASK] for each token to predict"}

    def head_function(self):
        from keras_bert.tasks.masked_tokens.head import masked_lm

        return masked_lm

    def describe(self, output):
        return "A BERT model that predicts the tokens hidden by [MASK]."

    def columns_of(self, examples, output):
        return [list(examples.texts)]

    def is_labeled(self, examples):
        return False

    def check_labeled(self, examples):
        raise ValueError(f"{self.name} is not evaluated; pretrain --held-out scores such a model")

    def encode(self, model, examples, max_length, options):
        if MASK not in model.tokenizer.vocabulary:
            raise ValueError(f"the vocabulary of {model.name!r} has no {MASK}")
        return EncodedMasks(examples.texts, model.tokenizer, max_length)

    def decode(self, model, examples, encoded, outputs, options):
        """Return for each text a list with an entry per [MASK]: pairs of token and probability.

        `outputs` has for each text its logits (masked tokens, vocab_size), or the outputs of
        `heads.pretraining`.
        """
        vocabulary = model.tokenizer.vocabulary
        answer_per_text = []
        for logits, count in zip(outputs, encoded.masks, strict=True):
            if isinstance(logits, dict):
                logits = logits["masked_lm"]
            probabilities = softmax(logits[:count, : len(vocabulary)])
            order = np.argsort(-probabilities, axis=-1, kind="stable")[:, : options.top_k]
            answer_per_text.append(
                [
                    [(vocabulary[token], float(row[token])) for token in tokens]
                    for row, tokens in zip(probabilities, order, strict=True)
                ]
            )
        return answer_per_text

    def results(self, output, examples, answers, **options):
        """Return a list of tokens for each text; for several [MASK], a list of such lists."""
        result_per_text = []
        for masks in answers:
            ranked = [
                results.Results({"token": token, "score": score} for token, score in mask)
                for mask in masks
            ]
            result_per_text.append(ranked[0] if len(ranked) == 1 else results.Results(ranked))
        return result_per_text

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        from keras_bert.tasks.masked_tokens import serving

        return serving.masked_lm(predict, output, preprocessor, max_sequence_length)

    def length_of_rows(self, outputs):
        is_masked = (outputs["candidates"] != b"").any(axis=2)
        return int(is_masked.sum(axis=1).max(initial=0))

    def add_onnx_head(self, graph, model, encoded):
        logits = graph.masked_lm(model, encoded)
        graph.node("Identity", logits, output="logits")
        return {"logits": ("batch_size", "sequence_length", encoded.vocab_size)}

    def target(self, explained, target):
        """Explain a token for the first [MASK], or (index of a [MASK], token)."""
        is_tuple = isinstance(target, tuple) and len(target) == 2
        index, token = target if is_tuple else (0, target)
        vocabulary = explained.vocabulary
        positions = explained.mask_positions(index, target)

        def logits_of(outputs):
            return outputs["masked_lm"] if isinstance(outputs, dict) else outputs

        if token is None:
            logits = logits_of(explained.outputs())[index, : len(vocabulary)]
            token = vocabulary[int(logits.argmax())]
        if token not in vocabulary:
            raise ValueError(f"target must be a token of the vocabulary; received {shown(token)}")
        id_of_token = vocabulary.index(token)

        def select(outputs):
            return logits_of(outputs)[:, index, id_of_token]

        return token, select, int(positions[index])


class Pretraining(MaskedTokens):
    """Both heads of pretraining. In use, such a model predicts masked tokens."""

    name = "pretraining"
    uses_pooler = True
    graph_outputs = ("prediction_logits",)
    weights_group = None

    def head_function(self):
        from keras_bert.tasks.masked_tokens.head import pretraining

        return pretraining

    def signatures(self, predict, output, preprocessor, max_sequence_length):
        raise ValueError("models of heads.pretraining are exported as an encoder and preprocessor")

    def add_onnx_head(self, graph, model, encoded):
        logits = graph.masked_lm(model, encoded)
        graph.node("Identity", logits, output="prediction_logits")
        x = graph.dense_layer(encoded.pooled(), model.get_layer("next_sentence"))
        graph.node("Identity", x, output="seq_relationship_logits")
        return {
            "prediction_logits": ("batch_size", "sequence_length", encoded.vocab_size),
            "seq_relationship_logits": ("batch_size", 2),
        }
