#!/usr/bin/env python3
"""Makes tests/golden/tokenizer_kinds/parts.json: for texts and each kind of tokenizer there, which characters every token
stands for, as Hugging Face's tokenizers and SentencePiece tell them (offsets).

Usage: python3 scripts/golden/make_text_parts_golden.py [tests/golden/tokenizer_kinds]    (needs tokenizers and sentencepiece)
"""

import json
import os
import sys

import sentencepiece
from tokenizers import Tokenizer

TEXTS = [
    "Q: return two\nA: for while",
    " leading and trailing  ",
    "\n\nline ends\r\n",
    "a  b   c    d",
    "  two  spaces  ",
    "unbelievable don't 1984 3.14",
    "na\u00efve na\u0131\u0308ve cafe\u0301 e\u0301\u0301 Z\u00fcrich",
    "\u6771\u4eac\u65e5\u672c\u8a9e \uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab\u1100\u1173\u11af",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440 \U0001f600\U0001f44d\U0001f3fd x",
    "\ufb01ne \u00bd \u2167 \u212b \u1e9b\u0323 \u0958",
    "tab\tand\u00a0no-break\u3000wide",
    "User: say four\nAssistant: four dogs\n",
    "</s> text <|endoftext|>more [SEP] <extra_id_0> end",
    "<s>[INST] hi [/INST] <l> x <r> y <w>z <w> z",
    " ",
    "x",
]


def spans(encoding):
    return [[id, begin, end] for id, (begin, end) in zip(encoding.ids, encoding.offsets)]


def of_hugging_face(path):
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    content["post_processor"] = None  # which may trim offsets
    names = [token["content"] for token in content["added_tokens"]]
    made = Tokenizer.from_str(json.dumps(content))

    def encode(text, special):
        if not special and content["model"]["type"] == "Unigram" and any(name in text for name in names):
            return None  # their library finds special tokens in the text all the same
        made.encode_special_tokens = not special
        return spans(made.encode(text, add_special_tokens=False))

    return encode


def of_sentence_piece(path):
    processor = sentencepiece.SentencePieceProcessor(model_file=path)

    def encode(text, special):
        if special:
            return None
        pieces = processor.encode(text, return_type="proto").pieces  # offsets in bytes
        characters = [len(text.encode()[:byte].decode(errors="ignore")) for byte in range(len(text.encode()) + 1)]
        return [[piece.id, characters[piece.begin], characters[piece.end]] for piece in pieces]

    return encode


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/tokenizer_kinds"
    cases = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(".cases.json") or name in ("parts.json", "bert_uncased.txt", "bert_cased.txt"):
            continue
        encode = of_sentence_piece(path) if name.endswith(".model") else of_hugging_face(path)
        cases[name] = [
            {"text": text, "special": special, "tokens": tokens}
            for text in TEXTS
            for special in (False, True)
            if (tokens := encode(text, special)) is not None
        ]
    with open(os.path.join(folder, "parts.json"), "w", encoding="utf-8") as file:
        json.dump(cases, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
