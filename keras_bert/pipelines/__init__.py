"""Pipelines: one callable object for a model of any task, from Python's strings to plain results."""
