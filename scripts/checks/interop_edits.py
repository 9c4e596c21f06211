#!/usr/bin/env python3
"""Edits of config.json, each key of each family absent, null or changed, and what Hugging Face's transformers makes of
the model then. An import must agree with it or refuse.

Usage: python3 scripts/checks/interop_edits.py tests/golden/interop tests/golden/interop_edits.json   (torch, transformers)

Adds to the file the answers of the version of transformers that runs it: a few logits of each edit, or none where it
does not load the model. Run it once with 4.57 and once with 5; seconds per family. tests/golden/test_interop_edits.cpp
imports every edit; scripts/checks/check_interop.py compares with the version that it runs with.
"""

import copy
import json
import os
import shutil
import sys
import tempfile

import torch
import transformers

ABSENT = "<absent>"
ACTIVATIONS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "silu", "swish", "tanh", "quick_gelu"]
LINEAR = {"rope_type": "linear", "factor": 2.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
# Keys that a model of the family need not have, with values that would change it.
ROTARY = {"rope_theta": [500.0], "rope_scaling": [{}, LINEAR, {"type": "linear", "factor": 2.0}, {**LINEAR, "rope_theta": 500.0},
                                                    {**LINEAR, "type": "dynamic"}, {**LINEAR, "factor": None}, LLAMA3,
                                                    {**LLAMA3, "original_max_position_embeddings": 8}],
          "rope_parameters": [{}, None, {"rope_type": "default", "rope_theta": 500.0}, {**LINEAR, "rope_theta": 10000.0}],
          "partial_rotary_factor": [0.25], "rotary_pct": [0.25], "rotary_emb_base": [500],
          "original_max_position_embeddings": [4]}  # fmt: skip
WINDOWS = {"sliding_window": [3, None], "use_sliding_window": [True], "max_window_layers": [0, 1, 28],
           "layer_types": [["sliding_attention"], ["full_attention"], []]}  # fmt: skip
LLAMAS = {**ROTARY, **WINDOWS, "head_dim": [None], "attention_bias": [True], "mlp_bias": [True]}
EXPERTS = {**LLAMAS, "num_experts": [3, 4, 6], "num_local_experts": [3, 4, 6], "qkv_bias": [False]}
T5 = {"scale_decoder_outputs": [True, False, None], "tie_word_embeddings": [True], "is_decoder": [True], "dense_act_fn": [None, "relu"],
      "is_gated_act": [None, True, False], "hidden_size": [16, 17], "num_attention_heads": [4, 5], "num_hidden_layers": [2, 3],
      "head_dim": [6, 7], "tie_encoder_decoder": [True]}  # fmt: skip
BERT = {"is_decoder": [True], "add_cross_attention": [True], "position_embedding_type": ["relative_key"]}
OTHERS = {
    "gpt2": {"hidden_size": [8, 9], "num_hidden_layers": [2, 1], "num_attention_heads": [2, 4], "max_position_embeddings": [16],
             "scale_attn_weights": [False], "scale_attn_by_inverse_layer_idx": [True], "reorder_and_upcast_attn": [True]},
    "llama": LLAMAS, "mistral": LLAMAS, "qwen2": LLAMAS, "qwen3": LLAMAS, "phi": {**LLAMAS, "qk_layernorm": [True]},
    "gemma": {**LLAMAS, "hidden_activation": ["gelu_pytorch_tanh"], "use_bidirectional_attention": [True]},
    "gpt_neox": ROTARY, "mixtral": EXPERTS, "qwen2_moe": EXPERTS, "qwen3_moe": EXPERTS,
    "opt": {"word_embed_proj_dim": [16, 8, None], "_remove_final_layer_norm": [True]},
    "bloom": {"n_embed": [18, 9, None], "num_hidden_layers": [2, 3], "num_attention_heads": [3, 2]},
    "megatron-bert": BERT, "bert": BERT, "t5": T5, "mt5": T5,
}  # fmt: skip
COMMON = {"pruned_heads": [{}, {"0": [1]}], "per_layer_config": [None]}
WINDOWED = [{"use_sliding_window": True, "sliding_window": 3, **others}
            for others in ({}, {"max_window_layers": 0}, {"max_window_layers": 1}, {"layer_types": ["sliding_attention"]},
                           {"layer_types": ["full_attention"]}, {"max_window_layers": 0, "layer_types": ["full_attention"]},
                           {"max_window_layers": ABSENT}, {"max_window_layers": ABSENT, "layer_types": ABSENT})]  # fmt: skip
NEWER = [{"rope_theta": ABSENT, "rope_scaling": ABSENT, "rotary_pct": ABSENT, "rotary_emb_base": ABSENT,
          "partial_rotary_factor": ABSENT, "rope_parameters": rotation}
         for rotation in ({}, {"rope_type": "default", "rope_theta": 500.0}, {**LINEAR, "rope_theta": 500.0},
                          {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.25})]  # fmt: skip
SKIPPED = {"architectures", "model_type", "torch_dtype", "dtype", "use_cache"}


def older_form(config):
    """A configuration that both generations read alike: version 4 knows no rope_parameters."""
    config.pop("transformers_version", None)
    rotation = config.pop("rope_parameters", None)
    if rotation is not None:
        neox = config["model_type"] == "gpt_neox"
        config["rotary_emb_base" if neox else "rope_theta"] = rotation["rope_theta"]
        config["rope_scaling"] = None
        if "partial_rotary_factor" in rotation:
            config["rotary_pct" if neox else "partial_rotary_factor"] = rotation["partial_rotary_factor"]
    if "num_local_experts" in config and config["model_type"] != "mixtral":
        config["num_experts"] = config.pop("num_local_experts")
    if config["model_type"] == "mt5":
        config["tie_word_embeddings"] = False
    if config["model_type"] == "t5":
        config["tie_word_embeddings"] = config.pop("scale_decoder_outputs")
    return config


def changes(key, value):
    """Other values of a key."""
    if key.startswith(("hidden_act", "activation_function")):
        return ACTIVATIONS
    if key == "feed_forward_proj":
        return ["relu", "gated-gelu", "gated-silu", "gelu", "gated-gelu_new", "gated", "silu-gelu"]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [0, 1, value + 1, 2 * value, -1]
    if isinstance(value, float):
        return [0.0, 2 * value + 0.5, 1]
    return []


def edits(config):
    """Dictionaries of keys to set; ABSENT takes one away."""
    family, layers = config["model_type"], config.get("num_hidden_layers", 2)
    keys = {key: [ABSENT, None, *changes(key, value)] for key, value in config.items() if key not in SKIPPED}
    for key, values in {**OTHERS[family], **COMMON}.items():
        keys[key] = [*keys.get(key, []), *values]
    found = [{key: value} for key, values in keys.items() for value in values]
    if "sliding_window" in OTHERS[family]:
        found += WINDOWED
    if "rope_theta" in OTHERS[family]:
        found += NEWER
    for edit in found:
        edit = copy.deepcopy(edit)
        if isinstance(edit.get("layer_types"), list):
            edit["layer_types"] *= layers
        if all(config.get(key, ABSENT) != value for key, value in edit.items()):
            yield edit


def edited(config, edit):
    return {key: value for key, value in {**config, **edit}.items() if value != ABSENT}


def is_newer(config):
    """Whether version 4 could not know what the file says."""
    older = any(key in config for key in ("rope_theta", "rope_scaling", "rotary_pct", "rotary_emb_base"))
    return (bool(config.get("rope_parameters")) and not older) or "scale_decoder_outputs" in config


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    model, loaded = getattr(transformers, config.architectures[0]).from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)  # fmt: skip
    wrong = [name for kind in ("missing_keys", "unexpected_keys", "mismatched_keys") for name in loaded[kind]]
    if wrong:
        raise ValueError(f"other tensors: {wrong}")
    model.config._experts_implementation = "eager"
    return model.eval()


