#!/usr/bin/env python3
"""Makes tests/golden/losses.json: what data.reset_attention_mask, data.reset_position_ids, data.eod_mask_loss and the
losses of [loss] must compute, by PyTorch's autograd in float64.

Usage: python3 scripts/golden/make_loss_golden.py [tests/golden/losses.json]      (needs torch, numpy and h5py; a few seconds)

The model and its values are those of tests/golden/tiny_gpt.h5 (scripts/golden/make_golden.py), written out once more with the
attention mask and the positions of each sample as matrices. The masks are made in the words of Megatron-LM's
documentation of these options, position by position: rows after an end of document do not see columns up to it,
positions begin anew after it, and the loss of the target after it is left out. The key-token loss is the sum of its
definition: per sample the mean loss of its targets, times 1 + alpha · (how many of the sample's s + 1 tokens are among
the given ids), averaged over samples. With alpha = 1 that is the loss of the code model in chapter 7 of the Hugging
Face course.

Contents: end_of_document, texts [b][s + 1], and of each case its settings, the loss, the norm of all gradients, and of
every parameter's gradient its norm and its scalar product with the parameter's value.
"""

import json
import math
import sys
import tomllib
from pathlib import Path

import h5py
import numpy as np
import torch

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden"
END_OF_DOCUMENT = 7
KEY_TOKENS = [5, 11, 99]


def read_model():
    with h5py.File(GOLDEN / "tiny_gpt.h5") as file:
        sizes = tomllib.loads(file.attrs["model"].decode()) | {"samples": int(file.attrs["samples"])}
        values = {
            name.removeprefix("parameters."): torch.from_numpy(
                data[:].reshape(tuple(int(extent) for extent in data.attrs["shape"])).astype(np.float64)
            )
            for name, data in file.items()
            if name.startswith("parameters.")
        }
    return sizes, values


def make_texts(random, sizes):
    """Ends of documents at random places, one in the first place, one in the last, two in a row, and a sample without;
    key tokens once as the first token of a sample and once as the last, which is a target only."""
    texts = random.integers(0, sizes["vocab_size"], size=(sizes["samples"], sizes["sequence_length"] + 1))
    texts[texts == END_OF_DOCUMENT] = 8
    texts[np.isin(texts, KEY_TOKENS)] = 12
    texts[0, [4, 5, 18, 29]] = END_OF_DOCUMENT
    texts[1, [0, 20, 33]] = END_OF_DOCUMENT
    texts[0, [0, 7]] = KEY_TOKENS[0]
    texts[2, [9, 10, 33]] = KEY_TOKENS[1:] + [KEY_TOKENS[1]]
    return torch.from_numpy(texts)


def masks(tokens, case):
    """Of one sample's inputs: who sees whom [s, s], positions [s], which targets count [s]."""
    s = len(tokens)
    sees = torch.ones(s, s, dtype=torch.bool).tril()
    positions, counts = torch.arange(s), torch.ones(s, dtype=torch.float64)
    for i in range(s):
        if tokens[i] != END_OF_DOCUMENT:
            continue
        if case.get("reset_attention_mask"):
            sees[i + 1 :, : i + 1] = False
        if case.get("reset_position_ids"):
            positions[i + 1 :] = torch.arange(s - i - 1)
        if case.get("eod_mask_loss"):
            counts[i] = 0
    return sees, positions, counts


def token_losses(values, sizes, tokens, targets, sees, positions):
    """[s] each -> cross entropies [s] of one sample."""
    heads, hidden = sizes["attention_heads"], sizes["hidden_size"]

    def linear(name, x):
        return x @ values[f"{name}.weight"].T + values[f"{name}.bias"]

    def norm(name, x):
        centred = x - x.mean(dim=-1, keepdim=True)
        deviation = torch.sqrt((centred**2).mean(dim=-1, keepdim=True) + sizes["norm_epsilon"])
        return centred / deviation * values[f"{name}.weight"] + values[f"{name}.bias"]

    def attention(query, key, value):
        split = [x.reshape(len(x), heads, hidden // heads).transpose(0, 1) for x in (query, key, value)]
        scores = split[0] @ split[1].transpose(1, 2) / math.sqrt(hidden // heads)
        probabilities = torch.softmax(scores.masked_fill(~sees, -math.inf), dim=-1)
        return (probabilities @ split[2]).transpose(0, 1).reshape(len(query), hidden)

    word = values["embedding.word.weight"]
    x = word[tokens] + values["embedding.position.weight"][positions]
    for i in range(sizes["layers"]):
        layer = f"layers.{i}"
        n = norm(f"{layer}.attention_norm", x)
        parts = (linear(f"{layer}.attention.{part}", n) for part in ("query", "key", "value"))
        x = x + linear(f"{layer}.attention.output", attention(*parts))
        inner = linear(f"{layer}.mlp.up", norm(f"{layer}.mlp_norm", x))
        x = x + linear(f"{layer}.mlp.down", torch.nn.functional.gelu(inner, approximate="tanh"))
    logits = norm("final_norm", x) @ word[: sizes["vocab_size"]].T
    return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


def loss_of(values, sizes, texts, case):
    sums, counts, weighted = 0, 0, []
    for text in texts:
        sees, positions, mask = masks(text[:-1], case)
        losses = token_losses(values, sizes, text[:-1], text[1:], sees, positions)
        sums, counts = sums + (losses * mask).sum(), counts + mask.sum()
        if case["loss"] == "key_tokens":
            occurrences = sum(int(token) in KEY_TOKENS for token in text)
            weighted.append((losses * mask).sum() / mask.sum() * (1 + case["alpha"] * occurrences))
    return torch.stack(weighted).mean() if weighted else sums / counts


def evaluate(values, sizes, texts, case):
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    loss = loss_of(leaves, sizes, texts, case)
    gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    return case | {
        "value": loss.item(),
        "gradient_norm": math.sqrt(sum((g**2).sum().item() for g in gradients.values())),
        "gradients": {
            name: {"norm": g.norm().item(), "along_value": (g * values[name]).sum().item()}
            for name, g in gradients.items()
        },
    }


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else GOLDEN / "losses.json"
    sizes, values = read_model()
    texts = make_texts(np.random.Generator(np.random.PCG64(20250301)), sizes)
    documents = ("reset_attention_mask", "reset_position_ids", "eod_mask_loss")
    plain = {"loss": "language_model"}
    keys = {"loss": "key_tokens", "token_ids": KEY_TOKENS}
    cases = [plain]
    cases += [plain | {name: True} for name in documents]
    cases += [plain | dict.fromkeys(documents, True)]
    cases += [keys | {"alpha": 1.0}, keys | {"alpha": 0.25} | dict.fromkeys(documents, True)]
    results = [evaluate(values, sizes, texts, case) for case in cases]
    assert len({result["value"] for result in results}) == len(results), "a case that changes nothing proves nothing"
    golden = {"end_of_document": END_OF_DOCUMENT, "texts": texts.tolist(), "cases": results}
    Path(path).write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    for result in results:
        print({name: value for name, value in result.items() if name != "gradients"})


if __name__ == "__main__":
    main()
