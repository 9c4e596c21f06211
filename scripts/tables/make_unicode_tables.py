#!/usr/bin/env python3
"""Makes src/data/unicode/unicode_tables.cpp: digits, combining classes, decompositions, clusters.

Usage: python3 scripts/tables/make_unicode_tables.py [src/data/unicode/unicode_tables.cpp]      (needs tokenizers, sentencepiece)

The reference is what the `tokenizers` library does, which may follow an older Unicode than Python's unicodedata: every
code point is put to its normalizers NFC, NFD and NFKD, and to its pre-tokenizer Digits; grapheme clusters show in its
normalizer Precompiled. Python's tables supply the values; code points that the library does not know yet are left out.
Ends with an error if the tables do not reproduce NFC and NFD of every code point. Takes a minute.
"""

import io
import sys
import tempfile
import unicodedata

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
NFKD = normalizers.NFKD().normalize_str
HANGUL = range(0xAC00, 0xD7A4)


def members_by_tokenizers(pattern):
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    return {c for c in CODE_POINTS if not splitter.pre_tokenize_str(chr(c))}


def combining_classes():
    """A mark that NFD moves after, or before, another of a known class has a class."""
    classes = {}
    for c in CODE_POINTS:
        value = unicodedata.combining(chr(c))
        if value == 0:
            continue
        mark = chr(c)
        moved = NFD("a\u0301" + mark) != "a\u0301" + mark if value < 230 else NFD("a" + mark + "\u0334")[1] == "\u0334"
        if moved:
            classes[c] = value
    return classes


def decompositions():
    """code point -> (first, second or 0, whether NFC puts it together again)"""
    table = {}
    for c in CODE_POINTS:
        parts = unicodedata.decomposition(chr(c)).split()
        if not parts or parts[0].startswith("<") or NFD(chr(c)) == chr(c):
            continue
        first, second = (int(part, 16) for part in (parts + ["0"])[:2])
        table[c] = (first, second, second != 0 and NFC(chr(c)) == chr(c))
    return table


def compatibility_decompositions():
    """code point -> parts, in full"""
    return {c: [ord(part) for part in NFKD(chr(c))] for c in CODE_POINTS if NFKD(chr(c)) != NFD(chr(c))}


def ranges_of(values):
    """values: {code point: value}, ascending -> [[first, last, value]]"""
    ranges = []
    for c, value in values.items():
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == value:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, value])
    return ranges


def decomposed(c, table):
    if c not in table:
        return [c]
    first, second, _ = table[c]
    return decomposed(first, table) + ([second] if second else [])


def check(table):
    for c in CODE_POINTS:
        if c in HANGUL:
            continue
        ours = decomposed(c, table)
        assert "".join(map(chr, ours)) == NFD(chr(c)), hex(c)
        together = unicodedata.normalize("NFC", chr(c)) if c in table else chr(c)
        assert together == NFC(chr(c)), hex(c)


def late_digits():
    """Digits for Digits, which follows a newer Unicode, but not for the patterns."""
    digits, byte_level = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    late = []
    for c in CODE_POINTS:
        is_digit = len(digits.pre_tokenize_str("a" + chr(c))) == 2
        in_pattern = len(byte_level.pre_tokenize_str("1" + chr(c))) == 1
        assert is_digit or not in_pattern, f"{hex(c)}: a digit for the patterns only"
        if is_digit and not in_pattern:
            late.append(c)
    return late


def precompiled(replacements):
    """The normalizer that replaces code points, by a table that SentencePiece makes."""
    written = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.writelines(f"{c:X}\t{ord(to):X}\n" for c, to in replacements)
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["hello world abc"] * 10), model_writer=written, vocab_size=20, hard_vocab_limit=False,
            minloglevel=2, normalization_rule_tsv=rules.name,
        )  # fmt: skip
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(written.getvalue())
    return normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap).normalize_str


def clusters():
    """Code points that join the cluster before them and are no marks, or the reverse; that join what is after them; and
    that no mark joins.

    What follows a replaced character in a cluster of fewer than six bytes is lost, and in a longer one it is not.
    """
    one, marks = precompiled([(ord("a"), "X")]), ("\u0301", "\u20d0")
    extenders = [c for c in CODE_POINTS if one("a" + chr(c)) == "X"]
    prefixes = [c for c in CODE_POINTS if c > 0x7F and one(chr(c) + "a" + marks[1]).endswith(marks[1])]
    narrow = [c for c in CODE_POINTS if 0 < c < 0x10000 and chr(c) != "Y"]
    every = precompiled([(c, "Y") for c in narrow])
    exceptions = sorted(members_by_tokenizers(r"\p{M}").symmetric_difference(extenders))
    return exceptions, prefixes, [0] + [c for c in narrow if every(chr(c) + marks[0]) != "Y"]


