"""Small folders with the config keys and tensor names of published models.

The sizes and the weights are ours. `Layout.source` is the repository on the Hugging Face Hub whose
layout a folder has.
"""

import contextlib
import dataclasses
import re

import numpy as np
import pytest

import keras_bert
from tests.checkpoints import numpy_bert
from tests.checkpoints.huggingface_files import (
    SIZES,
    VOCABULARY,
    H,
    encoder_tensors,
    fill,
    make_folder,
    pretraining_tensors,
)

pytestmark = pytest.mark.slow

IDS = np.array([[2, 5, 6, 7, 3]])
INPUTS = {
    "input_word_ids": IDS,
    "input_mask": np.ones_like(IDS),
    "input_type_ids": np.zeros_like(IDS),
}
# Keys of Google's configs that no code reads.
POOLER = {
    "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
    "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
}  # fmt: skip
GENERATION = {
    "_num_labels": 5, "bos_token_id": None, "do_sample": False, "early_stopping": False,
    "eos_token_ids": None, "is_decoder": False, "is_encoder_decoder": False, "length_penalty": 1.0,
    "max_length": 20, "num_beams": 1, "output_past": True, "pruned_heads": {},
    "repetition_penalty": 1.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "use_bfloat16": False,
}  # fmt: skip


def architectures(name):
    return {"architectures": [name]}


def pretraining():
    return pretraining_tensors()


def masked_lm():
    return {name: array for name, array in pretraining_tensors().items() if "relation" not in name}


def classes(count):
    return fill({"classifier.weight": (count, H), "classifier.bias": (count,)})


def spans():
    return fill({"qa_outputs.weight": (2, H), "qa_outputs.bias": (2,)})


def as_published(tensors):
    return tensors


def bare(tensors):
    """Names of BertModel."""
    return {name.removeprefix("bert."): array for name, array in tensors.items()}


def gamma(tensors):
    """LayerNorm has the names of Google's code."""
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    pattern = re.compile("|".join(map(re.escape, names)))
    return {pattern.sub(lambda m: names[m[0]], name): array for name, array in tensors.items()}


def with_copies(tensors):
    """The output layer of the masked language model is stored, too, and so are the positions."""
    return tensors | {
        "cls.predictions.decoder.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "cls.predictions.decoder.bias": tensors["cls.predictions.bias"],
        "bert.embeddings.position_ids": np.arange(8)[None],
    }


def with_fit_denses(tensors):
    """Layers that TinyBERT's distillation needs."""
    shapes = {}
    for index in range(5):
        shapes |= {f"fit_denses.{index}.weight": (7, H), f"fit_denses.{index}.bias": (7,)}
    return tensors | fill(shapes)


@dataclasses.dataclass(frozen=True)
class Layout:
    """A published layout.

    Attributes:
        source: Repository on the Hugging Face Hub.
        config: Keys of config.json besides the sizes.
        head: Tensors besides the encoder.
        names: Function that changes the names of the tensors.
        pooler: True if the file has a pooler.
        ignored: Keys that the warning lists, or `None`.
        task: What `task="auto"` gives.
        ignore: Patterns of tensors to leave out.
    """

    source: str
    config: dict
    head: dict = dataclasses.field(default_factory=dict)
    names: object = as_published
    pooler: bool = True
    ignored: str | None = None
    task: str | None = None
    ignore: tuple = ()


