#!/usr/bin/env python3
"""Makes tests/golden/experts: the gradients that autograd gives models with experts of Hugging Face's transformers.

Usage: python3 scripts/golden/make_expert_golden.py [tests/golden [NAME...]]     (needs torch, transformers; seconds)

The models are those of tests/golden/interop, in float64, none of whose tokens is dropped. The loss is the mean over all
tokens of the cross entropy, plus this program's own losses of the router, each a mean over samples and layers: balance
and z, made here from the router's scores with elementary operations. Each folder of the result has
  model.safetensors   fp32: the gradient of every tensor of the model, under its name
  loss.json           "tokens", "targets": [samples][positions]; "language_model", "balance", "router_z"; their
                      coefficients; "gap": the least difference of the probabilities of a chosen and another expert
"""

import json
import os
import sys

import torch
import transformers

NAMES = ("mixtral", "qwen2_moe", "qwen3_moe")
SAMPLES, BALANCE, ROUTER_Z = 4, 0.05, 0.02


def router_losses(scores, experts, top_k):
    """Of one layer's scores [samples, positions, experts]: the means over samples of both losses, and the gap."""
    probabilities = torch.softmax(scores, dim=-1)
    chosen = probabilities.topk(top_k, dim=-1).indices
    counts = torch.nn.functional.one_hot(chosen, experts).sum(dim=(1, 2)).to(scores.dtype)  # [samples, experts]
    share = counts / counts.sum(dim=-1, keepdim=True)
    balance = (experts * (share * probabilities.mean(dim=1)).sum(dim=-1)).mean()
    z = (torch.logsumexp(scores, dim=-1) ** 2).mean()
    ordered = probabilities.sort(dim=-1, descending=True).values
    gap = (ordered[..., top_k - 1] - ordered[..., top_k]).min().item() if top_k < experts else 1.0
    return balance, z, gap


def make(source, target, name):
    folder = os.path.join(source, name)
    config = transformers.AutoConfig.from_pretrained(folder)
    config._experts_implementation = "eager"  # others do not compute in float64
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).double()
    model.eval()  # no dropout is set, and nothing else differs
    positions, vocabulary = config.max_position_embeddings, config.vocab_size
    experts = getattr(config, "num_local_experts", None) or config.num_experts
    random = torch.Generator().manual_seed(7)
    texts = torch.randint(0, vocabulary, (SAMPLES, positions + 1), generator=random)
    tokens, targets = texts[:, :-1], texts[:, 1:]

    scores = []
    routers = [module for path, module in model.named_modules() if path.endswith((".mlp.gate", ".block_sparse_moe.gate"))]
    for router in routers:  # its input is rows of all samples, one after the other
        router.register_forward_hook(
            lambda module, inputs, _: scores.append((inputs[0].reshape(-1, config.hidden_size) @ module.weight.T)
                                                    .reshape(SAMPLES, positions, experts))
        )  # fmt: skip
    logits = model(tokens).logits
    language_model = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), targets.reshape(-1))
    assert scores, "no router was found"
    terms = [router_losses(layer, experts, config.num_experts_per_tok) for layer in scores]
    balance, z = (torch.stack([term[i] for term in terms]).mean() for i in (0, 1))
    (language_model + BALANCE * balance + ROUTER_Z * z).backward()

    # Under the names that save_pretrained() gives the tensors: values are replaced by gradients, and saved.
    for path, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.norm() > 1e-6, f"{path}: a vanishing gradient proves nothing"
        parameter.data = parameter.grad
    result = os.path.join(target, name)
    os.makedirs(result, exist_ok=True)
    model.float().save_pretrained(result)
    for extra in os.listdir(result):
        if extra != "model.safetensors":
            os.remove(os.path.join(result, extra))
    told = {"tokens": tokens.tolist(), "targets": targets.tolist(), "language_model": language_model.item(),
            "balance": balance.item(), "router_z": z.item(), "balance_coefficient": BALANCE, "z_coefficient": ROUTER_Z,
            "gap": min(term[2] for term in terms)}  # fmt: skip
    with open(os.path.join(result, "loss.json"), "w", encoding="utf-8") as file:
        json.dump(told, file)
        file.write("\n")
    print(result, {key: value for key, value in told.items() if not isinstance(value, list)})


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "tests/golden"
    for name in sys.argv[2:] or NAMES:
        make(os.path.join(folder, "interop"), os.path.join(folder, "experts"), name)


if __name__ == "__main__":
    main()
