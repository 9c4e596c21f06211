#!/usr/bin/env python3
"""Makes tests/golden/interop: tiny models of every family as Hugging Face's transformers saves them, and the logits that
its own code computes.

Usage: python3 scripts/make_interop_golden.py [tests/golden/interop [NAME...]]     (needs torch, transformers; seconds)

Each folder has config.json, model.safetensors (fp32, random weights) and logits.json: {"tokens", "logits"}, logits
[tokens, vocabulary] row by row.
"""

import json
import os
import sys

import torch
import transformers

VOCABULARY, POSITIONS = 19, 16
COMMON = {"vocab_size": VOCABULARY, "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None}


LLAMA = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": POSITIONS, **COMMON}  # fmt: skip
BERT = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": POSITIONS, **COMMON}  # fmt: skip
MODELS = {
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": POSITIONS, **COMMON}),
    "llama": ("LlamaForCausalLM", "LlamaConfig", {"tie_word_embeddings": False, **LLAMA}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 5, "head_dim": 6, **LLAMA}),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", {"tie_word_embeddings": True, **LLAMA}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {"head_dim": 6, **LLAMA}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**LLAMA, "num_key_value_heads": 1, "head_dim": 8}),
    "opt": ("OPTForCausalLM", "OPTConfig", {"hidden_size": 16, "ffn_dim": 24, "num_hidden_layers": 2, "init_std": 0.3,
                                            "num_attention_heads": 4, "max_position_embeddings": POSITIONS, **COMMON}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", {"rotary_pct": 0.5, **LLAMA}),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"hidden_size": 18, "n_layer": 2, "n_head": 3, "seq_length": POSITIONS,
                                                    **COMMON}),
    "phi": ("PhiForCausalLM", "PhiConfig", LLAMA),
    "megatron-bert": ("MegatronBertForPreTraining", "MegatronBertConfig", {**BERT, "hidden_act": "gelu_new"}),
    "bert": ("BertForPreTraining", "BertConfig", BERT),
}  # fmt: skip


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/interop"
    transformers.set_seed(1)
    for name in sys.argv[2:] or MODELS:
        model, config, keys = MODELS[name]
        model = getattr(transformers, model)(getattr(transformers, config)(**keys))
        folder = os.path.join(target, name)
        for parameter in model.parameters():  # norms and biases too: what is 0 or 1 everywhere hides mistakes
            parameter.data = parameter.data + 0.1 * torch.randn_like(parameter)
        model.eval()
        model.save_pretrained(folder)
        extra = os.path.join(folder, "generation_config.json")
        if os.path.exists(extra):
            os.remove(extra)
        tokens = [(i * 7919 + 13) % VOCABULARY for i in range(POSITIONS)]
        with torch.no_grad():
            output = model.double()(torch.tensor([tokens]))
        logits = (output.logits if "logits" in output else output.prediction_logits)[0]
        with open(os.path.join(folder, "logits.json"), "w", encoding="utf-8") as file:
            json.dump({"tokens": tokens, "logits": [round(x, 7) for x in logits.flatten().tolist()]}, file)
            file.write("\n")
        print(folder, sum(p.numel() for p in model.parameters()), "parameters")


if __name__ == "__main__":
    main()
