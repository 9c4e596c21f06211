#!/usr/bin/env python3
"""Makes tests/golden/half_*.h5: what tiny models must compute in bf16 and fp16, by PyTorch in float64.

Usage: python3 scripts/golden/make_half_golden.py [tests/golden]      (needs torch, numpy and h5py; some seconds)

The models are those of make_golden.py, written once more with a rounding wherever docs/precision.md has one: weights,
activations and their gradients are rounded each time that an operation stores them; sums, statistics, softmax, gradients
of weights, the loss and AdamW with its master copy are not. So a file differs from the program by the order of fp32
sums alone, and by what a rounding that falls the other way makes of that. bf16_native is bf16 by processors' own
instructions, where attention rounds probabilities and the gradients of scores as well.

A file is as those of make_golden.py up to `tokens` and `targets`, without gradients and logits of the exact model, and
has for each TYPE of bf16, fp16 and bf16_native:
  TYPE.gradients.NAME           of the batch's loss, f32, without the loss scale
  TYPE.loss, TYPE.gradient_norm, TYPE.loss_scale      f64 [1]
  TYPE.steps.losses, TYPE.steps.norms      f64 [5]
  TYPE.moved.NAME               f64 [1]: Euclidean norm of what the steps have added to the master copy
"""

import math
import pathlib
import sys

import h5py
import numpy as np
import torch

import make_golden as exact

MODELS = {
    "half_gpt": exact.SMALL | dict(max_position_embeddings=24),
    "half_llama": exact.MODELS["tiny_llama"],
}
exact.LEARNING_RATE = 1e-4  # less than half of what the last bit of most weights stands for
TYPES = {"bf16": (torch.bfloat16, 1.0), "fp16": (torch.float16, 1024.0), "bf16_native": (torch.bfloat16, 1.0)}


def rounded(x, dtype):
    return x.float().to(dtype).double()


def factor_of(name, dtype):
    return (lambda x: rounded(x, dtype)) if name.endswith("_native") else (lambda x: x)


class RoundValue(torch.autograd.Function):
    """A value as it is stored; its gradient passes through."""

    @staticmethod
    def forward(ctx, x, dtype):
        return rounded(x, dtype)

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class RoundGradient(torch.autograd.Function):
    """A value whose gradient is stored."""

    @staticmethod
    def forward(ctx, x, dtype):
        ctx.dtype = dtype
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return rounded(gradient, ctx.dtype), None


class Attend(torch.autograd.Function):
    """Causal attention of query, key and value [s, b, heads, d], whose backward reads the stored output. `factor` rounds
    the factors of its products that no tensor stores, or does not."""

    @staticmethod
    def forward(ctx, query, key, value, dtype, factor):
        s, scale = query.shape[0], 1 / math.sqrt(query.shape[-1])
        scores = torch.einsum("ibad,jbad->baij", query, key) * scale
        hidden = torch.ones(s, s, dtype=torch.bool).triu(diagonal=1)
        scores = scores.masked_fill(hidden, -math.inf)
        weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
        sums = weights.sum(dim=-1, keepdim=True)
        output = rounded(torch.einsum("baij,jbad->ibad", factor(weights), value) / sums.permute(2, 0, 1, 3), dtype)
        ctx.save_for_backward(query, key, value, weights / sums, output)
        ctx.scale, ctx.factor = scale, factor
        return output

    @staticmethod
    def backward(ctx, gradient):
        query, key, value, probabilities, output = ctx.saved_tensors
        delta = (gradient * output).sum(dim=-1).permute(1, 2, 0)[..., None]
        dscores = ctx.factor(probabilities * (torch.einsum("ibad,jbad->baij", gradient, value) - delta))
        return (
            torch.einsum("baij,jbad->ibad", dscores, key) * ctx.scale,
            torch.einsum("baij,ibad->jbad", dscores, query) * ctx.scale,
            torch.einsum("baij,ibad->jbad", ctx.factor(probabilities), gradient),
            None,
            None,
        )