def logits(model, inputs):
    tokens = torch.tensor([inputs["tokens"]])
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            return model(torch.tensor([inputs["encoder_tokens"]]), decoder_input_ids=tokens).logits[0]
        output = model(tokens)
    return (output.logits if "logits" in output else output.prediction_logits)[0]


def answer(folder, config, inputs):
    """What transformers computes by this configuration; None where it does not."""
    if transformers.__version__.startswith("4") and is_newer(config):
        return None
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    try:
        numbers = logits(load(folder), inputs)
    except Exception:  # pylint: disable=broad-exception-caught
        return None
    return numbers if torch.isfinite(numbers).all() else None


def models(root):
    """The stored models, each in a folder that may be changed."""
    for name in sorted(os.listdir(root)):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(root, name, "model.safetensors"), folder)
            with open(os.path.join(root, name, "config.json"), encoding="utf-8") as file:
                config = older_form(json.load(file))
            with open(os.path.join(root, name, "logits.json"), encoding="utf-8") as file:
                inputs = json.load(file)
            yield name, folder, config, inputs


def main():
    root, path = sys.argv[1:]
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    stored = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
    version = "transformers " + transformers.__version__.split(".")[0]
    result = {}
    for name, folder, config, inputs in models(root):
        before = {json.dumps(row["edit"]): row for row in stored.get(name, {}).get("edits", [])}
        rows = []
        for edit in [{}, *edits(config)]:
            row = before.get(json.dumps(edit), {"edit": edit})
            numbers = answer(folder, edited(config, edit), inputs)
            row[version] = None if numbers is None else [round(x, 5) for x in numbers[-1][:6].tolist()]
            rows.append(row)
        result[name] = {"config": config, "edits": rows}
        print(name, len(rows), "edits,", sum(row[version] is not None for row in rows), "models", flush=True)
    with open(path, "w", encoding="utf-8") as file:
        lines = [f'{json.dumps(name)}: {{"config": {json.dumps(family["config"])}, "edits": [\n'
                 + ",\n".join(json.dumps(row) for row in family["edits"]) + "]}" for name, family in result.items()]  # fmt: skip
        file.write("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
