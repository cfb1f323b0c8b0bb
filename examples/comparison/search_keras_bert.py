import heapq
import pathlib

import keras_bert

texts = pathlib.Path("texts.txt").read_text().splitlines()
embed = keras_bert.pipeline("model", pooling="mean")
for score, text in heapq.nlargest(5, zip(embed(texts) @ embed("good film"), texts, strict=True)):
    print(score, text)
