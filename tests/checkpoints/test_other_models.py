"""Folders that hold no BERT are refused in one sentence; nothing of them is read as a BERT."""

import pytest

import keras_bert
from keras_bert.checkpoints import families, other_models
from tests.checkpoints.huggingface_files import (
    VOCABULARY,
    encoder_tensors,
    make_folder,
    pretraining_tensors,
)

# Repository on the Hugging Face Hub -> model type, class and, if they differ from the type, the
# beginning of the names of its tensors.
PUBLISHED = {
    "FacebookAI/xlm-roberta-base": ("xlm-roberta", "XLMRobertaForMaskedLM", "roberta"),
    "intfloat/multilingual-e5-small-roberta": ("xlm-roberta", "XLMRobertaModel", ""),
    "almanach/camembert-base": ("camembert", "CamembertForMaskedLM", "roberta"),
    "albert/albert-base-v2": ("albert", "AlbertForMaskedLM"),
    "microsoft/deberta-base": ("deberta", "DebertaModel"),
    "microsoft/deberta-v3-base": ("deberta-v2", "DebertaV2ForMaskedLM", "deberta"),
    "microsoft/mpnet-base": ("mpnet", "MPNetForMaskedLM"),
    "sentence-transformers/all-mpnet-base-v2": ("mpnet", "MPNetForMaskedLM"),
    "answerdotai/ModernBERT-base": ("modernbert", "ModernBertForMaskedLM", "model"),
    "nomic-ai/nomic-embed-text-v1.5": ("nomic_bert", "NomicBertModel", ""),
    "jinaai/jina-embeddings-v2-small-en": ("bert", "JinaBertForMaskedLM"),
    "google/mobilebert-uncased": ("mobilebert", "MobileBertForPreTraining"),
    "squeezebert/squeezebert-uncased": ("squeezebert", "SqueezeBertModel", "transformer"),
    "YituTech/conv-bert-base": ("convbert", "ConvBertModel"),
    "allenai/longformer-base-4096": ("longformer", "LongformerModel"),
    "google/bigbird-roberta-base": ("big_bird", "BigBirdForPreTraining", "bert"),
    "microsoft/layoutlm-base-uncased": ("layoutlm", "LayoutLMModel"),
    "nvidia/megatron-bert-uncased-345m": ("megatron-bert", "MegatronBertModel", "bert"),
    "google/bert_for_seq_generation_L-24": ("bert-generation", "BertGenerationDecoder", "bert"),
    "nghuyong/ernie-3.0-base-zh": ("ernie", "ErnieForMaskedLM"),
    "sijunhe/nezha-cn-base": ("nezha", "NezhaForPreTraining"),
    "junnyu/roformer_chinese_base": ("roformer", "RoFormerForMaskedLM"),
    "xlnet/xlnet-base-cased": ("xlnet", "XLNetLMHeadModel", "transformer"),
    "openai-community/gpt2": ("gpt2", "GPT2LMHeadModel", ""),
    "google-t5/t5-small": ("t5", "T5ForConditionalGeneration", ""),
    "google/mt5-small": ("mt5", "MT5ForConditionalGeneration", ""),
    "facebook/bart-base": ("bart", "BartModel", "model"),
    "studio-ousia/luke-base": ("luke", "LukeForMaskedLM"),
    "google/rembert": ("rembert", "RemBertModel"),
    "google/canine-s": ("canine", "CanineModel", ""),
    "Alibaba-NLP/gte-base-en-v1.5": ("new", "NewModel", ""),
    "uw-madison/nystromformer-512": ("nystromformer", "NystromformerForMaskedLM"),
}


def make(path, prefix="bert", **config):
    start = f"{prefix}." if prefix else ""
    tensors = {name.replace("bert.", start, 1): array for name, array in encoder_tensors().items()}
    return make_folder(path, tensors, VOCABULARY, **config)


def check_refused(path, *words):
    with pytest.raises(ValueError, match=".*".join(words)) as caught:
        keras_bert.load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 500


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models(tmp_path, name):
    model_type, architecture, *prefix = PUBLISHED[name]
    prefix = prefix[0] if prefix else model_type
    path = make(tmp_path, prefix, model_type=model_type, architectures=[architecture])
    check_refused(path, "config.json", "(model_type must be one of|is not a BERT).*transformers")


@pytest.mark.parametrize("family", other_models.OTHER_ARCHITECTURES)
def test_each_evidence_is_enough(tmp_path, family):
    """The type, the class or the tensors may be the only ones that name another model."""
    if family not in families.FAMILIES:
        path = make(tmp_path / "type", model_type=family)
        check_refused(path, family, "not a BERT.*transformers")
    for model_type in ("bert", None):
        config = {"model_type": model_type, "architectures": [f"TF{family.title()}Model"]}
        if model_type or family not in families.FAMILIES:
            path = make(tmp_path / f"class {model_type}", **config)
            check_refused(path, "(is not a BERT|must have the model_type)")
        path = make(tmp_path / f"tensors {model_type}", f"model.{family}", model_type=model_type)
        check_refused(path, f"safetensors: .*'{family}'", "(config.json|transformers)")


