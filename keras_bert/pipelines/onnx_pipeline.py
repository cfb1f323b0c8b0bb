"""Ask a model in an ONNX folder, with ONNX Runtime and neither Keras nor TensorFlow."""

import json
import pathlib
import typing
import warnings

from keras_bert.runtime.arguments import as_integer
from keras_bert.runtime.warn import level_of_caller

MODEL_FILE = "model.onnx"
_TASKS = ("classifier", "next_sentence", "regressor", "embedder")


def is_onnx_folder(path):
    """Return True for the path of a folder that `export(format="onnx")` wrote.

    Hugging Face's folders can have a `model.onnx` beside other formats.

    Example:

    >>> is_onnx_folder("no such folder")
    False
    """
    try:
        folder = pathlib.Path(path).expanduser()
        others = ("config.json", "model.keras", "saved_model.pb")
        return (folder / MODEL_FILE).is_file() and not any(
            (folder / name).is_file() for name in others
        )
    except (TypeError, ValueError, OSError):
        return False


class OnnxPipeline:
    """Pipeline of an ONNX folder: classifier, next_sentence, regressor or embedder.

    Args:
        path: Folder that `keras_bert.export(model, path, format="onnx")` wrote.
        batch_size: Sequences per batch.

    Attributes:
        task: `"classifier"`, `"next_sentence"`, `"regressor"` or `"embedder"`.
        labels: Names of the classes, or `None`.
        pairs: True if the model reads pairs of texts.
        multi_label: True if a text can have several labels.

    Raises:
        ValueError: If a file is missing or broken, or the model has another task.
        ImportError: If onnxruntime or tokenizers is not installed.
    """

    def __init__(self, path, *, batch_size=32):
        path = pathlib.Path(path).expanduser()
        missing = [name for name in (MODEL_FILE, "tokenizer.json") if not (path / name).is_file()]
        if missing:
            raise ValueError(
                f"{path} has no {missing[0]}. Export the model again, with its preprocessor"
            )
        try:
            import onnxruntime
            import tokenizers
        except ImportError as error:
            raise ImportError(
                f"{path} needs {error.name}; run: pip install 'keras3-bert[onnx]'"
            ) from error
        try:
            self._session = onnxruntime.InferenceSession(
                str(path / MODEL_FILE), providers=["CPUExecutionProvider"]
            )
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        except Exception as error:  # the errors of both libraries have no other common base
            raise ValueError(f"{path} cannot be read: {error}") from error
        facts = self._session.get_modelmeta().custom_metadata_map
        self.task, self.batch_size = facts.get("task"), batch_size
        if self.task not in _TASKS:
            raise ValueError(
                f"a pipeline of an ONNX folder needs the task {', '.join(_TASKS)}; {path} has "
                f"{self.task}. Its README shows how to run it with ONNX Runtime"
            )
        self.pairs = facts.get("pairs") == "1"
        self.multi_label = facts.get("multi_label") == "1"
        prompts = json.loads(facts.get("prompts", "{}"))
        self._prompts, self._default = prompts.get("prompts", {}), prompts.get("default_prompt")
        self._has_warned, self.labels = False, None
        if self.task in ("classifier", "next_sentence"):
            self.labels = _read_labels(path / "labels.txt")
            count = self._session.get_outputs()[0].shape[-1]
            if len(self.labels) != count:
                raise ValueError(
                    f"{path / 'labels.txt'} must have {count} lines; it has {len(self.labels)}. "
                    "Export the model again"
                )

    def __repr__(self):
        return f"<keras_bert.pipeline of an ONNX model, task {self.task}>"

    def __call__(self, inputs, text_pair=None, *, batch_size=None, **options):
        """Ask the model.

        Args:
            inputs: A string, or an iterable of strings. Pairs are tuples of two strings.
            text_pair: The second text of a pair, or a list of second texts.
            batch_size: Sequences per batch. Defaults to that of the pipeline.
            **options: `top_k` for classes: the number of labels, `None` for all. For embeddings
                `prompt`, the name of one of the model's prompts or a text before each text.

        Returns:
            As from other pipelines, see `keras_bert.pipeline`. Long texts are truncated, also if
            the Keras model reads them in windows; one warning counts them.

        Raises:
            ValueError: If an input is not a string or a pair, or an option is unknown.
        """
        known = {"embedder": "prompt"}.get(self.task, "top_k" if self.labels else None)
        unknown = next((name for name in options if name != known), None)
        if unknown is not None:
            raise ValueError(f"{unknown} is not an option of the task {self.task}. Remove it")
        if options.get("top_k") is not None:
            options["top_k"] = as_integer("top_k", options["top_k"], 1)
        size = self.batch_size if batch_size is None else as_integer("batch_size", batch_size, 1)
        rows, is_single = self._rows(inputs, text_pair)
        if self.task == "embedder":
            prompt = options.get("prompt", self._default) or ""
            prompt = self._prompts.get(prompt, prompt)
            rows = [prompt + row for row in rows]
        outputs = self._run(rows, size)
        if self.task == "embedder":
            return outputs[0] if is_single else outputs
        answers = [self._answer(row, options) for row in outputs]
        return answers[0] if is_single else answers

    def _rows(self, inputs, text_pair):
        """Return a list of texts or pairs, and True if the inputs are a single one."""
        is_single = isinstance(inputs, str) or (
            self.pairs and isinstance(inputs, tuple) and len(inputs) == 2
        )
        if not is_single and (not hasattr(inputs, "__iter__") or hasattr(inputs, "keys")):
            raise ValueError(
                f"inputs must be a string or a list of strings; received {inputs!r:.80}"
            )
        rows = [inputs] if is_single else list(inputs)
        if text_pair is not None:
            pairs = [text_pair] if isinstance(text_pair, str) else list(text_pair)
            if len(rows) != len(pairs):
                raise ValueError(
                    f"text_pair must have as many texts as the inputs, {len(rows)}; received "
                    f"{len(pairs)}"
                )
            rows = list(zip(rows, pairs, strict=True))
        for number, row in enumerate(rows, 1):
            parts = tuple(row) if self.pairs and isinstance(row, (list, tuple)) else (row,)
            if len(parts) != 1 + self.pairs or not all(isinstance(part, str) for part in parts):
                wanted = "a pair of strings" if self.pairs else "a string"
                raise ValueError(f"input {number} must be {wanted}; received {row!r:.80}")
        valid = [_valid(row) for row in rows]
        return valid, is_single

    def _run(self, rows, batch_size):
        """Return an array with the output for each row."""
        import numpy as np

        truncated = 0
        order = sorted(range(len(rows)), key=lambda index: -_characters(rows[index]))
        found: list[typing.Any] = [None] * len(rows)
        for start in range(0, len(order), batch_size):
            indices = order[start : start + batch_size]
            encodings = self._tokenizer.encode_batch([rows[index] for index in indices])
            truncated += sum(bool(encoding.overflowing) for encoding in encodings)
            inputs = {
                "input_word_ids": [encoding.ids for encoding in encodings],
                "input_mask": [encoding.attention_mask for encoding in encodings],
                "input_type_ids": [encoding.type_ids for encoding in encodings],
            }
            inputs = {name: np.array(ids, np.int32) for name, ids in inputs.items()}
            for index, row in zip(indices, self._session.run(None, inputs)[0], strict=True):
                found[index] = row
        if truncated and not self._has_warned:
            self._has_warned = True
            length = (self._tokenizer.truncation or {}).get("max_length")
            warnings.warn(
                f"{truncated} of {len(rows)} texts were truncated to {length} tokens. Shorten them",
                stacklevel=level_of_caller(),
            )
        shape = self._session.get_outputs()[0].shape[1:]
        return np.stack(found) if found else np.zeros((0, *shape), np.float32)

    def _answer(self, row, options):
        if self.labels is None:
            return {"score": float(row)}
        order = sorted(range(len(row)), key=lambda index: -row[index])
        ranked = [{"label": self.labels[index], "score": float(row[index])} for index in order]
        if "top_k" in options:
            return ranked[: options["top_k"]]
        if self.multi_label:
            return [item for item in ranked if item["score"] >= 0.5]
        return ranked[0]


def _valid(row):
    """Return a text or a pair of texts without lone surrogates, which have no UTF-8."""
    if isinstance(row, str):
        return row.encode("utf-8", "ignore").decode("utf-8")
    return tuple(map(_valid, row))


def _characters(row):
    return len(row) if isinstance(row, str) else sum(map(len, row))


def _read_labels(file):
    try:
        # Not `splitlines`, because a label can contain other line separators.
        return file.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is missing or broken. Export the model again") from error
