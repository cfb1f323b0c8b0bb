"""Keep pytest's search for doctests from running the programs."""

collect_ignore_glob = ["*_keras_bert.py", "*_transformers.py", "*_keras_hub.py"]
