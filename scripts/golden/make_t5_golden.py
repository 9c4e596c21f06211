#!/usr/bin/env python3
"""Makes tests/golden/tiny_t5*.h5: what tiny T5 models must compute, by PyTorch's autograd in float64.

Usage: python3 scripts/golden/make_t5_golden.py [tests/golden [NAME...]]   (needs torch, transformers, numpy and h5py; some seconds)

tiny_t5.h5 is Megatron's flavour: learned positions that both sides share, LayerNorm, biases, scaled scores, a tied head
with a bias. tiny_t5_relative.h5 and tiny_t5_gated.h5 are Hugging Face's T5 v1.0 and v1.1: buckets of distances, RMSNorm, no
biases, scores as they are; before they are written, logits and gradients are compared with those of transformers' own model.

The form of a file is that of scripts/golden/make_golden.py, without logits and steps. Texts of the encoder and of the decoder have
different lengths; behind them are tokens and targets that must not count. Loss = mean over targets of weight 1. In addition
to parameters and gradients:
  encoder_tokens           i32 [s, b];   encoder_lengths  i32 [b]
  tokens, targets          i32 [d, b], of the decoder;   weights  f32 [d, b]: 1 within its text
  loss, gradient_norm      f64 [1]
"""

import math

import h5py
import numpy as np
import torch
import transformers
from transformers.models.t5.modeling_t5 import T5Attention

import make_golden as golden

SAMPLES = 4
SIZES = dict(family="t5", layers=2, decoder_layers=3, hidden_size=32, attention_heads=4, query_groups=4, ffn_hidden_size=40,
             vocab_size=50, vocab_multiple=64)
HUGGING_FACE = SIZES | dict(position_embedding="relative", normalization="rmsnorm", norm_epsilon=1e-6, bias=False,
                            attention_scale="none")
MODELS = {
    "tiny_t5": SIZES | dict(sequence_length=24, decoder_sequence_length=12, max_position_embeddings=29,
                            position_embedding="learned", normalization="layernorm", norm_epsilon=1e-5, bias=True,
                            activation="gelu", tie_embeddings=True, head_bias=True),
    # Distances on both sides of those from which on buckets are wider than one.
    "tiny_t5_relative": HUGGING_FACE | dict(sequence_length=40, decoder_sequence_length=20, head_size=10, activation="relu",
                                            tie_embeddings=True, scale_head=True),
    # And distances that share the last bucket.
    "tiny_t5_gated": HUGGING_FACE | dict(sequence_length=37, decoder_sequence_length=19, relative_buckets=12,
                                         relative_max_distance=15, activation="geglu", tie_embeddings=False),
}  # fmt: skip


def is_relative(model):
    return model["position_embedding"] == "relative"


