"""What commands refuse: the error is one line, and no file is written."""

import shlex

import pytest

import keras_bert
from keras_bert import heads, provenance
from keras_bert.__main__ import main
from tests import tiny
from tests.cli.shared import TAGS, TEXTS
from tests.tasks.embedding.test_retrieval import beir

pytestmark = pytest.mark.usefixtures("eager")

FILES = {
    "a.tsv": TEXTS,
    "pairs.tsv": "q\ta\tscore\ngood\tso\t0\nbad\tfilm\t5\n",
    "one query.tsv": "q\ta\na\tb\na\tc\n",
    "no tokens.tsv": "q\ta\n \t \n \t \n",
    "blank.tsv": "text\tn\n\t1\n \t2\n",
    "tags.tsv": TAGS,
    "tags.txt": "1\tgood\t_\tADJ\t_\t_\t_\t_\t_\t_\n2\tfilm\t_\tO\t_\t_\t_\t_\t_\t_\n" * 4,
    "RTE/train.tsv": "sentence1\tsentence2\tlabel\na\tb\tentailment\n",
    "RTE/dev.tsv": "sentence1\tsentence2\tlabel\na\tb\tentailment\n",
    "model/model.keras": "",
    "unfinished/training.npz": "",
}
TRAIN = "finetune --train a.tsv --output x"
TAG = "finetune --task tagging --train tags.tsv --output x"
ENCODER = "--model {encoder}"
EMBED = f"finetune {ENCODER} --task embedding --text q --text-pair a --output x"
PAIRS = f"{EMBED} --train pairs.tsv"
SCORES = f"{PAIRS} --label score --loss cosine_similarity"
SCORE_PAIRS = "evaluate {encoder} --task embedding --text q --text-pair a --input pairs.tsv"
REFUSED = [
    # Training.
    ("finetune --output x", "give either --glue, or --train"),
    (f"{TRAIN} --task chess", "received 'chess'"),
    (f"{TRAIN} --text t", "has no column 't'"),
    (f"{TRAIN} --task pair", "needs text_pair (--text-pair)"),
    (f"{TRAIN} --search", "--search needs --dev"),
    (f"{TRAIN} --task question-answering --format csv", "--format csv"),
    (f"{TRAIN} {ENCODER} --stride 4", "stride is not"),
    (f"{TRAIN} --task masked-tokens", "finetune does not train the task masked_tokens"),
    (f"{TRAIN} --characters", "--characters does not apply to the task classification"),
    (f"{TRAIN} --word 0", "--word does not apply to the task classification"),
    (f"{TRAIN} --negatives mean", "--negatives does not apply to the task classification"),
    (f"{TRAIN} --pooling mean", "--pooling does not apply to the task classification"),
    (f"{TRAIN} --teacher mean", "--teacher does not apply to the task classification"),
    ("finetune --train a.tsv a.tsv --output x", "classification takes one --train file"),
    (f"{TAG} --text text", "--text does not apply to the task tagging"),
    (f"{TAG} --no-header", "--no-header does not apply to the task tagging"),
    (f"finetune {ENCODER} --task tagging --train tags.txt --output x", "--format conllu"),
    ("finetune --glue RTE --output x --text a", "--text does not apply to --glue"),
    ("finetune --glue RTE --output x --pooling cls", "--pooling does not apply to --glue"),
    (
        f"finetune {ENCODER} --train a.tsv --dev a.tsv --search --output unfinished",
        "Run the same command without --search to resume it, or delete training.npz",
    ),
    # Training of embedders.
    (f"{EMBED} --train 'one query.tsv'", "all rows have the same query"),
    (f"{EMBED} --train 'no tokens.tsv'", "no text has tokens"),
    (f"{PAIRS} --score-range 0 1", "name their column with label"),
    (f"{PAIRS} --teacher {{encoder}} --loss contrastive", "--teacher works with"),
    (f"{PAIRS} --keep-layers 7", "increasing numbers from 0 to 0"),
    (f"{PAIRS} --negatives x", "has no column 'x'; its columns are q, a, score"),
    (f"{PAIRS} pairs.tsv --gradient-caching", "train on one set"),
    (SCORES, "needs scores from -1 to 1"),
    (f"{SCORES} --score-range 0 4", "row 3: the score 5 is not from 0 to 4"),
    # Inference.
    ("predict {classifier} a --input a.tsv", "give either texts or --input"),
    ("predict {classifier} a.tsv", "a.tsv is a file. To read it, give --input "),
    ("predict {classifier} a --output no/such", "no/such does not exist"),
    ("predict {classifier} a --output a.json", "question answering; use .jsonl"),
    ("predict {classifier} --input a.tsv --output a.tsv", "the output must not be the input"),
    ("predict {classifier} --input a.tsv --output link.tsv", "the output must not be the input"),
    ("predict model --input a.tsv --output RTE", "the output must be a file"),
    ("predict {encoder} a", "Train one with keras-bert finetune; for vectors"),
    ("predict {masked} a", "use keras-bert fill"),
    ("predict {embedder} a", "use keras-bert embed"),
    ("predict {pair} --input a.tsv", "has no column 'other'; its columns are text"),
    ("predict {reader} a b --probabilities", "--probabilities does not apply to the task"),
    ("predict {tagger} --input tags.tsv --text so", "--text does not apply to the task tagging"),
    ("predict a.tsv a", "must be a folder or a .keras file"),
    ("predict unfinished a", "has an unfinished run"),
    ("evaluate {tagger} --input tags.tsv --text so", "--text does not apply to the task tagging"),
    ("evaluate {classifier} --input a.tsv --characters", "--characters does not apply to "),
    ("evaluate {classifier} --input a.tsv --pooling mean", "--pooling applies only with --task"),
    ("evaluate {classifier} --input a.tsv --prompt a", "apply only to embeddings"),
    (f"{SCORE_PAIRS} --prompt query", "the model has no prompts; received 'query'"),
    (
        "evaluate {encoder} --task embedding --input beir --split dev",
        "dev.tsv: no such file; the splits of this folder are: test",
    ),
    ("fill {encoder} 'a [MASK]'", "has no masked LM head. Use a checkpoint"),
    ("explain model a --output RTE", "the output must be a file"),
    # Vectors.
    ("embed {encoder} --input a.tsv --output a.tsv", "the output must not be the input"),
    ("embed model --input a.tsv --output RTE", "the output must be a file"),
    ("embed {encoder} --input a.tsv --output v.npy --vector-precision binary", "extension .npz"),
    ("embed {encoder} --input a.tsv --output v.npz", "extension .npy"),
    ("embed {encoder} --input a.tsv --output v.npy --truncate-dim 9", "at most 8"),
    (
        "embed {encoder} --input 'one query.tsv' --text nothing --output v.npy",
        "has no column 'nothing'",
    ),
    ("search blank.tsv good --model {encoder}", "has no texts"),
    ("search a.tsv ' ' --model {encoder}", "the query is empty"),
    (
        "search a.tsv good --model model --rerank model --top 100 --candidates 10",
        "--candidates must be at least --top",
    ),
    ("mine pairs.tsv --text q --model {encoder} --output m.csv", "needs --text-pair"),
    ("mine a.tsv --text-pair a --model model --output RTE", "the output must be a file"),
    (
        "mine pairs.tsv --text q --text-pair a --model {encoder} --output pairs.tsv",
        "the output must not be the input",
    ),
    # Pretraining.
    ("vocab missing/*.txt --output x", "missing/*.txt: no such file, folder or"),
    ("vocab a.tsv --output a.tsv", "the output must be a folder"),
    ("vocab a.tsv --output model --size 24", "Use another --output"),
    ("records a.tsv --vocab none --output x", "'none' is neither a folder"),
    ("pretrain --records none --output x", "none contains no records.json; make"),
    ("pretrain --records none --output gs://mine/run", "gs://mine/run must be a local folder"),
    (
        "pretrain --records none --output x --size tiny --config a.tsv",
        "give one of --model, --size",
    ),
]