def loss_of(model, masters, tokens, targets, dtype, factor):
    """The mean loss. Each product of several layers (query, key and value; gate and up) is one, and rounded once."""

    def stored(x):
        return RoundGradient.apply(RoundValue.apply(x, dtype), dtype)

    parameters = {name: RoundValue.apply(value, dtype) for name, value in masters.items()}
    heads, groups, size = model["attention_heads"], model["query_groups"], exact.head_size(model)
    s, b = tokens.shape

    def norm(name, x):
        if model["normalization"] == "rmsnorm":
            return stored(exact.rms_norm(x, parameters[f"{name}.weight"], model["norm_epsilon"]))
        return stored(exact.layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], model["norm_epsilon"]))

    def joint(names, kind):
        return torch.cat([parameters[f"{name}.{kind}"] for name in names])

    def product(x, names):
        return RoundValue.apply(x @ joint(names, "weight").T, dtype)

    def rotated(x):
        return stored(exact.rotate(model, x)) if model["position_embedding"] == "rope" else x

    def add(residual, x, name):
        bias = parameters[f"{name}.bias"] if model["bias"] else 0
        return stored(residual + (x + bias))

    x = parameters["embedding.word.weight"][tokens]
    if model["position_embedding"] == "learned":
        x = x + parameters["embedding.position.weight"][:s, None, :]
    x = stored(x)
    for i in range(model["layers"]):
        layer = f"layers.{i}"
        names = [f"{layer}.attention.{part}" for part in ("query", "key", "value")]
        qkv = product(norm(f"{layer}.attention_norm", x), names)
        qkv = stored(qkv + joint(names, "bias")) if model["bias"] else stored(qkv)
        query, key, value = qkv.split([heads * size, groups * size, groups * size], dim=-1)
        query, key, value = (y.reshape(s, b, -1, size) for y in (query, key, value))
        query, key, value = rotated(query), rotated(key), value
        query, key, value = (RoundGradient.apply(y, dtype) for y in (query, key, value))
        key, value = (torch.stack([y[:, :, j // (heads // groups)] for j in range(heads)], dim=2) for y in (key, value))
        attended = RoundGradient.apply(Attend.apply(query, key, value, dtype, factor), dtype).reshape(s, b, heads * size)
        x = add(x, product(attended, [f"{layer}.attention.output"]), f"{layer}.attention.output")

        gated = model["activation"] == "swiglu"
        names = [f"{layer}.mlp.gate", f"{layer}.mlp.up"] if gated else [f"{layer}.mlp.up"]
        up = stored(product(norm(f"{layer}.mlp_norm", x), names))
        if model["bias"]:
            up = up + joint(names, "bias")
        activation = exact.ACTIVATIONS[model["activation"]]
        if gated:
            gate, up = up.chunk(2, dim=-1)
            activated = stored(activation(gate) * up)
        else:
            activated = stored(activation(up))
        x = add(x, product(activated, [f"{layer}.mlp.down"]), f"{layer}.mlp.down")
    head = parameters["embedding.word.weight" if model["tie_embeddings"] else "head.weight"]
    logits = stored(norm("final_norm", x) @ head[: model["vocab_size"]].T)
    at_target = logits.gather(-1, targets[..., None])[..., 0]
    return (torch.logsumexp(logits, dim=-1) - at_target).mean()


def loss_and_gradients(model, masters, tokens, targets, dtype, loss_scale, factor=lambda x: x):
    leaves = {name: value.clone().requires_grad_() for name, value in masters.items()}
    loss = loss_of(model, leaves, tokens, targets, dtype, factor)
    gradients = torch.autograd.grad(loss * loss_scale, list(leaves.values()))
    return loss.item(), {name: gradient / loss_scale for name, gradient in zip(leaves, gradients)}


def train(model, masters, batches, dtype, loss_scale, factor):
    """AdamW of make_golden.py on the master copies."""

    def step(model, values, tokens, targets):
        return loss_and_gradients(model, values, tokens, targets, dtype, loss_scale, factor)

    exact_step, exact.loss_and_gradients = exact.loss_and_gradients, step
    try:
        return exact.train(model, masters, batches)
    finally:
        exact.loss_and_gradients = exact_step


def make(path, model):
    random = np.random.Generator(np.random.PCG64(20261122))
    masters = exact.initial_parameters(model, random)
    shape = (1 + exact.STEPS, model["sequence_length"] + 1, exact.BATCH)
    texts = random.integers(0, model["vocab_size"], size=shape, dtype=np.int32)
    tokens, targets = texts[:, :-1], texts[:, 1:]
    batches = [(torch.from_numpy(t).long(), torch.from_numpy(u).long()) for t, u in zip(tokens.copy(), targets.copy())]
    # Without rounding it is the model of make_golden.py.
    loss, gradients = loss_and_gradients(model, masters, *batches[0], torch.float64, 1.0)
    wanted, wanted_gradients = exact.loss_and_gradients(model, masters, *batches[0])
    assert abs(loss - wanted) < 1e-6
    for name, gradient in gradients.items():
        assert (gradient - wanted_gradients[name]).norm() <= 1e-5 * gradient.norm() + 1e-7, name

    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        put = exact.writer(file)
        exact.put_settings(file, model)
        for name, value in masters.items():
            put(f"parameters.{name}", value.numpy(), "<f4")
        put("tokens", tokens[0], "<i4")
        put("targets", targets[0], "<i4")
        put("steps.tokens", tokens[1:], "<i4")
        put("steps.targets", targets[1:], "<i4")
        for name, (dtype, loss_scale) in TYPES.items():
            factor = factor_of(name, dtype)
            loss, gradients = loss_and_gradients(model, masters, *batches[0], dtype, loss_scale, factor)
            losses, norms, last = train(model, masters, batches[1:], dtype, loss_scale, factor)
            for parameter, gradient in gradients.items():
                put(f"{name}.gradients.{parameter}", gradient.numpy(), "<f4")
                put(f"{name}.moved.{parameter}", [(last[parameter] - masters[parameter]).norm().item()], "<f8")
            put(f"{name}.loss_scale", [loss_scale], "<f8")
            put(f"{name}.loss", [loss], "<f8")
            put(f"{name}.gradient_norm", [exact.global_norm(gradients)], "<f8")
            put(f"{name}.steps.losses", losses, "<f8")
            put(f"{name}.steps.norms", norms, "<f8")
            print(f"{path}: {name}: loss {loss!r}, exactly {wanted!r}; steps {losses}")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    for name, model in MODELS.items():
        make(folder / f"{name}.h5", model)


if __name__ == "__main__":
    main()
