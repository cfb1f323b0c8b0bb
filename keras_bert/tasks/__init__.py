"""Tasks: one module per task that builds its head, encodes data, decodes outputs and scores them.

`classification`, `tagging`, `question_answering` and `multiple_choice` have the same functions,
which `training` and `tasks.inference` call:

    HEADS              names of the functions in `keras_bert.heads` that make models of the task
    MAX_LENGTH         default maximum length of a sequence
    build              encoder and training data -> model with a new head
    compile_options    model -> arguments of `keras.Model.compile`
    encode             model and data -> encoded sequences, see `data.batching`
    decode             outputs of the model -> answers, one per example
    score              `TaskOutput`, data and answers -> metrics; the first one is the main metric
    metric_names       `TaskOutput` and data -> names of these metrics, without `majority`
    records            answers -> dicts, the rows of a file

To add a task, write such a module and add it to `tasks.registry`. It also needs a head in `heads`,
a class for its data in `data/` with a reader in `data.reader`, entries in `exporting.signatures`,
`exporting.agreement` and `exporting.model_card`, and its name in `cli/reading.py` and
`cli/options/training.py`.
"""
