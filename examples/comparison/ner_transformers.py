import itertools
import pathlib

from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Trainer,
    pipeline,
)

blocks = pathlib.Path("train.conll").read_text().strip().split("\n\n")
sentences = [[line.split() for line in block.splitlines()] for block in blocks]
tags = sorted({tag for sentence in sentences for _, tag in sentence})
tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForTokenClassification.from_pretrained("model", id2label=dict(enumerate(tags)))


def encode(sentence):
    encoded = tokenizer([word for word, _ in sentence], is_split_into_words=True, truncation=True)
    encoded["labels"] = [
        -100 if word in (None, previous) else tags.index(sentence[word][1])
        for previous, word in itertools.pairwise([None, *encoded.word_ids()])
    ]
    return encoded


data, collator = list(map(encode, sentences)), DataCollatorForTokenClassification(tokenizer)
Trainer(model, train_dataset=data, data_collator=collator).train()
tag = pipeline("ner", model, tokenizer=tokenizer, aggregation_strategy="first")
print(tag("this film is good"))
