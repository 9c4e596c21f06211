#!/usr/bin/env python3
"""Makes tests/golden/tiny_gpt.h5: what a tiny GPT must compute, by PyTorch's autograd in float64.

Usage: python3 scripts/make_golden.py [tests/golden/tiny_gpt.h5]      (needs torch, numpy and h5py; a few seconds)

The model is written out with elementary tensor operations, so that the file depends on formulas and not on a library's
idea of a transformer: learned positions, pre-LN blocks, tanh GELU, biases everywhere, causal softmax attention scaled
by 1/sqrt(head size), tied embedding, a padded vocabulary whose padding logits are minus infinity, no dropout, loss =
mean over all tokens. Parameters are rounded to float32 first, so that readers start from exactly the same numbers.

The file is flat, as src/hdf5 reads it: one-dimensional datasets below the root, chunked with fletcher32, little-endian;
each one's attribute `shape` (u64) says what it is a row-major tensor of. Contents:
  attributes of /     u64: layers, hidden_size, attention_heads, ffn_hidden_size, sequence_length, micro_batch_size,
                      max_position_embeddings, vocab_size, padded_vocab_size, steps;  f64: norm_epsilon, and of the five
                      steps learning_rate, beta1, beta2, epsilon, weight_decay, clip_grad_norm
  parameters.NAME     initial values, f32; linear weights are [out, in], embeddings [rows, hidden]
  gradients.NAME      of `loss`, f32, same shapes
  tokens, targets     i32 [s, b]: one batch
  loss                f64 [1]: of that batch at the initial values;   gradient_norm  f64 [1]: of all its gradients
  logits              f32 [s, b, vocab_size]: the last layer's output without the padding columns
  steps.tokens, steps.targets     i32 [5, s, b]: five more batches
  steps.losses, steps.norms       f64 [5]: training on them with AdamW from the initial values: each step's loss and
                                  gradient norm, both before its update, the norm before clipping
"""

import math
import sys

import h5py
import numpy as np
import torch

LAYERS, HIDDEN, HEADS, FFN = 3, 48, 4, 192
SEQUENCE, BATCH, POSITIONS = 33, 3, 40
VOCAB, PADDED_VOCAB = 100, 128
NORM_EPSILON = 1e-5
STEPS, LEARNING_RATE, BETA1, BETA2, EPSILON, WEIGHT_DECAY, CLIP = 5, 1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0


def initial_parameters(random):
    """All parameters by name, float64 but exactly representable in float32. Nothing is zero or one: a bias or a norm
    weight that is left out, or taken for another, has to show."""

    def normal(*shape, deviation, mean=0.0):
        values = mean + deviation * random.standard_normal(shape)
        return torch.from_numpy(values.astype(np.float32).astype(np.float64))

    def linear(name, outputs, inputs, deviation=0.08):
        return {
            f"{name}.weight": normal(outputs, inputs, deviation=deviation),
            f"{name}.bias": normal(outputs, deviation=0.1),
        }

    def norm(name):
        return {
            f"{name}.weight": normal(HIDDEN, deviation=0.2, mean=1.0),
            f"{name}.bias": normal(HIDDEN, deviation=0.1),
        }

    parameters = {
        "embedding.word.weight": normal(PADDED_VOCAB, HIDDEN, deviation=0.15),
        "embedding.position.weight": normal(POSITIONS, HIDDEN, deviation=0.1),
    }
    for i in range(LAYERS):
        layer = f"layers.{i}"
        parameters |= norm(f"{layer}.attention_norm")
        for part in ("query", "key", "value"):
            parameters |= linear(f"{layer}.attention.{part}", HIDDEN, HIDDEN, deviation=0.2)
        parameters |= linear(f"{layer}.attention.output", HIDDEN, HIDDEN)
        parameters |= norm(f"{layer}.mlp_norm")
        parameters |= linear(f"{layer}.mlp.up", FFN, HIDDEN)
        parameters |= linear(f"{layer}.mlp.down", HIDDEN, FFN)
    parameters |= norm("final_norm")
    return parameters


