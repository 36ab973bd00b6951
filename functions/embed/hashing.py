"""From a text to places in a vector, by hashing its words and letter triples: no model, always the same."""

import hashlib
import re

_WORD = re.compile(r"\w+")


def features(text):
    """Words and, within words, runs of three letters."""
    for word in _WORD.findall(text.casefold()):
        yield f"w {word}"
        framed = f"<{word}>"
        for start in range(len(framed) - 2):
            yield f"3 {framed[start : start + 3]}"


def place(feature, dimension):
    """Where a feature falls in a vector of this length, and with which sign."""
    digest = hashlib.blake2b(feature.encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0
