#!/usr/bin/env python3
"""Turns a Megatron-LM GPT checkpoint into a GPT-2 model as Hugging Face keeps it, for `megatron_checkpoint import`.

Usage: python3 scripts/megatron_to_safetensors.py SOURCE TARGET [--iteration N] [--vocab-size N] [--trust]   (torch)

SOURCE is the folder that --save named (its latest checkpoint, or --iteration) or one iter_... folder, with mp_rank_XX or
mp_rank_XX_YYY of any tensor and pipeline size, virtual stages included. All orders of query, key and value are read
(checkpoint versions 0 to 3), and the names of old versions. TARGET gets model.safetensors in fp32 and config.json; add
GPT-2's vocab.json and merges.txt if that is its vocabulary. Padding rows of the vocabulary stay unless --vocab-size says
how many there are. Optimizer state is left behind.

Checkpoints are Python pickles, which can run any code when they are read. Only plain data and argparse's Namespace are
let in; --trust lets everything in, for files of people that you trust.
"""

import argparse
import json
import os
import re
import shutil
import struct
import sys

import torch

SHARDED_ROWS = ("query_key_value.weight", "query_key_value.bias", "dense_h_to_4h.weight", "dense_h_to_4h.bias",
                "word_embeddings.weight", "word_embeddings_for_head.weight")  # fmt: skip
SHARDED_COLUMNS = ("attention.dense.weight", "dense_4h_to_h.weight")


def stop(message):
    sys.exit(f"error: {message}")


def find_folder(source, iteration):
    """The folder with the mp_rank folders."""
    if any(name.startswith("mp_rank_") for name in os.listdir(source)):
        return source
    if iteration is None:
        tracker = os.path.join(source, "latest_checkpointed_iteration.txt")
        if not os.path.exists(tracker):
            stop(f"{source} has neither mp_rank folders nor latest_checkpointed_iteration.txt")
        with open(tracker, encoding="utf-8") as file:
            iteration = file.read().strip()
    name = "release" if iteration == "release" else f"iter_{int(iteration):07d}"
    return os.path.join(source, name)


def find_ranks(folder):
    """The model's file of every (tensor, pipeline) rank."""
    files = {}
    for name in sorted(os.listdir(folder)):
        match = re.fullmatch(r"mp_rank_(\d\d)(?:_(\d\d\d))?", name)
        for file in ("model_optim_rng.pt", "model_rng.pt") if match else ():
            path = os.path.join(folder, name, file)
            if os.path.exists(path):
                files[int(match[1]), int(match[2] or 0)] = path
    if not files:
        stop(f"{folder} has no mp_rank_XX/model_optim_rng.pt")
    tensor, pipeline = (1 + max(rank[axis] for rank in files) for axis in (0, 1))
    missing = [(t, p) for t in range(tensor) for p in range(pipeline) if (t, p) not in files]
    if missing:
        stop(f"{folder}: the file of tensor rank {missing[0][0]}, pipeline rank {missing[0][1]} is missing")
    return files, tensor, pipeline


def load(path, trust):
    try:
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=not trust)
    except Exception as error:  # pickle's own kinds differ by version
        stop(f"{path} cannot be read ({str(error).splitlines()[0]}); --trust reads pickles of people that you trust")


def flatten(tree, prefix=""):
    """Nested dictionaries as dotted names, old names as new ones."""
    flat = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat.update(flatten(value, name + "."))
        elif isinstance(value, torch.Tensor):
            name = name.replace("language_model.transformer.", "language_model.encoder.")
            flat[re.sub(r"\.attention\.(query_key_value|dense)\.", r".self_attention.\1.", name)] = value.float()
    return flat


