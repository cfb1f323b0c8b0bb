from keras import losses, optimizers

import keras_bert

model = keras_bert.heads.classifier(keras_bert.load("model"), labels=["bad", "good"])
model.compile(optimizers.Adam(5e-5), losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(keras_bert.read("train.tsv").to_dataset(model, 8, shuffle=True), shuffle=False, epochs=3)
