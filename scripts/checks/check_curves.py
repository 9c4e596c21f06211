#!/usr/bin/env python3
"""Trains small encoders next to transformers' own models in PyTorch: the losses of every step must be the same.

Usage: python3 scripts/checks/check_curves.py [--programs FOLDER] [--steps 50] [--ranks 1] [MODEL...]
(needs torch, transformers and h5py)

The models begin with the same weights, which transformers draws and megatron_checkpoint imports. Megatron's T5, which
transformers has not, is the one of scripts/golden/make_t5_golden.py, with the weights that our program draws. Both sides see the
same samples, which megatron_train --print-samples prints, and train without dropout with AdamW, a warm-up, weight decay of
matrices only and clipped gradients; PyTorch in float64. Every loss must agree to 1e-5 of itself. Ends with 1 if one does
not, with 77 where a package is missing. A test runs it: tests/CMakeLists.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import torch
    import transformers
    from torch.nn.functional import cross_entropy
except ImportError as error:
    print("check_curves: skipped,", error)
    sys.exit(77)

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "scripts", "golden"))
import make_t5_golden  # noqa: E402

LIMIT = 1e-5
BATCH, WARMUP, PEAK, DECAY, CLIP, BETAS, EPSILON = 8, 10, 3e-3, 0.1, 1.0, (0.9, 0.999), 1e-8
SIZES = {"hidden_dropout": 0.0, "attention_dropout": 0.0}


def padded(rows, filler=0):
    """Lists of numbers as one tensor [samples, longest]."""
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


def mask_of(rows):
    return padded([[1] * len(row) for row in rows])


class FromTransformers:
    @classmethod
    def start(cls, programs, folder, shards, vocabulary):
        """The model in PyTorch, and a checkpoint of its weights."""
        theirs, weights = cls.make(vocabulary), f"{folder}/imported"
        theirs.save_pretrained(f"{folder}/theirs")
        run(f"{programs}/megatron_checkpoint", "import", f"{folder}/theirs", weights, "--data-prefix", shards)
        return theirs, weights


class Bert(FromTransformers):
    """Pre-norm, with Megatron's epsilon and activation; the loss of masked tokens and that of the order of texts."""

    extra_ids, sequence, terms = 0, 64, ("language_model", "sentence_order")
    keys = {**SIZES, "family": "bert", "layers": 3, "hidden_size": 48, "attention_heads": 4, "sequence_length": sequence,
            "max_position_embeddings": sequence}  # fmt: skip

    @staticmethod
    def make(vocabulary):
        return transformers.MegatronBertForPreTraining(transformers.MegatronBertConfig(
            vocab_size=vocabulary, hidden_size=48, num_hidden_layers=3, num_attention_heads=4, intermediate_size=192,
            hidden_act="gelu_new", layer_norm_eps=1e-5, max_position_embeddings=Bert.sequence, hidden_dropout_prob=0,
            attention_probs_dropout_prob=0, initializer_range=0.05))  # fmt: skip

    @staticmethod
    def losses(model, samples):
        targets = torch.full((len(samples), max(len(sample["tokens"]) for sample in samples)), -100)
        for row, sample in enumerate(samples):
            targets[row, sample["masked"]] = torch.tensor(sample["targets"], dtype=torch.long)
        tokens = [sample["tokens"] for sample in samples]
        output = model(input_ids=padded(tokens), attention_mask=mask_of(tokens),
                       token_type_ids=padded([sample["types"] for sample in samples]))  # fmt: skip
        labels = torch.tensor([sample["label"][0] for sample in samples])
        return (cross_entropy(output.prediction_logits.flatten(0, 1), targets.flatten()),
                cross_entropy(output.seq_relationship_logits, labels, ignore_index=-1))  # fmt: skip


