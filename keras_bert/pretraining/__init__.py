"""Raw text to a pretrained model: corpus, vocabulary, records, stream, train."""
