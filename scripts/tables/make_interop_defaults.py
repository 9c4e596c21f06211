#!/usr/bin/env python3
"""Adds to tests/golden/interop_defaults.json what the configuration classes of this version of Hugging Face's transformers
have for keys that a config.json lacks.

Usage: python3 scripts/tables/make_interop_defaults.py tests/golden/interop_defaults.json      (transformers; once with 4.57, once with 5)
"""

import dataclasses
import inspect
import json
import os
import sys

import transformers

FAMILIES = {"gpt2": "GPT2", "llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma",
            "opt": "OPT", "gpt_neox": "GPTNeoX", "bloom": "Bloom", "phi": "Phi", "megatron-bert": "MegatronBert", "bert": "Bert",
            "t5": "T5", "mt5": "MT5", "mixtral": "Mixtral", "qwen3_moe": "Qwen3Moe", "qwen2_moe": "Qwen2Moe"}  # fmt: skip
# Keys that change nothing that a model computes, and those of tokens, which an import reads from the tokenizer.
IGNORED = ("summary_", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "classifier_dropout",
           "pretraining_tp", "slow_but_exact", "tokenizer_class", "rope_parameters", "hidden_activation")  # fmt: skip


def defaults_of(kind):
    if not dataclasses.is_dataclass(kind):
        parameters = inspect.signature(kind.__init__).parameters.values()
        found = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        found.setdefault("tie_word_embeddings", kind().tie_word_embeddings)
        return found
    common = {field.name for field in dataclasses.fields(transformers.PreTrainedConfig)}
    own = kind.__dict__.get("__annotations__", {})
    found = {field.name: field.default for field in dataclasses.fields(kind)
             if field.default is not dataclasses.MISSING and (field.name in own or field.name not in common)}  # fmt: skip
    rotation = getattr(kind(), "rope_parameters", None) or {}
    names = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"} if kind.model_type == "gpt_neox" else {}
    found.update({names.get(key, key): value for key, value in rotation.items() if key != "rope_type"})
    return found


def main():
    path = sys.argv[1]
    stored = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            stored = json.load(file)
    stored["transformers " + ".".join(transformers.__version__.split(".")[:2])] = {
        name: {key: value for key, value in defaults_of(getattr(transformers, kind + "Config")).items() if not key.startswith(IGNORED)}
        for name, kind in FAMILIES.items()
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(stored, file, indent=1, sort_keys=True)
        file.write("\n")


if __name__ == "__main__":
    main()