@pytest.mark.parametrize("tokenizer", ["vocab.json", "sentencepiece.bpe.model", "spiece.model"])
def test_a_config_without_a_type_and_another_tokenizer(tmp_path, tokenizer):
    path = make(tmp_path, "", model_type=None)
    keras_bert.load(path)
    (path / tokenizer).write_text("{}")
    check_refused(path, "must have a model_type", tokenizer)
    keras_bert.load(make(tmp_path / "bert", "")).count_params()
    for key in ("embedding_size", "pad_token_id", "n_layers"):
        path = make(tmp_path / key, "", model_type=None, **{key: 2})
        check_refused(path, f"must have a model_type, since '{key}'", "electra")


# Repository with a RoBERTa whose tokenizer is not WordPiece -> a file of it.
OTHER_TOKENIZERS = {
    "FacebookAI/roberta-base": "vocab.json",
    "microsoft/codebert-base": "merges.txt",
    "vinai/phobert-base": "bpe.codes",
    "vinai/bertweet-base": "bpe.codes",
    "monologg/distilkobert": "tokenizer_78b3253a26.model",
    "klue/roberta-base with SentencePiece": "sentencepiece.bpe.model",
}


@pytest.mark.parametrize("name", OTHER_TOKENIZERS)
def test_families_with_another_tokenizer(tmp_path, name):
    file = OTHER_TOKENIZERS[name]
    path = make(tmp_path, "", model_type="roberta", architectures=["RobertaModel"])
    (path / file).write_text("{}")
    check_refused(path, "must be WordPiece", file)


def test_long_names_of_tensors_are_refused_at_once(tmp_path):
    for name in ("a." * 2**20 + "embeddings.word_embeddings.weight", "x" + "_quant_a" * 2**17):
        tensors = encoder_tensors() | {name: encoder_tensors()["bert.embeddings.LayerNorm.bias"]}
        make_folder(tmp_path, tensors, VOCABULARY)
        with pytest.raises(ValueError, match="characters of a name, at most 1024"):
            keras_bert.load(tmp_path, ignore=["x*"])


def test_classes_of_other_packages(tmp_path):
    keras_bert.load(make(tmp_path / "own", architectures=["MyClassifier"]))
    path = make(tmp_path / "unknown", model_type=None, architectures=["MyClassifier"])
    check_refused(path, "must have a model_type", "MyClassifier")
    path = make(tmp_path / "code", auto_map={"AutoModel": "modeling.MyBert"})
    check_refused(path, "the code of 'modeling.MyBert'", "without auto_map")
    path = make(tmp_path / "head", auto_map={"AutoModelForTokenClassification": "a.B"})
    with pytest.warns(UserWarning, match="its head is left out: .*the code of"):
        keras_bert.load(path)


FILES = {
    "model.fp16.safetensors": "Rename it to model.safetensors",
    "model-q8_0.gguf": "llama.cpp",
    "flax_model.msgpack": "from_flax=True",
    "rust_model.ot": "rust-bert",
    "model.mlmodel": "Core ML",
    "weights.npz": "MLX",
    "config.cfg": "spaCy",
    "final-model.pt": "flair",
    "bert.pt": "pytorch_model.bin",
    "bert.pth": "pytorch_model.bin",
    "epoch=3.ckpt": "Lightning",
    "model.onnx": "keras_bert.pipeline.folder, trusted=True",
    "onnx/model.onnx": "keras_bert.pipeline.folder, trusted=True",
    "openvino_model.xml": "keras_bert.pipeline.folder, trusted=True",
    "openvino/openvino_model.xml": "keras_bert.pipeline.folder, trusted=True",
    "model.tflite": "LiteRT",
    "model.json": "TensorFlow.js",
    "weights.tar.gz": "Unpack it",
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_libraries(tmp_path, name):
    path = make_folder(tmp_path / "folder")
    file = path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("x")
    check_refused(path, "no checkpoint of BERT", file.name, FILES[name])
    check_refused(file, file.name, FILES[name])


UNKNOWN = [
    "lora_A.default.weight", "lora_magnitude_vector", "base_layer.weight", "ia3_l",
    "adapters.a.down.weight", "prompt_embeddings", "SCB", "weight_scale", "zero_point",
    "qweight.zeros", "quant_state", "weight_g", "parametrizations.weight.original0",
]  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_tensors_that_change_others_are_never_ignored(tmp_path, name):
    name = f"bert.encoder.layer.0.output.dense.{name}"
    extra = {name: encoder_tensors()["bert.embeddings.LayerNorm.bias"]}
    make_folder(tmp_path, encoder_tensors() | pretraining_tensors() | extra, VOCABULARY)
    for pattern in ("*.output.dense.*", name):
        with pytest.raises(ValueError, match="ignore must not leave out .*Merge adapters"):
            keras_bert.load(tmp_path, ignore=[pattern])
