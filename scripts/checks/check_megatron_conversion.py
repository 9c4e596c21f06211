#!/usr/bin/env python3
"""Checks scripts/megatron_to_safetensors.py on checkpoints that it makes in Megatron-LM's layout.

Usage: python3 scripts/checks/check_megatron_conversion.py [--program ./megatron_checkpoint]                       (torch)

A random GPT-2 is cut as Megatron-LM cuts one, in every order of query, key and value, on several tensor, pipeline and
virtual sizes, under names of all ages, those of megatron-core in both of its forms; and a Llama, a Qwen2 and a Qwen3 as
megatron-core cuts them. What the script makes of them must be the same numbers. Damaged ones must be refused, and
without space nothing left. With --program the results are imported too (where transformers is, their logits are compared by
scripts/checks/check_interop.py). Ends with 1 if anything is wrong, with 77 where torch is missing.
"""

import argparse
import enum
import io
import os
import pathlib
import resource
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError as error:
    print("check_megatron_conversion: skipped,", error)
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import megatron_to_safetensors as conversion  # noqa: E402

H, L, A, F, P, V, G = 24, 4, 4, 40, 16, 64, 2
SCRIPT = os.path.join(os.path.dirname(__file__), "..", "megatron_to_safetensors.py")
ARGS = argparse.Namespace(hidden_size=H, num_layers=L, num_attention_heads=A, ffn_hidden_size=F,
                          max_position_embeddings=P, layernorm_epsilon=1e-5)  # fmt: skip


def random_model():
    """GPT-2's tensors, by its names."""
    shapes = {"wte.weight": (V, H), "wpe.weight": (P, H), "ln_f.weight": (H,), "ln_f.bias": (H,)}
    for i in range(L):
        shapes.update({f"h.{i}.ln_1.weight": (H,), f"h.{i}.ln_1.bias": (H,), f"h.{i}.ln_2.weight": (H,),
                       f"h.{i}.ln_2.bias": (H,), f"h.{i}.attn.c_attn.weight": (H, 3 * H),
                       f"h.{i}.attn.c_attn.bias": (3 * H,), f"h.{i}.attn.c_proj.weight": (H, H),
                       f"h.{i}.attn.c_proj.bias": (H,), f"h.{i}.mlp.c_fc.weight": (H, F),
                       f"h.{i}.mlp.c_fc.bias": (F,), f"h.{i}.mlp.c_proj.weight": (F, H),
                       f"h.{i}.mlp.c_proj.bias": (H,)})  # fmt: skip
    return {f"transformer.{name}": torch.randn(shape) * 0.2 for name, shape in shapes.items()}


def rows(tensor, tensor_size, rank):
    return tensor.chunk(tensor_size)[rank].clone()


def fuse(tensor, version, t, rank):
    """Rows of query, key and value, [3H, ...], as a rank of this version has them: element by element."""
    heads, size = A // t, H // A
    out = torch.empty(3 * heads * size, *tensor.shape[1:])
    for which in range(3):
        for head in range(heads):
            for channel in range(size):
                row = tensor[which * H + (rank * heads + head) * size + channel]
                place = {0: (which * heads + head) * size + channel, 1: (head * size + channel) * 3 + which}
                out[place.get(version, (head * 3 + which) * size + channel)] = row
    return out


def cut_layer(model, i, version, t, rank, old):
    attention = "attention" if old else "self_attention"
    get = lambda name: model[f"transformer.h.{i}.{name}"]  # noqa: E731
    return {
        "input_layernorm.weight": get("ln_1.weight"), "input_layernorm.bias": get("ln_1.bias"),
        f"{attention}.query_key_value.weight": fuse(get("attn.c_attn.weight").T, version, t, rank),
        f"{attention}.query_key_value.bias": fuse(get("attn.c_attn.bias"), version, t, rank),
        f"{attention}.dense.weight": rows(get("attn.c_proj.weight"), t, rank).T,
        f"{attention}.dense.bias": get("attn.c_proj.bias"),
        "post_attention_layernorm.weight": get("ln_2.weight"), "post_attention_layernorm.bias": get("ln_2.bias"),
        "mlp.dense_h_to_4h.weight": rows(get("mlp.c_fc.weight").T, t, rank),
        "mlp.dense_h_to_4h.bias": rows(get("mlp.c_fc.bias"), t, rank),
        "mlp.dense_4h_to_h.weight": rows(get("mlp.c_proj.weight"), t, rank).T,
        "mlp.dense_4h_to_h.bias": get("mlp.c_proj.bias"),
    }  # fmt: skip


