import pathlib

from sentence_transformers import SentenceTransformer, util

texts = pathlib.Path("texts.txt").read_text().splitlines()
model = SentenceTransformer("model")
for hit in util.semantic_search(model.encode("good film"), model.encode(texts), top_k=5)[0]:
    print(hit["score"], texts[hit["corpus_id"]])
