#!/usr/bin/env python3
"""Checks megatron_checkpoint export and import against Hugging Face's transformers itself.

Usage: python3 scripts/checks/check_interop.py [--checkpoint SOURCE] [--program ./megatron_checkpoint]   (torch, transformers)

Saves random models of every family that can be imported, of several kinds each, with transformers, imports them, and
compares the logits that both compute; exports each import again, some of them in every dtype, and compares what
transformers computes from that. What cannot be expressed must be refused by the name of its key. With --edits: leaves out,
nulls and changes every key of the stored models' config.json (interop_edits.py); an import must agree with transformers
or refuse. With --checkpoint: exports a run or checkpoint, in every dtype and in several files, and compares too. fp32 must agree to
1e-5. Ends with 1 if anything does not, with 77 where transformers is missing. A test runs it: tests/CMakeLists.txt.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import torch
    import transformers
except ImportError as error:
    print("check_interop: skipped,", error)
    sys.exit(77)

import interop_edits

LLAMA = {"vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
         "max_position_embeddings": 64, "initializer_range": 0.1}  # fmt: skip
GROUPED = {**LLAMA, "num_key_value_heads": 2}
GEMMA = {**LLAMA, "num_key_value_heads": 1, "head_dim": 16}
OPT = {"vocab_size": 131, "hidden_size": 48, "ffn_dim": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
       "max_position_embeddings": 64, "init_std": 0.1}  # fmt: skip
BERT = {"vocab_size": 131, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
        "max_position_embeddings": 64, "initializer_range": 0.1}  # fmt: skip
T5 = {"vocab_size": 131, "d_model": 48, "d_kv": 12, "d_ff": 80, "num_layers": 3, "num_heads": 6, "initializer_factor": 0.3}
BLOOM = {"vocab_size": 131, "hidden_size": 48, "n_layer": 3, "n_head": 6, "initializer_range": 0.1}
GPT2 = {"vocab_size": 131, "n_embd": 48, "n_layer": 3, "n_head": 6, "n_positions": 64, "initializer_range": 0.1}
SCALED = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}  # fmt: skip


def maker(name, usual, kind="ForCausalLM"):
    """A function of the keys of config.json that are not the usual ones."""
    def make(**keys):
        return getattr(transformers, name + kind)(getattr(transformers, name + "Config")(**{**usual, **keys}))
    return make


def untied(make, **keys):
    """Of a T5, whose head transformers 5 ties in every new model and leaves alone in a loaded one."""
    model = make(tie_word_embeddings=False, **keys)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    return model


gpt2, llama, mistral = maker("GPT2", GPT2, "LMHeadModel"), maker("Llama", LLAMA), maker("Mistral", GROUPED)
qwen2, qwen3, gemma = maker("Qwen2", GROUPED), maker("Qwen3", {**GROUPED, "head_dim": 16}), maker("Gemma", GEMMA)
megatron_bert, bert = (maker(name, BERT, "ForPreTraining") for name in ("MegatronBert", "Bert"))
t5, mt5 = (maker(name, T5, "ForConditionalGeneration") for name in ("T5", "MT5"))
EXPERTS = {**GROUPED, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
mixtral = maker("Mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2})
qwen3_moe = maker("Qwen3Moe", {**EXPERTS, "num_experts": 6, "head_dim": 16})
qwen2_moe = maker("Qwen2Moe", {**EXPERTS, "num_experts": 6, "shared_expert_intermediate_size": 48})
opt, neox, bloom, phi = maker("OPT", OPT), maker("GPTNeoX", LLAMA), maker("Bloom", BLOOM), maker("Phi", LLAMA)

MODELS = {
    "gpt2": gpt2,
    "gpt2, exact gelu, narrow mlp, other epsilon": lambda: gpt2(
        activation_function="gelu", n_inner=60, layer_norm_epsilon=1e-3
    ),
    "gpt2, relu": lambda: gpt2(activation_function="relu"),
    "gpt2, untied head": lambda: gpt2(tie_word_embeddings=False),
    "gpt2 without its head": maker("GPT2", GPT2, "Model"),
    "llama, multi-head": lambda: llama(num_key_value_heads=6, tie_word_embeddings=False),
    "llama, two groups": lambda: llama(num_key_value_heads=2, tie_word_embeddings=False),
    "llama, one group, tied": lambda: llama(num_key_value_heads=1, tie_word_embeddings=True),
    "llama, biases": lambda: llama(num_key_value_heads=2, attention_bias=True, mlp_bias=True),
    "llama, other base": lambda: llama(num_key_value_heads=2, rope_theta=500000.0),
    "llama, llama3 scaling": lambda: llama(num_key_value_heads=2, rope_scaling=SCALED),
    "llama, linear scaling": lambda: llama(num_key_value_heads=2, rope_scaling={"type": "linear", "factor": 2.5}),
    "llama, parameters of rotations": lambda: llama(rope_parameters={"rope_type": "default", "rope_theta": 300.0}),
    "llama, a part of the rotation that it ignores": lambda: llama(partial_rotary_factor=0.5),
    "llama, biases of attention, other head size": lambda: llama(attention_bias=True, head_dim=12),
    "llama, biases of the mlp": lambda: llama(mlp_bias=True),
    "mistral, window": lambda: mistral(sliding_window=7),
    "mistral, no window, tied": lambda: mistral(sliding_window=None, tie_word_embeddings=True),
    "mistral, other head size, wide window": lambda: mistral(head_dim=12, sliding_window=64, hidden_act="gelu_pytorch_tanh"),
    "qwen2": qwen2,
    "qwen2, tied, other base": lambda: qwen2(tie_word_embeddings=True, rope_theta=1e6),
    "qwen2, window in all layers": lambda: qwen2(use_sliding_window=True, sliding_window=5, max_window_layers=0),
    "qwen2, window in none of its layers": lambda: qwen2(use_sliding_window=True, sliding_window=5, max_window_layers=3),
    "qwen3": qwen3,
    "qwen3, biases, tied, usual head size": lambda: qwen3(attention_bias=True, tie_word_embeddings=True, head_dim=8),
    "qwen3, window": lambda: qwen3(use_sliding_window=True, sliding_window=5, max_window_layers=0),
    "gemma": gemma,
    "gemma, two groups, biases": lambda: gemma(num_key_value_heads=2, attention_bias=True),
    "gemma, untied, silu": lambda: gemma(tie_word_embeddings=False, hidden_act="silu"),
    "opt": opt,
    "opt, no biases": lambda: opt(enable_bias=False),
    "opt, untied, gelu": lambda: opt(tie_word_embeddings=False, activation_function="gelu"),
    "opt without its head": maker("OPT", OPT, "Model"),
    "gpt_neox": neox,
    "gpt_neox, sequential, all rotated, other base": lambda: neox(
        use_parallel_residual=False, rotary_pct=1.0, rotary_emb_base=500
    ),
    "gpt_neox, tied, no biases of attention, relu": lambda: neox(
        tie_word_embeddings=True, attention_bias=False, hidden_act="relu"
    ),
    "gpt_neox, llama3 scaling of half a head": lambda: neox(
        rope_parameters={**SCALED, "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    ),
    "bloom": bloom,
    "bloom, a power of two of heads, untied": lambda: bloom(n_head=4, tie_word_embeddings=False),
    "bloom without its head": maker("Bloom", BLOOM, "Model"),
    "phi": phi,
    "phi, two groups, other part, tied": lambda: phi(
        num_key_value_heads=2, partial_rotary_factor=0.25, tie_word_embeddings=True
    ),
    "phi, linear scaling, exact gelu": lambda: phi(
        rope_scaling={"rope_type": "linear", "factor": 2.0}, hidden_act="gelu"
    ),
    "megatron-bert": megatron_bert,
    "megatron-bert, Megatron's epsilon and gelu": lambda: megatron_bert(layer_norm_eps=1e-5, hidden_act="gelu_fast"),
    "bert": bert,
    "bert, relu, other epsilon": lambda: bert(hidden_act="relu", layer_norm_eps=1e-5),
    "mixtral": mixtral,
    "mixtral, window, tied, three experts per token": lambda: mixtral(
        sliding_window=7, tie_word_embeddings=True, num_experts_per_tok=3
    ),
    "qwen3_moe": qwen3_moe,
    "qwen3_moe, every second layer, normed weights, biases": lambda: qwen3_moe(
        decoder_sparse_step=2, norm_topk_prob=True, attention_bias=True
    ),
    "qwen3_moe, a layer without experts": lambda: qwen3_moe(mlp_only_layers=[1], num_experts_per_tok=3),
    "qwen2_moe": qwen2_moe,
    "qwen2_moe, every second layer, normed weights, no biases": lambda: qwen2_moe(
        decoder_sparse_step=2, norm_topk_prob=True, qkv_bias=False
    ),
    "qwen2_moe, a layer without experts, one shared, tied": lambda: qwen2_moe(
        mlp_only_layers=[0], shared_expert_intermediate_size=24, tie_word_embeddings=True
    ),
    "qwen2_moe, window, other head size": lambda: qwen2_moe(
        use_sliding_window=True, sliding_window=5, layer_types=["sliding_attention"] * 3, head_dim=12
    ),
    "qwen3_moe, window": lambda: qwen3_moe(use_sliding_window=True, sliding_window=5),
    "t5": t5,
    "t5, gated, untied": lambda: untied(t5, feed_forward_proj="gated-gelu"),
    "t5, a longer decoder, other buckets, gelu": lambda: t5(
        num_decoder_layers=4, relative_attention_num_buckets=16, relative_attention_max_distance=24, feed_forward_proj="gelu"
    ),
    "t5, gated, tied, heads as wide as all": lambda: t5(feed_forward_proj="gated-silu", d_kv=8, layer_norm_epsilon=1e-5),
    "t5 without its head": maker("T5", T5, "Model"),
    "mt5": lambda: untied(mt5),
    "mt5, tied, no gate": lambda: mt5(feed_forward_proj="relu"),
}

EVERY_DTYPE = ("gpt2, untied head", "llama, two groups", "gemma", "gpt_neox", "megatron-bert", "bert", "t5, gated, untied")

# What is refused, and by which words: keys that are set in the config.json of a model above.
REFUSED = {
    "llama": [({"rope_scaling": {"rope_type": kind, "factor": 2.0}}, f'rotary scaling of type "{kind}"')
              for kind in ("yarn", "dynamic", "longrope")]
    + [({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config")],
    "mistral": [({"layer_types": ["full_attention", "sliding_attention", "full_attention"]}, "layer_types")],
    "qwen2": [({"use_sliding_window": True, "sliding_window": 5, "layer_types": None, "max_window_layers": 1}, "max_window_layers")],
    "gemma": [({"use_bidirectional_attention": True}, "use_bidirectional_attention"), ({"hidden_act": "gelu"}, "gelu_pytorch_tanh")],
    "opt": [({"do_layer_norm_before": False}, "do_layer_norm_before"),
            ({"word_embed_proj_dim": 24}, "word_embed_proj_dim")],
    "bloom": [({"apply_residual_connection_post_layernorm": True}, "apply_residual_connection_post_layernorm")],
    "phi": [({"qk_layernorm": True}, "qk_layernorm")],
    "megatron-bert": [({"is_decoder": True}, "is_decoder")],
    "bert": [({"type_vocab_size": 3}, "type_vocab_size"),
             ({"position_embedding_type": "relative_key"}, "position_embedding_type")],
    "mixtral": [({"router_jitter_noise": 0.1}, "router_jitter_noise"), ({"num_experts_per_tok": 1}, "moe.renormalize")],
    "qwen2_moe": [({"shared_expert_intermediate_size": 30}, "shared_expert_intermediate_size"),
                  ({"mlp_only_layers": [0, 1, 2]}, "mlp_only_layers")],
    "t5": [({"is_decoder": True}, "is_decoder"), ({"dense_act_fn": "quick_gelu"}, "feed_forward_proj")],
}  # fmt: skip

failures = 0


def report(name, difference, scale, limit):
    global failures
    good = difference <= limit * max(1.0, scale)
    failures += not good
    print(f"{name:<60} largest difference {difference:.2e} of {scale:.2f}  {'ok' if good else 'WRONG'}")


def convert(program, command, source, target, folder, *options):
    logits = os.path.join(folder, "logits.json")
    subprocess.run([program, command, source, target, "--logits", logits, "--force", *options], check=True, capture_output=True)
    with open(logits, encoding="utf-8") as file:
        ours = json.load(file)
    return ours, torch.tensor(ours["logits"]).view(len(ours["tokens"]), -1)


def is_encoder(model):
    return hasattr(model, "cls")


def load(folder, **options):
    """A model with its head, whatever its family."""
    config = transformers.AutoConfig.from_pretrained(folder)
    if config.is_encoder_decoder:
        kind = transformers.AutoModelForSeq2SeqLM
    elif config.architectures[0].endswith("ForPreTraining"):
        kind = transformers.AutoModelForPreTraining
    else:
        kind = transformers.AutoModelForCausalLM
    return kind.from_pretrained(folder, **options)


def order_of_texts(model, tokens):
    """An encoder's other head, with both types of tokens."""
    types = [2 * i // len(tokens) for i in range(len(tokens))]
    with torch.no_grad():
        return model(torch.tensor([tokens]), token_type_ids=torch.tensor([types])).seq_relationship_logits


def theirs(model, inputs):
    tokens = inputs["tokens"]
    model.eval()
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            output = model(torch.tensor([inputs["encoder_tokens"]]), decoder_input_ids=torch.tensor([tokens]))
            if "logits" in output:
                return output.logits[0]
            return output.last_hidden_state[0] * model.config.d_model**-0.5 @ model.get_input_embeddings().weight.T
        if is_encoder(model):
            return model(torch.tensor([tokens])).prediction_logits[0]
        if not hasattr(model, "lm_head") and not hasattr(model, "embed_out"):
            return model(torch.tensor([tokens])).last_hidden_state[0] @ model.get_input_embeddings().weight.T
        return model(torch.tensor([tokens])).logits[0]


def check_model(program, name, model, folder):
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.05 * torch.randn_like(parameter)
    saved, imported, exported = (os.path.join(folder, part) for part in ("saved", "imported", "exported"))
    model.save_pretrained(saved, max_shard_size="100KB")
    inputs, ours = convert(program, "import", saved, imported, folder)
    expected = theirs(model, inputs)
    report(name + ": imported", (ours - expected).abs().max().item(), expected.abs().max().item(), 1e-5)
    convert(program, "export", imported, exported, folder, "--max-shard-size", "64KB")
    again = load(exported)
    difference = (theirs(again, inputs) - expected).abs().max().item()
    report(name + ": exported again", difference, expected.abs().max().item(), 1e-5)
    if is_encoder(model):
        order = order_of_texts(model, inputs["tokens"])
        difference = (order_of_texts(again, inputs["tokens"]) - order).abs().max().item()
        report(name + ": exported again, order of texts", difference, order.abs().max().item(), 1e-5)
    if name in EVERY_DTYPE:
        check_checkpoint(program, name, imported, folder)


def check_refusals(program, name, model, changes, folder):
    saved = os.path.join(folder, "saved")
    model.save_pretrained(saved)
    path = os.path.join(saved, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    for changed, words in changes:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**config, **changed}, file)
        ended = subprocess.run([program, "import", saved, os.path.join(folder, "imported")], check=False, capture_output=True)
        global failures
        good = ended.returncode != 0 and words in ended.stderr.decode()
        failures += not good
        print(f"{name}: {words:<50} {'refused' if good else 'NOT REFUSED ' + ended.stderr.decode()}")


