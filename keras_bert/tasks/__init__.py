"""Tasks: a folder for each, and what the rest of the package asks of a task (`task.Task`)."""
