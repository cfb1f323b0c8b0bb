"""Multiple choice: select the best continuation of a text."""
