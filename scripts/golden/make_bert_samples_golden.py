#!/usr/bin/env python3
"""Makes tests/golden/bert_samples.json: the samples of megatron-core's BERT and T5 data sets, and draws of numpy.

Usage: python3 scripts/golden/make_bert_samples_golden.py [tests/golden/bert_samples.json]
(needs megatron-core with its compiled helpers, torch, numpy; half a minute)

Each case writes a made-up corpus as an indexed data set and opens it with BERTMaskedWordPieceDataset or
T5MaskedWordPieceDataset, with the options of Megatron's pretrain_bert.py and pretrain_t5.py. Stored are the sample
index, all fields of the first samples, and of all samples a sum per field: h = (31 h + element) mod 2^64.

Corpus: documents of sentences of given lengths. Its tokens come from x = (6364136223846793005 x + 1442695040888963407)
mod 2^64, from x = the corpus' seed on: token = first_word + (x >> 33) mod (words - first_word). Ids divisible by
`continues_every` are pieces that continue a word. Special ids: pad 0, cls 2, sep 3, mask 4; T5: bos and eos after the
words, then the sentinels. first_word 0 puts special ids into texts, which real corpora hardly have.
"""

import json
import os
import sys
import tempfile
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
PAD, CLS, SEP, MASK = 0, 2, 3, 4

from megatron.core.datasets.bert_dataset import (  # noqa: E402
    BERTMaskedWordPieceDataset,
    BERTMaskedWordPieceDatasetConfig,
)
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder  # noqa: E402
from megatron.core.datasets.t5_dataset import T5MaskedWordPieceDataset, T5MaskedWordPieceDatasetConfig  # noqa: E402
from megatron.core.datasets.utils import Split  # noqa: E402

torch.distributed.get_rank = lambda *_: 0  # the data set asks it before it builds its index


class WordPieces:
    """What the data sets ask of a tokenizer."""

    cls, sep, mask, pad = CLS, SEP, MASK, PAD

    def __init__(self, words, continues_every, sentinels=0):
        self.bos, self.eos, self.eod = words, words + 1, words + 1
        self.additional_special_tokens_ids = [words + 2 + i for i in range(sentinels)]
        size = words + (2 + sentinels if sentinels else 0)
        self.inv_vocab = {i: ("##" if i < words and i % continues_every == 0 else "") + str(i) for i in range(size)}
        self.unique_identifiers = {"words": words}


def tokens_of(corpus):
    x, documents = corpus["seed"], []
    for lengths in corpus["lengths"]:
        document = []
        for length in lengths:
            sentence = []
            for _ in range(length):
                x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
                sentence.append(corpus["first_word"] + (x >> 33) % (corpus["words"] - corpus["first_word"]))
            document.append(sentence)
        documents.append(document)
    return documents


def open_corpus(corpus, folder):
    prefix = os.path.join(folder, "corpus")
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=np.int32)
    for document in tokens_of(corpus):
        for sentence in document:
            builder.add_item(torch.tensor(sentence, dtype=torch.int32))
        builder.end_document()
    builder.finalize(prefix + ".idx")
    return IndexedDataset(prefix, mmap=False)


def checksum(values, h=0):
    for value in values:
        h = (31 * h + int(value)) % 2**64
    return h


def options(case, tokenizer, folder):
    return dict(
        random_seed=case["seed"], sequence_length=case["sequence_length"], split="1,0,0", blend=(["x"], None),
        path_to_cache=folder, tokenizer=tokenizer, masking_probability=case["mask_probability"],
        short_sequence_probability=case["short_probability"], masking_do_full_word=True,
        masking_do_permutation=False, masking_use_longer_ngrams=False)


def samples_of(case, corpus, full):
    with tempfile.TemporaryDirectory() as folder:
        low = open_corpus(corpus, folder)
        t5 = "decoder_length" in case
        tokenizer = WordPieces(corpus["words"], corpus["continues_every"], case.get("sentinels", 0))
        shared = options(case, tokenizer, folder)
        if t5:
            config = T5MaskedWordPieceDatasetConfig(
                **shared, masking_max_ngram=10, masking_use_geometric_distribution=True,
                sequence_length_decoder=case["decoder_length"])
            kind = T5MaskedWordPieceDataset
        else:
            config = BERTMaskedWordPieceDatasetConfig(
                **shared, masking_max_ngram=3, masking_use_geometric_distribution=False,
                classification_head=case["sentence_order"])
            kind = BERTMaskedWordPieceDataset
        indices = np.arange(case["first"], case["end"])
        dataset = kind(low, "corpus", indices, case["wanted"], Split.train, config)
        case["samples"] = len(dataset)
        map_ = [[int(x) for x in row] for row in dataset.sample_index]
        case["map_sum"] = checksum(x for row in map_ for x in row)
        if len(map_) <= 200:
            case["map"] = map_
        case["sums"], case["full"] = {}, []
        for i in range(len(dataset)):
            sample = {key: np.atleast_1d(value).tolist() for key, value in dataset[i].items()}
            for key, value in sample.items():
                case["sums"][key] = checksum(value, case["sums"].get(key, 0))
            if i < full:
                case["full"].append(sample)
    return case