def head_size(model):
    return model.get("head_size", model["hidden_size"] // model["attention_heads"])


def lengths(model):
    """Of the encoder's and of the decoder's texts."""
    s, d = model["sequence_length"], model["decoder_sequence_length"]
    return [s, s - 7, 9, s - 1], [d, 8, d - 3, 1]


def parts_of_layers(model):
    """(layer, its attentions) of both sides."""
    encoder = [(f"encoder.layers.{i}", ("attention",)) for i in range(model["layers"])]
    decoder = [(f"decoder.layers.{i}", ("attention", "cross_attention")) for i in range(model["decoder_layers"])]
    return encoder + decoder


def initial_parameters(model, random):
    """Nothing is zero or one: a bias or a norm weight that is left out, or taken for another, has to show."""
    hidden, parameters = model["hidden_size"], {}
    width = model["attention_heads"] * head_size(model)

    def normal(name, *shape, deviation, mean=0.0):
        values = mean + deviation * random.standard_normal(shape)
        parameters[name] = torch.from_numpy(values.astype(np.float32).astype(np.float64))

    def linear(name, outputs, inputs, deviation=0.15):
        normal(f"{name}.weight", outputs, inputs, deviation=deviation)
        if model["bias"]:
            normal(f"{name}.bias", outputs, deviation=0.1)

    def norm(name):
        normal(f"{name}.weight", hidden, deviation=0.2, mean=1.0)
        if model["normalization"] == "layernorm":
            normal(f"{name}.bias", hidden, deviation=0.1)

    normal("embedding.word.weight", golden.padded_vocabulary(model), hidden, deviation=0.3)
    if not is_relative(model):
        normal("embedding.position.weight", model["max_position_embeddings"], hidden, deviation=0.1)
    else:
        for side in ("encoder", "decoder"):
            normal(f"relative.{side}.weight", model["attention_heads"], model.get("relative_buckets", 32), deviation=0.5)
    for layer, attentions in parts_of_layers(model):
        for part in attentions:
            norm(f"{layer}.{part}_norm")
            for projection in ("query", "key", "value"):
                linear(f"{layer}.{part}.{projection}", width, hidden)
            linear(f"{layer}.{part}.output", hidden, width)
        norm(f"{layer}.mlp_norm")
        if model["activation"] == "geglu":
            linear(f"{layer}.mlp.gate", model["ffn_hidden_size"], hidden)
        linear(f"{layer}.mlp.up", model["ffn_hidden_size"], hidden)
        linear(f"{layer}.mlp.down", hidden, model["ffn_hidden_size"])
    norm("encoder.final_norm")
    norm("final_norm")
    if not model["tie_embeddings"]:
        normal("head.weight", golden.padded_vocabulary(model), hidden, deviation=0.15)
    if model.get("head_bias"):
        normal("head.bias", golden.padded_vocabulary(model), deviation=0.1)
    return parameters


def make_batch(model, random):
    s, d, vocabulary = model["sequence_length"], model["decoder_sequence_length"], model["vocab_size"]
    weights = np.arange(d)[:, None] < np.array(lengths(model)[1])[None, :]
    batch = dict(encoder_tokens=random.integers(0, vocabulary, (s, SAMPLES)), tokens=random.integers(0, vocabulary, (d, SAMPLES)),
                 targets=random.integers(0, vocabulary, (d, SAMPLES)), weights=weights.astype(np.float64))  # fmt: skip
    batch["encoder_tokens"][3, 0], batch["tokens"][2, 1], batch["targets"][4, 0] = 0, vocabulary - 1, vocabulary - 1
    batch["encoder_lengths"] = np.array(lengths(model)[0])
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def bucket(model, distance, both_ways):
    """Of a key's position minus the query's. Half of the buckets are a distance each, the others get wider by a constant
    factor up to the largest distance; with keys on both sides each side has half of all."""
    buckets, farthest = model.get("relative_buckets", 32), model.get("relative_max_distance", 128)
    first = 0
    if both_ways:
        buckets //= 2
        first = buckets if distance > 0 else 0
    distance = abs(distance) if both_ways else max(-distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    wide = torch.log(torch.tensor(distance, dtype=torch.float32) / exact) / math.log(farthest / exact) * (buckets - exact)
    return first + min(exact + int(wide), buckets - 1)


def position_bias(model, table, queries, keys, both_ways):
    """[heads, queries, keys] of a table [heads, buckets]."""
    numbers = [[bucket(model, j - i, both_ways) for j in range(keys)] for i in range(queries)]
    return table[:, torch.tensor(numbers)]


def attend(model, query, key, value, hidden, bias):
    """query [i, b, width], key and value [j, b, width]; hidden: [b or 1, 1, i or 1, j]; bias: [heads, i, j] or 0."""
    heads, d = model["attention_heads"], head_size(model)
    query, key, value = (x.reshape(x.shape[0], x.shape[1], heads, d) for x in (query, key, value))
    scores = torch.einsum("ibad,jbad->baij", query, key)
    if model.get("attention_scale") != "none":
        scores = scores / math.sqrt(d)
    scores = (scores + bias).masked_fill(hidden, -math.inf)
    probabilities = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.einsum("baij,jbad->ibad", probabilities, value).reshape(query.shape[0], query.shape[1], heads * d)


def forward(model, parameters, batch):
    """Logits [d, b, vocab]."""

    def linear(name, x):
        y = x @ parameters[f"{name}.weight"].T
        return y + parameters[f"{name}.bias"] if model["bias"] else y

    def norm(name, x):
        if model["normalization"] == "rmsnorm":
            return golden.rms_norm(x, parameters[f"{name}.weight"], model["norm_epsilon"])
        return golden.layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], model["norm_epsilon"])

    def embed(tokens):
        x = parameters["embedding.word.weight"][tokens]
        return x if is_relative(model) else x + parameters["embedding.position.weight"][: tokens.shape[0], None, :]

    def attention(name, x, source, hidden, bias):
        parts = linear(f"{name}.query", x), linear(f"{name}.key", source), linear(f"{name}.value", source)
        return linear(f"{name}.output", attend(model, *parts, hidden, bias))

    def mlp(name, x):
        up, activation = linear(f"{name}.up", x), golden.ACTIVATIONS[model["activation"]]
        return linear(f"{name}.down", activation(linear(f"{name}.gate", x)) * up if model["activation"] == "geglu" else activation(up))

    s, d = batch["encoder_tokens"].shape[0], batch["tokens"].shape[0]
    padding = (torch.arange(s)[None, :] >= batch["encoder_lengths"][:, None])[:, None, None, :]
    later = torch.ones(d, d, dtype=torch.bool).triu(diagonal=1)[None, None]
    encoder_bias, decoder_bias = 0, 0
    if is_relative(model):
        encoder_bias = position_bias(model, parameters["relative.encoder.weight"], s, s, True)
        decoder_bias = position_bias(model, parameters["relative.decoder.weight"], d, d, False)

    x = embed(batch["encoder_tokens"])
    for i in range(model["layers"]):
        layer = f"encoder.layers.{i}"
        n = norm(f"{layer}.attention_norm", x)
        x = x + attention(f"{layer}.attention", n, n, padding, encoder_bias)
        x = x + mlp(f"{layer}.mlp", norm(f"{layer}.mlp_norm", x))
    memory = norm("encoder.final_norm", x)
    x = embed(batch["tokens"])
    for i in range(model["decoder_layers"]):
        layer = f"decoder.layers.{i}"
        n = norm(f"{layer}.attention_norm", x)
        x = x + attention(f"{layer}.attention", n, n, later, decoder_bias)
        x = x + attention(f"{layer}.cross_attention", norm(f"{layer}.cross_attention_norm", x), memory, padding, 0)
        x = x + mlp(f"{layer}.mlp", norm(f"{layer}.mlp_norm", x))
    x = norm("final_norm", x)
    if model.get("scale_head"):
        x = x / math.sqrt(model["hidden_size"])
    head = parameters["embedding.word.weight" if model["tie_embeddings"] else "head.weight"][: model["vocab_size"]]
    logits = x @ head.T
    return logits + parameters["head.bias"][: model["vocab_size"]] if model.get("head_bias") else logits


