import heapq
import pathlib

import keras_hub

texts = pathlib.Path("texts.txt").read_text().splitlines()
model = keras_hub.models.BertTextEmbedder.from_preset("preset")
scores = model.predict(texts) @ model.predict(["good film"])[0]
for score, text in heapq.nlargest(5, zip(scores, texts, strict=True)):
    print(score, text)
