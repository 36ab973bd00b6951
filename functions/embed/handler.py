"""Embeds texts as unit vectors and gives their cosine similarities."""

import numpy as np
from hashing import features, place

DIMENSION = 256
MOST_TEXTS = 256
LONGEST_TEXT = 10_000


def main(event, context):
    """`{"texts": ["...", "..."], "vectors": false}`; vectors are part of the answer when asked for."""
    texts = event.get("texts") if isinstance(event, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return _refused("texts: a list of texts")
    if not 1 <= len(texts) <= MOST_TEXTS or max(map(len, texts)) > LONGEST_TEXT:
        return _refused(f"texts: 1 to {MOST_TEXTS} texts of at most {LONGEST_TEXT} characters")
    vectors = embed(texts)
    answer = {
        "dimension": DIMENSION,
        "similarities": np.round(vectors @ vectors.T, 4).tolist(),
    }
    if event.get("vectors"):
        answer["vectors"] = np.round(vectors, 6).tolist()
    return answer


def embed(texts):
    """One row of length 1 for each text; a text without words is a row of zeros."""
    vectors = np.zeros((len(texts), DIMENSION))
    for row, text in zip(vectors, texts, strict=True):
        for feature in features(text):
            index, sign = place(feature, DIMENSION)
            row[index] += sign
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)


def _refused(rule):
    return {"statusCode": 400, "body": {"error": rule}}
