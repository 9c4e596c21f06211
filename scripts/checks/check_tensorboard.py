#!/usr/bin/env python3
"""Reads the TensorBoard events of a run with TensorBoard's own readers: they must hold what metrics.jsonl holds.

Usage: python3 scripts/checks/check_tensorboard.py [--programs FOLDER] (needs tensorboard)

Trains a tiny model, stops it, takes its last checkpoint away so that it resumes from an earlier step, and trains it to the
end. Both files of events together must have every step once, with the numbers of metrics.jsonl in single precision, and the
configuration as text. Then the events are rebuilt from the metrics, and must be the same. Ends with 1 if something is
wrong, with 77 where the package is missing. A test runs it: tests/CMakeLists.txt.
"""

import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as error:
    print("check_tensorboard: skipped,", error)
    sys.exit(77)

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
INPUT = """
[model]
layers = 2
hidden_size = 32
attention_heads = 4
sequence_length = 16
[train]
steps = 12
micro_batch_size = 2
global_batch_size = 8
evaluate_every = 3
evaluate_steps = 2
[learning_rate]
peak = 1e-3
[checkpoint]
every_steps = 4
[data]
train = "corpus"
"""


def run(*command, folder):
    subprocess.run([str(word) for word in command], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def expected(path):
    """Tag and step to the number in single precision, of every number in metrics.jsonl."""
    numbers = {}
    for text in open(path):
        line = json.loads(text)
        group = line["split"] if line["kind"] == "eval" else line["kind"]
        for name, value in line.items():
            if name in ("kind", "split", "step", "time", "losses"):
                continue
            numbers[f"{group}/{name}", line["step"]] = np.float32(np.nan if value is None else value)
    return numbers


def compare(folder, what):
    events = EventAccumulator(f"{folder}/run/tensorboard", size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    found = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            assert (tag, event.step) not in found, f"{what}: {tag} has step {event.step} twice"
            found[tag, event.step] = np.float32(event.value)
    numbers = expected(f"{folder}/run/metrics.jsonl")
    assert found.keys() == numbers.keys(), f"{what}: tags and steps differ: {sorted(found.keys() ^ numbers.keys())}"
    for place, number in numbers.items():
        assert np.array_equal(found[place], number, equal_nan=True), f"{what}: {place}: {found[place]}, not {number}"
    config = events.Tensors("config")[-1].tensor_proto.string_val[0].decode()
    assert "    [model]\n    family" in config, f"{what}: {config[:200]}"
    print(f"check_tensorboard: {what}: {len(numbers)} numbers are those of metrics.jsonl")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", default=ROOT)
    programs = os.path.abspath(parser.parse_args().programs)
    with tempfile.TemporaryDirectory() as folder:
        run(f"{programs}/megatron_preprocess", "sample-corpus", "--output", "corpus.jsonl", "--megabytes", "0.1", folder=folder)
        run(f"{programs}/megatron_preprocess", "--input", "corpus.jsonl", "--output", "corpus", "--tokenizer", "byte", folder=folder)
        with open(f"{folder}/input.toml", "w") as file:
            file.write(INPUT)
        run(f"{programs}/megatron_train", "input.toml", "--set", "train.stop_after=8", folder=folder)
        shutil.rmtree(f"{folder}/run/checkpoints/step_00000008")
        run(f"{programs}/megatron_train", "input.toml", folder=folder)
        assert len(glob.glob(f"{folder}/run/tensorboard/*")) == 2
        compare(folder, "after a resume from step 4")
        run(f"{programs}/megatron_train", "--tensorboard", "run", folder=folder)
        compare(folder, "rebuilt")


if __name__ == "__main__":
    main()