class T5(FromTransformers):
    """The original: a bias by distance, ReLU, and a tied head that is scaled."""

    extra_ids, terms = 30, ("language_model",)
    keys = {**SIZES, "family": "t5", "layers": 2, "decoder_layers": 3, "hidden_size": 48, "attention_heads": 4, "head_size": 10,
            "ffn_hidden_size": 160, "sequence_length": 64, "decoder_sequence_length": 24, "position_embedding": "relative",
            "normalization": "rmsnorm", "norm_epsilon": 1e-6, "bias": False, "attention_scale": "none", "activation": "relu",
            "scale_head": True}  # fmt: skip
    gate = {}

    @classmethod
    def make(cls, vocabulary):
        return transformers.T5ForConditionalGeneration(transformers.T5Config(
            vocab_size=vocabulary, d_model=48, d_kv=10, d_ff=160, num_layers=2, num_decoder_layers=3, num_heads=4,
            dropout_rate=0, n_positions=64, **cls.gate))  # fmt: skip

    @staticmethod
    def losses(model, samples):
        encoder = [sample["tokens"] for sample in samples]
        output = model(input_ids=padded(encoder), attention_mask=mask_of(encoder),
                       decoder_input_ids=padded([sample["decoder_tokens"] for sample in samples]))  # fmt: skip
        targets = padded([sample["targets"] for sample in samples], -100)
        return (cross_entropy(output.logits.flatten(0, 1), targets.flatten()),)


class GatedT5(T5):
    """Version 1.1: a gated feed-forward part and an untied head."""

    keys = {**T5.keys, "activation": "geglu", "tie_embeddings": False, "scale_head": False}
    gate = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

    @classmethod
    def make(cls, vocabulary):
        model = super().make(vocabulary)
        model.lm_head.weight = torch.nn.Parameter(0.1 * torch.randn_like(model.lm_head.weight))
        return model


class MegatronT5:
    """Learned positions, LayerNorm, biases, and one of the logits."""

    extra_ids, terms = T5.extra_ids, T5.terms
    keys = {**SIZES, "family": "t5", "layers": 2, "decoder_layers": 3, "hidden_size": 48, "attention_heads": 4,
            "ffn_hidden_size": 160, "sequence_length": 64, "decoder_sequence_length": 24, "head_bias": True,
            "init_std": 0.05}  # fmt: skip

    class Written(torch.nn.Module):
        def __init__(self, model, parameters):
            super().__init__()
            self.model = model
            for name, value in parameters.items():
                self.register_parameter(name.replace(".", "/"), torch.nn.Parameter(value))

        def forward(self, batch):
            return make_t5_golden.forward(self.model, {name.replace("/", "."): value for name, value in self.named_parameters()}, batch)

    @classmethod
    def start(cls, programs, folder, shards, vocabulary):
        # A step that moves nothing by as much as a float's last bit, for its checkpoint.
        train(programs, f"{folder}/start", cls.keys, shards, {"train.steps": 1, "learning_rate.peak": 1e-30, "optimizer.weight_decay": 0.0})
        weights, parameters = f"{folder}/start/run/checkpoints/step_00000001", {}
        with h5py.File(f"{weights}/rank_00000.h5") as file:
            values = torch.from_numpy(file["value"][:]).double()
            for piece in json.loads(file["pieces"][:].tobytes()):
                parameters[piece["name"]] = values[piece["position"] :][: piece["count"]].reshape(piece["shape"])
        model = {**cls.keys, "normalization": "layernorm", "norm_epsilon": 1e-5, "bias": True, "activation": "gelu",
                 "position_embedding": "learned", "tie_embeddings": True, "vocab_size": vocabulary}  # fmt: skip
        return cls.Written(model, parameters), weights

    @staticmethod
    def losses(theirs, samples):
        encoder = [sample["tokens"] for sample in samples]
        logits = theirs({"encoder_tokens": padded(encoder).T, "encoder_lengths": torch.tensor([len(row) for row in encoder]),
                         "tokens": padded([sample["decoder_tokens"] for sample in samples]).T})  # fmt: skip
        targets = padded([sample["targets"] for sample in samples], -100).T
        return (cross_entropy(logits.flatten(0, 1), targets.flatten()),)


MODELS = {"bert": Bert, "t5": T5, "t5-gated": GatedT5, "megatron-t5": MegatronT5}