def layers_of_chunk(layers, stages, chunks, stage, chunk):
    each = layers // stages // chunks
    return chunk * (layers // chunks) + stage * each


def read_rank(content, layers, stages, stage):
    """The tensors of one rank with layers numbered as in the whole model."""
    names = ["model"] if "model" in content else sorted(
        (name for name in content if re.fullmatch(r"model\d+", name)), key=lambda name: int(name[5:]))
    tensors = {}
    for chunk, name in enumerate(names):
        first = layers_of_chunk(layers, stages, len(names), stage, chunk)
        for key, value in flatten(content[name]).items():
            key = re.sub(r"\.layers\.(\d+)\.", lambda match: f".layers.{first + int(match[1])}.", key)
            tensors[key] = value
    return tensors


def split_qkv(tensor, version, heads, size):
    """Query, key and value of one tensor rank, each [heads · size, ...]."""
    rest = tensor.shape[1:]
    if version == 0:
        parts = tensor.view(3, heads, size, *rest)
    elif version == 1:
        parts = tensor.view(heads, size, 3, *rest).movedim(2, 0)
    else:
        parts = tensor.view(heads, 3, size, *rest).movedim(1, 0)
    return [part.reshape(heads * size, *rest) for part in parts]


def merge(name, parts, version, heads, size):
    """One tensor of the whole model from those of all tensor ranks."""
    if "query_key_value" in name:
        split = [split_qkv(part, version, heads // len(parts), size) for part in parts]
        return torch.cat([torch.cat(ranks) for ranks in zip(*split)])
    if name.endswith(SHARDED_ROWS):
        return torch.cat(parts)
    if name.endswith(SHARDED_COLUMNS):
        return torch.cat(parts, dim=1)
    for part in parts[1:]:
        if not torch.equal(part, parts[0]):
            print(f"warning: {name} is not the same on all tensor ranks; the first one's is taken", file=sys.stderr)
            break
    return parts[0]


def check_arguments(args):
    """What GPT-2's form has no place for."""
    for key, good in (("swiglu", False), ("use_rotary_position_embeddings", False), ("group_query_attention", False),
                      ("untie_embeddings_and_output_weights", False), ("apply_layernorm_1p", False),
                      ("normalization", "LayerNorm"), ("add_position_embedding", True),
                      ("attention_head_type", "multihead"), ("squared_relu", False),
                      ("apply_residual_connection_post_layernorm", False),
                      ("position_embedding_type", "learned_absolute")):  # fmt: skip
        if getattr(args, key, good) not in (good, None):
            stop(f"the model has {key} = {getattr(args, key)}, which GPT-2's form has no place for")


def read_checkpoint(folder, trust):
    """All tensors of the whole model under Megatron's names, and its arguments."""
    files, tensor, pipeline = find_ranks(folder)
    first = load(files[0, 0], trust)
    args, version = first["args"], int(first.get("checkpoint_version", 0))
    check_arguments(args)
    heads, size = args.num_attention_heads, args.hidden_size // args.num_attention_heads
    whole = {}
    for stage in range(pipeline):
        ranks = []
        for t in range(tensor):
            content = load(files[t, stage], trust)
            if content.get("iteration") != first.get("iteration"):
                stop(f"{files[t, stage]} is of iteration {content.get('iteration')}, not {first.get('iteration')}")
            ranks.append(read_rank(content, args.num_layers, pipeline, stage))
        for name in ranks[0]:
            whole[name] = merge(name, [rank[name] for rank in ranks], version, heads, size)
    return whole, args


def to_gpt2(whole, args):
    """GPT-2's names and orientations; every tensor of the checkpoint goes somewhere."""
    whole = dict(whole)
    out = {}

    def take(name):
        for prefix in ("language_model.", ""):
            if prefix + name in whole:
                return whole.pop(prefix + name)
        stop(f"the checkpoint has no tensor {name}")

    out["wte.weight"] = take("embedding.word_embeddings.weight")
    out["wpe.weight"] = take("embedding.position_embeddings.weight")
    for i in range(args.num_layers):
        for kind in ("weight", "bias"):
            ours, theirs = f"encoder.layers.{i}.", f"h.{i}."
            out[f"{theirs}ln_1.{kind}"] = take(f"{ours}input_layernorm.{kind}")
            out[f"{theirs}ln_2.{kind}"] = take(f"{ours}post_attention_layernorm.{kind}")
            for to, of in (("attn.c_attn", "self_attention.query_key_value"), ("attn.c_proj", "self_attention.dense"),
                           ("mlp.c_fc", "mlp.dense_h_to_4h"), ("mlp.c_proj", "mlp.dense_4h_to_h")):  # fmt: skip
                tensor = take(f"{ours}{of}.{kind}")
                out[f"{theirs}{to}.{kind}"] = tensor.T if kind == "weight" else tensor
    for kind in ("weight", "bias"):
        out[f"ln_f.{kind}"] = take(f"encoder.final_layernorm.{kind}")
    head = whole.pop("word_embeddings_for_head.weight", out["wte.weight"])  # the last stage's copy
    if not torch.equal(head, out["wte.weight"]):
        stop("the first and the last stage have different word embeddings")
    if whole:
        stop(f"tensor {sorted(whole)[0]} has no place in GPT-2's form")
    return {f"transformer.{name}": tensor.contiguous() for name, tensor in out.items()}


def gpt2_config(args, vocab_size):
    exact = not getattr(args, "bias_gelu_fusion", True) and not getattr(args, "openai_gelu", False)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": vocab_size,
        "n_embd": args.hidden_size,
        "n_layer": args.num_layers,
        "n_head": args.num_attention_heads,
        "n_inner": getattr(args, "ffn_hidden_size", None) or 4 * args.hidden_size,
        "n_positions": args.max_position_embeddings,
        "activation_function": "gelu" if exact or getattr(args, "onnx_safe", False) else "gelu_new",
        "layer_norm_epsilon": getattr(args, "layernorm_epsilon", None) or getattr(args, "norm_epsilon", 1e-5),
        "attn_pdrop": getattr(args, "attention_dropout", 0.1),
        "resid_pdrop": getattr(args, "hidden_dropout", 0.1),
        "embd_pdrop": getattr(args, "hidden_dropout", 0.1),
        "initializer_range": getattr(args, "init_method_std", 0.02),
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": None,
    }


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        end = at + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.numpy().tobytes())
        sync(file)


def sync(file):
    file.flush()
    os.fsync(file.fileno())


def sync_folder(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_model(target, tensors, config):
    """All of it is on the disk before it has its name; what could not be written is not left behind."""
    temporary = target.rstrip("/") + ".tmp"
    if os.path.lexists(temporary):
        stop(f"{temporary} is there: another conversion to this target is at work, or one has died; if none is, remove it")
    os.makedirs(temporary)
    try:
        write_safetensors(os.path.join(temporary, "model.safetensors"), tensors)
        with open(os.path.join(temporary, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
            file.write("\n")
            sync(file)
        sync_folder(temporary)
        os.rename(temporary, target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(os.path.dirname(target.rstrip("/")) or ".")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("--iteration")
    parser.add_argument("--vocab-size", type=int)
    parser.add_argument("--trust", action="store_true")
    options = parser.parse_args()
    if os.path.exists(options.target):
        stop(f"{options.target} is there already")
    whole, args = read_checkpoint(find_folder(options.source, options.iteration), options.trust)
    tensors = to_gpt2(whole, args)
    word = tensors["transformer.wte.weight"]
    if options.vocab_size:
        if not 0 < options.vocab_size <= len(word):
            stop(f"--vocab-size {options.vocab_size}: the table has {len(word)} rows")
        tensors["transformer.wte.weight"] = word = word[: options.vocab_size].contiguous()
    try:
        write_model(options.target, tensors, gpt2_config(args, len(word)))
    except OSError as error:
        stop(f"{options.target} cannot be written: {error}")
    print(f"{options.target}: {len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors.values())} parameters")


if __name__ == "__main__":
    main()
