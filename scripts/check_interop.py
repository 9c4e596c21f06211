#!/usr/bin/env python3
"""Checks megatron_checkpoint export and import against Hugging Face's transformers itself.

Usage: python3 scripts/check_interop.py [--checkpoint SOURCE] [--program ./megatron_checkpoint]   (torch, transformers)

Saves random GPT-2 and Llama models of several kinds with transformers, imports them, and compares the logits that both
compute; exports each import again, some of them in every dtype, and compares what transformers computes from that. With
--checkpoint: exports a run or checkpoint, in every dtype and in several files, and compares too. fp32 must agree to
1e-5. Ends with 1 if anything does not, with 77 where transformers is missing. A test runs it: tests/CMakeLists.txt.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    print("check_interop: skipped,", error)
    sys.exit(77)

LLAMA = {"vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
         "max_position_embeddings": 64, "initializer_range": 0.1}  # fmt: skip
GPT2 = {"vocab_size": 131, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64, "initializer_range": 0.1}
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip


def gpt2(**keys):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**GPT2, **keys}))


def llama(**keys):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **keys}))


MODELS = {
    "gpt2": lambda: gpt2(),
    "gpt2, exact gelu, narrow mlp, other epsilon": lambda: gpt2(
        activation_function="gelu", n_inner=60, layer_norm_epsilon=1e-3
    ),
    "gpt2, relu": lambda: gpt2(activation_function="relu"),
    "gpt2, untied head": lambda: gpt2(tie_word_embeddings=False),
    "gpt2 without its head": lambda: transformers.GPT2Model(transformers.GPT2Config(**GPT2)),
    "llama, multi-head": lambda: llama(num_key_value_heads=6, tie_word_embeddings=False),
    "llama, two groups": lambda: llama(num_key_value_heads=2, tie_word_embeddings=False),
    "llama, one group, tied": lambda: llama(num_key_value_heads=1, tie_word_embeddings=True),
    "llama, biases": lambda: llama(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama, other base": lambda: llama(num_key_value_heads=2, rope_theta=500000.0),
    "llama, llama3 scaling": lambda: llama(num_key_value_heads=2, rope_scaling=SCALED),
}

EVERY_DTYPE = ("gpt2, untied head", "llama, two groups")

failures = 0


def report(name, difference, scale, limit):
    global failures
    good = difference <= limit * max(1.0, scale)
    failures += not good
    print(f"{name:<60} largest difference {difference:.2e} of {scale:.2f}  {'ok' if good else 'WRONG'}")


def convert(program, command, source, target, folder, *options):
    logits = os.path.join(folder, "logits.json")
    subprocess.run([program, command, source, target, "--logits", logits, *options], check=True, capture_output=True)
    with open(logits, encoding="utf-8") as file:
        ours = json.load(file)
    return ours["tokens"], torch.tensor(ours["logits"]).view(len(ours["tokens"]), -1)


def theirs(model, tokens):
    model.eval()
    with torch.no_grad():
        if isinstance(model, transformers.GPT2Model):
            return model(torch.tensor([tokens])).last_hidden_state[0] @ model.wte.weight.T
        return model(torch.tensor([tokens])).logits[0]


def check_model(program, name, model, folder):
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.05 * torch.randn_like(parameter)
    saved, imported, exported = (os.path.join(folder, part) for part in ("saved", "imported", "exported"))
    model.save_pretrained(saved, max_shard_size="100KB")
    tokens, ours = convert(program, "import", saved, imported, folder)
    expected = theirs(model, tokens)
    report(name + ": imported", (ours - expected).abs().max().item(), expected.abs().max().item(), 1e-5)
    convert(program, "export", imported, exported, folder, "--max-shard-size", "64KB")
    again = transformers.AutoModelForCausalLM.from_pretrained(exported)
    difference = (theirs(again, tokens) - expected).abs().max().item()
    report(name + ": exported again", difference, expected.abs().max().item(), 1e-5)
    if name in EVERY_DTYPE:
        check_checkpoint(program, name, imported, folder)


def check_checkpoint(program, name, source, folder):
    for dtype, limit in (("fp32", 1e-5), ("bf16", 2e-2), ("fp16", 2e-3)):
        target = os.path.join(folder, dtype)
        tokens, ours = convert(program, "export", source, target, folder, "--dtype", dtype, "--max-shard-size", "1MB")
        model = transformers.AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
        expected = theirs(model, tokens)
        difference = (ours - expected).abs().max().item()
        report(f"{name}: exported as {dtype}", difference, expected.abs().max().item(), limit)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint")
    parser.add_argument("--program", default="./megatron_checkpoint")
    parser.add_argument("--only", default="", help="models whose names begin so")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    for name, make in MODELS.items():
        if not name.startswith(arguments.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check_model(arguments.program, name, make(), folder)
            except subprocess.CalledProcessError as error:
                global failures
                failures += 1
                print(name, "WRONG", error.stderr.decode())
    if arguments.checkpoint:
        with tempfile.TemporaryDirectory() as folder:
            check_checkpoint(arguments.program, arguments.checkpoint, arguments.checkpoint, folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
