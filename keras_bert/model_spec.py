"""The description of a model, as JSON can hold it: what its outputs depend on but its weights."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class VectorLayer:
    """A layer after the pooling of an embedder.

    Attributes:
        kind: `"dense"`, `"layer_norm"` (with PyTorch's epsilon, 1e-5) or `"unit_length"`.
        units: Width of the vectors of a dense layer.
        activation: Name of the activation of a dense layer in Keras.
        use_bias: True if a dense layer has a bias.
    """

    kind: str
    units: int | None = None
    activation: str = "linear"
    use_bias: bool = True


UNIT_LENGTH = VectorLayer("unit_length")


@dataclasses.dataclass(frozen=True)
class HeadSpec:
    """The options of a head. A task uses the fields that its `head_fields` name.

    Attributes:
        task: Name of the task, or `None` for an encoder or an unknown head.
        labels: Names of the classes in the order of the logits, or `None`.
        pairs: True if a classifier or a regressor reads pairs of texts; `None` if unknown.
        multi_label: True if a text can have several classes; `None` if unknown.
        no_answer: True if a question can have no answer.
        characters: True if a tagger splits texts into characters.
        long_texts: `"truncate"`, `"window"` or `"error"`.
        label_type: Type of the labels in results: `"str"`, `"int"`, `"float"` or `"bool"`.
        activation: Name of the activation of the logits in Keras, or `None` for none. A reranker
            without `pairs`, whose config does not say, has a sigmoid.
        dropout: Dropout rate before the last layer, or `None` for the default of the task.
        tied: False if a masked LM has its own output matrix, not the word embeddings.
        pooling: Modes of `layers.SentencePooling`; empty for the pooler.
        layers: The layers after the pooling of an embedder, in their order.
        prompts: Name -> text that comes before each text to embed.
        default_prompt: Name of the prompt that is used by default, or `None`.
        similarity: Of an embedder: `"cosine"`, `"dot"`, `"euclidean"` or `"manhattan"`.
    """

    task: str | None = None
    labels: list[str] | None = None
    pairs: bool | None = None
    multi_label: bool | None = None
    no_answer: bool = False
    characters: bool = False
    long_texts: str = "truncate"
    label_type: str = "str"
    activation: str | None = None
    dropout: float | None = None
    tied: bool = True
    pooling: tuple[str, ...] = ()
    layers: tuple[VectorLayer, ...] = ()
    prompts: dict[str, str] = dataclasses.field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str = "cosine"


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """The description of a BERT encoder, with or without a head.

    Attributes:
        encoder: Keyword arguments of `BertEncoder`, exactly the keys of `canonical.CONFIG_KEYS`. An
            unknown `hidden_act` is `None`.
        vocabulary: The tokens in the order of their ids, or `None` without a tokenizer.
        tokenizer: `lowercase`, `strip_accents`, `split_cjk` (bools), `sequence_length` (an int,
            or `None` if unknown), and `added_tokens` (a list of `AddedToken`) if there are any.
        pooling: How the encoder was trained to make one vector of a text, see `BertEncoder`.
        head: The options of the head.
    """

    encoder: dict[str, Any]
    vocabulary: list[str] | None = None
    tokenizer: dict[str, Any] = dataclasses.field(default_factory=dict)
    pooling: str | None = None
    head: HeadSpec = HeadSpec()

    @property
    def embedding(self) -> HeadSpec | None:
        """How vectors of texts are made: by an embedder, or by an encoder with a pooling.

        `keras_bert.pipeline` also normalizes the vectors of an encoder.
        """
        if self.head.task == "embedding":
            return self.head
        if self.pooling is None:
            return None
        return HeadSpec("embedding", pooling=(self.pooling,), layers=(UNIT_LENGTH,))

    def with_head(self, **changes: Any) -> "ModelSpec":
        """Return a copy with other options of the head."""
        return dataclasses.replace(self, head=dataclasses.replace(self.head, **changes))

    def without_head(self) -> "ModelSpec":
        """Return the description of the encoder."""
        return dataclasses.replace(self, head=HeadSpec())
