#!/usr/bin/env python3
"""Makes tests/golden/bpe_trainer.json: vocabularies that Hugging Face's tokenizers learn from small texts.

Usage: python3 scripts/oracles/bpe_trainer_oracle.py [tests/golden/bpe_trainer.json]
       python3 scripts/oracles/bpe_trainer_oracle.py compare FOLDER VOCAB_SIZE LEAST_COUNT FILE.jsonl
The second trains on the texts of FILE.jsonl and compares FOLDER/merges.txt with the result, and the seconds it took.
Needs the package tokenizers.
"""

import json
import random
import sys
import time

from tokenizers import Tokenizer, models, pre_tokenizers, trainers


def train(documents, vocab_size, least_count):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,  # <|endoftext|> comes last
        min_frequency=least_count,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    return merges, model["vocab"]


def cases():
    generator = random.Random(11)
    words = ["low", "lower", "newest", "widest", "New", "naïve", "東京", "don't", "1984", "--", "new-est"]
    stories = [" ".join(generator.choice(words) for _ in range(60)) + ".\n" for _ in range(40)]
    letters = ["".join(generator.choice("ab ") for _ in range(400)) for _ in range(5)]
    dashes = ["-" * generator.randint(1, 70) + " " * generator.randint(0, 9) for _ in range(200)]
    bytes_of = ["".join(chr(generator.choice([0, 9, 10, 65, 233, 0x3042, 0x1F600])) for _ in range(300))]
    for documents, vocab_size, least_count in [
        (stories, 400, 2),
        (stories, 280, 1),
        (letters, 600, 2),
        (letters, 1000, 5),
        (dashes, 400, 2),
        (bytes_of, 400, 1),
        (["a"], 300, 1),
    ]:
        merges, vocab = train(documents, vocab_size, least_count)
        yield {
            "documents": documents,
            "vocab_size": vocab_size,
            "least_count": least_count,
            "merges": merges,
            "tokens": [token for token, _ in sorted(vocab.items(), key=lambda item: item[1])],
        }


def compare(folder, vocab_size, least_count, path):
    with open(path, encoding="utf-8") as file:
        documents = [json.loads(line)["text"] for line in file if line.strip()]
    start = time.time()
    merges, _ = train(documents, vocab_size, least_count)
    seconds = time.time() - start
    with open(folder + "/merges.txt", encoding="utf-8") as file:
        ours = file.read().split("\n")[1:-1]
    first = next((i for i, (a, b) in enumerate(zip(ours, merges)) if a != b), None)
    equal = ours == merges
    print(f"{len(merges)} merges in {seconds:.1f} s; {len(ours)} in {folder}: "
          + ("equal" if equal else f"the first difference is at {first}"))
    sys.exit(0 if equal else 1)


def main():
    if len(sys.argv) == 6 and sys.argv[1] == "compare":
        compare(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/bpe_trainer.json"
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(case) for case in cases()) + "\n]\n")


if __name__ == "__main__":
    main()
