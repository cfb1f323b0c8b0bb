from keras_bert.encoder import BertEncoder