def layer_norm(x, weight, bias):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + NORM_EPSILON) * weight + bias


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(query, key, value):
    """[s, b, h] each; heads are contiguous blocks of the last dimension."""
    s, b, h = query.shape
    split = (s, b, HEADS, h // HEADS)
    scores = torch.einsum("ibad,jbad->baij", query.reshape(split), key.reshape(split)) / math.sqrt(h // HEADS)
    later = torch.ones(s, s, dtype=torch.bool).triu(diagonal=1)
    probabilities = torch.exp(scores - scores.amax(dim=-1, keepdim=True)).masked_fill(later, 0.0)
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.einsum("baij,jbad->ibad", probabilities, value.reshape(split)).reshape(s, b, h)


def forward(parameters, tokens):
    """tokens [s, b] -> logits [s, b, vocab]: the padding rows of the embedding take no part in the softmax."""

    def linear(name, x):
        return x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]

    def norm(name, x):
        return layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    word = parameters["embedding.word.weight"]
    x = word[tokens] + parameters["embedding.position.weight"][: tokens.shape[0], None, :]
    for i in range(LAYERS):
        layer = f"layers.{i}"
        n = norm(f"{layer}.attention_norm", x)
        query, key, value = (linear(f"{layer}.attention.{part}", n) for part in ("query", "key", "value"))
        x = x + linear(f"{layer}.attention.output", attention(query, key, value))
        n = norm(f"{layer}.mlp_norm", x)
        x = x + linear(f"{layer}.mlp.down", gelu(linear(f"{layer}.mlp.up", n)))
    return norm("final_norm", x) @ word[:VOCAB].T


def mean_loss(parameters, tokens, targets):
    logits = forward(parameters, tokens)
    at_target = logits.gather(-1, targets[..., None])[..., 0]
    return (torch.logsumexp(logits, dim=-1) - at_target).mean()


def loss_and_gradients(parameters, tokens, targets):
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    loss = mean_loss(leaves, tokens, targets)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return loss.item(), dict(zip(leaves, gradients))


def global_norm(gradients):
    return math.sqrt(sum((g**2).sum().item() for g in gradients.values()))


def check_by_differences(random, parameters, gradients, tokens, targets):
    """Every parameter's gradient along a random direction against a central difference of the loss. The key biases'
    gradient is zero in exact arithmetic (the softmax does not see a shift of all scores of a row)."""
    for name, value in parameters.items():
        direction = torch.from_numpy(random.standard_normal(tuple(value.shape)))
        step = 1e-5
        ahead = mean_loss(parameters | {name: value + step * direction}, tokens, targets).item()
        behind = mean_loss(parameters | {name: value - step * direction}, tokens, targets).item()
        difference = (ahead - behind) / (2 * step)
        analytic = (gradients[name] * direction).sum().item()
        scale = gradients[name].norm().item() + 1e-4
        assert abs(difference - analytic) <= 1e-5 * scale, f"{name}: {analytic} against {difference}"
        if name.endswith("attention.key.bias"):
            assert gradients[name].norm().item() < 1e-12, name
        else:
            assert gradients[name].norm().item() > 1e-4, f"{name}: a vanishing gradient proves nothing"
    assert torch.all(gradients["embedding.word.weight"][VOCAB:] == 0)
    assert torch.all(gradients["embedding.position.weight"][SEQUENCE:] == 0)


def train(parameters, batches):
    """AdamW, written out. Decay on matrices and embeddings only; the clip factor is limit / (norm + 1e-6), at most 1."""
    parameters = dict(parameters)
    m = {name: torch.zeros_like(value) for name, value in parameters.items()}
    v = {name: torch.zeros_like(value) for name, value in parameters.items()}
    losses, norms = [], []
    for step, (tokens, targets) in enumerate(batches, start=1):
        loss, gradients = loss_and_gradients(parameters, tokens, targets)
        norm = global_norm(gradients)
        losses.append(loss)
        norms.append(norm)
        factor = min(1.0, CLIP / (norm + 1e-6))
        for name, value in parameters.items():
            g = gradients[name] * factor
            m[name] = BETA1 * m[name] + (1 - BETA1) * g
            v[name] = BETA2 * v[name] + (1 - BETA2) * g**2
            update = (m[name] / (1 - BETA1**step)) / (torch.sqrt(v[name] / (1 - BETA2**step)) + EPSILON)
            if value.ndim == 2:
                update = update + WEIGHT_DECAY * value
            parameters[name] = value - LEARNING_RATE * update
    return losses, norms


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/tiny_gpt.h5"
    random = np.random.Generator(np.random.PCG64(20240229))
    parameters = initial_parameters(random)
    # Texts of s + 1 tokens: targets are the tokens, one place on. Every batch also holds the first and last real token.
    texts = random.integers(0, VOCAB, size=(1 + STEPS, SEQUENCE + 1, BATCH), dtype=np.int32)
    texts[:, 3, 0], texts[:, 5, 1] = 0, VOCAB - 1
    tokens, targets = texts[:, :-1], texts[:, 1:]
    batches = [(torch.from_numpy(t).long(), torch.from_numpy(u).long()) for t, u in zip(tokens.copy(), targets.copy())]

    loss, gradients = loss_and_gradients(parameters, *batches[0])
    check_by_differences(random, parameters, gradients, *batches[0])
    losses, norms = train(parameters, batches[1:])
    assert any(n > CLIP for n in norms), "no step is clipped"

    # No time stamps: the same bytes from every run.
    with h5py.File(path, "w", libver=("v110", "v110")) as file:

        def put(name, values, dtype):
            values = np.ascontiguousarray(values, dtype=dtype)
            flat = values.reshape(-1)
            chunk = min(flat.size, 65536 // flat.itemsize)
            dataset = file.create_dataset(name, data=flat, chunks=(chunk,), fletcher32=True, track_times=False)
            dataset.attrs["shape"] = np.array(values.shape, dtype="<u8")

        sizes = dict(layers=LAYERS, hidden_size=HIDDEN, attention_heads=HEADS, ffn_hidden_size=FFN,
                     sequence_length=SEQUENCE, micro_batch_size=BATCH, max_position_embeddings=POSITIONS,
                     vocab_size=VOCAB, padded_vocab_size=PADDED_VOCAB, steps=STEPS)
        numbers = dict(norm_epsilon=NORM_EPSILON, learning_rate=LEARNING_RATE, beta1=BETA1, beta2=BETA2,
                       epsilon=EPSILON, weight_decay=WEIGHT_DECAY, clip_grad_norm=CLIP)
        file.attrs.update({name: np.uint64(value) for name, value in sizes.items()})
        file.attrs.update({name: np.float64(value) for name, value in numbers.items()})
        for name in parameters:
            put(f"parameters.{name}", parameters[name].numpy(), "<f4")
            put(f"gradients.{name}", gradients[name].numpy(), "<f4")
        put("tokens", tokens[0], "<i4")
        put("targets", targets[0], "<i4")
        put("loss", [loss], "<f8")
        put("gradient_norm", [global_norm(gradients)], "<f8")
        put("logits", forward(parameters, batches[0][0]).numpy(), "<f4")
        put("steps.tokens", tokens[1:], "<i4")
        put("steps.targets", targets[1:], "<i4")
        put("steps.losses", losses, "<f8")
        put("steps.norms", norms, "<f8")
    count = sum(value.numel() for value in parameters.values())
    print(f"{path}: {count} parameters, loss {loss!r}, gradient norm {global_norm(gradients)!r}")
    print(f"steps: losses {losses}, norms {norms}")


if __name__ == "__main__":
    main()
