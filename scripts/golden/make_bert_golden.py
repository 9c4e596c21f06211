#!/usr/bin/env python3
"""Makes tests/golden/tiny_bert*.h5: what tiny BERT models must compute, by PyTorch's autograd in float64.

Usage: python3 scripts/golden/make_bert_golden.py [tests/golden]      (needs torch, numpy and h5py; some seconds)
       python3 scripts/golden/make_bert_golden.py --compare           (needs transformers too: the same losses by its models)

The form of a file is that of scripts/golden/make_golden.py, without logits and steps. Samples are two texts one after the other,
of different lengths, the rest padding: no token sees a padding token. Loss = mean over masked tokens of their cross
entropy + mean over labelled samples of that of their two classes. In addition to parameters and gradients:
  tokens, types, targets   i32 [s, b]; targets are -1 where weights are 0
  weights                  f32 [s, b]: 1 for masked tokens
  lengths, labels          i32 [b]; a label of -1: none
  loss                     f64 [1];   loss_terms  f64 [2]: language model, sentence order
"""

import math

import h5py
import numpy as np
import torch

import make_golden as golden

SAMPLES, SEQUENCE = 3, 19
LENGTHS, SECOND, LABELS = [19, 11, 6], [7, 4, 3], [1, -1, 0]  # SECOND: where the second text begins
SIZES = dict(family="bert", layers=2, hidden_size=32, attention_heads=4, query_groups=4, ffn_hidden_size=40,
             sequence_length=SEQUENCE, max_position_embeddings=23, vocab_size=50, vocab_multiple=64)
MODELS = {
    "tiny_bert": SIZES | dict(norm_position="pre", activation="gelu", norm_epsilon=1e-5, embedding_norm=False),
    "tiny_bert_post": SIZES | dict(norm_position="post", activation="gelu_exact", norm_epsilon=1e-12, embedding_norm=True),
}


def initial_parameters(model, random):
    """Nothing is zero or one: a bias or a norm weight that is left out, or taken for another, has to show."""
    hidden, parameters = model["hidden_size"], {}

    def normal(name, *shape, deviation, mean=0.0):
        values = mean + deviation * random.standard_normal(shape)
        parameters[name] = torch.from_numpy(values.astype(np.float32).astype(np.float64))

    def linear(name, outputs, inputs, deviation=0.15):
        normal(f"{name}.weight", outputs, inputs, deviation=deviation)
        normal(f"{name}.bias", outputs, deviation=0.1)

    def norm(name):
        normal(f"{name}.weight", hidden, deviation=0.2, mean=1.0)
        normal(f"{name}.bias", hidden, deviation=0.1)

    normal("embedding.word.weight", golden.padded_vocabulary(model), hidden, deviation=0.15)
    normal("embedding.position.weight", model["max_position_embeddings"], hidden, deviation=0.1)
    normal("embedding.type.weight", 2, hidden, deviation=0.1)
    if model["embedding_norm"]:
        norm("embedding.norm")
    for i in range(model["layers"]):
        norm(f"layers.{i}.attention_norm")
        for part in ("query", "key", "value", "output"):
            linear(f"layers.{i}.attention.{part}", hidden, hidden)
        norm(f"layers.{i}.mlp_norm")
        linear(f"layers.{i}.mlp.up", model["ffn_hidden_size"], hidden)
        linear(f"layers.{i}.mlp.down", hidden, model["ffn_hidden_size"])
    if model["norm_position"] == "pre":
        norm("final_norm")
    linear("head.dense", hidden, hidden)
    norm("head.norm")
    normal("head.bias", golden.padded_vocabulary(model), deviation=0.1)
    linear("pooler", hidden, hidden)
    linear("order_head", 2, hidden)
    return parameters


