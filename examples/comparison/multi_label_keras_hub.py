import pandas as pd
from keras_hub.models import BertTextClassifier

train = pd.read_csv("topics.tsv", sep="\t")
labels = train["label"].str.get_dummies(",")
model = BertTextClassifier.from_preset("preset", num_classes=labels.shape[1], activation="sigmoid")
model.compile(loss="binary_crossentropy", metrics=["binary_accuracy"])
model.fit(train["text"], labels, batch_size=8, epochs=3)
print(list(labels.columns[model.predict(["this film is good"])[0] >= 0.5]))
