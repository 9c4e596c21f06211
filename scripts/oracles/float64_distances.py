#!/usr/bin/env python3
"""Measures how far our fp32 and PyTorch's fp32 are from float64, for every family that Hugging Face's transformers has.

Usage: python3 scripts/oracles/float64_distances.py [--programs FOLDER] [FAMILY...]     (torch, transformers, h5py; a minute)

Models are tiny and random, made as those of check_interop.py. Compared are the logits that megatron_checkpoint
writes, the loss of a batch of eight samples in training, and its gradient with respect to all parameters: that is read
from one step of SGD with a rate of 2^20, which makes the weights vanish in it, and has one rounding more for it. PyTorch
computes the same in fp32 and in float64, on one thread as we do. Distances are relative, of all numbers together in their
norm. Prints the table of docs/exactness.md. Ends with 1 if one of ours is larger than 1e-5, with 77 where a package is
missing.
"""

import argparse
import copy
import json
import os
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts", "checks"))
import check_curves  # noqa: E402  (these end with 77 where a package is missing)
import check_interop  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

BATCH, RATE, LIMIT = 8, 2.0**20, 1e-5
INPUT = {
    "train": {"steps": 1, "micro_batch_size": 2, "global_batch_size": BATCH},
    "optimizer": {"name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "clip_grad_norm": 0.0},
    "learning_rate": {"peak": RATE, "decay": "constant"},
}


FAMILIES = {name: getattr(check_interop, name.replace("-", "_")) for name in (
    "gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "opt", "bloom", "phi", "megatron-bert", "bert", "mixtral", "qwen3_moe",
    "qwen2_moe", "t5")}  # fmt: skip
FAMILIES["gpt_neox"] = check_interop.neox
FAMILIES["mt5"] = lambda **keys: check_interop.untied(check_interop.mt5, **keys)


def make_model(make, vocabulary):
    """Without dropout, with weights of which none is 0 or 1 everywhere, and no token whose row is not trained."""
    model = make(vocab_size=vocabulary).eval()
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.05 * torch.randn_like(parameter)
    return model


def loss_of(model, samples):
    if model.config.is_encoder_decoder:
        return sum(check_curves.T5.losses(model, samples))
    if check_interop.is_encoder(model):
        return sum(check_curves.Bert.losses(model, samples))
    tokens = torch.tensor([sample["tokens"] for sample in samples])
    return torch.nn.functional.cross_entropy(model(tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten())


def theirs(model, inputs, samples):
    """Logits, loss, and gradients by name."""
    model.zero_grad()
    loss = loss_of(model, samples)
    loss.backward()
    gradients = {name: value.grad.double() for name, value in model.named_parameters() if value.grad is not None}
    return check_interop.theirs(model, inputs).double(), loss.item(), gradients


def train_once(programs, folder, model, imported, shards):
    """Loss, the samples of the step, and the folder of a checkpoint after it."""
    settings = ["model.hidden_dropout=0", "model.attention_dropout=0"]
    if model.config.is_encoder_decoder:
        settings += ["model.sequence_length=64", "model.decoder_sequence_length=24"]
    if hasattr(model.config, "router_aux_loss_coef"):
        settings += ["moe.balance_coefficient=0", "moe.z_coefficient=0"]
    path, directory = f"{folder}/input.toml", f"{folder}/run"
    tables = {**INPUT, "data": {"train": shards, "split": "100,0,0"}, "checkpoint": {"initialize_from": imported}, "run": {"directory": directory}}
    with open(f"{imported}/model.toml", encoding="utf-8") as made, open(path, "w", encoding="utf-8") as file:
        file.write(made.read())
        for table, keys in tables.items():
            file.write(f"\n[{table}]\n" + "".join(f"{key} = {check_curves.toml(value)}\n" for key, value in keys.items()))
    command = [f"{programs}/megatron_train", path, *(part for setting in settings for part in ("--set", setting))]
    check_curves.run(*command)
    samples = check_curves.run(*command, "--print-samples", str(BATCH)).splitlines()
    with open(f"{directory}/metrics.jsonl", encoding="utf-8") as file:
        loss = json.loads(file.readline())["loss"]
    return loss, [json.loads(sample) for sample in samples], f"{directory}/checkpoints/step_00000001"


def exported(programs, name, source, folder):
    """Weights by name. Of the weights before a step too, since rows that no token can have are not imported."""
    target = f"{source}_exported"
    check_interop.convert(f"{programs}/megatron_checkpoint", "export", source, target, folder, "--format", name)
    return check_interop.load(target).state_dict()


def distances(programs, name, shards, vocabulary):
    """Of logits, loss and gradients: ours from float64, and PyTorch's."""
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(FAMILIES[name], vocabulary)
        model.save_pretrained(f"{folder}/saved")
        convert = check_interop.convert
        inputs, logits = convert(f"{programs}/megatron_checkpoint", "import", f"{folder}/saved", f"{folder}/imported", folder,
                                 "--data-prefix", shards)  # fmt: skip
        loss, samples, checkpoint = train_once(programs, folder, model, f"{folder}/imported", shards)
        before, after = (exported(programs, name, source, folder) for source in (f"{folder}/imported", checkpoint))
        narrow = theirs(model, inputs, samples)
        exact = theirs(copy.deepcopy(model).double(), inputs, samples)
    gradients = {name: (before[name].double() - after[name].double()) / RATE for name in exact[2]}

    def apart(ours, expected):
        names = sorted(expected)
        difference = torch.cat([(ours[name] - expected[name]).flatten() for name in names])
        return (difference.norm() / torch.cat([expected[name].flatten() for name in names]).norm()).item()

    def of(side):
        return (apart({"": side[0].double()}, {"": exact[0]}), abs(side[1] / exact[1] - 1), apart(side[2], exact[2]))

    return of((logits, loss, gradients)), of(narrow)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=ROOT, help="the folder that the programs are in")
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(FAMILIES))
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    transformers.set_seed(1)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    print("| family | logits | loss | gradients |\n|---|---|---|---|")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        shards, vocabulary = check_curves.make_shards(arguments.programs, folder, check_curves.T5.extra_ids)
        for name in arguments.families or FAMILIES:
            ours, pytorch = distances(arguments.programs, name, shards, vocabulary)
            cells = [f"{mine:.1e} / {other:.1e}" for mine, other in zip(ours, pytorch)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
            good = good and max(ours) <= LIMIT
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
