#!/usr/bin/env python3
"""Makes tests/golden/megatron_core.json: the samples of megatron-core's own GPT data sets on small random corpora.

Usage: scripts/oracles/megatron_core_oracle.py [FILE]                     golden cases (tests/golden/megatron_core.json)
       scripts/oracles/megatron_core_oracle.py --check N [TEST_PROGRAM]   N random cases against build/tests/test_step

Needs megatron-core 0.16, torch and numpy. Each case is a data set, or a blend, that BlendedMegatronDatasetBuilder
builds from .bin/.idx files written for it, for training, validation and test. All tokens of a case differ, so its
samples are equal exactly if every token comes from the same place. Per split the file holds

  samples   asked for: the run's, (steps // evaluate_every + 1) * evaluate_steps * batch, and evaluate_steps * batch
  first     the first token of the first samples
  sum       of all tokens of those samples: h = (31 h + token) mod 2^64

Cases that megatron-core cannot build are not made: a split of a set with a share but without documents (it never ends),
and a set that a blend takes more samples from than it was asked for (it ends with an error).
"""

import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import tempfile

import numpy as np
import torch
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.blended_megatron_dataset_config import (
    convert_split_vector_to_split_matrix,
    parse_and_normalize_split,
)
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

logging.disable(logging.WARNING)  # megatron-core's, about indices that are not cached

SPLITS = ("train", "validation", "test")
SPARE = 12


class Tokenizer:
    """As much of one as the data sets ask for."""

    vocab_size = 1 << 20
    eod = vocab_size - 1
    unique_identifiers = {"class": "none"}


def write_set(prefix, lengths, first_token):
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=np.int32)
    for length in lengths:
        builder.add_document(torch.arange(first_token, first_token + length, dtype=torch.int32), [length])
        first_token += length
    builder.finalize(prefix + ".idx")
    return first_token


