#!/usr/bin/env python3
"""Makes tests/golden/routing.json: what a mixture of experts must compute where tokens are dropped by position, by numpy.

Usage: python3 scripts/golden/make_routing_golden.py [tests/golden/routing.json]                      (needs numpy; a second)

From the router's scores to the sum of the outputs, and back to every gradient, by loops over tokens in float64. A case
has top_k 1, 2 or 3 of 4 experts; each expert is down · relu(up · x). A token's choices are its experts with the largest
probabilities; all first choices of a sample take places before second ones, each in the order of positions, and what
finds none is dropped, after the weights were divided by their sum. The gradients are of Σ y · dy + scale · (balance +
z), both summed over samples, and checked by central differences before they are written. Contents:
  sizes       sequence, samples, hidden, inner width, experts
  x, dy       [sequence, samples, hidden];  router [experts, hidden], up.K [inner, hidden], down.K [hidden, inner]
  cases       top_k, capacity_factor, renormalize, capacity;  chosen, kept, gates: [sequence, samples, top_k], of dropped
              choices too;  y;  balance, z: summed over samples;  gradients of gates, x and each matrix, by name
"""

import json
import sys

import numpy as np

SEQUENCE, SAMPLES, HIDDEN, INNER, EXPERTS, SCALE = 8, 3, 24, 6, 4, 0.37
CASES = [(1, 1.0, False), (2, 0.75, True), (2, 1.25, False), (3, 0.75, True)]


def softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def expert_of(parameters, k, token):
    return parameters[f"down.{k}"] @ np.maximum(parameters[f"up.{k}"] @ token, 0)


def route(parameters, x, top_k, capacity, renormalize):
    """By [position, sample]: probabilities and the logarithm of the sum; by choice: experts, kept or not, weights."""
    probabilities, log_sums = np.zeros((SEQUENCE, SAMPLES, EXPERTS)), np.zeros((SEQUENCE, SAMPLES))
    chosen, kept = np.zeros((SEQUENCE, SAMPLES, top_k), int), np.zeros((SEQUENCE, SAMPLES, top_k), int)
    gates = np.zeros((SEQUENCE, SAMPLES, top_k))
    for s in range(SEQUENCE):
        for b in range(SAMPLES):
            scores = parameters["router"] @ x[s, b]
            probabilities[s, b] = softmax(scores)
            log_sums[s, b] = np.log(np.exp(scores).sum())
            chosen[s, b] = np.argsort(-probabilities[s, b], kind="stable")[:top_k]
            gates[s, b] = probabilities[s, b][chosen[s, b]]
            if renormalize:
                gates[s, b] /= gates[s, b].sum()
    for b in range(SAMPLES):
        taken = [0] * EXPERTS
        for choice in range(top_k):
            for s in range(SEQUENCE):
                expert = chosen[s, b, choice]
                kept[s, b, choice] = taken[expert] < capacity
                taken[expert] += 1
    return probabilities, log_sums, chosen, kept, gates


def losses(probabilities, log_sums, chosen):
    balance = 0.0
    for b in range(SAMPLES):
        for expert in range(EXPERTS):
            share = (chosen[:, b] == expert).sum() / chosen[:, b].size
            balance += EXPERTS * share * probabilities[:, b, expert].mean()
    return balance, (log_sums**2).mean(axis=0).sum()


def outputs(parameters, x, routes):
    _, _, chosen, kept, gates = routes
    y = np.zeros_like(x)
    for s, b, choice in np.ndindex(*chosen.shape):
        if kept[s, b, choice]:
            y[s, b] += gates[s, b, choice] * expert_of(parameters, chosen[s, b, choice], x[s, b])
    return y


def total(parameters, x, dy, case):
    routes = route(parameters, x, *case)
    balance, z = losses(*routes[:3])
    return (outputs(parameters, x, routes) * dy).sum() + SCALE * (balance + z)


