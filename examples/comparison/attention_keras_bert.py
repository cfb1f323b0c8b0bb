import keras_bert

seen = keras_bert.inspect.attention(keras_bert.load("model"), "this film is so good")
seen.plot().savefig("attention.png")