def check_edits(program, only):
    global failures
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden", "interop")
    for name, folder, config, inputs in interop_edits.models(root):
        if not name.startswith(only):
            continue
        made = refused = wrong = 0
        for edit in [{}, *interop_edits.edits(config)]:
            expected = interop_edits.answer(folder, interop_edits.edited(config, edit), inputs)
            imported = os.path.join(folder, "imported")
            shutil.rmtree(imported, ignore_errors=True)
            try:
                read, ours = convert(program, "import", folder, imported, folder)
            except subprocess.CalledProcessError:
                refused += 1
                continue
            known = len(inputs["tokens"])
            if expected is None or len(read["tokens"]) < known or read.get("encoder_tokens") != inputs.get("encoder_tokens"):
                continue
            made += 1
            if (ours[:known] - expected).abs().max().item() > 1e-3:
                wrong += 1
                print(name, "WRONG with", json.dumps(edit))
        failures += wrong + (made == 0)
        print(f"{name}: {made} edited models agree or are wrong ({wrong}), {refused} refused", flush=True)


def check_checkpoint(program, name, source, folder):
    for dtype, limit in (("fp32", 1e-5), ("bf16", 2e-2), ("fp16", 2e-3)):
        target = os.path.join(folder, dtype)
        inputs, ours = convert(program, "export", source, target, folder, "--dtype", dtype, "--max-shard-size", "1MB")
        model = load(target, dtype=torch.float32)
        expected = theirs(model, inputs)
        difference = (ours - expected).abs().max().item()
        report(f"{name}: exported as {dtype}", difference, expected.abs().max().item(), limit)


def main():
    global failures
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint")
    parser.add_argument("--program", default="./megatron_checkpoint")
    parser.add_argument("--only", default="", help="models whose names begin so")
    parser.add_argument("--edits", action="store_true")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(1)
    if arguments.edits:
        check_edits(arguments.program, arguments.only)
        return 1 if failures else 0
    for name, make in MODELS.items():
        if not name.startswith(arguments.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                check_model(arguments.program, name, make(), folder)
            except subprocess.CalledProcessError as error:
                failures += 1
                print(name, "WRONG", error.stderr.decode())
    for name, changes in REFUSED.items():
        if not name.startswith(arguments.only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            check_refusals(arguments.program, name, next(make for kind, make in MODELS.items() if kind.startswith(name))(), changes, folder)
    if arguments.checkpoint:
        with tempfile.TemporaryDirectory() as folder:
            check_checkpoint(arguments.program, arguments.checkpoint, arguments.checkpoint, folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
