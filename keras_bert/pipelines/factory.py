"""`keras_bert.pipeline`: ask a model of any task from Python.

Keras is imported in the function, because ONNX and OpenVINO folders do not need it.
"""

from typing import Any

from keras_bert.exporting import graph_folder
from keras_bert.exporting.graph_predictor import GraphPredictor
from keras_bert.runtime.arguments import as_integer, check_one_of
from keras_bert.tasks import registry
from keras_bert.tasks.pipeline import Pipeline


def pipeline(
    model: Any,
    *,
    task: str | None = None,
    batch_size: int = 32,
    long_texts: str | None = None,
    pooling: str | None = None,
    precision: str | None = None,
    engine: str | None = None,
    trusted: bool = False,
) -> Pipeline:
    """Return a pipeline: a function that computes the results of a model from texts, for any task.

    The result of one input:

    - classes: a dict with `label` and `score`; with `top_k`, a list of them, `top_k=None` for all;
      if a text can have several labels, the list of those with a score of at least 0.5
    - a number: a dict with `score`
    - tags: a list of entities, dicts with `text`, `tag`, `score`, `start` and `end` (characters);
      without tags of entities, or with `grouped=False`, a dict per word
    - question answering: a dict with `answer`, `start`, `end` and `score`; with `top_k`, a list
    - multiple choice: a dict with `choice` (its index), `text` and `score`
    - masked tokens: a list of dicts with `token` and `score`, `top_k=5`; for several [MASK] a list
      of such lists
    - embeddings: a NumPy array (hidden,); for several texts (n, hidden)
    - sparse embeddings: a `scipy.sparse.csr_array` (n, vocab); (1, vocab) for one text

    Args:
        model: A model with a head of `keras_bert.heads`, an encoder, or its name or path for
            `keras_bert.load`. Also the folder of an ONNX or OpenVINO export of a model with a head.
            Then neither Keras nor TensorFlow is imported. With `trusted=True`, also a folder of
            another library with a graph, `config.json` and the files of the tokenizer.
        task: A task of `keras_bert.load`, such as `"masked_tokens"`. By default that of the model.
            `"embedding"` gives embeddings of a Keras model with any head.
        batch_size: Sequences per batch. OpenVINO chooses its own batches.
        long_texts: What happens to texts that are longer than the model's maximum: `"truncate"`
            counts them in one warning, `"window"` averages the answers for overlapping windows, and
            `"error"` raises. By default as the model was trained, see `keras_bert.finetune`. Tags
            and answers are always read from windows.
        pooling: A mode of `layers.SentencePooling`, such as `"cls"`, for the embeddings of an
            encoder, or of a graph of another library that ends in the vectors of the tokens.
            Default: the `pooling` of the model, and without one `"mean"`, with a warning.
        precision: `"float32"`, `"bfloat16"` or, on JAX and torch, `"float16"` for the encoder. Use
            16 bits on GPUs, and on TensorFlow or OpenVINO `"bfloat16"` on CPUs with AVX512-BF16 or
            AMX. By default as the model computes; OpenVINO in float32.
        engine: `"onnx"` or `"openvino"` for the graph in a folder, `"keras"` for the Keras model.
            By default the Keras model if the folder has one, and else its graph.
        trusted: See `keras_bert.load`. Graphs of other libraries need `True`.

    Returns:
        A `Pipeline`. It can be called, and has the methods `evaluate` and `errors`. Its methods
        `export` and `save` need a Keras model.

    Raises:
        ValueError: If the model has no preprocessor or no known head, or an argument is invalid.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor, heads
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> classify = pipeline(heads.classifier(encoder, labels=["no", "yes"]))
    >>> sorted(classify("good")), len(classify(["good", "bad"]))
    (['label', 'score'], 2)
    """
    task = None if task == "auto" else task  # as for `load`
    batch_size = as_integer("batch_size", batch_size, 1)
    graph = find_graph(model, engine)
    if graph is None:
        predictor = _keras_predictor(model, task, pooling, precision, trusted)
    else:
        predictor = _graph_predictor(graph, task, pooling, precision, trusted)
    head = predictor.task_model.output
    if task is not None and not registry.is_variant(task, head):
        raise ValueError(
            f"{predictor.name!r} has the task {predictor.task.variant_of(head)}; received "
            f"{task!r}. Leave out task, or load another model"
        )
    return predictor.task.pipeline(predictor, batch_size=batch_size, long_texts=long_texts)


