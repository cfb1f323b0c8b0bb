"""One module per task: build the head, encode examples, decode and score predictions."""
