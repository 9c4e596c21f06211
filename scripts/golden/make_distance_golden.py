#!/usr/bin/env python3
"""Makes tests/golden/distance_buckets.txt: which bucket T5 has for every distance from -1500 to 1500, by transformers.

Usage: python3 scripts/golden/make_distance_golden.py [tests/golden/distance_buckets.txt]  (needs torch and transformers; seconds)

A line for each rule: bidirectional (0 or 1), buckets, max_distance, the number of runs, and of every run of equal
buckets, in ascending order, its first distance and its bucket.
"""

import sys

import torch
from transformers.models.t5.modeling_t5 import T5Attention

SIZES = [(32, 128), (32, 1024), (8, 20), (16, 64), (64, 128), (32, 256), (33, 100), (20, 16), (128, 4096), (12, 512)]


def runs(bidirectional, buckets, max_distance):
    distances = torch.arange(-1500, 1501)
    by_distance = T5Attention._relative_position_bucket(distances, bidirectional, buckets, max_distance).tolist()
    result = []
    for distance, bucket in zip(distances.tolist(), by_distance):
        if not result or result[-1][1] != bucket:
            result.append((distance, bucket))
    return result


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/distance_buckets.txt"
    with open(path, "w") as file:
        for bidirectional in (True, False):
            for size in SIZES:
                found = runs(bidirectional, *size)
                numbers = [int(bidirectional), *size, len(found)] + [number for run in found for number in run]
                file.write(" ".join(map(str, numbers)) + "\n")


if __name__ == "__main__":
    main()
