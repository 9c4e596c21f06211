#!/usr/bin/env python3
"""Turns a Megatron-LM GPT checkpoint into a model as Hugging Face keeps it, for `megatron_checkpoint import`.

Usage: python3 scripts/megatron_to_safetensors.py SOURCE TARGET [--iteration N] [--vocab-size N] [--trust]   (torch)

SOURCE is the folder that --save named (its latest checkpoint, or --iteration) or one iter_... folder, with mp_rank_XX or
mp_rank_XX_YYY of any tensor and pipeline size, virtual stages included. Read are the names of megatron-core (its own
layers' and Transformer Engine's, whose norms lie in the layer after them), of Megatron-LM before that, and of old
versions, with all orders of query, key and value (checkpoint versions 0 to 3, groups included). TARGET gets
model.safetensors in fp32 and config.json, in the form of GPT-2, or, of a model with RMSNorm, rotary positions and
SwiGLU, of Llama, Qwen2 (--add-qkv-bias) or Qwen3 (--qk-layernorm); add the tokenizer's files, for GPT-2 vocab.json and
merges.txt. Padding rows of the vocabulary stay unless --vocab-size says how many there are. Optimizer state is left
behind.

Checkpoints are Python pickles, which can run any code when they are read. Here tensors and plain data are read, and an object
of any other class (Megatron's enums among its arguments) is its class's name and contents: nothing of it is imported or
run, so Megatron-LM need not be installed. --trust makes such objects, for files of people that you trust.
"""

import argparse
import collections
import io
import json
import os
import pickle
import re
import shutil
import struct
import sys
import types

try:
    import torch
except ImportError:
    sys.exit("error: this script reads PyTorch's files and needs it: pip install torch")

SHARDED_ROWS = ("dense_h_to_4h.weight", "dense_h_to_4h.bias", "word_embeddings.weight", "word_embeddings_for_head.weight",
                "output_layer.weight")  # fmt: skip
SHARDED_COLUMNS = ("attention.dense.weight", "dense_4h_to_h.weight")

