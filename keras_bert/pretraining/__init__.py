"""Raw text to a pretrained model: corpus, sentences, vocabulary."""