def find_graph(model, engine=None):
    """Return the `GraphFile` that a pipeline computes with; `None` for a Keras model."""
    check_one_of("engine", engine, (None, "keras", *graph_folder.GRAPH_FILES))
    return None if engine == "keras" else graph_folder.find_graph(model, engine)


def _graph_predictor(graph, task, pooling, precision, trusted):
    """Return the predictor of a `GraphFile`."""
    if graph.is_foreign and not trusted:
        from keras_bert.exporting import foreign_graph

        # Report broken files first; trusted=True would not fix them.
        foreign_graph.read_files(graph.folder)
        raise ValueError(
            f"{graph.file} is a graph of another library, which is a program. If you trust its "
            "author, pass trusted=True (--trusted)"
        )
    if pooling is not None and not graph.is_foreign:
        raise ValueError("pooling cannot be changed for the folder of an export. Leave it out")
    return GraphPredictor.open(graph, precision, task, pooling)


def _keras_predictor(model, task, pooling, precision, trusted):
    """Return the predictor of a Keras model, which is loaded if it is a name or a path."""
    from keras_bert.tasks.keras_predictor import KerasPredictor

    model = _loaded(model, task, trusted)
    task_of_answers = _task_of_answers(model, task)
    if task_of_answers.reads_encoders:
        return KerasPredictor(task_of_answers.from_encoder(model, pooling), precision)
    if pooling is not None:
        raise ValueError(
            f"pooling is only for embeddings; {model.name!r} has the task {task_of_answers.name}"
        )
    return KerasPredictor(model, precision)


def _loaded(model, task, trusted):
    """Return a Keras model with a preprocessor. A name or a path is loaded."""
    import keras

    from keras_bert.hub import loading
    from keras_bert.model_structure import preprocessor_of

    if not isinstance(model, keras.Model):
        if task is None or registry.by_name(task).reads_encoders:
            task = "auto"
        model = loading.load(model, task=task, trusted=trusted)
    preprocessor_of(model)  # raises an error if there is none
    return model


def _task_of_answers(model, task):
    """Return the `Task` of a pipeline: the argument, that of the model, embedding of an encoder."""
    from keras_bert.encoder import BertEncoder

    if task is not None:
        return registry.by_name(task)
    task_of_model = registry.find(model)
    if task_of_model is not None:
        return task_of_model
    if isinstance(model, BertEncoder):
        return registry.by_name("embedding")
    raise ValueError(f"{model.name!r} must have a head of keras_bert.heads; use its `predict`")


def predict(model: Any, inputs: Any, **options: Any) -> Any:
    """Ask a model once: `pipeline(model)(inputs)`. For several calls, keep the pipeline.

    Args:
        model: As for `pipeline`.
        inputs: As for `Pipeline.__call__`, for example a list of strings.
        **options: Options of `Pipeline.__call__`, such as `top_k`.

    Returns:
        The results, see `pipeline`.

    Raises:
        ValueError: As from `pipeline` and its call.

    Example:

    >>> from keras_bert import BertEncoder, Preprocessor, heads
    >>> preprocessor = Preprocessor(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good"])
    >>> encoder = BertEncoder(vocab_size=5, hidden_size=4, num_hidden_layers=1,
    ...     num_attention_heads=2, intermediate_size=8, preprocessor=preprocessor)
    >>> predict(encoder, ["good", "bad", ""]).shape
    (3, 4)
    """
    return pipeline(model)(inputs, **options)