def save(folder, model, version, t, p, v, old=False, iteration=7):
    """What Megatron-LM's ranks write."""
    base = os.path.join(folder, f"iter_{iteration:07d}")
    for rank in range(t):
        for stage in range(p):
            chunks = []
            for chunk in range(v):
                each = L // p // v
                first = chunk * (L // v) + stage * each
                encoder = {}
                for i in range(each):
                    for name, tensor in cut_layer(model, first + i, version, t, rank, old).items():
                        encoder[f"layers.{i}.{name}"] = tensor
                part = {"language_model": {"transformer" if old else "encoder": encoder}}
                if stage == 0 and chunk == 0:
                    part["language_model"]["embedding"] = {
                        "word_embeddings": {"weight": rows(model["transformer.wte.weight"], t, rank)},
                        "position_embeddings": {"weight": model["transformer.wpe.weight"]},
                    }
                if stage == p - 1 and chunk == v - 1:
                    for kind in ("weight", "bias"):
                        encoder[f"final_layernorm.{kind}"] = model[f"transformer.ln_f.{kind}"]
                    if p > 1:
                        part["word_embeddings_for_head"] = {
                            "weight": rows(model["transformer.wte.weight"], t, rank)
                        }
                chunks.append(part)
            content = {"args": ARGS, "iteration": iteration}
            if version > 0:
                content["checkpoint_version"] = float(version)
            content.update({"model": chunks[0]} if v == 1 else {f"model{i}": part for i, part in enumerate(chunks)})
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if p > 1 else "")
            os.makedirs(os.path.join(base, name))
            torch.save(content, os.path.join(base, name, "model_optim_rng.pt"))
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as file:
        file.write(str(iteration))


def core_names(tensors, engine):
    """A layer's tensors under megatron-core's names; `engine`: as with Transformer Engine."""
    names = {"self_attention.query_key_value": "self_attention.linear_qkv", "self_attention.dense": "self_attention.linear_proj",
             "mlp.dense_h_to_4h": "mlp.linear_fc1", "mlp.dense_4h_to_h": "mlp.linear_fc2",
             "input_layernorm": "self_attention.linear_qkv.layer_norm" if engine else "input_layernorm",
             "post_attention_layernorm": "mlp.linear_fc1.layer_norm" if engine else "pre_mlp_layernorm"}  # fmt: skip
    out = {}
    for name, tensor in tensors.items():
        stem, kind = name.rsplit(".", 1)
        separator = "_" if engine and stem.endswith("layernorm") and stem in names else "."
        out[names.get(stem, stem) + separator + kind] = tensor
    if engine:
        out["self_attention.core_attention._extra_state"] = io.BytesIO()
    return out


