from sentence_transformers import SentenceTransformer

print(SentenceTransformer("model").encode(["so good", "bad film"]).shape)
