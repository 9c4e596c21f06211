#!/usr/bin/env python3
"""Makes tests/golden/tiny_labels.h5 and tiny_choices.h5: what BERT with a task's head must compute, by PyTorch's
autograd in float64.

Usage: python3 scripts/golden/make_task_golden.py [tests/golden]      (needs torch, numpy and h5py; some seconds)
       python3 scripts/golden/make_task_golden.py --compare           (needs transformers too: the same scores by its models)

Models and samples are those of scripts/golden/make_bert_golden.py, with a pooler and a linear layer at the end: pre-norm with
three labels, and post-norm with two questions of three choices, each choice a column. Loss = mean cross entropy of the
samples that have a label. The form is that of make_bert_golden.py, without what is of masked tokens, and
  labels   i32 [samples]; of questions the right choice
  scores   f64 [samples, classes]: the logits
"""

import h5py
import numpy as np
import torch

import make_bert_golden as bert
import make_golden as golden

TASKS = {
    "tiny_labels": dict(model="tiny_bert", name="classification", lengths=[19, 11, 6], second=[7, 4, 3], labels=[2, -1, 0],
                        outputs=3, columns=1),
    "tiny_choices": dict(model="tiny_bert_post", name="multiple_choice", lengths=[19, 11, 6, 13, 19, 9],
                         second=[7, 4, 3, 8, 2, 5], labels=[1, 2], outputs=1, columns=3),
}  # fmt: skip


def prepare(task):
    model = bert.MODELS[task["model"]]
    bert.SAMPLES, bert.LENGTHS, bert.SECOND = len(task["lengths"]), task["lengths"], task["second"]
    random = np.random.Generator(np.random.PCG64(20181011))
    parameters, batch = bert.initial_parameters(model, random), bert.make_batch(model, random)
    parameters = {name: value for name, value in parameters.items() if not name.startswith(("head.", "order_head."))}
    shape = (task["outputs"], model["hidden_size"])
    parameters["task_head.weight"] = torch.from_numpy((0.15 * random.standard_normal(shape)).astype("f4").astype("f8"))
    if task["columns"] == 1:  # one of a single output would shift all choices alike
        bias = 0.1 * random.standard_normal(shape[0])
        parameters["task_head.bias"] = torch.from_numpy(bias.astype("f4").astype("f8"))
    return model, random, parameters, batch


def scores_of(task, model, parameters, batch):
    linear, _ = bert.functions_of(model, parameters)
    pooled = torch.tanh(linear("pooler", bert.encode(model, parameters, batch)[0]))
    logits = pooled @ parameters["task_head.weight"].T + parameters.get("task_head.bias", 0)
    return logits.reshape(-1, task["outputs"] * task["columns"])


def loss_of(task, model, parameters, batch):
    scores, labels = scores_of(task, model, parameters, batch), torch.tensor(task["labels"])
    losses = torch.logsumexp(scores, dim=-1) - scores.gather(-1, labels.clamp(min=0)[:, None])[:, 0]
    return losses[labels >= 0].mean()


def make(path, task):
    model, random, parameters, batch = prepare(task)
    leaves = {name: value.clone().requires_grad_() for name, value in parameters.items()}
    loss = loss_of(task, model, leaves, batch)
    gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()))))
    bert.check_by_differences(lambda some: loss_of(task, model, some, batch), random, parameters, gradients,
                              bounds=(1e-5, 1e-5))
    with h5py.File(path, "w", libver=("v110", "v110")) as file:
        put = golden.writer(file)
        golden.put_settings(file, model | dict(position_embedding="learned", normalization="layernorm", bias=True))
        for name in parameters:
            put(f"parameters.{name}", parameters[name].numpy(), "<f4")
            put(f"gradients.{name}", gradients[name].numpy(), "<f4")
        for name in ("tokens", "types"):
            put(name, batch[name].numpy(), "<i4")
        put("lengths", task["lengths"], "<i4")
        put("labels", task["labels"], "<i4")
        put("scores", scores_of(task, model, parameters, batch).numpy(), "<f8")
        put("loss", [loss.item()], "<f8")
        put("gradient_norm", [golden.global_norm(gradients)], "<f8")
    print(f"{path}: loss {loss.item()!r}, gradient norm {golden.global_norm(gradients)!r}")


def compare(task):
    """The scores of transformers' own models with the same weights."""
    import transformers

    model, _, parameters, batch = prepare(task)
    theirs, names = bert.model_of_transformers(model, transformers, task["name"], task["outputs"])
    state = {}
    for name, value in parameters.items():
        module, kind_of_value = name.rsplit(".", 1)
        value = value[: model["vocab_size"]] if name == "embedding.word.weight" else value
        state[f"{names[module]}.{kind_of_value}"] = value
    if task["columns"] > 1:
        state["classifier.bias"] = torch.zeros(1, dtype=torch.float64)
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and all("position_ids" in name for name in missing), (missing, unexpected)
    mask = (torch.arange(bert.SEQUENCE)[None, :] < torch.tensor(task["lengths"])[:, None]).long()
    questions = len(task["lengths"]) // task["columns"]
    inputs = [x.reshape(questions, task["columns"], -1) if task["columns"] > 1 else x
              for x in (batch["tokens"].T, mask, batch["types"].T)]  # fmt: skip
    with torch.no_grad():
        output = theirs(input_ids=inputs[0], attention_mask=inputs[1], token_type_ids=inputs[2])
    difference = (output.logits - scores_of(task, model, parameters, batch)).abs().max().item()
    assert difference < 1e-9, difference
    print(f"{type(theirs).__name__}: scores differ by at most {difference:.1e}")


if __name__ == "__main__":
    golden.run(TASKS, make, compare)
