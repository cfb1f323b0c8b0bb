import json
import pathlib

from transformers import AutoModelForQuestionAnswering, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("model")
model = AutoModelForQuestionAnswering.from_pretrained("model")


def encode(question, context, answer):
    encoded = tokenizer(question, context, truncation="only_second")
    start, end = answer["answer_start"], answer["answer_start"] + len(answer["text"]) - 1
    # The position 0, [CLS], stands for an answer that was truncated.
    encoded["start_positions"] = encoded.char_to_token(start, sequence_index=1) or 0
    encoded["end_positions"] = encoded.char_to_token(end, sequence_index=1) or 0
    return encoded


data = [
    encode(qa["question"], paragraph["context"], qa["answers"][0])
    for article in json.loads(pathlib.Path("train.json").read_text())["data"]
    for paragraph in article["paragraphs"]
    for qa in paragraph["qas"]
]
Trainer(model, train_dataset=data, processing_class=tokenizer).train()
inputs = tokenizer("is this so", "a film is bad!", return_tensors="pt")
outputs = model(**inputs)
start, end = outputs.start_logits.argmax(), outputs.end_logits.argmax()
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))
