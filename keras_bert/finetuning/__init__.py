"""From a labelled file to a fine-tuned model, its score, and its answers.

Data flows one way: `data` reads files, `batches` cuts token ids into batches of like lengths or
`packing` into rows of several texts, `schedule` says which, `train` fits a head, `predict` asks
the model.
"""