LAYOUTS = [
    Layout(
        "google-bert/bert-base-uncased",
        {**architectures("BertForMaskedLM"), "gradient_checkpointing": False, "use_cache": True},
        pretraining(),
        names=gamma,
        task="masked_tokens",
    ),
    Layout(
        "huawei-noah/TinyBERT_General_4L_312D",
        {"model_type": None, "cell": {}, "emb_size": H, "structure": [], "pre_trained": "",
         "training": ""},
        pretraining(),
        names=with_fit_denses,
        ignored="cell, emb_size, pre_trained, structure, training",
        ignore=("fit_denses.*",),
    ),
    Layout(
        "cointegrated/rubert-tiny2",
        {**architectures("BertForPreTraining"), "emb_size": H, "gradient_checkpointing": False,
         "position_embedding_type": "absolute", "torch_dtype": "float32"},
        pretraining(),
        names=with_copies,
        ignored="emb_size",
        task="pretraining",
    ),
    Layout(
        "klue/bert-base",
        {**architectures("BertForMaskedLM"), "classifier_dropout": None, "use_cache": True},
        masked_lm(),
        names=with_copies,
        pooler=False,
        task="masked_tokens",
    ),
    Layout("SpanBERT/spanbert-base-cased", {"model_type": None, **POOLER}, names=bare),
    Layout(
        "ctheodoris/Geneformer",
        {**architectures("BertForMaskedLM"), "hidden_act": "relu", "position_embedding_type":
         "absolute"},
        masked_lm(),
        pooler=False,
        task="masked_tokens",
    ),
    Layout(
        "BAAI/bge-small-en-v1.5",
        {**architectures("BertModel"), "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}},
        names=bare,
    ),
    Layout(
        "dbmdz/bert-large-cased-finetuned-conll03-english",
        {**architectures("BertForTokenClassification"), **GENERATION, **POOLER,
         "id2label": {"0": "O", "1": "B-PER", "2": "I-PER"}},
        classes(3),
        pooler=False,
        task="tagging",
    ),
    Layout(
        "nlptown/bert-base-multilingual-uncased-sentiment",
        {**architectures("BertForSequenceClassification"), **GENERATION, **POOLER,
         "finetuning_task": "sentiment-analysis",
         "id2label": {str(index): f"{index + 1} stars" for index in range(5)}},
        classes(5),
        task="classification",
    ),
    Layout(
        "deepset/bert-base-cased-squad2",
        {**architectures("BertForQuestionAnswering"), **POOLER, "language": "english",
         "name": "Bert"},
        spans(),
        pooler=False,
        task="question_answering",
    ),
    Layout(
        "cross-encoder/ms-marco-MiniLM-L6-v2",
        {**architectures("BertForSequenceClassification"), "id2label": {"0": "LABEL_0"},
         "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity",
                                   "version": "4.1.0.dev0"}},
        classes(1),
        task="reranking",
    ),
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.source)
def test_a_published_layout_gives_the_numbers_of_its_tensors(layout, tmp_path):
    tensors = encoder_tensors(pooler=layout.pooler) | layout.head
    make_folder(tmp_path, layout.names(tensors), VOCABULARY, **layout.config)
    warns = pytest.warns(UserWarning, match=f"ignored .*: {layout.ignored}$")
    with warns if layout.ignored else contextlib.nullcontext():
        bert = keras_bert.load(tmp_path, ignore=layout.ignore)
    config = {**SIZES, **layout.config}
    sequence = numpy_bert.encode(tensors, config, IDS)
    outputs = bert(INPUTS)
    np.testing.assert_allclose(outputs["sequence_output"], sequence, atol=2e-5)
    if layout.pooler:
        pooled = numpy_bert.pool(tensors, sequence)
        np.testing.assert_allclose(outputs["pooled_output"], pooled, atol=2e-5)
    if layout.task is None:
        return
    with warns if layout.ignored else contextlib.nullcontext():
        model = keras_bert.load(tmp_path, task="auto", ignore=layout.ignore)
    assert keras_bert.heads.find_task(model) == layout.task
    if layout.task in ("classification", "reranking"):
        logits = numpy_bert.classify(tensors, sequence)
        np.testing.assert_allclose(model(INPUTS), logits, atol=1e-4)
    if layout.task in ("masked_tokens", "pretraining"):
        matrix = tensors["bert.embeddings.word_embeddings.weight"]
        bias = tensors["cls.predictions.bias"]
        logits = numpy_bert.predict_tokens(tensors, config, sequence, matrix, bias)
        outputs = model(INPUTS | {"masked_lm_positions": np.arange(5)[None]})
        outputs = outputs if layout.task == "masked_tokens" else outputs["masked_lm"]
        np.testing.assert_allclose(outputs, logits, atol=1e-4)