def gradients(parameters, x, dy, routes, renormalize):
    probabilities, log_sums, chosen, kept, gates = routes
    found = {name: np.zeros_like(value) for name, value in parameters.items()} | {"x": np.zeros_like(x)}
    found["gates"] = np.zeros(chosen.shape)
    for s, b in np.ndindex(SEQUENCE, SAMPLES):
        token, of_probabilities = x[s, b], np.zeros(EXPERTS)
        for choice, expert in enumerate(chosen[s, b]):
            if not kept[s, b, choice]:
                continue
            found["gates"][s, b, choice] = dy[s, b] @ expert_of(parameters, expert, token)
            up, down, weight = parameters[f"up.{expert}"], parameters[f"down.{expert}"], gates[s, b, choice]
            inner = up @ token
            of_inner = (down.T @ (weight * dy[s, b])) * (inner > 0)
            found[f"down.{expert}"] += np.outer(weight * dy[s, b], np.maximum(inner, 0))
            found[f"up.{expert}"] += np.outer(of_inner, token)
            found["x"][s, b] += up.T @ of_inner
        of_gates = found["gates"][s, b]
        if renormalize:
            of_gates = (of_gates - of_gates @ gates[s, b]) / probabilities[s, b][chosen[s, b]].sum()
        of_probabilities[chosen[s, b]] += of_gates
        for expert in range(EXPERTS):
            share = (chosen[:, b] == expert).sum() / chosen[:, b].size
            of_probabilities[expert] += SCALE * EXPERTS * share / SEQUENCE
        p = probabilities[s, b]
        of_scores = p * (of_probabilities - of_probabilities @ p) + SCALE * 2 * log_sums[s, b] / SEQUENCE * p
        found["router"] += np.outer(of_scores, token)
        found["x"][s, b] += parameters["router"].T @ of_scores
    return found


def check(parameters, x, dy, case, found):
    """Along random directions. The step is too small to change a choice, or a sign in a ReLU."""
    random = np.random.default_rng(3)
    for name in [*parameters, "x"]:
        value = x if name == "x" else parameters[name]
        for _ in range(3):
            direction = random.standard_normal(value.shape)

            def at(step):
                moved = value + step * direction
                return total(parameters, moved, dy, case) if name == "x" else total(parameters | {name: moved}, x, dy, case)

            difference, analytic = (at(1e-7) - at(-1e-7)) / 2e-7, (found[name] * direction).sum()
            assert abs(difference - analytic) < 1e-5 * (np.linalg.norm(found[name]) + 1), (name, difference, analytic)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/routing.json"
    random = np.random.default_rng(11)

    def numbers(*shape, width=1.0):
        return np.float32(random.uniform(-width, width, shape)).astype(float).round(4)

    x, dy = numbers(SEQUENCE, SAMPLES, HIDDEN), numbers(SEQUENCE, SAMPLES, HIDDEN)
    parameters = {"router": numbers(EXPERTS, HIDDEN, width=0.4)}
    for k in range(EXPERTS):
        parameters |= {f"up.{k}": numbers(INNER, HIDDEN, width=0.4), f"down.{k}": numbers(HIDDEN, INNER, width=0.4)}

    def listed(value):
        return [float(f"{number:.9g}") for number in np.asarray(value, float).flatten()]

    told = {"sequence": SEQUENCE, "samples": SAMPLES, "hidden": HIDDEN, "inner": INNER, "experts": EXPERTS, "scale": SCALE,
            "x": listed(x), "dy": listed(dy), "parameters": {name: listed(value) for name, value in parameters.items()},
            "cases": []}  # fmt: skip
    for top_k, factor, renormalize in CASES:
        capacity = int(np.ceil(SEQUENCE * top_k / EXPERTS * factor))
        case = (top_k, capacity, renormalize)
        routes = route(parameters, x, *case)
        found = gradients(parameters, x, dy, routes, renormalize)
        check(parameters, x, dy, case, found)
        balance, z = losses(*routes[:3])
        dropped = int((1 - routes[3]).sum())
        assert dropped > 0, "nothing is dropped"
        ordered = -np.sort(-routes[0], axis=-1)
        gap = np.abs(np.diff(ordered, axis=-1)[..., :top_k]).min()
        assert gap > 1e-4, "a choice that float32 may make otherwise"
        told["cases"].append({
            "top_k": top_k, "capacity_factor": factor, "capacity": capacity, "renormalize": renormalize,
            "chosen": routes[2].flatten().tolist(), "kept": routes[3].flatten().tolist(), "gates": listed(routes[4]),
            "y": listed(outputs(parameters, x, routes)), "balance": balance, "z": z,
            "gradients": {name: listed(value) for name, value in found.items()}})  # fmt: skip
        print(f"top {top_k}, room for {capacity}: {dropped} of {routes[3].size} choices dropped, gap {gap:.2e}")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(told, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
