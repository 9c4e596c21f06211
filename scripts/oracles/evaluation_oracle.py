"""Evaluation tasks over transformers and tokenizers, written from their definitions, independent of the program's.

What Megatron-LM's tasks/zeroshot_gpt computes for WikiText and LAMBADA (windows of padding included, which add nothing),
and accuracies of choices by summed and by byte-normalised log-probability. Used by make_evaluation_golden.py and
check_evaluation.py. Numbers are fp64.
"""

import json
import math
import re

import torch


class Scored:
    """log-probability of each target of a sequence, and whether it is the likeliest token."""

    def __init__(self, model, tokens, first):
        with torch.no_grad():
            logits = model(torch.tensor([tokens[:-1]])).logits[0].double()
        table = torch.log_softmax(logits, dim=-1)
        rows = range(first - 1, len(tokens) - 1)
        self.values = [table[row, tokens[row + 1]].item() for row in rows]
        self.right = [table[row].argmax().item() == tokens[row + 1] for row in rows]


def detokenize(text):
    text = text.replace("s '", "s'")
    for mark, plain in ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", ".")):
        text = text.replace(mark, plain)
    for mark in ":;.!?,":
        text = text.replace(f" {mark} ", f"{mark} ")
    for opened, closed in ("()", "[]", "{}", '""', "''"):
        opened, closed = re.escape(opened), re.escape(closed)
        text = re.sub(rf"({opened})\s*([^{closed}]*?)\s*({closed})", r"\1\2\3", text)
    for count in (4, 3, 2):
        text = text.replace(" ".join("=" * count), "=" * count)
    text = text.replace(" \u00b0 ", "\u00b0").replace(" \n", "\n").replace("\n ", "\n")
    return text.replace(" N ", " 1 ").replace(" 's", "'s")


def loss_fields(total, count):
    return {"tokens": count, "loss": total / count, "perplexity": math.exp(min(20, total / count))}


def wikitext(model, encode, text, context, stride=32):
    words = len(text.strip().split(" "))
    tokens = encode(detokenize(text))
    windows = max(math.ceil(max(len(tokens) - 1 - stride, 0) / stride) + 1, 1)
    total = count = used = 0
    for i in range(windows):
        begin = i * stride
        window = tokens[begin : begin + context + 1]
        first = 1 if i == 0 or stride == context else context - stride + 1
        if len(window) <= first:
            continue  # padding alone
        values = Scored(model, window, first).values
        total -= sum(values)
        count += len(values)
        used += 1
    assert count == len(tokens) - 1
    ratio = count / (words - 1)
    return {"task": "wikitext", "examples": used, **loss_fields(total, count), "token_ratio": ratio,
            "adjusted_perplexity": math.exp(min(20, total / count * ratio))}  # fmt: skip


def lambada(model, encode, lines, context, end, strict=False):
    """`end`: the token that ends documents, which stands for a context without tokens."""
    total = count = right = 0
    for line in lines:
        text = json.loads(line)["text"]
        if strict:
            word = text.split()[-1]
            before, targets = encode(text[: text.rfind(word)].strip()), encode(" " + word)
        else:
            tokens = encode(text)
            before, targets = tokens[:-1], tokens[-1:]
        before = before[-(context + 1 - len(targets)) :] or [end]
        scored = Scored(model, before + targets, len(before))
        total -= sum(scored.values)
        count += len(targets)
        right += all(scored.right)
    return {"task": "lambada", "examples": len(lines), **loss_fields(total, count), "accuracy": right / len(lines)}


def choices(model, encode, lines, context):
    total = count = right = by_byte = 0
    for line in lines:
        question = json.loads(line)
        sums, shares = [], []
        for number, choice in enumerate(question["choices"]):
            before, space = re.fullmatch(r"(.*?)(\s*)", question["context"], re.DOTALL).groups()
            if not space and not choice[0].isspace():
                space = " "
            targets = encode(space + choice)
            tokens = (encode(before) + targets)[-(context + 1) :]
            values = Scored(model, tokens, len(tokens) - len(targets)).values
            sums.append(sum(values))
            shares.append(sum(values) / len(choice.encode()))
            if number == question["answer"]:
                total -= sum(values)
                count += len(values)
        right += sums.index(max(sums)) == question["answer"]
        by_byte += shares.index(max(shares)) == question["answer"]
    return {"task": "choices", "examples": len(lines), **loss_fields(total, count), "accuracy": right / len(lines),
            "accuracy_normalized": by_byte / len(lines)}  # fmt: skip


def all_results(model, encode, folder, context, end):
    """Of wiki.txt, lambada.jsonl and choices.jsonl in a folder: options of megatron_eval, and the result."""
    read = lambda name: open(f"{folder}/{name}", encoding="utf-8", newline="").read()
    lines = lambda name: [line for line in read(name).split("\n") if line.strip()]
    wiki = read("wiki.txt")
    return [
        {"data": "wiki.txt", "stride": None, "result": wikitext(model, encode, wiki, context, min(32, context))},
        {"data": "wiki.txt", "stride": 7, "result": wikitext(model, encode, wiki, context, 7)},
        {"data": "wiki.txt", "stride": context, "result": wikitext(model, encode, wiki, context, context)},
        {"data": "lambada.jsonl", "strict": False, "result": lambada(model, encode, lines("lambada.jsonl"), context, end)},
        {"data": "lambada.jsonl", "strict": True, "result": lambada(model, encode, lines("lambada.jsonl"), context, end, True)},
        {"data": "choices.jsonl", "result": choices(model, encode, lines("choices.jsonl"), context)},
    ]