def loss_of(logits, batch):
    of_tokens = torch.logsumexp(logits, dim=-1) - logits.gather(-1, batch["targets"][..., None])[..., 0]
    return (of_tokens * batch["weights"]).sum() / batch["weights"].sum()


def gradients_of(model, parameters, batch):
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    loss = loss_of(forward(model, leaves, batch), batch)
    return loss.item(), dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))


def hugging_face_names(model):
    """Our name of a parameter: theirs."""
    names = {"embedding.word": "shared", "head": "lm_head", "encoder.final_norm": "encoder.final_layer_norm",
             "final_norm": "decoder.final_layer_norm"}  # fmt: skip
    for side in ("encoder", "decoder"):
        names[f"relative.{side}"] = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    for layer, attentions in parts_of_layers(model):
        block = layer.replace("layers", "block") + ".layer"
        for i, part in enumerate(attentions):
            names[f"{layer}.{part}_norm"] = f"{block}.{i}.layer_norm"
            for projection in ("query", "key", "value", "output"):
                names[f"{layer}.{part}.{projection}"] = f"{block}.{i}.{('SelfAttention', 'EncDecAttention')[i]}.{projection[0]}"
        last = f"{block}.{len(attentions)}"
        gated = model["activation"] == "geglu"
        names |= {f"{layer}.mlp_norm": f"{last}.layer_norm", f"{layer}.mlp.gate": f"{last}.DenseReluDense.wi_0",
                  f"{layer}.mlp.up": f"{last}.DenseReluDense.{'wi_1' if gated else 'wi'}",
                  f"{layer}.mlp.down": f"{last}.DenseReluDense.wo"}  # fmt: skip
    return names


