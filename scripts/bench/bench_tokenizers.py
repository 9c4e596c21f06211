#!/usr/bin/env python3
"""Preprocessing with a GPT-2 or BERT vocabulary against other encoders, on one core, in one run.

Usage: python3 scripts/bench/bench_tokenizers.py VOCABULARY_FOLDER FILE... [--rounds 5]
       (needs tokenizers, for GPT-2's also tiktoken, and h5py to compare ids; VOCABULARY_FOLDER has vocab.json and
       merges.txt, or the vocab.txt of bert-uncased)

FILEs are text, or JSON lines with a "text" (.jsonl). Each becomes documents of about 20 kB in a JSON lines file of its
own. Measured in turn, several rounds, medians of megabytes of text a second of CPU time (user and system) and of wall
time:
  megatron_preprocess   the whole program, started as users start it: MPI, vocabulary, JSON, UTF-8 check, ids, hashes,
                        HDF5 shard with checksums, flushed to disk; also less the same for one short line ("running")
  tiktoken              encode_ordinary of the documents, already in memory as Python strings; one thread
  tokenizers            encode of the same
Our ids must be those of the others; the first difference is an error. With vocab.txt there is no tiktoken.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
os.environ.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")

import h5py
import numpy as np
import tokenizers

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "megatron_preprocess")
DOCUMENT_BYTES = 20000


def documents_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        if path.endswith(".jsonl"):
            texts = [json.loads(line)["text"] for line in file]
        else:
            texts = [file.read()]
    documents = []
    for text in texts:
        while text:
            cut = text.find("\n", DOCUMENT_BYTES) + 1
            part = text[:cut] if cut else text
            documents.append(part)
            text = text[len(part) :]
    return documents


def bytes_by_character():
    """GPT-2's 256 printable characters and the bytes they stand for."""
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in itself]
    return {chr(b): b for b in itself} | {chr(256 + i): b for i, b in enumerate(others)}


def load_tiktoken(vocab):
    byte_of = bytes_by_character()
    with open(vocab, encoding="utf-8") as file:
        ids = json.load(file)
    ranks = {bytes(byte_of[c] for c in token): i for token, i in ids.items() if token != "<|endoftext|>"}
    import tiktoken

    return tiktoken.Encoding("gpt2", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={}), ids["<|endoftext|>"]


def load_tokenizers(vocab, merges):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(vocab, merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def load_bert(vocab):
    with open(vocab, encoding="utf-8") as file:
        ids = {token: i for i, token in enumerate(file.read().split("\n")[:-1])}
    for token in ("[BOS]", "[EOS]"):
        ids.setdefault(token, len(ids))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer, ids["[EOS]"]


def timed(work, who):
    """(CPU seconds, wall seconds, result)"""
    cpu = lambda: sum(resource.getrusage(who)[:2])
    start, wall = cpu(), time.perf_counter()
    result = work()
    return cpu() - start, time.perf_counter() - wall, result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vocabulary")
    parser.add_argument("files", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    vocab, merges, pieces = (os.path.join(arguments.vocabulary, name) for name in ("vocab.json", "merges.txt", "vocab.txt"))
    bert = not os.path.exists(vocab)
    if bert:
        hugging_face, end_of_text = load_bert(pieces)
        choice = ["--tokenizer", "bert-uncased", "--vocab-file", pieces]
    else:
        openai, end_of_text = load_tiktoken(vocab)
        hugging_face = load_tokenizers(vocab, merges)
        choice = ["--tokenizer", "gpt2", "--vocab-file", vocab, "--merge-file", merges]

    def ours(source, prefix):
        command = [PROGRAM, "--input", source, "--output", prefix, *choice, "--shard-bytes", str(1 << 40), "--overwrite"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as folder:
        short = os.path.join(folder, "short.jsonl")
        with open(short, "w") as file:
            file.write('{"text": "short"}\n')
        for path in arguments.files:
            documents = documents_of(path)
            megabytes = sum(len(d.encode()) for d in documents) / 1e6
            source, prefix = os.path.join(folder, "text.jsonl"), os.path.join(folder, "shards")
            with open(source, "w") as file:
                file.writelines(json.dumps({"text": d}) + "\n" for d in documents)
            runs = {
                "megatron_preprocess": (lambda: ours(source, prefix), resource.RUSAGE_CHILDREN),
                "one short line": (lambda: ours(short, prefix + "_short"), resource.RUSAGE_CHILDREN),
                "tiktoken": (lambda: [openai.encode_ordinary(d) for d in documents], resource.RUSAGE_SELF),
                "tokenizers": (lambda: [hugging_face.encode(d).ids for d in documents], resource.RUSAGE_SELF),
            }
            if bert:
                del runs["tiktoken"]
            others = [name for name in ("tiktoken", "tokenizers") if name in runs]
            seconds = {name: [] for name in runs}
            results = {}
            for _ in range(arguments.rounds):
                for name, (work, who) in runs.items():
                    *times, results[name] = timed(work, who)
                    seconds[name].append(times)
            with h5py.File(prefix + "-00000.h5") as file:
                ids = file["tokens"][:]
            for name in others:
                theirs = np.array([i for d in results[name] for i in [*d, end_of_text]])
                if not np.array_equal(ids, theirs):
                    sys.exit(f"{path}: our ids are not those of {name}")
            cpu, wall = ({name: statistics.median(t[i] for t in seconds[name]) for name in runs} for i in (0, 1))
            for times in (cpu, wall):
                times["megatron_preprocess, running"] = times["megatron_preprocess"] - times["one short line"]
            print(f"{path}: {megabytes:.1f} MB in {len(documents)} documents, {len(ids)} tokens, the same by all")
            print(f"  {'':30} {'CPU MB/s':>9} {'wall MB/s':>9} {'CPU, of ' + others[0]:>19}")
            for name in ("megatron_preprocess", "megatron_preprocess, running", *others):
                ratio = cpu[others[0]] / cpu[name]
                print(f"  {name:30} {megabytes / cpu[name]:9.1f} {megabytes / wall[name]:9.1f} {ratio:18.2f}x")


if __name__ == "__main__":
    main()