def run(*command):
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    if ended.returncode != 0:
        sys.exit(f"{' '.join(command)}: code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def toml(value):
    return "true" if value is True else "false" if value is False else json.dumps(value)


def make_shards(programs, folder, extra_ids):
    """The prefix of shards with sentences, and the size of their vocabulary."""
    preprocess, text, words = f"{programs}/megatron_preprocess", f"{folder}/text.jsonl", f"{folder}/words"
    prefix = f"{folder}/shards"
    run(preprocess, "sample-corpus", "--output", text, "--megabytes", "0.3")
    run(preprocess, "train-tokenizer", "--type", "wordpiece", "--input", text, "--output", words, "--vocab-size", "200")
    run(preprocess, "--input", text, "--output", prefix, "--tokenizer", "bert-uncased", "--vocab-file", f"{words}/vocab.txt",
        "--extra-ids", str(extra_ids), "--split-sentences")  # fmt: skip
    with h5py.File(f"{prefix}-00000.h5") as file:
        return prefix, int(file.attrs["vocab_size"])


def train(programs, folder, model_keys, shards, keys, ranks=1):
    """A run of our program in the folder. Its metrics by step, and its input file."""
    os.makedirs(folder, exist_ok=True)
    directory, path = f"{folder}/run", f"{folder}/input.toml"
    keys = {**{f"model.{key}": value for key, value in model_keys.items()}, "train.micro_batch_size": 2,
            "train.global_batch_size": BATCH, "optimizer.betas": list(BETAS), "optimizer.epsilon": EPSILON,
            "optimizer.clip_grad_norm": CLIP, "learning_rate.decay": "constant", "data.train": shards,
            "data.split": "100,0,0", "run.directory": directory, **keys}  # fmt: skip
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{key} = {toml(value)}\n" for key, value in keys.items())
    launch = [f"{ROOT}/scripts/launch.sh", str(ranks)] if ranks > 1 else []
    run(*launch, f"{programs}/megatron_train", path)
    with open(f"{directory}/metrics.jsonl", encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["kind"] == "train"], path


def train_ours(programs, folder, model, shards, weights, steps, ranks):
    """Metrics by step; samples in the order of training."""
    keys = {"train.steps": steps, "optimizer.weight_decay": DECAY, "learning_rate.peak": PEAK,
            "learning_rate.warmup_steps": WARMUP, "checkpoint.initialize_from": weights,
            "checkpoint.every_steps": "never"}  # fmt: skip
    metrics, path = train(programs, folder, model.keys, shards, keys, ranks)
    printed = run(f"{programs}/megatron_train", path, "--print-samples", str(BATCH * steps))
    return metrics, [json.loads(line) for line in printed.splitlines()]


def train_theirs(model, theirs, samples, steps):
    """Terms of the loss by step."""
    theirs = theirs.double().train()
    matrices = [value for value in theirs.parameters() if value.ndim > 1]
    vectors = [value for value in theirs.parameters() if value.ndim <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=PEAK, betas=BETAS, eps=EPSILON)  # fmt: skip
    terms = []
    for step in range(steps):
        losses = model.losses(theirs, samples[step * BATCH : (step + 1) * BATCH])
        terms.append([loss.item() for loss in losses])
        optimizer.zero_grad()
        sum(losses).backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), CLIP)
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, (step + 1) / WARMUP)
        optimizer.step()
    return terms


def check(programs, name, steps, ranks):
    model = MODELS[name]
    with tempfile.TemporaryDirectory() as folder:
        shards, vocabulary = make_shards(programs, folder, model.extra_ids)
        theirs, weights = model.start(programs, folder, shards, vocabulary)
        metrics, samples = train_ours(programs, folder, model, shards, weights, steps, ranks)
        terms = train_theirs(model, theirs, samples, steps)
    assert len(metrics) == steps and all(len(line["losses"]) == len(model.terms) for line in metrics), metrics
    worst = 0.0
    for line, expected in zip(metrics, terms):
        for term, loss in zip(model.terms, expected):
            worst = max(worst, abs(line["losses"][term] / loss - 1))
        if line["step"] in (1, WARMUP, steps):
            print(f"  {name}, step {line['step']}: {line['loss']:.7f}, PyTorch {sum(expected):.7f}")
    clipped = sum(line["grad_norm"] > CLIP for line in metrics)
    falls = metrics[-1]["loss"] < metrics[0]["loss"] - 0.1
    good = worst <= LIMIT and falls and clipped > 0
    print(f"{name}: {steps} steps, {clipped} of them clipped, largest relative difference {worst:.1e}  {'ok' if good else 'WRONG'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=ROOT, help="the folder that the programs are in")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=1, help="of our program: data-parallel")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    transformers.set_seed(1)
    good = [check(arguments.programs, name, arguments.steps, arguments.ranks) for name in arguments.models or MODELS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