def table(cells, width=120):
    lines, line = [], " "
    for cell in cells:
        if len(line) + len(cell) + 2 > width:
            lines.append(line)
            line = " "
        line += " " + cell + ","
    return "\n".join(lines + [line])


def runs_of(table_of_parts):
    counts = {c: len(parts) for c, parts in table_of_parts.items()}
    return table(f"{{0x{a:X}, 0x{b:X}, {count}}}" for a, b, count in ranges_of(counts))


def parts_of(table_of_parts):
    """Parts that count up, after the first of them, as F + their number."""
    parts, cells = [part for parts in table_of_parts.values() for part in parts], []
    at = 0
    while at < len(parts):
        end = at + 1
        while end < len(parts) and parts[end] == parts[end - 1] + 1:
            end += 1
        if end - at < 4:
            end = at + 1
        cells += [f"0x{parts[at]:X}"] + ([f"F + {end - at - 1}"] if end > at + 1 else [])
        at = end
    return table(cells)


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "src/data/unicode/unicode_tables.cpp"
    classes, parts = combining_classes(), decompositions()
    check(parts)
    excluded = [c for c, (_, second, again) in parts.items() if second and not again]
    late, exceptions, prefixes, controls, excluded = (
        ranges_of({c: True for c in found}) for found in (late_digits(), *clusters(), excluded)
    )
    canonical = {c: [first, second] if second else [first] for c, (first, second, _) in parts.items()}
    compatible = compatibility_decompositions()
    with open(path, "w") as file:
        file.write(f"""// Generated by scripts/tables/make_unicode_tables.py; do not edit. As tokenizers {tokenizers.__version__} has them, all code points
// compared.
#include "data/unicode/unicode_tables.h"

namespace megatron {{

namespace {{

constexpr char32_t F = kFollowing;

// clang-format off
constexpr CodePointRange kLateDigits[] = {{
{table(f"{{0x{a:X}, 0x{b:X}}}" for a, b, _ in late)}
}};
constexpr CodePointRange kExtenderExceptions[] = {{
{table(f"{{0x{a:X}, 0x{b:X}}}" for a, b, _ in exceptions)}
}};
constexpr CodePointRange kPrefixes[] = {{
{table(f"{{0x{a:X}, 0x{b:X}}}" for a, b, _ in prefixes)}
}};
constexpr CodePointRange kControls[] = {{
{table(f"{{0x{a:X}, 0x{b:X}}}" for a, b, _ in controls)}
}};
constexpr CombiningRange kCombining[] = {{
{table(f"{{0x{a:X}, 0x{b:X}, {value}}}" for a, b, value in ranges_of(classes))}
}};
constexpr CodePointRange kExclusions[] = {{
{table(f"{{0x{a:X}, 0x{b:X}}}" for a, b, _ in excluded)}
}};
constexpr DecompositionRun kCanonicalRuns[] = {{
{runs_of(canonical)}
}};
constexpr char32_t kCanonicalParts[] = {{
{parts_of(canonical)}
}};
constexpr DecompositionRun kCompatibilityRuns[] = {{
{runs_of(compatible)}
}};
constexpr char32_t kCompatibilityParts[] = {{
{parts_of(compatible)}
}};
// clang-format on

}}  // namespace

std::span<const CodePointRange> late_digit_ranges() {{
  return kLateDigits;
}}

std::span<const CodePointRange> grapheme_extender_exceptions() {{
  return kExtenderExceptions;
}}

std::span<const CodePointRange> grapheme_prefixes() {{
  return kPrefixes;
}}

std::span<const CodePointRange> grapheme_controls() {{
  return kControls;
}}

std::span<const CombiningRange> combining_ranges() {{
  return kCombining;
}}

std::span<const CodePointRange> composition_exclusions() {{
  return kExclusions;
}}

DecompositionTable canonical_decompositions() {{
  return {{kCanonicalRuns, kCanonicalParts}};
}}

DecompositionTable compatibility_decompositions() {{
  return {{kCompatibilityRuns, kCompatibilityParts}};
}}

}}  // namespace megatron
""")
    print(f"{path}: {len(classes)} combining characters, {len(parts)} and {len(compatible)} decompositions")


if __name__ == "__main__":
    main()