def check_with_transformers(model, parameters, gradients, batch):
    """Their logits and gradients, with the same weights, and their buckets. They compute norms and softmax in float32."""
    for distance in range(-300, 301):
        for both_ways in (True, False):
            theirs = T5Attention._relative_position_bucket(torch.tensor([[distance]]), both_ways,
                model.get("relative_buckets", 32), model.get("relative_max_distance", 128)).item()  # fmt: skip
            assert bucket(model, distance, both_ways) == theirs, (distance, both_ways)
    config = transformers.T5Config(
        vocab_size=model["vocab_size"], d_model=model["hidden_size"], d_kv=head_size(model), d_ff=model["ffn_hidden_size"],
        num_layers=model["layers"], num_decoder_layers=model["decoder_layers"], num_heads=model["attention_heads"],
        relative_attention_num_buckets=model.get("relative_buckets", 32),
        relative_attention_max_distance=model.get("relative_max_distance", 128), dropout_rate=0,
        layer_norm_epsilon=model["norm_epsilon"], feed_forward_proj="gated-gelu" if model["activation"] == "geglu" else "relu",
        tie_word_embeddings=model["tie_embeddings"])  # fmt: skip
    theirs = transformers.T5ForConditionalGeneration(config).double().eval()
    if not model["tie_embeddings"]:  # transformers 5 ties every new T5, and only loads untied ones
        theirs.lm_head.weight = torch.nn.Parameter(theirs.lm_head.weight.clone())
    names, state = hugging_face_names(model), {}
    for name, value in parameters.items():
        module = name.removesuffix(".weight")
        value = value[: model["vocab_size"]] if module in ("embedding.word", "head") else value
        state[f"{names[module]}.weight"] = value.T if module.startswith("relative") else value
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all("embed_tokens" in name or name == "lm_head.weight" for name in missing), (missing, unexpected)
    assert "lm_head.weight" not in missing or model["tie_embeddings"]
    mask = (torch.arange(model["sequence_length"])[None, :] < batch["encoder_lengths"][:, None]).long()
    output = theirs(input_ids=batch["encoder_tokens"].T, attention_mask=mask, decoder_input_ids=batch["tokens"].T)
    logits = output.logits.transpose(0, 1)
    difference = (logits - forward(model, parameters, batch)).abs().max().item()
    assert difference < 1e-5, difference
    loss_of(logits, batch).backward()
    largest = 0
    for name, gradient in gradients.items():
        module = name.removesuffix(".weight")
        got = dict(theirs.named_parameters())[f"{names[module]}.weight"].grad
        gradient = gradient[: model["vocab_size"]] if module in ("embedding.word", "head") else gradient
        got = got.T if module.startswith("relative") else got
        largest = max(largest, ((got - gradient).norm() / gradient.norm()).item())
    assert largest < 1e-5, largest
    print(f"  transformers {transformers.__version__}: logits differ by at most {difference:.1e}, gradients by {largest:.1e}")


def make(path, model):
    random = np.random.Generator(np.random.PCG64(20191023))
    parameters, batch = initial_parameters(model, random), make_batch(model, random)
    loss, gradients = gradients_of(model, parameters, batch)
    golden.check_by_differences(lambda some: loss_of(forward(model, some, batch), batch), random, parameters, gradients,
                                zero=("attention.key.bias",))  # the softmax does not see a shift of all scores of a row
    norm = golden.global_norm(gradients)
    print(f"{path}: loss {loss!r}, gradient norm {norm!r}")
    if is_relative(model):
        check_with_transformers(model, parameters, gradients, batch)
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        put = golden.writer(file)
        golden.put_settings(file, model)
        file.attrs["samples"] = np.uint64(SAMPLES)
        for name in parameters:
            put(f"parameters.{name}", parameters[name].numpy(), "<f4")
            put(f"gradients.{name}", gradients[name].numpy(), "<f4")
        for name in ("encoder_tokens", "tokens", "targets"):
            put(name, batch[name].numpy(), "<i4")
        put("weights", batch["weights"].numpy(), "<f4")
        put("encoder_lengths", batch["encoder_lengths"].numpy(), "<i4")
        put("loss", [loss], "<f8")
        put("gradient_norm", [norm], "<f8")


if __name__ == "__main__":
    golden.run(MODELS, make)
