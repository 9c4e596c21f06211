#!/usr/bin/env python3
"""Makes tests/golden/*.h5: what tiny models of the GPT family must compute, by PyTorch's autograd in float64.

Usage: python3 scripts/golden/make_golden.py [tests/golden [NAME...]]      (needs torch, numpy and h5py; some seconds)

The models are written out with elementary tensor operations, so that the files depend on formulas and not on a library's
idea of a transformer: pre-norm blocks, causal softmax attention scaled by 1/sqrt(head size), a padded vocabulary whose
padding logits are minus infinity, no dropout, loss = mean over all tokens. tiny_gpt.h5 is GPT-2: learned positions,
LayerNorm, tanh GELU, biases everywhere, tied embedding. The others have every variant of ModelConfig (src/config) among
them; MODELS below says which. Parameters are rounded to float32 first, so that readers start from exactly the same
numbers.

A file is flat, as src/data/hdf5 reads it: one-dimensional datasets below the root, chunked with fletcher32, little-endian;
each one's attribute `shape` (u64) says what it is a row-major tensor of. Contents:
  attributes of /     model: text, the table [model] of an input file;  u64: samples (of a batch), steps;  f64, of the
                      five steps: learning_rate, beta1, beta2, epsilon, weight_decay, clip_grad_norm
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
import pathlib
import sys

import h5py
import numpy as np
import torch

BATCH = 3
STEPS, LEARNING_RATE, BETA1, BETA2, EPSILON, WEIGHT_DECAY, CLIP = 5, 1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0

# Of tiny_gpt.h5; keys and defaults as in an input file.
GPT = dict(layers=3, hidden_size=48, attention_heads=4, query_groups=4, ffn_hidden_size=192, sequence_length=33,
           max_position_embeddings=40, vocab_size=100, vocab_multiple=128, position_embedding="learned",
           rotary_fraction=1.0, rotary_base=10000.0, rotary_scaling=None, activation="gelu", normalization="layernorm",
           norm_epsilon=1e-5, query_key_norm=False, tie_embeddings=True, bias=True, head_size=None,
           attention_window=None, attention_softcap=None, residual="sequential", scale_embeddings=False, embedding_norm=False, head_bias=False)
SMALL = GPT | dict(layers=2, hidden_size=32, ffn_hidden_size=40, sequence_length=19, max_position_embeddings=19,
                   vocab_size=50, vocab_multiple=64)
# Wavelengths of the rotations in "llama" are 6 to 2000 tokens: the scaling leaves some, slows some by all of the factor
# and some by a part of it.
LLAMA3 = dict(type="llama3", factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_length=64)
MODELS = {
    "tiny_gpt": GPT,
    "tiny_llama": SMALL | dict(query_groups=2, position_embedding="rope", rotary_base=500.0, rotary_scaling=LLAMA3,
                               activation="swiglu", normalization="rmsnorm", norm_epsilon=1e-6, bias=False,
                               tie_embeddings=False),
    "tiny_alibi": SMALL | dict(hidden_size=36, attention_heads=6, query_groups=1, position_embedding="alibi",
                               activation="gelu_exact"),
    "tiny_query_key_norm": SMALL | dict(query_groups=2, position_embedding="rope", rotary_fraction=0.5,
                                        rotary_scaling=dict(type="linear", factor=2.5), activation="geglu",
                                        query_key_norm=True),
    "tiny_plain": SMALL | dict(position_embedding="none", activation="relu", bias=False, tie_embeddings=False),
    "tiny_window": SMALL | dict(query_groups=2, head_size=10, attention_window=7, position_embedding="rope",
                                activation="geglu", normalization="rmsnorm", scale_embeddings=True,
                                bias="query_key_value"),
    "tiny_softcap": SMALL | dict(query_groups=2, attention_softcap=1.5, position_embedding="rope", activation="geglu",
                                 normalization="rmsnorm", scale_embeddings=True, bias=False),
    "tiny_parallel": SMALL | dict(position_embedding="rope", rotary_fraction=0.5, activation="gelu_exact",
                                  residual="parallel", embedding_norm=True, tie_embeddings=False, bias="feed_forward"),
    "tiny_parallel_one_norm": SMALL | dict(residual="parallel_one_norm", scale_embeddings=True, embedding_norm=True,
                                           head_bias=True, bias="attention"),
}

BIASES = {"attention.query": (True, "attention", "query_key_value"), "attention.key": (True, "attention", "query_key_value"),
          "attention.value": (True, "attention", "query_key_value"), "attention.output": (True, "attention"),
          "mlp.gate": (True, "feed_forward"), "mlp.up": (True, "feed_forward"), "mlp.down": (True, "feed_forward")}  # fmt: skip


def has_bias(model, name):
    """Of a linear layer "layers.N.PART"."""
    return model["bias"] in BIASES[name.split(".", 2)[2]]


def toml(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + "}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def padded_vocabulary(model):
    return -(-model["vocab_size"] // model["vocab_multiple"]) * model["vocab_multiple"]


def head_size(model):
    return model["head_size"] or model["hidden_size"] // model["attention_heads"]


def initial_parameters(model, random):
    """All parameters by name, float64 but exactly representable in float32. Nothing is zero or one: a bias or a norm
    weight that is left out, or taken for another, has to show."""
    hidden, ffn = model["hidden_size"], model["ffn_hidden_size"]

    def normal(*shape, deviation, mean=0.0):
        values = mean + deviation * random.standard_normal(shape)
        return torch.from_numpy(values.astype(np.float32).astype(np.float64))

    def linear(name, outputs, inputs, deviation=0.08):
        weight = {f"{name}.weight": normal(outputs, inputs, deviation=deviation)}
        return weight | ({f"{name}.bias": normal(outputs, deviation=0.1)} if has_bias(model, name) else {})

    def norm(name, size=hidden, bias=model["normalization"] == "layernorm"):
        weight = {f"{name}.weight": normal(size, deviation=0.2, mean=1.0)}
        return weight | ({f"{name}.bias": normal(size, deviation=0.1)} if bias else {})

    parameters = {"embedding.word.weight": normal(padded_vocabulary(model), hidden, deviation=0.15)}
    if model["position_embedding"] == "learned":
        parameters["embedding.position.weight"] = normal(model["max_position_embeddings"], hidden, deviation=0.1)
    if model["embedding_norm"]:
        parameters |= norm("embedding.norm")
    queries = model["attention_heads"] * head_size(model)
    for i in range(model["layers"]):
        layer = f"layers.{i}"
        parameters |= norm(f"{layer}.attention_norm")
        parameters |= linear(f"{layer}.attention.query", queries, hidden, deviation=0.2)
        for part in ("key", "value"):
            parameters |= linear(f"{layer}.attention.{part}", model["query_groups"] * head_size(model), hidden, deviation=0.2)
        if model["query_key_norm"]:
            for part in ("query", "key"):
                parameters |= norm(f"{layer}.attention.{part}_norm", head_size(model), bias=False)
        parameters |= linear(f"{layer}.attention.output", hidden, queries)
        if model["residual"] != "parallel_one_norm":
            parameters |= norm(f"{layer}.mlp_norm")
        if model["activation"] in ("swiglu", "geglu"):
            parameters |= linear(f"{layer}.mlp.gate", ffn, hidden, deviation=0.2)
        parameters |= linear(f"{layer}.mlp.up", ffn, hidden)
        parameters |= linear(f"{layer}.mlp.down", hidden, ffn)
    parameters |= norm("final_norm")
    if not model["tie_embeddings"]:
        parameters["head.weight"] = normal(padded_vocabulary(model), hidden, deviation=0.15)
    if model["head_bias"]:
        parameters["head.bias"] = normal(padded_vocabulary(model), deviation=0.1)
    return parameters


def layer_norm(x, weight, bias, epsilon):
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon) * weight + bias


def rms_norm(x, weight, epsilon):
    return x / torch.sqrt((x**2).mean(dim=-1, keepdim=True) + epsilon) * weight


def gelu(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "gelu": gelu,
    "gelu_exact": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
    "relu": lambda x: torch.where(x > 0, x, torch.zeros_like(x)),
    "swiglu": lambda x: x / (1 + torch.exp(-x)),  # of the gate
    "geglu": gelu,
}


def rotation_speeds(model):
    """Radians a position of each pair of channels."""
    rotated = int(head_size(model) * model["rotary_fraction"])
    speeds = [model["rotary_base"] ** (-2 * i / rotated) for i in range(rotated // 2)]
    scaling = model["rotary_scaling"]
    if scaling is None:
        return speeds
    if scaling["type"] == "linear":
        return [speed / scaling["factor"] for speed in speeds]
    low, high = scaling["low_frequency_factor"], scaling["high_frequency_factor"]
    result, kinds = [], set()
    for speed in speeds:
        wavelength = 2 * math.pi / speed
        if wavelength < scaling["original_length"] / high:
            result.append(speed)
            kinds.add("as it is")
        elif wavelength > scaling["original_length"] / low:
            result.append(speed / scaling["factor"])
            kinds.add("slowed")
        else:
            smooth = (scaling["original_length"] / wavelength - low) / (high - low)
            result.append((1 - smooth) * speed / scaling["factor"] + smooth * speed)
            kinds.add("between")
    assert len(kinds) == 3, "one of the scaling's three cases is not in the file"
    return result


def rotate(model, x):
    """x [s, b, heads, d]: channel i and channel i + r/2 of the first r are a pair."""
    speeds = torch.tensor(rotation_speeds(model), dtype=torch.float32).double()  # readers keep them in float32
    pairs = len(speeds)
    angle = torch.arange(x.shape[0], dtype=torch.float64)[:, None] * speeds
    cos, sin = torch.cos(angle)[:, None, None, :], torch.sin(angle)[:, None, None, :]
    first, second, rest = x[..., :pairs], x[..., pairs : 2 * pairs], x[..., 2 * pairs :]
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def slopes(heads):
    """Of ALiBi: a geometric series for a power of two, else that of the next lower one and every second of the next."""
    power = 2 ** int(math.log2(heads))
    series = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    doubled = [2 ** (-8 * (i + 1) / (2 * power)) for i in range(2 * power)]
    return torch.tensor(series + doubled[::2][: heads - power], dtype=torch.float64)


def attention(model, query, key, value, norms):
    """[s, b, width] each, the result [s, b, query's width]; heads are contiguous blocks of the last dimension, and consecutive query heads read the
    same key and value head. norms: a function each that query and key heads go through, or nothing."""
    s, b, width = query.shape
    heads, groups = model["attention_heads"], model["query_groups"]
    query, key, value = (
        x.reshape(s, b, count, head_size(model)) for x, count in ((query, heads), (key, groups), (value, groups))
    )
    if norms:
        query, key = norms[0](query), norms[1](key)
    if model["position_embedding"] == "rope":
        query, key = rotate(model, query), rotate(model, key)
    key, value = (torch.stack([x[:, :, i // (heads // groups)] for i in range(heads)], dim=2) for x in (key, value))
    scores = torch.einsum("ibad,jbad->baij", query, key) / math.sqrt(head_size(model))
    if model["attention_softcap"]:
        scores = model["attention_softcap"] * torch.tanh(scores / model["attention_softcap"])
    if model["position_embedding"] == "alibi":
        distance = torch.arange(s)[:, None] - torch.arange(s)[None, :]
        scores = scores - slopes(heads)[:, None, None] * distance
    hidden = torch.ones(s, s, dtype=torch.bool).triu(diagonal=1)
    if model["attention_window"]:
        hidden = hidden | torch.ones(s, s, dtype=torch.bool).tril(diagonal=-model["attention_window"])
    scores = scores.masked_fill(hidden, -math.inf)
    probabilities = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.einsum("baij,jbad->ibad", probabilities, value).reshape(s, b, width)


def forward(model, parameters, tokens):
    """tokens [s, b] -> logits [s, b, vocab]: the padding rows of the embedding take no part in the softmax."""
    epsilon = model["norm_epsilon"]

    def linear(name, x):
        y = x @ parameters[f"{name}.weight"].T
        return y + parameters[f"{name}.bias"] if has_bias(model, name) else y

    def norm(name, x):
        if model["normalization"] == "rmsnorm":
            return rms_norm(x, parameters[f"{name}.weight"], epsilon)
        return layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], epsilon)

    def head_norm(name):
        return lambda x: rms_norm(x, parameters[f"{name}.weight"], epsilon)

    activation = ACTIVATIONS[model["activation"]]
    word = parameters["embedding.word.weight"]
    x = word[tokens] * (math.sqrt(model["hidden_size"]) if model["scale_embeddings"] else 1)
    if model["position_embedding"] == "learned":
        x = x + parameters["embedding.position.weight"][: tokens.shape[0], None, :]
    if model["embedding_norm"]:
        x = norm("embedding.norm", x)
    for i in range(model["layers"]):
        layer = f"layers.{i}"
        n = norm(f"{layer}.attention_norm", x)
        query, key, value = (linear(f"{layer}.attention.{part}", n) for part in ("query", "key", "value"))
        norms = [head_norm(f"{layer}.attention.{part}_norm") for part in ("query", "key")] if model["query_key_norm"] else []
        attended = x + linear(f"{layer}.attention.output", attention(model, query, key, value, norms))
        if model["residual"] != "parallel_one_norm":
            n = norm(f"{layer}.mlp_norm", x if model["residual"] == "parallel" else attended)
        up = linear(f"{layer}.mlp.up", n)
        gated = f"{layer}.mlp.gate.weight" in parameters
        inner = activation(linear(f"{layer}.mlp.gate", n)) * up if gated else activation(up)
        x = attended + linear(f"{layer}.mlp.down", inner)
    head = word if model["tie_embeddings"] else parameters["head.weight"]
    logits = norm("final_norm", x) @ head[: model["vocab_size"]].T
    return logits + parameters["head.bias"][: model["vocab_size"]] if model["head_bias"] else logits


def mean_loss(model, parameters, tokens, targets):
    logits = forward(model, parameters, tokens)
    at_target = logits.gather(-1, targets[..., None])[..., 0]
    return (torch.logsumexp(logits, dim=-1) - at_target).mean()


def loss_and_gradients(model, parameters, tokens, targets):
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    loss = mean_loss(model, leaves, tokens, targets)
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return loss.item(), dict(zip(leaves, gradients))


def global_norm(gradients):
    return math.sqrt(sum((g**2).sum().item() for g in gradients.values()))


def check_by_differences(loss_of, random, parameters, gradients, zero=(), step=1e-7, tolerance=1e-5, bounds=(1e-12, 1e-4)):
    """Every parameter's gradient along a random direction against a central difference of loss_of(parameters).
    Gradients of names that end with one of `zero` are zero in exact arithmetic, and below the first bound; a vanishing
    one of any other proves nothing: they are above the second. The default step is one in which few kinks of a ReLU lie."""
    for name, value in parameters.items():
        direction = torch.from_numpy(random.standard_normal(tuple(value.shape)))
        ahead, behind = (loss_of(parameters | {name: value + way * step * direction}).item() for way in (1, -1))
        difference, analytic = (ahead - behind) / (2 * step), (gradients[name] * direction).sum().item()
        norm = gradients[name].norm().item()
        assert abs(difference - analytic) <= tolerance * (norm + 1e-3), f"{name}: {analytic} against {difference}"
        vanishes = any(name.endswith(end) for end in zero)
        assert norm < bounds[0] if vanishes else norm > bounds[1], f"{name}: gradient of norm {norm}"


def check_unused_rows(model, gradients):
    table = "embedding.word.weight" if model["tie_embeddings"] else "head.weight"
    assert torch.all(gradients[table][model["vocab_size"] :] == 0)
    if model["position_embedding"] == "learned":
        assert torch.all(gradients["embedding.position.weight"][model["sequence_length"] :] == 0)


def train(model, parameters, batches):
    """AdamW, written out. Decay on matrices and embeddings only; the clip factor is limit / (norm + 1e-6), at most 1."""
    parameters = dict(parameters)
    m = {name: torch.zeros_like(value) for name, value in parameters.items()}
    v = {name: torch.zeros_like(value) for name, value in parameters.items()}
    losses, norms = [], []
    for step, (tokens, targets) in enumerate(batches, start=1):
        loss, gradients = loss_and_gradients(model, parameters, tokens, targets)
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
    return losses, norms, parameters


def writer(file):
    """put(name, values, dtype) for the datasets of a file. No time stamps: the same bytes from every run."""

    def put(name, values, dtype):
        values = np.ascontiguousarray(values, dtype=dtype)
        flat = values.reshape(-1)
        chunk = min(flat.size, 65536 // flat.itemsize)
        dataset = file.create_dataset(name, data=flat, chunks=(chunk,), fletcher32=True, track_times=False)
        dataset.attrs["shape"] = np.array(values.shape, dtype="<u8")

    return put


def put_settings(file, model):
    absent = dict(residual="sequential", scale_embeddings=False, embedding_norm=False, head_bias=False)
    given = {key: value for key, value in model.items() if value is not None and absent.get(key) != value}
    if model["position_embedding"] != "rope":
        given = {key: value for key, value in given.items() if not key.startswith("rotary")}
    file.attrs["model"] = np.bytes_("".join(f"{key} = {toml(value)}\n" for key, value in given.items()))
    numbers = dict(learning_rate=LEARNING_RATE, beta1=BETA1, beta2=BETA2, epsilon=EPSILON,
                   weight_decay=WEIGHT_DECAY, clip_grad_norm=CLIP)
    file.attrs.update({name: np.uint64(value) for name, value in dict(samples=BATCH, steps=STEPS).items()})
    file.attrs.update({name: np.float64(value) for name, value in numbers.items()})


def make(path, model):
    random = np.random.Generator(np.random.PCG64(20240229))
    parameters = initial_parameters(model, random)
    # Texts of s + 1 tokens: targets are the tokens, one place on. Every batch also holds the first and last real token.
    vocabulary = model["vocab_size"]
    texts = random.integers(0, vocabulary, size=(1 + STEPS, model["sequence_length"] + 1, BATCH), dtype=np.int32)
    texts[:, 3, 0], texts[:, 5, 1] = 0, vocabulary - 1
    tokens, targets = texts[:, :-1], texts[:, 1:]
    batches = [(torch.from_numpy(t).long(), torch.from_numpy(u).long()) for t, u in zip(tokens.copy(), targets.copy())]

    loss, gradients = loss_and_gradients(model, parameters, *batches[0])
    # Where keys are not rotated, the softmax does not see a shift of all scores of a row.
    zero = () if model["position_embedding"] == "rope" else ("attention.key.bias",)
    check_by_differences(lambda some: mean_loss(model, some, *batches[0]), random, parameters, gradients, zero)
    check_unused_rows(model, gradients)
    losses, norms, _ = train(model, parameters, batches[1:])
    assert any(n > CLIP for n in norms), "no step is clipped"

    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        put = writer(file)
        put_settings(file, model)
        for name in parameters:
            put(f"parameters.{name}", parameters[name].numpy(), "<f4")
            put(f"gradients.{name}", gradients[name].numpy(), "<f4")
        put("tokens", tokens[0], "<i4")
        put("targets", targets[0], "<i4")
        put("loss", [loss], "<f8")
        put("gradient_norm", [global_norm(gradients)], "<f8")
        put("logits", forward(model, parameters, batches[0][0]).numpy(), "<f4")
        put("steps.tokens", tokens[1:], "<i4")
        put("steps.targets", targets[1:], "<i4")
        put("steps.losses", losses, "<f8")
        put("steps.norms", norms, "<f8")
    count = sum(value.numel() for value in parameters.values())
    print(f"{path}: {count} parameters, loss {loss!r}, gradient norm {global_norm(gradients)!r}")
    print(f"  steps: losses {losses}, norms {norms}")


def run(models, make, compare=None):
    """The command line of these scripts: [folder [NAME ...]], or --compare where there is something to compare with."""
    if compare is not None and sys.argv[1:] == ["--compare"]:
        for model in models.values():
            compare(model)
        return
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden")
    for name in sys.argv[2:] or models:
        make(folder / f"{name}.h5", models[name])


if __name__ == "__main__":
    run(MODELS, make)
