"""Encode and compute with a Keras model, for pipelines."""

import functools

from keras_bert import heads, provenance
from keras_bert.exporting import export
from keras_bert.exporting.predict_function import predict_function
from keras_bert.hub import loading
from keras_bert.tasks import inference
from keras_bert.tasks.masked_tokens import task as masked_lm
from keras_bert.text.words import split_words


class KerasEngine:
    """A Keras model with its preprocessor.

    Attributes:
        model: The `keras.Model`.
        name: Its name.
        task: Name of its head.
        output: Its `layers.TaskOutput`.
        width: Size of the vectors of an embedder.
        longest: Number of positions of the encoder: the longest sequence that it can read.
        columns: Names of the columns of texts that the model was trained on, by input.
    """

    def __init__(self, model, precision=None):
        self.model, self.name = model, model.name
        self.task, self.output = heads.find_task(model), heads.find_output(model)
        self.width = model.output_shape[-1] if self.task == "embedding" else None
        self.longest = heads.find_encoder(model).bert_config["max_position_embeddings"]
        self.columns = provenance.columns_of_texts(model)
        self._precision = precision
        self._predict = predict_function(model, precision)

    def encode(self, examples, **options):
        """Encode the data of the task; `options` are those of the task's `encode`."""
        return inference.encode(self.model, examples, **options)

    def answers(self, examples, encoded=None, **options):
        """Return the answers for encoded data, see `tasks.inference.answers`."""
        predict = self._predict_rows if self.task == "embedding" else self._predict
        return inference.answers(self.model, examples, encoded=encoded, predict=predict, **options)

    @functools.cached_property
    def _predict_rows(self):
        """Function from rows of texts to the vectors of an embedder."""
        return predict_function(inference.model_for_data(self.model), self._precision)

    def check_labeled(self, examples):
        """Raise an error if data has no labels."""
        inference.check_labeled(examples)

    def score(self, examples, answers):
        """Return the metrics of answers, with those of each label."""
        return inference.score(self.output, examples, answers, report=True)

    def encode_texts(self, texts):
        """Encode single texts for an embedder."""
        return inference.encode_texts(self.model, texts)

    def encode_masks(self, texts):
        """Encode texts with [MASK]."""
        return inference.encode_masks(self.model, texts)

    def outputs(self, encoded, **options):
        """Return the outputs of the model for encoded texts, see `tasks.inference.run`."""
        return inference.run(self.model, encoded, predict=self._predict, **options)

    def candidates(self, encoded, top_k, **options):
        """Return the most probable tokens for each [MASK], see `tasks.masked_lm.decode`."""
        vocabulary = heads.find_encoder(self.model).preprocessor.vocabulary
        return masked_lm.decode(vocabulary, encoded, self.outputs(encoded, **options), top_k)

    def export(self, path, **options):
        """Export the model; the arguments of `keras_bert.export`."""
        return export.export(self.model, path, **options)

    def save(self, path, **options):
        """Save the model; the arguments of `keras_bert.save`."""
        return loading.save(self.model, path, **options)

    def split_words(self, texts):
        """Split texts into words: a list of strings per text, and their spans in characters."""
        tokenizer = heads.find_encoder(self.model).preprocessor.python_tokenizer
        return split_words(texts, tokenizer, self.output.characters)
