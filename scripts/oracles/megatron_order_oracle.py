#!/usr/bin/env python3
"""Makes tests/golden/megatron_order.json: the sample order of Megatron-LM's GPT data set on odd corpora, by numpy.

Usage: python3 scripts/oracles/megatron_order_oracle.py [tests/golden/megatron_order.json]      (needs numpy; a second)

Written from the definition of the order (Megatron-LM, November 2022), token by token where that is the plainest way to
say it, and with numpy's own generator and shuffles:
  T = tokens of the documents [first, end), E = the least number of passes with (E T - 1) // s >= N samples
  last pass on its own  <=>  E > 1 and N - ((E - 1) T - 1) // s < int(0.80 * ((T - 1) // s))
  document index   E copies of the documents, shuffled; or E - 1 copies, shuffled, and one more, shuffled on its own
  sample index     [S + 1] of (entry of the document index, offset in that document), S = (E T - 1) // s; sample k has
                   s + 1 tokens from entry k on and shares the last one with its successor
  shuffle index    0 .. S - 1, shuffled; or those before the last pass and the others, each shuffled on their own
all shuffles in that order from one RandomState(seed).

Where E S or the documents are many, the file holds sums instead of indices: h = (31 h + element) mod 2^64.
Also in the file: draws of the generator in intervals on both sides of 32 bits, permutations, and boundaries of splits.
"""

import json
import sys

import numpy as np

SPARE = 600  # longer indices are stored as sums


def document_index(documents, epochs, separate, random):
    def shuffled(copies):
        entries = np.array(list(documents) * copies, dtype=np.int64)
        random.shuffle(entries)
        return entries.tolist()

    return shuffled(epochs - 1) + shuffled(1) if separate else shuffled(epochs)


def sample_index(lengths, documents, s, samples):
    """Places of every token that begins a sample, by listing the place of every token there is."""
    places = [(0, 0)]  # an empty document may come first, and the first sample begins with it all the same
    token = 0
    for position, document in enumerate(documents):
        begin, token = token, token + lengths[document]
        first = (begin + s - 1) // s * s
        places += [(position, t - begin) for t in range(max(first, s), token, s)]
    return places[: samples + 1]


def shuffle_index(samples, together, random):
    first, rest = np.arange(together, dtype=np.int64), np.arange(together, samples, dtype=np.int64)
    random.shuffle(first)
    random.shuffle(rest)
    return first.tolist() + rest.tolist()


def tokens_of(lengths, documents, places, k, s):
    """Positions in the data (document after document) of the tokens of sample k."""
    starts = np.concatenate(([0], np.cumsum(lengths)))
    position, offset = places[k]
    tokens = []
    while len(tokens) < s + 1:
        document = documents[position]
        tokens += range(int(starts[document]) + offset, int(starts[document + 1]))
        position, offset = position + 1, 0
    return tokens[: s + 1]