def sizes_of(case):
    batch, steps = case["batch"], case["evaluate_steps"]
    return [case["steps"] * batch, (case["steps"] // case["evaluate_every"] + 1) * steps * batch, steps * batch]


def build(case, folder):
    """The three data sets, None where there is none."""
    token, blends = 0, {}
    for split in SPLITS:
        prefixes = []
        for i, lengths in enumerate(case.get(split, {}).get("sets", [])):
            prefixes.append(f"{folder}/{split}{i}")
            token = write_set(prefixes[-1], lengths, token)
        if prefixes:
            weights = case[split]["weights"] if len(prefixes) > 1 else None
            blends[split] = (prefixes, weights)
    common = {
        "random_seed": case["seed"], "sequence_length": case["sequence_length"], "tokenizer": Tokenizer(),
        "reset_position_ids": False, "reset_attention_mask": False, "eod_mask_loss": False,
        "create_attention_mask": False,
    }
    if len(blends) > 1:
        config = GPTDatasetConfig(blend_per_split=[blends.get(split) for split in SPLITS], **common)
    else:
        config = GPTDatasetConfig(blend=blends["train"], split=case["split"], **common)
    sizes = [size if config.blend_per_split is None or config.blend_per_split[i] else 0
             for i, size in enumerate(sizes_of(case))]
    with contextlib.redirect_stdout(sys.stderr):
        return BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()


def can_be_built(case):
    if "validation" in case:
        return True
    for part in convert_split_vector_to_split_matrix(parse_and_normalize_split(case["split"])):
        for lengths in case["train"]["sets"]:
            if part is not None and int(round(part[1] * len(lengths))) <= int(round(part[0] * len(lengths))):
                return False
    return True


def with_samples(case):
    """The case with what megatron-core takes, or None if it cannot be built."""
    if not can_be_built(case):
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            datasets = build(case, folder)
        except IndexError:
            return None
        for split, samples, dataset in zip(SPLITS, sizes_of(case), datasets):
            if dataset is None:
                continue
            first, total = [], 0
            for i in range(samples):
                sample = dataset[i]
                tokens = sample["tokens"].tolist()[:1] + sample["labels"].tolist()
                if i < SPARE:
                    first.append(tokens[0])
                for token in tokens:
                    total = (31 * total + token) % 2**64
            case.setdefault(split, {}).update({"samples": samples, "first": first, "sum": total})
    return case


def corpus(r, longest=40):
    return [r.randint(1, longest) for _ in range(r.randint(1, 60))]


def blend(r, sets):
    return {"sets": [corpus(r) for _ in range(sets)], "weights": [round(r.uniform(0.05, 3), 3) for _ in range(sets)]}


def random_case(r):
    case = {
        "sequence_length": r.randint(2, 24), "seed": r.choice([r.randint(0, 2000), r.randint(0, 2**32 - 1)]),
        "steps": r.randint(1, 12), "batch": r.randint(1, 9), "evaluate_steps": r.randint(1, 3),
        "train": blend(r, r.choice([1, 1, 2, 3, 5, 9, 30])),
    }
    case["evaluate_every"] = r.randint(1, case["steps"])
    if r.random() < 0.25:
        case["split"] = "1"
        case["validation"] = blend(r, r.randint(1, 3))
        if r.random() < 0.5:
            case["test"] = blend(r, r.randint(1, 3))
    else:
        case["split"] = r.choice(["969,30,1", "90,10", "98,1,1", "1", "80,15,5", "1,1,1", "7,2.5,1", "0.5,0.25,0.25", "949,50,1"])
    return case


def random_cases(seed, count):
    r, cases = random.Random(seed), []
    while len(cases) < count:
        case = with_samples(random_case(r))
        if case is not None:
            cases.append(case)
    return cases


def golden_cases():
    base = {"sequence_length": 8, "seed": 1234, "steps": 10, "batch": 4, "evaluate_steps": 2, "evaluate_every": 4}
    few = {"sets": [[3, 2, 4]], "weights": [1]}
    yield base | {"name": "nine tokens, sixteen a sample, repeated", "sequence_length": 15, "split": "1", "train": few}
    yield base | {"name": "boundaries that rounding each share would move", "split": "1,1,0",
                  "train": {"sets": [[12, 9, 7]], "weights": [1]}}
    yield base | {"name": "last pass on its own", "split": "1", "train": {"sets": [[11] * 20], "weights": [1]},
                  "steps": 8, "batch": 7}
    # ceil(ceil(40 * 0.34) * 1.005) = 15 samples take two passes of 29 * 4 tokens, ceil(40 * 0.34 * 1.005) = 14 take one.
    yield base | {"name": "a blend asked for more than in 2022", "split": "80,10,10",
                  "train": {"sets": [[4] * 36, [13] * 40], "weights": [0.34, 0.66]}}
    yield base | {"name": "largest seed", "split": "90,10", "seed": 2**32 - 1, "train": {"sets": [[7] * 31], "weights": [1]}}


def lines_of(cases):
    return "[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n"


def check(count, program):
    cases = random_cases(int.from_bytes(os.urandom(4), "little"), count)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/cases.json"
        with open(path, "w", encoding="utf-8") as file:
            file.write(lines_of(cases))
        done = subprocess.run([program, "[megatron_core]"], env=os.environ | {"MEGATRON_CORE_CASES": path}, check=False)
    blends = sum(len(case["train"]["sets"]) > 1 for case in cases)
    print(f"{count} cases, {blends} of them blends: {'equal' if done.returncode == 0 else 'DIFFERENT'}")
    return done.returncode


def main():
    arguments = sys.argv[1:]
    if arguments[:1] == ["--check"]:
        sys.exit(check(int(arguments[1]), arguments[2] if len(arguments) > 2 else "build/tests/test_step"))
    cases = [with_samples(case) for case in golden_cases()] + random_cases(16, 14)
    with open(arguments[0] if arguments else "tests/golden/megatron_core.json", "w", encoding="utf-8") as file:
        file.write(lines_of(cases))


if __name__ == "__main__":
    main()
