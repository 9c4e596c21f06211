#!/usr/bin/env python3
"""Makes tests/golden/blend.json: which set each sample of a blend is taken from, by numpy, as Megatron-LM chooses.

Usage: python3 scripts/oracles/blend_oracle.py [tests/golden/blend.json]      (needs numpy; ten seconds)

Written from the definition (Megatron-LM, November 2022):
  weights          divided by their sum, added one after the other; divided once more by numpy's sum of the results
  counts           each set is asked for ceil(N * weight * 1.005) samples, weight after the first division
  choice           for sample i the first set with the largest weight * max(i, 1) - (its samples so far), in doubles,
                   rounded after the product and after the difference
Long choices are stored as sums: h = (31 h + set) mod 2^64. Some weights are ones for which a product that is not
rounded before the subtraction (a fused multiply-add) chooses differently; the file says where.
"""

import json
import math
import random
import sys
from fractions import Fraction

import numpy as np

SPARE = 300  # longer choices are stored as sums


def normalised(weights):
    total = 0.0
    for weight in weights:
        total += weight
    first = [weight / total for weight in weights]
    second = np.array(first, dtype=np.float64)
    return first, second / np.sum(second)


def choices(weights, samples):
    given = np.zeros(len(weights))
    chosen = np.empty(samples, dtype=np.int64)
    for i in range(samples):
        missing = weights * max(float(i), 1.0) - given
        best = int(np.argmax(missing))  # the first of equals
        chosen[i] = best
        given[best] += 1
    return chosen


def first_difference_if_fused(weights, samples):
    """The first sample that a fused multiply-add would take from another set, or None."""
    exact = [Fraction(float(weight)) for weight in weights]
    given = [0] * len(weights)
    for i in range(samples):
        place = max(i, 1)
        plain = [float(w) * float(place) - float(g) for w, g in zip(weights, given)]
        fused = [float(w * place - g) for w, g in zip(exact, given)]
        best, other = plain.index(max(plain)), fused.index(max(fused))
        if best != other:
            return i
        given[best] += 1
    return None


def case(weights, samples):
    first, second = normalised(weights)
    chosen = choices(second, samples)
    sums = 0
    for choice in chosen.tolist():
        sums = (31 * sums + choice) % 2**64
    result = {
        "weights": weights,
        "normalised": [w.hex() for w in first],
        "samples": samples,
        "asked_for": [int(math.ceil(samples * w * 1.005)) for w in first],
        "first": chosen[:SPARE].tolist(),
        "sum": sums,
        "given": [int(n) for n in np.bincount(chosen, minlength=len(weights))],
    }
    return result


def main():
    generator = random.Random(7)
    cases = [
        case([1.0], 50),
        case([0.7, 0.3], 1000),
        case([1.0, 1.0, 1.0], 1000),
        case([3.0, 1.0, 0.5, 0.25], 100000),
        case([1e-9, 1.0], 1000),
        case([generator.random() for _ in range(9)], 70000),
        case([generator.random() for _ in range(140)], 20000),  # numpy adds in blocks
        case([0.495, 0.305, 0.2], 200000),
    ]
    found = 0
    while found < 3:
        weights = [round(generator.random(), 2) + 0.01 for _ in range(generator.randint(2, 12))]
        at = first_difference_if_fused(normalised(weights)[1], 3000)
        if at is not None:
            cases.append(case(weights, 3000) | {"fused_differs_at": at})
            found += 1
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/blend.json"
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