# Classes and functions that pickles of tensors and plain data name.
PLAIN = {("collections", "OrderedDict"): collections.OrderedDict, ("argparse", "Namespace"): argparse.Namespace,
         ("io", "BytesIO"): io.BytesIO, ("_io", "BytesIO"): io.BytesIO, ("torch", "Size"): torch.Size,
         ("_codecs", "encode"): lambda text, _: text.encode("latin1"), ("builtins", "bytes"): bytes, ("builtins", "set"): set,
         ("__builtin__", "bytes"): bytes, ("__builtin__", "set"): set,
         **{("torch._utils", name): getattr(torch._utils, name)
            for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter")},
         **{("torch", str(kind).split(".")[1]): kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}}  # fmt: skip

# Names of other versions, as the ones that the rest of this script knows.
NAMES = [(re.compile(pattern), name) for pattern, name in (
    (r"(?:^|(?<=\.))(?:_orig_mod|module)\.", ""),  # of torch.compile and of wrappers for data parallelism
    (r"^decoder\.", "encoder."),
    (r"^language_model\.transformer\.", "language_model.encoder."),
    (r"\.attention\.(query_key_value|dense)\.", r".self_attention.\1."),
    (r"\.self_attention\.linear_qkv\.layer_norm_", ".input_layernorm."),
    (r"\.mlp\.linear_fc1\.layer_norm_", ".post_attention_layernorm."),
    (r"\.pre_mlp_layernorm\.", ".post_attention_layernorm."),
    (r"\.final_norm\.", ".final_layernorm."),
    (r"\.self_attention\.linear_qkv\.", ".self_attention.query_key_value."),
    (r"\.self_attention\.linear_proj\.", ".self_attention.dense."),
    (r"\.mlp\.linear_fc1\.", ".mlp.dense_h_to_4h."),
    (r"\.mlp\.linear_fc2\.", ".mlp.dense_4h_to_h."),
)]  # fmt: skip
NO_WEIGHTS = ("_extra_state", "rotary_pos_emb.inv_freq")  # buffers that follow from the arguments


def stop(message):
    sys.exit(f"error: {message}")


def find_folder(source, iteration):
    """The folder with the mp_rank folders."""
    if not os.path.isdir(source):
        stop(f"{source} is no folder; name the one that --save named, or one iter_... folder of it")
    if any(name.startswith("mp_rank_") for name in os.listdir(source)):
        return source
    if iteration is None:
        tracker = os.path.join(source, "latest_checkpointed_iteration.txt")
        if not os.path.exists(tracker):
            stop(f"{source} has neither mp_rank folders nor latest_checkpointed_iteration.txt")
        with open(tracker, encoding="utf-8") as file:
            iteration = file.read().strip()
    if iteration != "release" and not iteration.isdigit():
        stop(f"{source}: there is no iteration {iteration!r}; a number or release is right")
    folder = os.path.join(source, "release" if iteration == "release" else f"iter_{int(iteration):07d}")
    if not os.path.isdir(folder):
        stop(f"{folder} is no folder; --iteration names another checkpoint of {source}")
    return folder


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
        distributed = any(name.endswith(".distcp") for name in os.listdir(folder))
        stop(f"{folder} has no mp_rank_XX/model_optim_rng.pt" + (
            "; it is a distributed checkpoint: let Megatron-LM load it and save it with --ckpt-format torch"
            if distributed else ""))  # fmt: skip
    tensor, pipeline = (1 + max(rank[axis] for rank in files) for axis in (0, 1))
    missing = [(t, p) for t in range(tensor) for p in range(pipeline) if (t, p) not in files]
    if missing:
        stop(f"{folder}: the file of tensor rank {missing[0][0]}, pipeline rank {missing[0][1]} is missing")
    return files, tensor, pipeline


class Foreign:
    """An object of a class that is not read: the class's name, and what the pickle says of the object."""

    named = ""

    def __new__(cls, *contents, **_):
        self = object.__new__(cls)
        self.contents = list(contents)
        return self

    def __init__(self, *contents, **_):
        pass

    def __setstate__(self, state):
        self.contents.append(state)

    def __setitem__(self, key, value):
        self.contents.append((key, value))

    def append(self, value):
        self.contents.append(value)

    def extend(self, values):
        self.contents.extend(values)

    add = append

    def __hash__(self):
        return id(self)

    def __repr__(self):
        return f"{self.named}({', '.join(map(repr, self.contents))})"


def foreign(module, name):
    return type("Foreign", (Foreign,), {"named": f"{module}.{name}"})


class PlainUnpickler(pickle.Unpickler):
    """Reads any class that is not of PLAIN as a Foreign one; imports and calls nothing by a name in the file."""

    def find_class(self, module, name):
        return PLAIN.get((module, name)) or foreign(module, name)


class TrustingUnpickler(pickle.Unpickler):
    """Imports what the machine has."""

    def find_class(self, module, name):
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return foreign(module, name)


def load(path, trust):
    kind = TrustingUnpickler if trust else PlainUnpickler
    module = types.SimpleNamespace(__name__="pickle", Unpickler=kind, load=lambda file, **options: kind(file, **options).load())
    try:
        return torch.load(path, map_location="cpu", weights_only=False, pickle_module=module)
    except Exception as error:  # pickle's own kinds differ by version
        stop(f"{path} cannot be read ({str(error).splitlines()[0]})")


def flatten(tree, prefix=""):
    """Nested dictionaries as dotted names, old names as new ones."""
    flat = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            flat.update(flatten(value, name + "."))
        elif isinstance(value, torch.Tensor) and not name.endswith(NO_WEIGHTS):
            for pattern, usual in NAMES:
                name = pattern.sub(usual, name)
            flat[name] = value.float()
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
        flat = flatten(content[name])
        found = {match[1] for match in (re.search(r"\.layers\.(\d+)\.", key) for key in flat) if match}
        if len(found) != layers // stages // len(names):
            stop(f"pipeline stage {stage} has {len(found)} of {layers} layers: an uneven cut is not read")
        for key, value in flat.items():
            key = re.sub(r"\.layers\.(\d+)\.", lambda match: f".layers.{first + int(match[1])}.", key)
            tensors[key] = value
    return tensors


def split_qkv(tensor, version, heads, groups, size):
    """Query, key and value of one tensor rank, [heads · size, ...] and twice [groups · size, ...]. By versions 2 and 3
    the query heads of a group, its key and its value are together."""
    rest = tensor.shape[1:]
    if groups != heads and version >= 2:
        parts = tensor.view(groups, heads // groups + 2, size, *rest)
        return [part.reshape(-1, *rest) for part in (parts[:, :-2], parts[:, -2], parts[:, -1])]
    if version == 0:
        parts = tensor.view(3, heads, size, *rest)
    elif version == 1:
        parts = tensor.view(heads, size, 3, *rest).movedim(2, 0)
    else:
        parts = tensor.view(heads, 3, size, *rest).movedim(1, 0)
    return [part.reshape(heads * size, *rest) for part in parts]


def merge(name, parts, version, sizes):
    """One tensor of the whole model from those of all tensor ranks; of query, key and value those one below the other,
    and of a gated part the gate and what it lets through."""
    if "query_key_value." in name:
        split = [split_qkv(part, version, sizes.heads // len(parts), sizes.groups // len(parts), sizes.head) for part in parts]
        return torch.cat([torch.cat(ranks) for ranks in zip(*split)])
    if "dense_h_to_4h." in name and sizes.gated:
        return torch.cat([torch.cat(halves) for halves in zip(*(part.chunk(2) for part in parts))])
    if name.endswith(SHARDED_ROWS):
        return torch.cat(parts)
    if name.endswith(SHARDED_COLUMNS):
        return torch.cat(parts, dim=1)
    for part in parts[1:]:
        if not torch.equal(part, parts[0]):
            print(f"warning: {name} is not the same on all tensor ranks; the first one's is taken", file=sys.stderr)
            break
    return parts[0]


def form_of(args):
    """Whose form the model has: gpt2, llama, qwen2 or qwen3."""
    if getattr(args, "normalization", "LayerNorm") != "RMSNorm":
        return "gpt2"
    return "qwen3" if getattr(args, "qk_layernorm", False) else "qwen2" if getattr(args, "add_qkv_bias", False) else "llama"


def check_arguments(args, form):
    """What the form has no place for."""
    gated = form != "gpt2"
    rules = [("swiglu", gated), ("apply_layernorm_1p", False), ("squared_relu", False), ("openai_gelu", False, not gated),
             ("attention_head_type", "multihead"), ("apply_residual_connection_post_layernorm", False),
             ("num_experts", None), ("multi_latent_attention", False), ("glu_activation", None)]  # fmt: skip
    if gated:
        rules += [("position_embedding_type", "rope"), ("rotary_percent", 1.0), ("rotary_interleaved", False),
                  ("add_bias_linear", False), ("add_qkv_bias", form == "qwen2", False)]  # fmt: skip
    else:
        rules += [("use_rotary_position_embeddings", False), ("group_query_attention", False), ("add_bias_linear", True),
                  ("untie_embeddings_and_output_weights", False), ("normalization", "LayerNorm"),
                  ("add_position_embedding", True), ("position_embedding_type", "learned_absolute"),
                  ("qk_layernorm", False)]  # fmt: skip
    for key, *good in rules:
        value = getattr(args, key, good[0])
        if value not in good and value is not None:
            stop(f"the model has {key} = {value}, which {form}'s form has no place for")


class Sizes:
    """What tensors are cut by."""

    def __init__(self, args):
        self.heads = args.num_attention_heads
        self.head = getattr(args, "kv_channels", None) or args.hidden_size // self.heads
        grouped = getattr(args, "group_query_attention", False)
        self.groups = args.num_query_groups if grouped else self.heads
        self.gated = bool(getattr(args, "swiglu", False))


def read_checkpoint(folder, trust):
    """All tensors of the whole model under Megatron's names, and its arguments."""
    files, tensor, pipeline = find_ranks(folder)
    first = load(files[0, 0], trust)
    args, version = first["args"], int(first.get("checkpoint_version", 0))
    check_arguments(args, form_of(args))
    sizes = Sizes(args)
    if sizes.groups % tensor:
        stop(f"{sizes.groups} query groups on {tensor} tensor ranks: groups that ranks share are not read")
    whole = {}
    for stage in range(pipeline):
        ranks = []
        for t in range(tensor):
            content = load(files[t, stage], trust)
            if content.get("iteration") != first.get("iteration"):
                stop(f"{files[t, stage]} is of iteration {content.get('iteration')}, not {first.get('iteration')}")
            ranks.append(read_rank(content, args.num_layers, pipeline, stage))
        for name in ranks[0]:
            whole[name] = merge(name, [rank[name] for rank in ranks], version, sizes)
    return whole, args


def to_gpt2(whole, args):
    """GPT-2's names and orientations; every tensor of the checkpoint goes somewhere."""
    take = Taking(whole)
    out = {}
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
    take.tied_head(out["wte.weight"])
    take.all_taken("gpt2")
    return {f"transformer.{name}": tensor.contiguous() for name, tensor in out.items()}


def to_llama(whole, args):
    """The names of Llama, Qwen2 and Qwen3; every tensor of the checkpoint goes somewhere."""
    form, sizes = form_of(args), Sizes(args)
    take = Taking(whole)
    out = {"model.embed_tokens.weight": take("embedding.word_embeddings.weight")}
    rows = [sizes.heads * sizes.head, sizes.groups * sizes.head, sizes.groups * sizes.head]
    for i in range(args.num_layers):
        ours, theirs = f"encoder.layers.{i}.", f"model.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            out[f"{theirs}{name}.weight"] = take(f"{ours}{name}.weight")
        for kind in ("weight", "bias") if form == "qwen2" else ("weight",):
            parts = take(f"{ours}self_attention.query_key_value.{kind}").split(rows)
            for name, part in zip(("q_proj", "k_proj", "v_proj"), parts):
                out[f"{theirs}self_attn.{name}.{kind}"] = part
        for name in ("q", "k") if form == "qwen3" else ():
            out[f"{theirs}self_attn.{name}_norm.weight"] = take(f"{ours}self_attention.{name}_layernorm.weight")
        out[f"{theirs}self_attn.o_proj.weight"] = take(f"{ours}self_attention.dense.weight")
        gate, up = take(f"{ours}mlp.dense_h_to_4h.weight").chunk(2)
        out[f"{theirs}mlp.gate_proj.weight"], out[f"{theirs}mlp.up_proj.weight"] = gate, up
        out[f"{theirs}mlp.down_proj.weight"] = take(f"{ours}mlp.dense_4h_to_h.weight")
    out["model.norm.weight"] = take("encoder.final_layernorm.weight")
    if getattr(args, "untie_embeddings_and_output_weights", False):
        out["lm_head.weight"] = take("output_layer.weight")
    else:
        take.tied_head(out["model.embed_tokens.weight"])
    take.all_taken(form)
    return {name: tensor.contiguous() for name, tensor in out.items()}


class Taking:
    """Takes tensors out of a checkpoint by name, so that none is left."""

    def __init__(self, whole):
        self.whole = dict(whole)

    def __call__(self, name):
        for prefix in ("language_model.", ""):
            if prefix + name in self.whole:
                return self.whole.pop(prefix + name)
        stop(f"the checkpoint has no tensor {name}")

    def tied_head(self, word):
        """The last stage's copy must be the table."""
        for name in ("word_embeddings_for_head.weight", "output_layer.weight"):
            if not torch.equal(self.whole.pop(name, word), word):
                stop("the first and the last stage have different word embeddings")

    def all_taken(self, form):
        if self.whole:
            stop(f"tensor {sorted(self.whole)[0]} has no place in {form}'s form")


def to_hugging_face(whole, args):
    return to_gpt2(whole, args) if form_of(args) == "gpt2" else to_llama(whole, args)


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


def llama_config(args, vocab_size):
    form, sizes = form_of(args), Sizes(args)
    scaling, stretch = None, getattr(args, "rotary_seq_len_interpolation_factor", None)
    if stretch:
        scaling = {"rope_type": "linear", "factor": stretch}
    if getattr(args, "use_rope_scaling", False):
        scaling = {"rope_type": "llama3", "factor": getattr(args, "rope_scaling_factor", 8.0), "low_freq_factor": 1.0,
                   "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    return {
        "model_type": form,
        "architectures": [{"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[form] + "ForCausalLM"],
        "vocab_size": vocab_size,
        "hidden_size": args.hidden_size,
        "num_hidden_layers": args.num_layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.groups,
        "head_dim": sizes.head,
        "intermediate_size": args.ffn_hidden_size,
        "max_position_embeddings": args.max_position_embeddings,
        "hidden_act": "silu",
        "rms_norm_eps": getattr(args, "norm_epsilon", None) or getattr(args, "layernorm_epsilon", 1e-5),
        "attention_dropout": getattr(args, "attention_dropout", 0.0),
        "initializer_range": getattr(args, "init_method_std", 0.02),
        "rope_theta": getattr(args, "rotary_base", 10000),
        "rope_scaling": scaling,
        "tie_word_embeddings": not getattr(args, "untie_embeddings_and_output_weights", False),
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
    tensors = to_hugging_face(whole, args)
    tables = [name for name in ("transformer.wte.weight", "model.embed_tokens.weight", "lm_head.weight") if name in tensors]
    rows = len(tensors[tables[0]])
    if options.vocab_size:
        if not 0 < options.vocab_size <= rows:
            stop(f"--vocab-size {options.vocab_size}: the table has {rows} rows")
        rows = options.vocab_size
        for name in tables:
            tensors[name] = tensors[name][:rows].contiguous()
    config = gpt2_config(args, rows) if form_of(args) == "gpt2" else llama_config(args, rows)
    try:
        write_model(options.target, tensors, config)
    except OSError as error:
        stop(f"{options.target} cannot be written: {error}")
    print(f"{options.target}: {len(tensors)} tensors, {sum(tensor.numel() for tensor in tensors.values())} parameters")


if __name__ == "__main__":
    main()
