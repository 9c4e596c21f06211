#!/usr/bin/env python3
"""Makes src/data/unicode/character_ranges.cpp: what the split patterns and added tokens tell of a code point.

Usage: python3 scripts/tables/make_character_classes.py [src/data/unicode/character_ranges.cpp]
       (needs tokenizers, tiktoken and sentencepiece)

What counts is what the encoders in use do, not the newest Unicode: every code point is put to the `tokenizers` library
and to tiktoken, which must agree. By the GPT-2 pattern a code point after "a" stays in the same piece if it is a letter
(\\p{L}), after "1" if it is a digit (\\p{N}), after "!" if it is none of the three classes. The regular expressions of
GPT-4o and Tekken tell cases apart, and added tokens of `tokenizers` what is part of a word. Takes some minutes.
"""

import sys

import tiktoken
import tokenizers
from make_unicode_tables import CODE_POINTS, members_by_tokenizers, ranges_of, table
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""
PROBES = {"a": "letter", "1": "digit", "!": "other"}
CASES = {"upper": r"[\p{Lu}\p{Lt}]", "lower": r"\p{Ll}", "both": r"[\p{Lm}\p{Lo}\p{M}]"}
# The first version of Unicode with a letter that later versions have and the next with one that these lack.
UNICODE, NEW_LETTER, LATER_LETTER = "16.0", 0x1C89, 0x088F
# The names of the kinds in the table, by class, case, and whether words have them.
KINDS = {
    ("letter", "upper", True): "U", ("letter", "lower", True): "L", ("letter", "both", True): "O", ("other", "both", True): "M",
    ("digit", "none", True): "D", ("digit", "none", False): "N", ("space", "none", False): "S", ("other", "none", True): "W",
}  # fmt: skip


def class_by(one_piece):
    """one_piece(text) -> whether the splitter leaves it whole."""
    for probe, name in PROBES.items():
        if one_piece(probe):
            return name
    return "space"


def classes_of_tokenizers():
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return {c: class_by(lambda probe: len(splitter.pre_tokenize_str(probe + chr(c))) == 1) for c in CODE_POINTS}


def encodings_of_tiktoken(pattern, texts_of):
    """(code points, an encoding in which the texts of each are tokens) for all code points.

    A piece that is a token as it stands is one id, so that ids tell the pieces.
    """
    for first in range(0, len(CODE_POINTS), 1 << 16):
        part = CODE_POINTS[first : first + (1 << 16)]
        tokens = [bytes([b]) for b in range(256)] + [text.encode() for c in part for text in texts_of(chr(c))]
        ranks = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
        yield part, tiktoken.Encoding("probe", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def classes_of_tiktoken():
    classes = {}
    for part, encoding in encodings_of_tiktoken(PATTERN, lambda c: [probe + c for probe in PROBES]):
        for c in part:
            classes[c] = class_by(lambda probe: len(encoding.encode_ordinary(probe + chr(c))) == 1)
    return classes


def members_by_tiktoken(pattern):
    """Two of a class are one piece."""
    encodings = encodings_of_tiktoken(pattern + "+|(?s:.)", lambda c: [2 * c])
    return {c for part, encoding in encodings for c in part if len(encoding.encode_ordinary(2 * chr(c))) == 1}


def letter_cases():
    cases = {}
    for name, pattern in CASES.items():
        found, other = members_by_tokenizers(pattern), members_by_tiktoken(pattern)
        assert found == other, f"tokenizers and tiktoken disagree about {name}: {[hex(c) for c in found ^ other][:20]}"
        cases |= {c: name for c in found}
    return cases


def word_characters():
    """An added token of a single word is not found where a word continues after it."""
    tokenizer = Tokenizer(models.BPE(vocab={"x": 0}, merges=[]))
    tokenizer.add_tokens([AddedToken("<t>", single_word=True, normalized=False)])
    return {c for c in CODE_POINTS if 1 not in tokenizer.encode("<t>" + chr(c)).ids}


def with_turns(ranges):
    """Characters that are upper and lower case in turn, from an upper case on, as one range of the kind T."""
    result = []
    for first, last, kind in ranges:
        alone = first == last and kind in "UL"
        if alone and result and result[-1][1] == first - 1:
            before = result[-1]
            if before[2] == "T" and kind == "UL"[(first - before[0]) % 2]:
                before[1] = last
                continue
            if before[2] == "U" and before[0] == before[1] and kind == "L":
                before[1:] = [last, "T"]
                continue
        result.append([first, last, kind])
    return result


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "src/data/unicode/character_ranges.cpp"
    classes = classes_of_tokenizers()
    differing = [hex(c) for c, name in classes_of_tiktoken().items() if classes[c] != name]
    assert not differing, f"tokenizers and tiktoken disagree about {differing}"
    known = classes[NEW_LETTER] == "letter" and classes[LATER_LETTER] == "other"
    assert known, f"no longer Unicode {UNICODE}: say which it is in this script"
    cases, words = letter_cases(), word_characters()
    kinds = {c: (classes[c], cases.get(c, "none"), c in words) for c in CODE_POINTS}
    ranges = with_turns(ranges_of({c: KINDS[kind] for c, kind in kinds.items() if kind != ("other", "none", False)}))
    with open(path, "w") as file:
        file.write(f"""// Generated by scripts/tables/make_character_classes.py; do not edit. Unicode {UNICODE} as tokenizers {tokenizers.__version__} and
// tiktoken {tiktoken.__version__} have it, all code points compared.
#include "data/unicode/character_classes.h"

namespace megatron {{

namespace {{

using Class = CharacterClass;
using Case = LetterCase;
constexpr CharacterKind U{{Class::letter, Case::upper, true}}, L{{Class::letter, Case::lower, true}},
    O{{Class::letter, Case::both, true}}, T{{Class::letter, Case::upper, true, true}}, M{{Class::other, Case::both, true}},
    W{{Class::other, Case::none, true}}, D{{Class::digit, Case::none, true}}, N{{Class::digit}}, S{{Class::space}};

// clang-format off
constexpr CharacterRange kCharacterRanges[] = {{
{table(f"{{0x{a:X}, 0x{b:X}, {kind}}}" for a, b, kind in ranges)}
}};
// clang-format on

}}  // namespace

std::span<const CharacterRange> character_ranges() {{
  return kCharacterRanges;
}}

}}  // namespace megatron
""")
    print(f"{path}: {len(ranges)} ranges")


if __name__ == "__main__":
    main()