def save_core(folder, layers, others, args, t, p, engine):
    """What megatron-core's ranks write: layers(i, rank) and others(rank), which has first, last and both stages'."""
    base = os.path.join(folder, "iter_0000007")
    for rank in range(t):
        for stage in range(p):
            part = {}
            for i in range(L // p):
                tensors = core_names(layers(stage * (L // p) + i, rank), engine)
                part.update({f"decoder.layers.{i}.{name}": tensor for name, tensor in tensors.items()})
            first, last = others(rank)
            part.update(first if stage == 0 else {})
            part.update(last if stage == p - 1 else {})
            if p > 1 and stage == p - 1 and "output_layer.weight" not in last:  # a copy of the tied table
                part["output_layer.weight"] = first["embedding.word_embeddings.weight"]
            name = f"mp_rank_{rank:02d}" + (f"_{stage:03d}" if p > 1 else "")
            os.makedirs(os.path.join(base, name))
            torch.save({"args": args, "iteration": 7, "checkpoint_version": 3.0, "model": part},
                       os.path.join(base, name, "model_optim_rng.pt"))  # fmt: skip
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as file:
        file.write("7")


def save_core_gpt2(folder, model, t, p, engine):
    def others(rank):
        return {"embedding.word_embeddings.weight": rows(model["transformer.wte.weight"], t, rank),
                "embedding.position_embeddings.weight": model["transformer.wpe.weight"]}, {
                f"decoder.final_layernorm.{kind}": model[f"transformer.ln_f.{kind}"] for kind in ("weight", "bias")}  # fmt: skip

    save_core(folder, lambda i, rank: cut_layer(model, i, 3, t, rank, False), others, ARGS, t, p, engine)


def llama_arguments(form):
    return argparse.Namespace(hidden_size=H, num_layers=L, num_attention_heads=A, ffn_hidden_size=F, kv_channels=8,
                              max_position_embeddings=P, norm_epsilon=1e-6, normalization="RMSNorm", swiglu=True,
                              position_embedding_type="rope", rotary_percent=1.0, rotary_base=500,
                              group_query_attention=True, num_query_groups=G, add_bias_linear=False,
                              add_qkv_bias=form == "qwen2", qk_layernorm=form == "qwen3",
                              untie_embeddings_and_output_weights=form != "qwen3")  # fmt: skip


def random_llama(form):
    """Its tensors, by its names; heads are of 8 channels, not of H / A."""
    shapes = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,)}
    if form != "qwen3":
        shapes["lm_head.weight"] = (V, H)
    for i in range(L):
        layer = {"input_layernorm.weight": (H,), "post_attention_layernorm.weight": (H,), "self_attn.q_proj.weight": (8 * A, H),
                 "self_attn.k_proj.weight": (8 * G, H), "self_attn.v_proj.weight": (8 * G, H),
                 "self_attn.o_proj.weight": (H, 8 * A), "mlp.gate_proj.weight": (F, H), "mlp.up_proj.weight": (F, H),
                 "mlp.down_proj.weight": (H, F)}  # fmt: skip
        if form == "qwen2":
            layer.update({"self_attn.q_proj.bias": (8 * A,), "self_attn.k_proj.bias": (8 * G,), "self_attn.v_proj.bias": (8 * G,)})
        if form == "qwen3":
            layer.update({"self_attn.q_norm.weight": (8,), "self_attn.k_norm.weight": (8,)})
        shapes.update({f"model.layers.{i}.{name}": shape for name, shape in layer.items()})
    return {name: torch.randn(shape) * 0.2 for name, shape in shapes.items()}


def cut_llama_layer(model, i, t, rank, form):
    get = lambda name: model[f"model.layers.{i}.{name}"]  # noqa: E731

    def group_by_group(kind):
        """Of a rank's groups, one after the other: its query heads, its key, its value."""
        query, key, value = (get(f"self_attn.{part}_proj.{kind}") for part in "qkv")
        each = A // G
        out = []
        for group in range(rank * G // t, (rank + 1) * G // t):
            out += [query[8 * each * group : 8 * each * (group + 1)], key[8 * group : 8 * group + 8], value[8 * group : 8 * group + 8]]
        return torch.cat(out)

    layer = {
        "input_layernorm.weight": get("input_layernorm.weight"),
        "post_attention_layernorm.weight": get("post_attention_layernorm.weight"),
        "self_attention.query_key_value.weight": group_by_group("weight"),
        "self_attention.dense.weight": get("self_attn.o_proj.weight").chunk(t, dim=1)[rank].clone(),
        "mlp.dense_h_to_4h.weight": torch.cat([rows(get("mlp.gate_proj.weight"), t, rank), rows(get("mlp.up_proj.weight"), t, rank)]),
        "mlp.dense_4h_to_h.weight": get("mlp.down_proj.weight").chunk(t, dim=1)[rank].clone(),
    }
    if form == "qwen2":
        layer["self_attention.query_key_value.bias"] = group_by_group("bias")
    if form == "qwen3":
        layer.update({f"self_attention.{part}_layernorm.weight": get(f"self_attn.{part}_norm.weight") for part in "qk"})
    return layer


def save_core_llama(folder, model, t, p, form):
    def others(rank):
        last = {"decoder.final_layernorm.weight": model["model.norm.weight"]}
        if form != "qwen3":
            last["output_layer.weight"] = rows(model["lm_head.weight"], t, rank)
        return {"embedding.word_embeddings.weight": rows(model["model.embed_tokens.weight"], t, rank)}, last

    save_core(folder, lambda i, rank: cut_llama_layer(model, i, t, rank, form), others, llama_arguments(form), t, p, True)


def convert(folder):
    whole, args = conversion.read_checkpoint(conversion.find_folder(folder, None), trust=False)
    return conversion.to_hugging_face(whole, args)


def equal(made, model):
    return made.keys() == model.keys() and all(torch.equal(made[name], model[name]) for name in model)


def refused(work):
    try:
        work()
    except SystemExit as error:
        return str(error.code).startswith("error: ")
    return False


class Backend(enum.Enum):
    """Stands for an enum of Megatron-LM, which the machine that converts lacks."""

    auto = 1


class Harmful:
    """Runs a command when it is unpickled as what it is."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def check_foreign_objects():
    """Objects of other classes in a checkpoint's arguments are their names; wrappers leave no names on tensors."""
    with tempfile.TemporaryDirectory() as folder:
        path, trace = os.path.join(folder, "model_optim_rng.pt"), os.path.join(folder, "trace")
        args = argparse.Namespace(attention_backend=Backend.auto, harmful=Harmful(f"touch {trace}"), cwd=pathlib.Path("a"))
        torch.save({"args": args, "model": {"module": {"_orig_mod": {"decoder.x": torch.ones(2)}}}}, path)
        content = conversion.load(path, trust=False)
        names = list(conversion.flatten(content["model"]))
        good = "Backend(1)" in repr(content["args"]) and not os.path.exists(trace) and names == ["encoder.x"]
    print(f"objects of classes that are not there: {'plain data' if good else 'WRONG'}")
    return not good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program")
    program = parser.parse_args().program
    torch.manual_seed(1)
    model = random_model()
    failures = int(check_foreign_objects())
    for version in range(4):
        for t, p, v, old in ((1, 1, 1, True), (2, 1, 1, False), (4, 2, 1, False), (1, 4, 1, True), (2, 2, 2, False)):
            with tempfile.TemporaryDirectory() as folder:
                save(folder, model, version, t, p, v, old)
                made = convert(folder)
                same = equal(made, model)
                failures += not same
                print(f"version {version}, tensor {t}, pipeline {p}, virtual {v}: {'ok' if same else 'WRONG'}")
    for t, p, engine in ((1, 1, False), (2, 1, True), (4, 2, False), (2, 4, True)):
        with tempfile.TemporaryDirectory() as folder:
            save_core_gpt2(folder, model, t, p, engine)
            same = equal(convert(folder), model)
            failures += not same
            print(f"megatron-core{', Transformer Engine' if engine else ''}, tensor {t}, pipeline {p}: {'ok' if same else 'WRONG'}")
    for form in ("llama", "qwen2", "qwen3"):
        for t, p in ((1, 1), (2, 2), (1, 4)):
            with tempfile.TemporaryDirectory() as folder:
                other = random_llama(form)
                save_core_llama(folder, other, t, p, form)
                same = equal(convert(folder), other)
                if program:
                    for command in ([sys.executable, SCRIPT, folder, folder + "/made"],
                                    [program, "import", folder + "/made", folder + "/imported"]):  # fmt: skip
                        same &= subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode == 0
                failures += not same
                print(f"{form} of megatron-core, tensor {t}, pipeline {p}: {'ok' if same else 'WRONG'}")
    with tempfile.TemporaryDirectory() as folder:
        save_core_llama(folder, random_llama("llama"), 2, 2, "llama")
        for rank in ("mp_rank_00_001", "mp_rank_01_001"):  # a layer less, as of an uneven cut
            path = os.path.join(folder, "iter_0000007", rank, "model_optim_rng.pt")
            content = torch.load(path, weights_only=False)
            content["model"] = {name: tensor for name, tensor in content["model"].items() if ".layers.1." not in name}
            torch.save(content, path)
        uneven = refused(lambda: convert(folder))
        failures += not uneven
        print(f"an uneven cut refused: {uneven}")
    with tempfile.TemporaryDirectory() as folder:
        save(folder, model, 3, 2, 2, 1)
        rank = os.path.join(folder, "iter_0000007", "mp_rank_01_001", "model_optim_rng.pt")
        content = torch.load(rank, weights_only=False)
        content["iteration"] = 6
        torch.save(content, rank)
        mixed = refused(lambda: convert(folder))
        os.remove(rank)
        incomplete = refused(lambda: convert(folder))
        failures += not (mixed and incomplete)
        print(f"mixed and incomplete sets refused: {mixed} {incomplete}")
    with tempfile.TemporaryDirectory() as folder:
        one_line = True
        for source, more in ((folder + "/nothere", []), (folder, ["--iteration", "7"]), (folder, ["--iteration", "x"])):
            made = subprocess.run([sys.executable, SCRIPT, source, folder + "/gpt2", *more], check=False,
                                  capture_output=True)  # fmt: skip
            one_line &= made.returncode != 0 and made.stderr.startswith(b"error: ") and made.stderr.count(b"\n") == 1
        failures += not one_line
        print(f"a folder or an iteration that is not there is one line: {one_line}")
    with tempfile.TemporaryDirectory() as folder:
        save(folder, model, 3, 2, 2, 1)
        full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))  # noqa: E731
        before = os.listdir(folder)
        made = subprocess.run([sys.executable, SCRIPT, folder, folder + "/gpt2"], check=False, capture_output=True,
                              preexec_fn=full)  # fmt: skip
        clean = made.returncode != 0 and b"cannot be written" in made.stderr and os.listdir(folder) == before
        failures += not clean
        print(f"without space it says so and leaves nothing: {clean}")
        os.mkdir(folder + "/gpt2.tmp")  # as of one that was killed
        made = subprocess.run([sys.executable, SCRIPT, folder, folder + "/gpt2"], check=False, capture_output=True)
        told = made.returncode != 0 and b"gpt2.tmp is there" in made.stderr and b"remove it" in made.stderr
        failures += not told or not os.path.exists(folder + "/gpt2.tmp")
        print(f"what a killed one has left is named: {told}")
    if program:
        with tempfile.TemporaryDirectory() as folder:
            save(folder, model, 3, 2, 2, 1)
            for command in ([sys.executable, SCRIPT, folder, folder + "/gpt2", "--vocab-size", "61"],
                            [program, "import", folder + "/gpt2", folder + "/imported"]):  # fmt: skip
                failures += subprocess.run(command, check=False).returncode != 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
