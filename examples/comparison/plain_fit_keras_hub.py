import keras_hub
import pandas as pd

train = pd.read_csv("train.tsv", sep="\t")
model = keras_hub.models.BertTextClassifier.from_preset("preset", num_classes=2)
model.fit(train["text"], train["label"] == "good", batch_size=8, epochs=3)