@pytest.fixture(scope="module")
def models(encoder_folder, tmp_path_factory):
    """Paths of models by the names that stand in the commands."""
    folder = tmp_path_factory.mktemp("models")
    encoder = tiny.encoder(num_hidden_layers=1)
    built = {
        "classifier": heads.classifier(encoder, labels=["bad", "good"]),
        "pair": heads.classifier(encoder, labels=["other", "same"], pairs=True),
        "reader": heads.span_selector(encoder),
        "tagger": heads.tagger(encoder, labels=["O", "B-work", "B-mood"]),
        "masked": heads.masked_lm(encoder),
        "embedder": heads.embedder(encoder),
    }
    for name, model in built.items():
        keras_bert.save(model, folder / name)
    provenance.write_metrics(folder / "pair", {"columns": {"text_pair": "other"}})
    return {name: folder / name for name in built} | {"encoder": encoder_folder}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with files; `model` cannot be loaded."""
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "link.tsv").symlink_to("a.tsv")
    (tmp_path / "beir").mkdir()
    beir(tmp_path / "beir")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_an_error_is_one_line_and_writes_no_file(command, message, models, folder, capsys):
    before = contents(folder)
    assert main([word.format(**models) for word in shlex.split(command)]) == 1
    error = capsys.readouterr().err.strip().splitlines()
    assert error[-1].startswith("keras-bert: ")
    assert message in error[-1]
    assert contents(folder) == before
