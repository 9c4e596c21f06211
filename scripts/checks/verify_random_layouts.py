#!/usr/bin/env python3
"""Runs megatron_train --verify on random configurations: right layouts must all be verified.

Usage: python3 scripts/checks/verify_random_layouts.py [--count 500] [--first 0] [--seed 1] [--together 1] [--folder FOLDER]

Configuration N of a seed is always the same: tiny models of every family and kind (positions, activations, norms, groups,
biases, ties, windows, residuals), documents, orders, losses, precisions, dropout, growing batches and sequences, optimizers, on
layouts of up to 8 ranks with every schedule. What is not verified is printed with the command that repeats it. Ends
with 1 if there was any. Gradients beyond fp16 are no failure, if that is what the program says. A test runs the first
dozen: tests/CMakeLists.txt.
"""

import argparse
import concurrent.futures
import os
import random
import subprocess
import sys
import tempfile
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
TIME_LIMIT = 300  # seconds for one configuration, on a machine that has other work as well


def toml(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + "}"
    return repr(value)


class Draw:
    """One configuration: keys with values, and the number of ranks."""

    def __init__(self, seed, number):
        self.random = random.Random(f"{seed}/{number}")
        self.keys = {}
        self.draw_layout()
        self.draw_model()
        self.draw_batches()
        self.draw_growth()
        self.draw_data()
        self.draw_training()
        self.draw_families()
        self.draw_encoders()
        self.draw_lion()
        self.draw_groups()
        self.draw_matrix_rule()
        self.draw_width()
        if self.sometimes(0.25):
            self.set("optimizer.moments_dtype", "bf16")
        self.draw_context()
        self.draw_head()
        self.draw_share()

    def one_of(self, *values):
        return self.random.choice(values)

    def sometimes(self, share):
        return self.random.random() < share

    def set(self, key, value):
        self.keys[key] = value

    def draw_layout(self):
        shapes = [(t, p, d) for t in (1, 2, 4) for p in (1, 2, 3, 4) for d in (1, 2, 3, 4) if t * p * d <= 8]
        self.tensor, self.pipeline, self.data = self.one_of(*shapes)
        self.ranks = self.tensor * self.pipeline * self.data
        self.set("parallel.tensor", self.tensor)
        self.set("parallel.pipeline", self.pipeline)
        self.sequence_parallel = self.tensor > 1 and self.sometimes(0.5)
        self.set("parallel.sequence_parallel", self.sequence_parallel)
        self.schedule = self.one_of("1f1b", "gpipe", "interleaved", "zero_bubble") if self.pipeline > 1 else "1f1b"
        self.set("parallel.schedule", self.schedule)
        self.chunks = self.pipeline
        if self.schedule == "interleaved":
            self.chunks *= 2
            self.set("parallel.virtual_stages", 2)
        self.set("parallel.overlap_gradients", self.sometimes(0.5))
        self.set("run.threads", self.one_of(1, 1, 2))

    def draw_model(self):
        per_chunk = self.one_of(1, 1, 2)
        layers = [per_chunk] * self.chunks
        if self.chunks > 1 and self.sometimes(0.3):
            layers[self.random.randrange(self.chunks)] += 1
            self.set("parallel.layers_per_stage", layers)
        self.set("model.layers", sum(layers))
        heads = self.tensor * self.one_of(1, 1, 2, 3)
        head_size = self.one_of(2, 4, 8, 10, 16)
        self.set("model.attention_heads", heads)
        self.set("model.hidden_size", heads * head_size)
        groups = [g for g in range(1, heads + 1) if heads % g == 0 and (g % self.tensor == 0 or self.tensor % g == 0)]
        self.set("model.query_groups", self.one_of(*groups))
        self.set("model.ffn_hidden_size", self.tensor * self.one_of(1, 3, 8, 16, 24))
        sequence = self.one_of(1, 1, 2, 3, 5, 8, 16, 17, 32)
        self.sequence = sequence * self.tensor if self.sequence_parallel and sequence % self.tensor else sequence
        self.set("model.sequence_length", self.sequence)
        positions = self.one_of("learned", "rope", "alibi", "none")
        self.set("model.position_embedding", positions)
        if positions == "rope" and self.sometimes(0.4):
            self.set("model.rotary_fraction", 0.5 if head_size % 4 == 0 else 1.0)
            self.set("model.rotary_base", self.one_of(100.0, 500000.0))
        if positions == "rope" and self.sometimes(0.3):
            self.set("model.rotary_scaling", self.one_of(
                {"type": "linear", "factor": 4.0}, {"type": "llama3", "factor": 8.0, "original_length": 16}))
        self.set("model.activation", self.one_of("gelu", "gelu_exact", "relu", "relu", "tanh", "swiglu", "geglu"))
        self.set("model.normalization", self.one_of("layernorm", "rmsnorm"))
        self.set("model.query_key_norm", self.sometimes(0.3))
        self.set("model.attention_softcap", self.one_of(0.05, 1.0, 50.0) if self.sometimes(0.2) else 0.0)
        self.set("model.tie_embeddings", self.sometimes(0.5))
        self.set("model.bias", self.sometimes(0.5))
        dropout = self.sometimes(0.5)
        self.set("model.hidden_dropout", self.one_of(0.1, 0.5) if dropout else 0.0)
        self.set("model.attention_dropout", self.one_of(0.1, 0.5) if dropout else 0.0)
        self.set("model.init_std", self.one_of(0.02, 0.02, 0.2, 0.001))
        self.set("model.vocab_multiple", self.tensor * self.one_of(1, 8, 32))

    def draw_batches(self):
        micro = self.one_of(1, 1, 2, 3)
        self.together = micro * self.data
        count = self.one_of(1, 2, 3, 4)
        if self.schedule == "interleaved":
            count *= self.pipeline
        self.set("train.micro_batch_size", micro)
        self.batch = self.together * count
        self.set("train.global_batch_size", self.batch)
        self.set("train.seed", self.random.randrange(10**6))
        self.set("train.steps", self.one_of(1, 2, 3, 5))
        zero_bubble = self.schedule == "zero_bubble"
        if self.sometimes(0.4):
            # The zero-bubble schedule refuses to have every layer recomputed.
            self.set("recompute.mode", self.one_of("selective", "selective" if zero_bubble else "full"))
        if self.keys.get("recompute.mode") == "selective":
            self.set("recompute.parts", self.random.sample(["norms", "activations", "feed_forward"], self.one_of(1, 2)))
        if self.keys.get("recompute.mode") == "full" and self.sometimes(0.5):
            self.set("recompute.layers", 1)

    def draw_growth(self):
        step = self.together * (self.pipeline if self.schedule == "interleaved" else 1)
        if self.batch > step and self.sometimes(0.3):
            self.set("train.batch_ramp_up", {"start": step, "increment": step, "samples": 2 * self.batch})
        elif self.sequence > 2 * self.tensor and self.sequence % self.tensor == 0 and self.sometimes(0.3):
            self.set("train.curriculum", self.one_of(
                {"schedule": "fixed_linear", "start": self.tensor, "steps": 3, "multiple": self.tensor},
                {"schedule": "fixed_root", "start": self.tensor, "steps": 3, "multiple": self.tensor, "root_degree": 2},
                {"schedule": "fixed_discrete", "lengths": [self.tensor, self.sequence], "until": [1]}))

    def draw_data(self):
        if self.sometimes(0.4):
            for key in ("reset_attention_mask", "reset_position_ids", "eod_mask_loss"):
                self.set(f"data.{key}", self.sometimes(0.6))
        # A batch that has no target but masked ones is refused, and rightly.
        if self.sequence == 1 or "train.curriculum" in self.keys:
            self.keys.pop("data.eod_mask_loss", None)
        if self.sometimes(0.2):
            self.set("loss.name", "key_tokens")
            self.set("loss.token_ids", [32, 101, 104])
            self.set("loss.alpha", self.one_of(0.0, 0.5, 3.0))
        self.set("data.order", self.one_of("epoch", "epoch", "megatron"))

    def draw_training(self):
        precision = self.one_of("fp32", "fp32", "fp32", "bf16", "fp16")
        self.set("precision.compute", precision)
        if precision == "fp16" and self.sometimes(0.4):
            self.set("precision.loss_scale", self.one_of(1.0, 1000.0))
        if self.sometimes(0.3):
            self.set("optimizer.name", "sgd")
            self.set("optimizer.momentum", self.one_of(0.0, 0.9))
        else:
            self.set("optimizer.epsilon", self.one_of(1e-8, 1e-8, 1e-15, 1e-3))
            self.set("optimizer.betas", self.one_of([0.9, 0.999], [0.9, 0.95], [0.0, 0.5]))
        self.set("optimizer.weight_decay", self.one_of(0.0, 0.01, 0.3))
        self.set("optimizer.clip_grad_norm", self.one_of(0.0, 0.1, 1.0))
        self.set("optimizer.share", "state" if self.sometimes(0.5) else "none")
        self.set("learning_rate.peak", self.one_of(1e-5, 1e-3, 1e-2, 0.3))
        self.set("learning_rate.decay", self.one_of("cosine", "constant", "linear"))

    def draw_groups(self):
        """Groups of parameters, drawn after everything else, so that the draws above stay what they were."""
        if not self.sometimes(0.3):
            return
        groups = []
        selections = ({"roles": ["embedding"]}, {"roles": ["vector", "norm"]},
                      self.one_of({"roles": ["matrix"]}, {"names": ["*layers.0.*"]}))  # fmt: skip
        for selection in selections:
            if not self.sometimes(0.5):
                continue
            group = dict(selection)
            group["learning_rate_factor"] = self.one_of(0.0, 0.3, 1.0, 2.0)
            if self.sometimes(0.4):
                group["weight_decay"] = self.one_of(0.0, 0.1)
            if self.sometimes(0.4):
                group["name"] = self.one_of("adamw", "sgd")
            groups.append(group)
        if groups:
            self.set("optimizer.groups", groups)

    def draw_families(self):
        """What models of other families have."""
        if self.sometimes(0.3):
            self.set("model.residual", self.one_of("parallel", "parallel_one_norm"))
        if self.sometimes(0.3):
            self.set("model.attention_window", self.one_of(1, 2, 3, 5, 8, 40))
        if self.sometimes(0.3):
            half_is_rotated = self.keys.get("model.rotary_fraction") == 0.5
            self.set("model.head_size", self.one_of(4, 8, 12) if half_is_rotated else self.one_of(2, 6, 8, 12))
        for key in ("scale_embeddings", "embedding_norm", "head_bias"):
            if self.sometimes(0.2):
                self.set(f"model.{key}", True)
        if self.sometimes(0.3):
            self.set("model.bias", self.one_of("attention", "query_key_value", "feed_forward"))
        if self.sometimes(0.25):
            self.set("data.order", "megatron_core")

    def draw_encoders(self):
        """BERT and T5, drawn after all that decoders have. They have no use for what belongs to tokens in a row."""
        if not self.sometimes(0.3):
            return
        for key in ("data.reset_attention_mask", "data.reset_position_ids", "data.eod_mask_loss", "loss.name",
                    "loss.token_ids", "loss.alpha", "train.curriculum", "model.attention_window"):  # fmt: skip
            self.keys.pop(key, None)
        self.set("model.sequence_length", 4 * self.one_of(3, 4, 8, 16))
        self.set("data.order", self.one_of("epoch", "epoch", "megatron"))
        self.set("data.split", "100,0,0")
        if self.keys.get("precision.loss_scale") == 1.0:  # a new encoder's scores have gradients that fp16 rounds to 0
            self.set("precision.loss_scale", 1000.0)
        if self.sometimes(0.5):
            self.draw_bert()
        else:
            self.draw_t5()

    def draw_bert(self):
        self.set("model.family", "bert")
        self.set("model.activation", self.one_of("gelu", "gelu_exact", "relu", "tanh"))
        if self.keys["model.position_embedding"] == "alibi":
            self.set("model.position_embedding", "learned")
        if self.sometimes(0.5):
            self.set("model.norm_position", "post")
            self.keys.pop("model.residual", None)

    def draw_t5(self):
        self.set("model.family", "t5")
        for key in ("residual", "query_key_norm", "embedding_norm", "scale_embeddings", "rotary_fraction", "rotary_base",
                    "rotary_scaling"):  # fmt: skip
            self.keys.pop(f"model.{key}", None)
        layers = self.keys["model.layers"]
        if layers == 1:  # an encoder and a decoder have one each
            self.set("model.layers", 1)
            self.set("model.decoder_layers", 1)
            self.keys.pop("parallel.layers_per_stage", None)
        else:
            encoder = self.random.randrange(1, layers)
            self.set("model.layers", encoder)
            self.set("model.decoder_layers", layers - encoder)
        length = 4 * self.one_of(1, 2, 3, 8)
        if self.keys["data.order"] == "megatron":  # which refuses samples that do not fit
            length = self.keys["model.sequence_length"]
        self.set("model.decoder_sequence_length", length)
        relative = self.sometimes(0.6)
        self.set("model.position_embedding", "relative" if relative else "learned")
        if relative and self.sometimes(0.5):
            self.set("model.relative_buckets", 8)
            self.set("model.relative_max_distance", self.one_of(5, 9, 20))
        self.set("model.attention_scale", self.one_of("head_size", "none"))
        self.set("model.scale_head", self.keys["model.tie_embeddings"] and self.sometimes(0.5))
        if self.keys["model.position_embedding"] == "learned":
            longest = max(self.keys["model.sequence_length"], self.keys["model.decoder_sequence_length"])
            self.set("model.max_position_embeddings", longest)

    def draw_lion(self):
        """Lion in place of AdamW, with its betas."""
        if "optimizer.epsilon" in self.keys and self.sometimes(0.25):
            self.keys.pop("optimizer.epsilon")
            self.set("optimizer.name", "lion")

    def draw_matrix_rule(self):
        """Muon in place of the rule that was drawn. Drawn after Lion, so that the draws above stay what they were."""
        if not self.sometimes(0.2):
            return
        for key in ("betas", "momentum"):
            self.keys.pop(f"optimizer.{key}", None)
        self.set("optimizer.name", "muon")
        self.set("optimizer.momentum", self.one_of(0.0, 0.95))
        self.set("optimizer.nesterov", self.sometimes(0.5))
        self.set("optimizer.muon_scale", self.one_of("spectral", "match_adam_rms"))
        self.set("optimizer.adamw_learning_rate_factor", self.one_of(1.0, 0.1))

    def draw_width(self):
        """Learning rates and weights of another width."""
        if self.sometimes(0.2):
            self.set("optimizer.scaling", "mup")
            self.set("model.base_hidden_size", max(1, self.keys["model.hidden_size"] // self.one_of(2, 4)))

    # Last, so that a seed draws what it drew before there were context ranks.
    def draw_context(self):
        sequence = self.keys["model.sequence_length"]
        unit = self.tensor if self.sequence_parallel else 1
        fits = [c for c in (2, 4) if self.ranks * c <= 8 and sequence % (2 * c) == 0 and sequence % (c * unit) == 0]
        if self.keys.get("model.family") == "t5":
            fits = [c for c in fits if self.keys["model.decoder_sequence_length"] % (2 * c * unit) == 0]
        if not fits or "train.curriculum" in self.keys or self.sometimes(0.3):
            return
        context = self.one_of(*fits)
        self.set("parallel.context", context)
        self.ranks *= context
        self.draw_exchange(context)

    def draw_exchange(self, context):
        heads = self.keys["model.attention_heads"] // self.tensor
        groups = max(1, self.keys["model.query_groups"] // self.tensor)
        exchanges = ["auto", "gathered"]
        if heads % context == 0 and (groups % context == 0 or context % groups == 0):
            exchanges.append("ulysses")
        lengths = [self.keys["model.sequence_length"]]
        if self.keys.get("model.family") == "t5":
            lengths.append(self.keys["model.decoder_sequence_length"])
        if self.keys["model.attention_dropout"] == 0 or all(length % (16 * context) == 0 for length in lengths):
            exchanges.append("ring")
        self.set("parallel.context_exchange", self.one_of(*exchanges))

    def draw_head(self):
        """Chunks of the head's rows. Drawn after context ranks, so that the draws above stay what they were."""
        if self.sometimes(0.3):
            self.set("model.head_chunks", self.one_of(2, 3, 1000))

    def draw_share(self):
        late = self.keys.get("parallel.schedule") == "zero_bubble"
        whole = self.keys.get("optimizer.name") == "muon"
        if self.keys["optimizer.share"] == "state" and not late and not whole and self.sometimes(0.5):
            whole_model = self.keys.get("parallel.pipeline", 1) == 1
            self.set("optimizer.share", "weights" if whole_model and self.sometimes(0.5) else "gradients")


def make_corpus(folder, preprocess):
    """Prefixes of shards: of tokens in a row, and of sentences."""
    text, words = os.path.join(folder, "text.jsonl"), os.path.join(folder, "words")
    rows, sentences = os.path.join(folder, "corpus"), os.path.join(folder, "sentences")
    pieces = ["--tokenizer", "bert-uncased", "--vocab-file", os.path.join(words, "vocab.txt"), "--extra-ids", "30"]
    for arguments in (["sample-corpus", "--output", text, "--megabytes", "0.05"],
                      ["--input", text, "--output", rows, "--tokenizer", "byte"],
                      ["train-tokenizer", "--type", "wordpiece", "--input", text, "--output", words, "--vocab-size", "150"],
                      ["--input", text, "--output", sentences, *pieces, "--split-sentences"]):  # fmt: skip
        subprocess.run([preprocess, *arguments], check=True, stdout=subprocess.DEVNULL)
    return {"gpt": rows, "bert": sentences, "t5": sentences}


def beyond_fp16(errors):
    """Whether gradients overflowed at the drawn or the least loss scale, and the error says so of one rank alone."""
    said = [line for line in errors.splitlines() if "error: " in line and "one rank in fp16 does not train" in line]
    return any("by inf" in line for line in said)


def verify(draw, number, folder, shards, program):
    """The failure in words; empty: it was verified, or was the reference itself."""
    path = os.path.join(folder, f"layout_{number}.toml")
    prefix = shards[draw.keys.get("model.family", "gpt")]
    keys = {**draw.keys, "data.train": prefix, "run.directory": os.path.join(folder, "run")}
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{key} = {toml(value)}\n" for key, value in keys.items())
    command = [os.path.join(ROOT, "scripts", "launch.sh"), str(draw.ranks), program, path, "--verify"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        try:
            output, errors = job.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            for _ in range(2):  # the first asks the ranks to stop, the second ends them
                job.terminate()
                time.sleep(1)
            job.communicate()
            return f"not done after {TIME_LIMIT} s"
    said = "verified: " in output or "nothing to compare" in output
    if job.returncode == 0 and (said or draw.ranks == 1):
        os.remove(path)
        return ""
    if beyond_fp16(errors):
        os.remove(path)
        return ""
    lines = [line for line in errors.splitlines() if "error: " in line or "warning: " in line]
    return f"code {job.returncode}\n  " + "\n  ".join(lines or ["(no error)"]) + "\n" + output


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--together", type=int, default=1, help="configurations at a time")
    parser.add_argument("--folder", help="where configurations that fail stay (default: a temporary folder)")
    parser.add_argument("--print", action="store_true", help="print the configurations, run nothing")
    parser.add_argument("--programs", default=ROOT, help="the folder that megatron_train is in")
    arguments = parser.parse_args()
    numbers = range(arguments.first, arguments.first + arguments.count)
    if arguments.print:
        for number in numbers:
            draw = Draw(arguments.seed, number)
            print(f"# {number}: {draw.ranks} ranks")
            print("".join(f"{key} = {toml(value)}\n" for key, value in draw.keys.items()))
        return 0
    failed = []
    program = os.path.join(arguments.programs, "megatron_train")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or temporary
        os.makedirs(folder, exist_ok=True)
        shards = make_corpus(folder, os.path.join(arguments.programs, "megatron_preprocess"))
        start = time.monotonic()

        def failure_of(number):
            return verify(Draw(arguments.seed, number), number, folder, shards, program)

        with concurrent.futures.ThreadPoolExecutor(arguments.together) as pool:
            for number, failure in zip(numbers, pool.map(failure_of, numbers)):
                if not failure:
                    continue
                failed.append(number)
                print(f"configuration {number} on {Draw(arguments.seed, number).ranks} ranks: {failure}")
                print(f"  again: {sys.argv[0]} --seed {arguments.seed} --first {number} --count 1\n", flush=True)
        seconds = time.monotonic() - start
    print(f"{len(numbers)} configurations in {seconds:.0f} s, not verified: {len(failed)} {failed or ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