def make_batch(model, random):
    shape = (SEQUENCE, SAMPLES)
    batch = dict(tokens=random.integers(0, model["vocab_size"], shape), targets=np.full(shape, -1),
                 types=np.zeros(shape, int), weights=np.zeros(shape))  # fmt: skip
    for column, (length, second) in enumerate(zip(LENGTHS, SECOND)):
        batch["types"][second:length, column] = 1
        masked = random.permutation(length)[: 1 + length // 4]
        batch["weights"][masked, column] = 1
        batch["targets"][masked, column] = random.integers(0, model["vocab_size"], len(masked))
    batch["tokens"][3, 0], batch["tokens"][2, 1] = 0, model["vocab_size"] - 1
    return {name: torch.from_numpy(values) for name, values in batch.items()}


def attention(model, query, key, value):
    """[s, b, h] each; keys at or past a sample's length are hidden."""
    s, b, hidden = query.shape
    heads = model["attention_heads"]
    query, key, value = (x.reshape(s, b, heads, hidden // heads) for x in (query, key, value))
    scores = torch.einsum("ibad,jbad->baij", query, key) / math.sqrt(hidden // heads)
    padding = torch.arange(s)[None, :] >= torch.tensor(LENGTHS)[:, None]
    scores = scores.masked_fill(padding[:, None, None, :], -math.inf)
    probabilities = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    probabilities = probabilities / probabilities.sum(dim=-1, keepdim=True)
    return torch.einsum("baij,jbad->ibad", probabilities, value).reshape(s, b, hidden)


def functions_of(model, parameters):
    def linear(name, x):
        return x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]

    def norm(name, x):
        return golden.layer_norm(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"], model["norm_epsilon"])

    return linear, norm


def encode(model, parameters, batch):
    """What the heads read, [s, b, h]."""
    linear, norm = functions_of(model, parameters)
    activation = golden.ACTIVATIONS[model["activation"]]
    pre = model["norm_position"] == "pre"
    word = parameters["embedding.word.weight"]
    x = word[batch["tokens"]] + parameters["embedding.position.weight"][:SEQUENCE, None, :]
    x = x + parameters["embedding.type.weight"][batch["types"]]
    if model["embedding_norm"]:
        x = norm("embedding.norm", x)
    for i in range(model["layers"]):
        layer = f"layers.{i}"
        n = norm(f"{layer}.attention_norm", x) if pre else x
        parts = [linear(f"{layer}.attention.{part}", n) for part in ("query", "key", "value")]
        x = x + linear(f"{layer}.attention.output", attention(model, *parts))
        x = x if pre else norm(f"{layer}.attention_norm", x)
        n = norm(f"{layer}.mlp_norm", x) if pre else x
        x = x + linear(f"{layer}.mlp.down", activation(linear(f"{layer}.mlp.up", n)))
        x = x if pre else norm(f"{layer}.mlp_norm", x)
    return norm("final_norm", x) if pre else x


def forward(model, parameters, batch):
    """Logits [s, b, vocab] and [b, 2]."""
    linear, norm = functions_of(model, parameters)
    x = encode(model, parameters, batch)
    activation, word = golden.ACTIVATIONS[model["activation"]], parameters["embedding.word.weight"]
    vocabulary = model["vocab_size"]
    transformed = norm("head.norm", activation(linear("head.dense", x)))
    logits = transformed @ word[:vocabulary].T + parameters["head.bias"][:vocabulary]
    return logits, linear("order_head", torch.tanh(linear("pooler", x[0])))


def loss_terms(model, parameters, batch):
    logits, order = forward(model, parameters, batch)
    targets = batch["targets"].clamp(min=0)
    of_tokens = torch.logsumexp(logits, dim=-1) - logits.gather(-1, targets[..., None])[..., 0]
    language_model = (of_tokens * batch["weights"]).sum() / batch["weights"].sum()
    labels = torch.tensor(LABELS)
    of_samples = torch.logsumexp(order, dim=-1) - order.gather(-1, labels.clamp(min=0)[:, None])[:, 0]
    return language_model, of_samples[labels >= 0].mean()


def check_by_differences(loss_of, random, parameters, gradients, **more):
    """These models have no kinks: larger steps are closer to the gradient."""
    golden.check_by_differences(loss_of, random, parameters, gradients, zero=("attention.key.bias",), step=1e-6,
                                tolerance=1e-6, **more)


def prepare(model):
    random = np.random.Generator(np.random.PCG64(20181011))
    parameters, batch = initial_parameters(model, random), make_batch(model, random)
    return random, parameters, batch


def make(path, model):
    random, parameters, batch = prepare(model)
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    terms = loss_terms(model, leaves, batch)
    gradients = dict(zip(leaves, torch.autograd.grad(sum(terms), list(leaves.values()))))
    check_by_differences(lambda some: sum(loss_terms(model, some, batch)), random, parameters, gradients)
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        put = golden.writer(file)
        golden.put_settings(file, model | dict(position_embedding="learned", normalization="layernorm", bias=True))
        for name in parameters:
            put(f"parameters.{name}", parameters[name].numpy(), "<f4")
            put(f"gradients.{name}", gradients[name].numpy(), "<f4")
        for name in ("tokens", "types", "targets"):
            put(name, batch[name].numpy(), "<i4")
        put("weights", batch["weights"].numpy(), "<f4")
        put("lengths", LENGTHS, "<i4")
        put("labels", LABELS, "<i4")
        put("loss", [sum(terms).item()], "<f8")
        put("loss_terms", [term.item() for term in terms], "<f8")
        put("gradient_norm", [golden.global_norm(gradients)], "<f8")
    print(f"{path}: losses {[term.item() for term in terms]}, gradient norm {golden.global_norm(gradients)!r}")


def model_of_transformers(model, transformers, head="ForPreTraining", labels=2):
    """Its model in float64, without dropout, and its names of modules by ours."""
    pre = model["norm_position"] == "pre"
    head = {"classification": "ForSequenceClassification", "multiple_choice": "ForMultipleChoice"}.get(head, head)
    kind = "MegatronBert" if pre else "Bert"
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=model["vocab_size"], hidden_size=model["hidden_size"], num_hidden_layers=model["layers"],
        num_attention_heads=model["attention_heads"], intermediate_size=model["ffn_hidden_size"],
        hidden_act={"gelu": "gelu_new", "gelu_exact": "gelu"}[model["activation"]], layer_norm_eps=model["norm_epsilon"],
        max_position_embeddings=model["max_position_embeddings"], num_labels=labels)  # fmt: skip
    theirs = getattr(transformers, kind + head)(config).double().eval()
    layer = {"attention_norm": "attention.ln" if pre else "attention.output.LayerNorm",
             "attention.query": "attention.self.query", "attention.key": "attention.self.key",
             "attention.value": "attention.self.value", "attention.output": "attention.output.dense",
             "mlp_norm": "ln" if pre else "output.LayerNorm", "mlp.up": "intermediate.dense", "mlp.down": "output.dense"}
    names = {"embedding.word": "bert.embeddings.word_embeddings", "embedding.position": "bert.embeddings.position_embeddings",
             "embedding.type": "bert.embeddings.token_type_embeddings", "embedding.norm": "bert.embeddings.LayerNorm",
             "final_norm": "bert.encoder.ln", "head.dense": "cls.predictions.transform.dense",
             "head.norm": "cls.predictions.transform.LayerNorm", "head": "cls.predictions",
             "pooler": "bert.pooler.dense", "order_head": "cls.seq_relationship", "task_head": "classifier"}
    for i in range(model["layers"]):
        names |= {f"layers.{i}.{ours}": f"bert.encoder.layer.{i}.{part}" for ours, part in layer.items()}
    return theirs, names


def compare(model):
    """The losses of transformers' own BERT with the same weights."""
    import transformers

    _, parameters, batch = prepare(model)
    theirs, names = model_of_transformers(model, transformers)
    state = {}
    for name, value in parameters.items():
        module, kind_of_value = name.rsplit(".", 1)
        vocabulary = name in ("embedding.word.weight", "head.bias")
        state[f"{names[module]}.{kind_of_value}"] = value[: model["vocab_size"]] if vocabulary else value
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all("decoder" in name or "position_ids" in name for name in missing), (missing, unexpected)
    theirs.tie_weights()
    mask = (torch.arange(SEQUENCE)[None, :] < torch.tensor(LENGTHS)[:, None]).long()
    with torch.no_grad():
        output = theirs(input_ids=batch["tokens"].T, attention_mask=mask, token_type_ids=batch["types"].T)
    logits, order = forward(model, parameters, batch)
    real = mask.bool()
    difference = (output.prediction_logits - logits.transpose(0, 1))[real].abs().max().item()
    assert difference < 1e-9, difference
    assert (output.seq_relationship_logits - order).abs().max().item() < 1e-9
    print(f"{type(theirs).__name__}: logits differ by at most {difference:.1e}")


if __name__ == "__main__":
    golden.run(MODELS, make, compare)
