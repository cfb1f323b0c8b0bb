"""The words of texts, as a tokenizer splits them."""


def split_words(texts, tokenizer, characters=False):
    """Split texts into words as a `PythonTokenizer` does, or into characters: `(words, spans)`.

    Both have a list per text. A span is the first character and the end of a word. A text may have
    no words, because the tokenizer drops some characters.

    Example:

    >>> from keras_bert.text.python_tokenizer import PythonTokenizer
    >>> split_words(["a b!"], PythonTokenizer(["[UNK]"]))
    ([['a', 'b', '!']], [[(0, 1), (2, 3), (3, 4)]])
    """
    tokenize = tokenizer.tokenize_with_offsets
    if characters:
        tokenize = tokenizer.tokenize_characters_with_offsets
    words = []
    spans = []
    for text in texts:
        span_of_word: dict[int, tuple[int, int]] = {}
        for _, word, start, limit in zip(*tokenize(text), strict=True):
            first, _ = span_of_word.get(word, (start, limit))
            span_of_word[word] = (first, limit)
        spans.append(list(span_of_word.values()))
        words.append([text[start:limit] for start, limit in span_of_word.values()])
    return words, spans