def order(name, lengths, s, seed, n, first=0, end=None):
    end = len(lengths) if end is None else end
    tokens = sum(lengths[first:end])
    epochs = 1
    while (epochs * tokens - 1) // s < n:
        epochs += 1
    samples = (epochs * tokens - 1) // s
    before = ((epochs - 1) * tokens - 1) // s
    separate = epochs > 1 and n - before < int(0.80 * ((tokens - 1) // s))
    random = np.random.RandomState(seed)
    documents = document_index(range(first, end), epochs, separate, random)
    places = sample_index(lengths, documents, s, samples)
    assert len(places) == samples + 1
    shuffle = shuffle_index(samples, before if separate else samples, random)
    case = {"name": name, "lengths": lengths, "first": first, "end": end, "sequence_length": s, "seed": seed,
            "wanted": n, "epochs": epochs, "samples": samples, "separate": separate}
    flat = {"documents": documents, "places": [x for place in places for x in place], "shuffle": shuffle}
    if max(len(x) for x in flat.values()) <= SPARE:
        case.update(flat)
        case["tokens"] = [tokens_of(lengths, documents, places, k, s) for k in shuffle[:12]]
    else:
        case["sums"] = {key: checksum(value) for key, value in flat.items()}
    return case


def checksum(values):
    h = 0
    for value in values:
        h = (31 * h + value) % 2**64
    return h


def cases():
    r = np.random.RandomState(7)

    def corpus(count, longest):
        return r.randint(0, longest + 1, size=count).tolist()

    hundred = [101]  # with s = 10: ten samples per pass
    yield order("oracle: lengths 5 3 4, s 4", [5, 3, 4], 4, 1234, 2)
    yield order("one document, one sample", [9], 8, 1, 1)
    yield order("one document, one pass to its last token", [17], 8, 1, 2)
    yield order("one document, one token short of the last sample", [16], 8, 1, 2)
    yield order("one document, many samples", [500], 7, 42, 60)
    yield order("nothing wanted", [30], 4, 3, 0)
    for n in (10, 11, 17, 18, 19, 20, 21, 27, 28, 29):  # on both sides of 0.80 in the second and third pass
        yield order(f"around the last pass: {n}", hundred, 10, 5, n)
    for n in (179, 180, 181):  # 79, 80, 81 of 100
        yield order(f"around 80 of 100: {n}", [801], 8, 5, n)
    for n in (11, 12, 13):  # int(0.80 * 7) is 5, not 6
        yield order(f"around 5.6 of 7: {n}", [57], 8, 5, n)
    for n in (9, 10, 11, 12, 13, 14, 15, 16, 17, 18):
        yield order(f"many documents around the last pass: {n}", [3, 0, 7, 1, 1, 20, 5, 0, 4, 0], 4, 99, n)
    yield order("empty documents only but one", [0, 0, 0, 12, 0, 0], 3, 8, 9)
    yield order("empty documents at both ends", [0, 5, 0, 6, 0], 3, 21, 3)
    yield order("one-token documents", [1] * 40, 6, 17, 12)
    yield order("one-token documents, samples of one token", [1] * 25, 1, 17, 70)
    yield order("a pass is less than a sample", [2, 1, 0, 3], 20, 4, 5)
    yield order("a document longer than many samples", [3, 200, 2], 9, 6, 40)
    yield order("many passes", [6, 2, 9, 1], 5, 1234, 100)
    yield order("short last pass", corpus(30, 12), 8, 1234, 45)
    yield order("long last pass", corpus(30, 12), 8, 1234, 40)
    yield order("a part of the documents", corpus(40, 9), 6, 77, 50, first=13, end=29)
    yield order("the last part of the documents", corpus(40, 9), 6, 77, 5, first=39, end=40)
    yield order("seed 0", corpus(20, 20), 8, 0, 30)
    yield order("largest seed", corpus(20, 20), 8, 2**32 - 1, 30)
    yield order("more documents than a block of the search", corpus(200, 3), 16, 5, 40)
    for seed in range(6):
        yield order(f"random {seed}", corpus(int(r.randint(1, 60)), int(r.randint(1, 30))) + [1],
                    int(r.randint(1, 20)), seed, int(r.randint(1, 120)))
    yield order("large", corpus(3000, 400), 64, 1234, 40000)
    yield order("large, many passes", corpus(900, 2), 32, 4321, 3000)


def splits():
    for text in ("969,30,1", "98,2,0", "1,1,1", "0.5,0.25,0.25", "900,50,50", "7,2.5,1", "949,50,1", "1,1,0"):
        weights = [float(word) for word in text.split(",")]
        shares = [weight / sum(weights) for weight in weights]
        for documents in (1, 2, 3, 7, 10, 18, 50, 250, 1000, 1001, 99999):
            bounds = [0]
            for share in shares:
                bounds.append(bounds[-1] + int(round(share * float(documents))))
            bounds = bounds[:1] + [bound - (bounds[-1] - documents) for bound in bounds[1:]]
            if min(bounds) >= 0:
                yield {"split": text, "documents": documents, "bounds": bounds}


def draws():
    """In intervals [0, largest], one generator for all of one seed."""
    intervals = (1, 2, 9, 255, 256, 2**31, 2**32 - 2, 2**32 - 1, 2**32, 2**33 + 5, 2**52, 2**63 - 2)
    for seed in (0, 42, 2**32 - 1):
        random = np.random.RandomState(seed)
        values = [[int(random.randint(0, largest + 1, dtype=np.int64)) for _ in range(6)] for largest in intervals]
        yield {"seed": seed, "largest": intervals, "values": values}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/megatron_order.json"
    tables = {"draws": draws(), "splits": splits(), "orders": cases()}
    tables["permutations"] = (
        {"seed": seed, "of": np.random.RandomState(seed).permutation(n).tolist()} for seed, n in ((42, 10), (0, 10), (3, 300))
    )
    lines = [
        f'"{name}": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]"
        for name, rows in tables.items()
    ]
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
