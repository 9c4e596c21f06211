#!/usr/bin/env python3
"""Makes tests/golden/interop: tiny models of every family as Hugging Face's transformers saves them, and the logits that
its own code computes.

Usage: python3 scripts/golden/make_interop_golden.py [tests/golden/interop [NAME...]]     (needs torch, transformers; seconds)

Each folder has config.json, model.safetensors (fp32, random weights) and logits.json: {"tokens", "logits"}, logits
[tokens, vocabulary] row by row; of an encoder-decoder also "encoder_tokens".
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
T5 = {"vocab_size": VOCABULARY, "d_model": 16, "d_ff": 24, "num_layers": 2, "num_heads": 4, "n_positions": 64,
      "relative_attention_num_buckets": 12, "relative_attention_max_distance": 20}  # fmt: skip
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
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**LLAMA, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**LLAMA, "num_experts": 6, "num_experts_per_tok": 3, "head_dim": 6,
                                                            "num_hidden_layers": 4, "moe_intermediate_size": 10,
                                                            "decoder_sparse_step": 2, "norm_topk_prob": True}),
    "qwen2_moe": ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", {**LLAMA, "num_experts": 6, "num_experts_per_tok": 2,
                                                            "num_hidden_layers": 4, "moe_intermediate_size": 10,
                                                            "shared_expert_intermediate_size": 30, "mlp_only_layers": [1]}),
    "t5": ("T5ForConditionalGeneration", "T5Config", {**T5, "d_kv": 6, "num_decoder_layers": 3}),
    "t5-gated": ("T5ForConditionalGeneration", "T5Config", {**T5, "d_kv": 4, "feed_forward_proj": "gated-gelu",
                                                            "tie_word_embeddings": False}),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", {**T5, "d_kv": 4}),
}  # fmt: skip


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/interop"
    transformers.set_seed(1)
    for name in sys.argv[2:] or MODELS:
        model, config, keys = MODELS[name]
        model = getattr(transformers, model)(getattr(transformers, config)(**keys))
        folder = os.path.join(target, name)
        if not getattr(model.config, "scale_decoder_outputs", name != "mt5"):
            model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())  # transformers 5 ties every new T5
        for parameter in model.parameters():  # norms and biases too: what is 0 or 1 everywhere hides mistakes
            parameter.data = parameter.data + 0.1 * torch.randn_like(parameter)
        model.eval()
        model.config._experts_implementation = "eager"  # others do not compute in float64
        model.save_pretrained(folder)
        extra = os.path.join(folder, "generation_config.json")
        if os.path.exists(extra):
            os.remove(extra)
        result = {"tokens": [(i * 7919 + 13) % VOCABULARY for i in range(POSITIONS)]}
        tokens = torch.tensor([result["tokens"]])
        with torch.no_grad():
            if model.config.is_encoder_decoder:
                result["encoder_tokens"] = [(i * 104729 + 13) % VOCABULARY for i in range(48)]
                output = model.double()(torch.tensor([result["encoder_tokens"]]), decoder_input_ids=tokens)
            else:
                output = model.double()(tokens)
        logits = (output.logits if "logits" in output else output.prediction_logits)[0]
        with open(os.path.join(folder, "logits.json"), "w", encoding="utf-8") as file:
            json.dump({**result, "logits": [round(x, 7) for x in logits.flatten().tolist()]}, file)
            file.write("\n")
        print(folder, sum(p.numel() for p in model.parameters()), "parameters")


if __name__ == "__main__":
    main()
