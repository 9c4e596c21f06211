#!/usr/bin/env python3
"""Writes and reads Megatron-LM's indexed data sets (PREFIX.idx, PREFIX.bin) with numpy: an independent judge of ours.

Usage: python3 scripts/oracles/indexed_files.py golden [tests/golden/indexed]    the sets of the tests, and what is in them
       python3 scripts/oracles/indexed_files.py read PREFIX                      its sequences, as JSON
       python3 scripts/oracles/indexed_files.py random PREFIX DOCUMENTS SEED     a set of random tokens, uint16, as mmap

Written from the formats (Megatron-LM, November 2022), little-endian:
  mmap    "MMIDIDX\\0\\0", u64 1, u8 type, u64 sequences, u64 entries of the document index, i32 lengths, i64 offsets in
          bytes, i64 document index
  TNTIDX  "TNTIDX\\0\\0", u64 1, u64 type, u64 bytes of an element, u64 sequences, u64 lengths, u64 entries of the document
          index, i64 first length of each sequence (and the end), i64 first element (and the end), i64 lengths, i64
          document index
Types: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16.
"""

import json
import os
import struct
import sys

import numpy as np

CODES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}


def code_of(dtype):
    return next(code for code, known in CODES.items() if known == dtype)


def ends(lengths):
    return np.concatenate(([0], np.cumsum(np.array(lengths, dtype=np.int64))))


def write(prefix, sequences, dtype, documents=None, tntidx=False):
    lengths = [len(sequence) for sequence in sequences]
    places = ends(lengths)
    documents = np.arange(len(sequences) + 1) if documents is None else np.array(documents)
    with open(prefix + ".bin", "wb") as file:
        for sequence in sequences:
            file.write(np.array(sequence, dtype=dtype).tobytes())
    size = np.dtype(dtype).itemsize
    with open(prefix + ".idx", "wb") as file:
        if tntidx:
            file.write(b"TNTIDX\0\0" + struct.pack("<QQQ", 1, code_of(dtype), size))
            file.write(struct.pack("<QQQ", len(sequences), len(lengths), len(documents)))
            file.write(np.arange(len(sequences) + 1, dtype=np.int64).tobytes())
            file.write(places.astype(np.int64).tobytes())
            file.write(np.array(lengths, dtype=np.int64).tobytes())
        else:
            file.write(b"MMIDIDX\0\0" + struct.pack("<QB", 1, code_of(dtype)))
            file.write(struct.pack("<QQ", len(sequences), len(documents)))
            file.write(np.array(lengths, dtype=np.int32).tobytes())
            file.write((places[:-1] * size).astype(np.int64).tobytes())
        file.write(documents.astype(np.int64).tobytes())


def read(prefix):
    with open(prefix + ".idx", "rb") as file:
        index = file.read()
    if index[:9] == b"MMIDIDX\0\0":
        version, code, count, entries = struct.unpack_from("<QBQQ", index, 9)
        lengths = np.frombuffer(index, np.int32, count, 34)
        offsets = np.frombuffer(index, np.int64, count, 34 + 4 * count)
        documents = np.frombuffer(index, np.int64, entries, 34 + 12 * count)
        assert len(index) == 34 + 12 * count + 8 * entries
        size = np.dtype(CODES[code]).itemsize
    else:
        assert index[:8] == b"TNTIDX\0\0"
        version, code, size, count, total, entries = struct.unpack_from("<QQQQQQ", index, 8)
        numbers = np.frombuffer(index, np.int64, -1, 56)
        offsets = numbers[count + 1 : 2 * count + 1] * size
        lengths = numbers[2 * count + 2 : 2 * count + 2 + total]
        documents = numbers[2 * count + 2 + total :]
        assert len(documents) == entries
    assert version == 1
    tokens = np.fromfile(prefix + ".bin", CODES[code])
    sequences = [tokens[o // size : o // size + n].tolist() for o, n in zip(offsets.tolist(), lengths.tolist())]
    return {"dtype": CODES[code].__name__, "documents": documents.tolist(), "sequences": sequences}


def golden(folder):
    os.makedirs(folder, exist_ok=True)
    random = np.random.RandomState(3)
    many = [random.randint(0, 50000, size=random.randint(1, 40)).tolist() for _ in range(40)]
    sets = {
        "two": dict(sequences=[[1, 2, 3], [65499, 5]], dtype=np.uint16),
        "many": dict(sequences=many, dtype=np.uint16),
        "wide": dict(sequences=[[0, 70000, 3], [4], [69999] * 5], dtype=np.int32),
        "bytes": dict(sequences=[[255, 0], [7]], dtype=np.uint8),
        "signed": dict(sequences=[[127, 0], [7]], dtype=np.int8),
        "short": dict(sequences=[[32767], [7, 8]], dtype=np.int16),
        "longs": dict(sequences=[[1], [2, 3]], dtype=np.int64),
        "sentences": dict(sequences=[[1, 2], [3], [4, 5, 6], [7]], dtype=np.uint16, documents=[0, 2, 2, 4]),
        "with_empty": dict(sequences=[[1, 2], [], [3]], dtype=np.uint16),
        "negative": dict(sequences=[[1, -2]], dtype=np.int32),
        "older": dict(sequences=many, dtype=np.uint16, tntidx=True),
        "older_wide": dict(sequences=[[0, 70000, 3], [4]], dtype=np.int32, tntidx=True),
    }
    contents = {}
    for name, arguments in sets.items():
        prefix = os.path.join(folder, name)
        write(prefix, **arguments)
        contents[name] = read(prefix)
        assert contents[name]["sequences"] == arguments["sequences"]
    with open(os.path.join(folder, "contents.json"), "w", encoding="utf-8") as file:
        json.dump(contents, file, indent=None)
        file.write("\n")


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "golden":
        golden(sys.argv[2] if len(sys.argv) > 2 else "tests/golden/indexed")
    elif command == "read" and len(sys.argv) == 3:
        print(json.dumps(read(sys.argv[2])))
    elif command == "random" and len(sys.argv) == 5:
        random = np.random.RandomState(int(sys.argv[4]))
        lengths = random.randint(1, 2000, size=int(sys.argv[3]))
        write(sys.argv[2], [random.randint(0, 50257, size=n) for n in lengths], np.uint16)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
