"""Tests of ONNX and OpenVINO folders in the libraries that read them.

The references are the pipelines of the Keras models. The environment is that of
`make test-older`.
"""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import keras_bert
from keras_bert import heads
from tests import tiny

pytest.importorskip("optimum.onnxruntime", reason="optimum is not installed")

import fastembed  # noqa: E402
import optimum.intel  # noqa: E402
import optimum.onnxruntime  # noqa: E402
import sentence_transformers  # noqa: E402
import transformers  # noqa: E402
from fastembed.common import model_description  # noqa: E402

from tests.exporting.programs import run_program  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries

TEXTS = ["This film is GOOD!", "so 한국 bad", "", "a film " * 8]
PAIRS = [("so good", "a film"), ("bad", "this is good !")]
FLOAT32 = {"INFERENCE_PRECISION_HINT": "f32"}
FORMATS = ["onnx", "openvino"]
HEADS = {
    "classes": lambda encoder: heads.classifier(encoder, labels=["bad", "good", "좋음"]),
    "mean": lambda encoder: heads.classifier(encoder, labels=["bad", "good"], pooling="mean"),
    "label sets": lambda encoder: heads.classifier(encoder, labels=["a", "b"], multi_label=True),
    "pairs": lambda encoder: heads.classifier(encoder, labels=["a", "b"], pairs=True),
    "number": lambda encoder: heads.regressor(encoder, pairs=True, activation="sigmoid"),
    "tags": lambda encoder: heads.tagger(encoder, labels=["O", "B-x", "I-x"]),
    "answers": heads.span_selector,
    "masks": heads.masked_lm,
    "vectors": heads.embedder,
    "encoder": lambda encoder: encoder,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return a function from a head and a format to the model and the folder of its export."""
    root = tmp_path_factory.mktemp("folders")
    made = {}

    def make(head, format):
        if (head, format) not in made:
            model = HEADS[head](tiny.encoder(initializer_range=0.5))
            folder = keras_bert.export(model, root / format / head.replace(" ", "_"), format=format)
            made[head, format] = model, folder
        return made[head, format]

    return make


def load(folder, format, task):
    """Return the model and the tokenizer of optimum."""
    if format == "onnx":
        model_class = getattr(optimum.onnxruntime, f"ORTModelFor{task}")
        model = model_class.from_pretrained(folder)
    else:
        model_class = getattr(optimum.intel, f"OVModelFor{task}")
        model = model_class.from_pretrained(folder, subfolder="openvino", ov_config=FLOAT32)
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def run_pipeline(folders, head, format, task, name, *args, **options):
    _, folder = folders(head, format)
    model, tokenizer = load(folder, format, task)
    return transformers.pipeline(name, model=model, tokenizer=tokenizer, **options)(*args)


def scores(answers):
    return [{answer["label"]: answer["score"] for answer in labels} for labels in answers]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("head", ["classes", "mean", "label sets", "pairs"])
def test_classes_of_optimum(folders, head, format):
    model, _ = folders(head, format)
    texts = PAIRS if head == "pairs" else TEXTS
    expected = scores(keras_bert.pipeline(model)(texts, top_k=None))
    inputs = [{"text": a, "text_pair": b} for a, b in PAIRS] if head == "pairs" else texts
    found = run_pipeline(
        folders, head, format, "SequenceClassification", "text-classification", inputs, top_k=None
    )
    for one, other in zip(scores(found), expected, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("task", "text"), [("SequenceClassification", "so good"), ("MaskedLM", "so [MASK]")]
)
def test_folders_that_optimum_writes(tmp_path, format, task, text):
    config = transformers.DistilBertConfig(
        len(tiny.PIECES), dim=8, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=64
    )
    getattr(transformers, f"DistilBertFor{task}")(config).save_pretrained(tmp_path / "a")
    (tmp_path / "vocab.txt").write_text("\n".join(tiny.PIECES), encoding="utf-8")
    transformers.DistilBertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(
        tmp_path / "a"
    )
    package = optimum.onnxruntime if format == "onnx" else optimum.intel
    model_class = getattr(package, f"{'ORT' if format == 'onnx' else 'OV'}ModelFor{task}")
    model_class.from_pretrained(tmp_path / "a", export=True).save_pretrained(tmp_path / "b")
    for file in tmp_path.glob("a/*token*"):
        shutil.copy(file, tmp_path / "b")
    [found] = keras_bert.pipeline(tmp_path / "b", trusted=True)([text], top_k=2)
    [expected] = keras_bert.pipeline(tmp_path / "a")([text], top_k=2)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_tags_of_optimum(folders, format):
    model, _ = folders("tags", format)
    # Words of one token, since the library's answers are per token.
    expected = keras_bert.pipeline(model)("this film is so bad", grouped=False)
    found = run_pipeline(
        folders, "tags", format, "TokenClassification", "token-classification",
        "this film is so bad", ignore_labels=[],
    )  # fmt: skip
    assert [row["entity"] for row in found] == [row["tag"] for row in expected]
    for one, other in zip(found, expected, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_answers_of_optimum(folders, format):
    model, _ = folders("answers", format)
    question, context = "this film", "so good ! a film is bad"
    answer = keras_bert.pipeline(model)((question, context))
    found = run_pipeline(
        folders, "answers", format, "QuestionAnswering", "question-answering",
        {"question": question, "context": context},
    )  # fmt: skip
    assert (found["start"], found["end"]) == (answer["start"], answer["end"])


@pytest.mark.parametrize("format", FORMATS)
def test_masked_tokens_of_optimum(folders, format):
    model, _ = folders("masks", format)
    expected = keras_bert.pipeline(model)("so [MASK] film", top_k=3)
    found = run_pipeline(
        folders, "masks", format, "MaskedLM", "fill-mask", "so [MASK] film", top_k=3
    )
    assert [row["token_str"] for row in found] == [row["token"] for row in expected]
    assert [row["score"] for row in found] == pytest.approx(
        [row["score"] for row in expected], abs=1e-5
    )


@pytest.mark.parametrize("format", FORMATS)
def test_vectors_of_tokens_of_optimum(folders, format):
    model, folder = folders("encoder", format)
    optimum_model, tokenizer = load(folder, format, "FeatureExtraction")
    inputs = tokenizer(TEXTS, return_tensors="np", padding=True)
    found = np.asarray(optimum_model(**inputs).last_hidden_state)
    names = {
        "input_word_ids": "input_ids",
        "input_mask": "attention_mask",
        "input_type_ids": "token_type_ids",
    }
    outputs = model({key: inputs[name].astype(np.int32) for key, name in names.items()})
    expected = np.array(outputs["sequence_output"].detach())
    is_token = inputs["attention_mask"] == 1
    np.testing.assert_allclose(found[is_token], expected[is_token], atol=1e-5)


def backend_options(format):
    options = {} if format == "onnx" else {"ov_config": FLOAT32}
    return {"backend": format, "model_kwargs": options}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("pooling", "layers", "normalize"), [("mean", [], True), (["cls", "max"], [(4, "gelu")], False)]
)
def test_vectors_of_sentence_transformers(tmp_path, format, pooling, layers, normalize):
    prompts = {"query": "so ", "document": "film "}
    model = tiny.embedder(
        pooling, layers, normalize=normalize, prompts=prompts, default_prompt="query"
    )
    folder = keras_bert.export(model, tmp_path / "a", format=format)
    theirs = sentence_transformers.SentenceTransformer(str(folder), **backend_options(format))
    ours = keras_bert.pipeline(model)
    np.testing.assert_allclose(theirs.encode(TEXTS), ours.encode(TEXTS), atol=1e-5)
    np.testing.assert_allclose(
        theirs.encode(TEXTS, prompt_name="document"),
        ours.encode(TEXTS, prompt="document"),
        atol=1e-5,
    )


@pytest.mark.parametrize("format", FORMATS)
def test_scores_of_a_cross_encoder(folders, format):
    model, folder = folders("number", format)
    theirs = sentence_transformers.CrossEncoder(str(folder), **backend_options(format))
    expected = [row["score"] for row in keras_bert.pipeline(model)(PAIRS)]
    np.testing.assert_allclose(theirs.predict(PAIRS), expected, atol=1e-5)


def test_vectors_of_fastembed(folders):
    model, folder = folders("vectors", "onnx")
    fastembed.TextEmbedding.add_custom_model(
        model="mine",
        pooling=model_description.PoolingType.MEAN,
        normalization=True,
        sources=model_description.ModelSource(hf="mine/mine"),
        dim=8,
        model_file="onnx/model.onnx",
    )
    theirs = fastembed.TextEmbedding("mine", specific_model_path=str(folder))
    expected = keras_bert.pipeline(model).encode(TEXTS)
    np.testing.assert_allclose(list(theirs.embed(TEXTS)), expected, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
def test_int8_is_read_by_optimum(tmp_path, format):
    model = HEADS["classes"](tiny.encoder(hidden_size=32, intermediate_size=64))
    dev = keras_bert.Examples(TEXTS * 4)
    folder = keras_bert.export(model, tmp_path / "a", format=format, quantize="int8", dev=dev)
    [file] = [*folder.glob("*/*.onnx"), *folder.glob("*/*.xml")]
    if format == "onnx":
        theirs = optimum.onnxruntime.ORTModelForSequenceClassification.from_pretrained(folder)
    else:
        theirs = optimum.intel.OVModelForSequenceClassification.from_pretrained(
            folder, subfolder="openvino", file_name=file.name, ov_config=FLOAT32
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:  # ONNX Runtime scales the activations of a batch
        logits = np.asarray(theirs(**tokenizer(text, return_tensors="np")).logits)
        ours = scores([keras_bert.pipeline(folder)(text, top_k=None)])[0]
        weights = np.exp(logits - logits.max())
        probabilities = (weights / weights.sum())[0]
        expected = [ours[label] for label in heads.find_output(model).labels]
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("head", ["classes", "label sets", "number", "tags", "masks", "vectors"])
def test_the_program_of_a_readme(folders, head, format, monkeypatch):
    _, folder = folders(head, format)
    answers = run_program(folder, monkeypatch)
    assert len(answers) == 2
    if head != "tags":  # a list of words and tags
        assert np.isfinite(answers).all()


NODE = pathlib.Path(sys.prefix) / "node"
PROGRAM = """
import { pipeline, env } from '@huggingface/transformers';
env.allowRemoteModels = false;
env.localModelPath = process.argv[2];
const texts = JSON.parse(process.argv[3]);
const ask = (task, folder) => pipeline(task, folder, { dtype: 'fp32' });
const classes = await (await ask('text-classification', 'classes'))(texts, { top_k: 3 });
const options = { pooling: 'mean', normalize: true };
const vectors = await (await ask('feature-extraction', 'vectors'))(texts, options);
const tags = await (await ask('token-classification', 'tags'))('this film is so bad');
const masks = await (await ask('fill-mask', 'masks'))('so [MASK] film');
console.log(JSON.stringify({ classes, vectors: vectors.tolist(), tags, masks }));
"""


def test_answers_of_transformers_js(folders, tmp_path):
    if shutil.which("node") is None or not (NODE / "node_modules").is_dir():
        pytest.skip("needs Node and @huggingface/transformers")
    models = {}
    for head in ("classes", "vectors", "tags", "masks"):
        model, folder = folders(head, "onnx")
        models[head] = keras_bert.pipeline(model)
    program = NODE / "answers.mjs"
    program.write_text(PROGRAM, encoding="utf-8")
    arguments = ["node", program, folder.parent, json.dumps(TEXTS)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    expected = scores(models["classes"](TEXTS, top_k=None))
    for one, other in zip(scores(found["classes"]), expected, strict=True):
        assert one == pytest.approx(other, abs=1e-5)
    np.testing.assert_allclose(found["vectors"], models["vectors"].encode(TEXTS), atol=1e-5)
    tags = models["tags"]("this film is so bad", grouped=False)
    expected_tags = [row["tag"] for row in tags if row["tag"] != "O"]
    assert [row["entity"] for row in found["tags"]] == expected_tags
    masks = models["masks"]("so [MASK] film")
    assert [row["token_str"] for row in found["masks"]] == [row["token"] for row in masks]
