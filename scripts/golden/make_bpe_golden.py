#!/usr/bin/env python3
"""Makes tests/golden/bpe: a small byte-level BPE vocabulary and what an independent encoder makes of many odd strings.

Usage: python3 scripts/golden/make_bpe_golden.py [--gpt2 FOLDER] [tests/golden/bpe]         (needs tokenizers; a few seconds)

The encoder is Python's `tokenizers` library. vocab.json and merges.txt are trained here, on LICENSE and on the odd strings
themselves, so that merges within and across odd characters exist. cases.json holds a list of {"text", "small", "gpt2"}:
the ids by that vocabulary, and by GPT-2's own, whose files (--gpt2: a folder with vocab.json and merges.txt) are not
stored; without the option the stored ids of GPT-2 stay, and the strings must be the same.
"""

import argparse
import json
import os
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

VOCABULARY = 1200
END_OF_TEXT = "<|endoftext|>"

WRITTEN = [
    "Hello, world! It's a test; they're here, we've been, I'm in, you'll see, he'd go, don't.",
    "'s't're've'm'll'd 'S 'RE 'Ll ''s '''ll I'ma can'tell we'rest 'r 'v 'l '",
    "  leading, trailing  ", " ", "  ", "   x", "a   b", "a \n b", "\n", "\n\n", "\n\n x", " \n", "\n ", "x\n \n y",
    "tabs\tand\t\tmore\t x", "CR LF\r\nnext\r\n\r\nlast\r", "\v\f\x1c\x1d\x1e\x1f\x85", "nul\0inside\0", "\0", "",
    "12345 1 22 333a4b5 ½ ² ① Ⅷ ४२ 𝟙𝟚 一二三 3.14159e-10 0x1F", "foo_bar(baz[0]) != NULL && x->y++; // comment",
    "!!!???...---***   ###", "end of text: <|endoftext|> is text <|endoftext|>", "<|endoftext|>", "<| endoftext |>",
    "naïve café — déjà vu “quoted” ‘single’ … €100 £5", "Straße, Ærø, Łódź, İstanbul, ﬁne ﬂag, ǅ, ª º µ",
    "Привет, мир! Не'т Ёлка", "Γειά σου Κόσμε, ώρα", "שלום עולם ‏RTL", "مرحبا بالعالم ١٢٣", "नमस्ते दुनिया क्षि",
    "สวัสดีชาวโลก", "你好，世界。今天天气很好", "こんにちは世界　カタカナ", "안녕하세요 세계", "한글 자모 분해: 한글",
    "combining: e\u0301 a\u0308\u0323 \u0301alone n\u0303", "ZWJ: 👨‍👩‍👧‍👦 👩🏽‍🚀 ❤️‍🔥 🏳️‍🌈 🇩🇪🇫🇷 1️⃣",
    "spaces: \u00a0a\u00a0 b \u00a0 c\u2003d\u2009\u200ae\u202ff\u205fg\u3000h\u3000\u3000 i\u1680j",
    "not spaces: \u200b\u200c\u200d\u2060\ufeff\u180e|", "lines: a\u2028b\u2029c\u0085d", " \u00a0x", "\u3000x", "\u00a0'll",
    "\ufffd\ufffe\uffff \U0010ffff \ue000\U000f0000", "𐍈𐎀 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𠀀𪜶 \U0001e922\U00010d40 \u1c89\u1c8a \U000105c0",
    "a" * 300, "ab" * 200, " " * 257 + "x", "\n" * 130, "!" * 333, "9" * 100, "\u00e9" * 150, "の" * 120, "aaab" * 90,
    "Donaudampfschifffahrtsgesellschaftskapitän" * 6, "-" * 97 + " " + "=" * 96, "x" * 95 + " " + "y" * 96,
]  # fmt: skip


def random_strings():
    """Seeded; nothing here depends on the Unicode version of Python."""
    draw = random.Random(20260101)
    planes = [(0x00, 0x7F), (0x00, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
    spaces = " \t\n\r\v\f\u0085\u00a0\u2003\u3000"
    words = "the of and 's 'll don't 12 3 été мир 世界 ... !? \u0301 👍 a I we'RE".split()
    strings = []
    for length in [1] * 40 + [2] * 40 + [3] * 40 + list(range(4, 60)):
        strings.append("".join(chr(draw.randint(*draw.choice(planes))) for _ in range(length)))
    for _ in range(120):
        parts = [draw.choice(words) if draw.random() < 0.5 else draw.choice(spaces) * draw.randint(1, 3) for _ in range(12)]
        strings.append("".join(parts))
    return strings


def byte_level(model):
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def train(texts, folder):
    tokenizer = byte_level(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - 1, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.model.save(folder)
    path = os.path.join(folder, "vocab.json")
    with open(path, encoding="utf-8") as file:
        vocabulary = json.load(file)
    vocabulary[END_OF_TEXT] = len(vocabulary)
    with open(path, "w") as file:
        json.dump(vocabulary, file, separators=(",", ":"))


def load(folder):
    return byte_level(models.BPE.from_file(os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="tests/golden/bpe")
    parser.add_argument("--gpt2")
    arguments = parser.parse_args()
    os.makedirs(arguments.folder, exist_ok=True)
    path = os.path.join(arguments.folder, "cases.json")
    texts = WRITTEN + random_strings()
    with open(os.path.join(os.path.dirname(__file__), "..", "..", "LICENSE"), encoding="utf-8") as file:
        license_text = file.read()
    train([license_text] * 3 + texts, arguments.folder)
    small = load(arguments.folder)
    if arguments.gpt2:
        gpt2 = load(arguments.gpt2)
        gpt2_ids = [gpt2.encode(text).ids for text in texts]
    else:
        with open(path) as file:
            stored = json.load(file)
        assert [case["text"] for case in stored] == texts, "the strings have changed: give --gpt2 FOLDER"
        gpt2_ids = [case["gpt2"] for case in stored]
    cases = [{"text": t, "small": small.encode(t).ids, "gpt2": g} for t, g in zip(texts, gpt2_ids)]
    with open(path, "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")
    print(f"{arguments.folder}: {small.get_vocab_size()} tokens, {len(cases)} strings")


if __name__ == "__main__":
    main()
