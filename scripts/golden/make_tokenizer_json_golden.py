#!/usr/bin/env python3
"""Makes tests/golden/tokenizer_json/: small tokenizer.json files of Hugging Face's tokenizers, and how they encode texts.

Usage: python3 scripts/golden/make_tokenizer_json_golden.py [tests/golden/tokenizer_json]      (needs the package tokenizers)
"""

import json
import os
import random
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXTS = [
    "Hello world, the lower and the newest.",
    " leading space",
    "tabs\tand\n\nnewlines   and    spaces     here      ",
    "def f(x):\n    return   x  <tag> <tag><tagged> deffed",
    "naïve 東京 don't 1984",
    "",
    " ",
    "   <tag>   ",
    "lowerlower<tag>lower",
]


def tokenizer(add_prefix_space):
    generator = random.Random(5)
    words = ["low", "lower", "newest", "widest", "the", "def", "world", "Hello", "spaces", "and", "<tag", "東京"]
    documents = [" ".join(generator.choice(words) for _ in range(80)) for _ in range(30)]
    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    result.decoder = decoders.ByteLevel()
    result.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    result.train_from_iterator(documents, trainer)
    return result


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/tokenizer_json"
    os.makedirs(folder, exist_ok=True)
    plain, prefix, added = tokenizer(False), tokenizer(True), tokenizer(False)
    added.add_tokens([AddedToken(" " * n, normalized=True) for n in (2, 3, 5)])
    added.add_tokens([AddedToken("<tag>", normalized=False), "def"])
    added.add_special_tokens([AddedToken("<|pad|>")])
    both = tokenizer(True)
    both.add_tokens(["<tag>", "   "])
    cases = {}
    for name, made in [("plain", plain), ("prefix", prefix), ("added", added), ("both", both)]:
        content = json.loads(made.to_str())
        if name == "prefix":  # as older versions wrote them
            content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(content, file, ensure_ascii=name == "plain")
        again = Tokenizer.from_str(json.dumps(content))
        cases[name] = {
            "vocab_size": again.get_vocab_size(with_added_tokens=True),
            "eod": again.token_to_id("<|endoftext|>"),
            "texts": [{"text": text, "ids": again.encode(text, add_special_tokens=False).ids} for text in TEXTS],
        }
    with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file)
        file.write("\n")


if __name__ == "__main__":
    main()