def ragged(r, documents, sentences, tokens):
    return [r.randint(1, tokens + 1, size=r.randint(0, sentences + 1)).tolist() for _ in range(documents)]


def corpora():
    r = np.random.RandomState(11)
    odd = [[], [5], [3, 4], [0, 6], [0, 0], [7], [513, 2], [512, 2], [1, 1, 1], [513], [2, 0, 9, 4], []]
    return {
        "odd": {"lengths": odd, "words": 40, "first_word": 0, "continues_every": 3, "seed": 1},
        "ragged": {"lengths": ragged(r, 30, 12, 14), "words": 60, "first_word": 5, "continues_every": 3, "seed": 2},
        "pieces": {"lengths": ragged(r, 12, 9, 20), "words": 50, "first_word": 5, "continues_every": 1, "seed": 3},
        "words": {"lengths": ragged(r, 12, 9, 20), "words": 50, "first_word": 5, "continues_every": 99, "seed": 4},
        "real": {"lengths": ragged(r, 40, 40, 50), "words": 30522, "first_word": 999, "continues_every": 4, "seed": 5},
    }


def bert_cases(made):
    def case(corpus, sequence_length, wanted, full=0, seed=1234, sentence_order=True, mask=0.15, short=0.1, first=0, end=None):
        end = len(made[corpus]["lengths"]) if end is None else end
        return samples_of(
            {"corpus": corpus, "first": first, "end": end, "sequence_length": sequence_length, "seed": seed,
             "wanted": wanted, "short_probability": short, "mask_probability": mask, "sentence_order": sentence_order},
            made[corpus], full)

    yield case("odd", 32, 20, full=4)
    yield case("odd", 32, 20, full=4, sentence_order=False)
    yield case("odd", 520, 12, full=1, mask=0.3)
    yield case("odd", 520, 12, sentence_order=False)
    yield case("odd", 6, 40, full=3, mask=0.5)
    yield case("ragged", 48, 150, full=6)
    yield case("ragged", 48, 150, full=3, sentence_order=False)
    yield case("ragged", 48, 1, seed=1)
    yield case("ragged", 48, 100, seed=2**31 - 2)
    yield case("ragged", 24, 300, short=0.0, mask=0.15, seed=7)
    yield case("ragged", 24, 300, short=1.0, mask=0.25, seed=8)
    yield case("ragged", 24, 300, short=0.27, mask=0.9, seed=9)
    yield case("ragged", 40, 90, first=11, end=23, seed=10)
    yield case("ragged", 40, 5, first=29, end=30, seed=11, sentence_order=False)
    yield case("pieces", 40, 100, mask=0.4, full=2)
    yield case("words", 40, 100, mask=0.5, full=2)
    yield case("real", 128, 500)
    yield case("real", 512, 200, sentence_order=False)
    yield case("real", 512, 200, full=1, seed=42)


def t5_cases(made):
    def case(corpus, sequence_length, decoder_length, wanted, full=0, seed=1234, mask=0.15, short=0.1, sentinels=100, first=0, end=None):
        end = len(made[corpus]["lengths"]) if end is None else end
        return samples_of(
            {"corpus": corpus, "first": first, "end": end, "sequence_length": sequence_length, "seed": seed,
             "wanted": wanted, "short_probability": short, "mask_probability": mask, "decoder_length": decoder_length,
             "sentinels": sentinels},
            made[corpus], full)

    yield case("odd", 32, 32, 20, full=4)
    yield case("odd", 520, 300, 12, full=1, mask=0.3)
    yield case("ragged", 48, 32, 150, full=6)
    yield case("ragged", 24, 40, 300, short=0.3, mask=0.5, seed=9)
    yield case("ragged", 40, 30, 90, first=11, end=23, seed=2**31 - 2)
    yield case("pieces", 40, 60, 100, mask=0.4, full=2)
    yield case("words", 40, 60, 100, mask=0.5, full=2)
    yield case("real", 512, 128, 200, full=1)
    yield case("real", 128, 64, 400, seed=3)


def draws():
    for seed in (0, 42, 2**32 - 1):
        r = np.random.RandomState(seed)
        n = np.arange(3) + 1
        p = (1.0 / n) / (1.0 / n).sum()
        yield {"seed": seed, "random": [float(r.random()) for _ in range(20)],
               "geometric": [int(r.geometric(0.2)) for _ in range(200)],
               "choice": [int(r.choice(n, p=p / p.sum())) for _ in range(200)], "probabilities": (p / p.sum()).tolist()}


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/bert_samples.json"
    made = corpora()
    dump = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731
    tables = {"draws": draws(), "bert": bert_cases(made), "t5": t5_cases(made)}
    lines = ['"corpora": {\n' + ",\n".join(f'"{name}":{dump(corpus)}' for name, corpus in made.items()) + "\n}"]
    lines += [f'"{name}": [\n' + ",\n".join(dump(row) for row in rows) + "\n]" for name, rows in tables.items()]
    with open(path, "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
