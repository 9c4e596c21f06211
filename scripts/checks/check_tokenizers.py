#!/usr/bin/env python3
"""Compares our ids with Hugging Face's tokenizers for the tokenizer.json kinds of published models, on random strings.

Usage: python3 scripts/checks/check_tokenizers.py [--strings 100000] [--only KIND] [--program ./megatron_preprocess] [--seed 1]
                                           [--text FILE...]
       python3 scripts/checks/check_tokenizers.py --golden tests/golden/tokenizer_kinds         (needs tokenizers and h5py)

Each kind is the published pipeline (normalizer, split pattern, added tokens, model options, post-processor) of a family
of models, with a small vocabulary trained here. The strings are words, digits, contractions, spaces and newlines, marks
on letters, Hangul, random code points, and the added tokens with spaces around them; also the lines of --text. Each
string is encoded twice by both, with special tokens as text and as tokens. The kinds of BERT are made by transformers
where that is installed, from vocab.txt (bert_uncased, bert_cased); the others of them are tokenizer.json. --golden writes each kind's tokenizer.json and 100 strings with their
ids, for a test. Ends with 1 at the first kind that differs, with 77 where a package is missing.

The kinds of SentencePiece (spm_...) are models that sentencepiece trains and encodes with; those of Unigram have the
pieces of such models. Where it is not installed the others are compared, and the end is 77. The kinds of rank files (ranks_...) are encoded
by tiktoken, and where the packages anthropic (0.7.8), dashscope, mistral-common, openai-whisper or ai21-tokenizer are
installed the vocabularies inside them are compared as well (published_...). The library finds special tokens in texts even where
they are to be text, since they are pieces of the model: these strings are compared with special tokens as tokens only.
"""

import argparse
import base64
import glob
import importlib.util
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata

try:
    import h5py
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
except ImportError as error:
    print("check_tokenizers: skipped,", error)
    sys.exit(77)

try:
    import tiktoken
except ImportError:
    tiktoken = None  # main() says so

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + REST
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
BEFORE, SLASHES = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = f"{BEFORE}{UPPER}*{LOWER}+{CONTRACTIONS}?|{BEFORE}{UPPER}+{LOWER}*{CONTRACTIONS}?|" + r"\p{N}{1,3}|" + SLASHES
TEKKEN = f"{BEFORE}{UPPER}*{LOWER}+|{BEFORE}{UPPER}+{LOWER}*|" + r"\p{N}|" + SLASHES
TEKKEN_NAMES = """<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] [IMG]
<pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]""".split()
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + REST
NOT_IN_UTF8 = {0xC0, 0xC1, *range(0xF5, 0x100)}

WORDS = """the of and to in is was for on that with by as at from his he it are were which this be also has had first one
their its new after but who not they have her she two been other when there all during into school time may years more
year would where some only city state world made over used area made he's it'll don't WE'VE I'M you're naïve café
Zürich Привет мир здравствуйте 東京 日本語 한국어 안녕하세요 العربية हिन्दी ไทย return def class int void if else for while
self import const std::vector x1 y2 1984 2024 31415926535 100,000 3.14 ½ ² Ⅷ ٣٤٥ é e\u0301 Å \u212b ﬁ ἄ q\u0323\u0307""".split()
PIECES = ["'s", "'S", "'ll", "'LL", "'re", "'vE", "'m", "'D", "'t", "'\u017f", "'ll've", "''s", "\u2019s"] + [
    " ", "  ", "   ", "     ", "\n", "\n\n", "\r\n", "\r", "\t", " \n ", "\n  ", "\u00a0", "\u2003", "\u3000", "\u0085", "\x0b"
] + ["!", "?!", "...", "--", "==", "{", "}", "();", "\u201c", "\u2014", "\U0001f600", "\U0001f468\u200d\U0001f469", "_", "__x"] + [
    "\u0301", "\u0323", "\u0327\u0301", "\u0334", "\u093c", "\u09be", "\u1161", "\u11a8", "\u1100", "\uac00", "\U00011de3",
    "\U00016ff4", "\u0f71\u0f72", "\u1e9b\u0323", "\u2126", "\ufb1d", "\U0001d15e", "\U0002f800", "\U00011938", "\u0344",
]  # fmt: skip


def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def in_vocabulary(size):
    """Special tokens that the model's vocabulary itself begins with."""
    return ["<|endoftext|>", "<|padding|>", "<fim_prefix>", "<reponame>"][:size]


def trained(tokenizer, alphabet, special_tokens, vocab_size=700):
    generator = random.Random(7)
    weights = [1 / (i + 3) for i in range(len(WORDS))]
    lines = [" ".join(generator.choices(WORDS, weights, k=60)) + "\n    " for _ in range(300)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=special_tokens, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def pipeline(steps, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = steps
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def byte_characters(without=()):
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in itself]
    characters = {b: chr(b) for b in itself} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [characters[b] for b in range(256) if b not in without]


def ranked_merges(vocab):
    """As converters from tiktoken's ranks make them: every way to cut a token into two, in the order of the tokens."""
    merges = []
    for token in sorted(vocab, key=vocab.get):
        cuts = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
        merges += sorted(cuts, key=lambda cut: (vocab[cut[0]], vocab[cut[1]]))
    return merges


def llama3(generator):
    made = trained(pipeline(split_then_bytes(LLAMA3)), byte_characters(), [])
    # tiktoken's vocabularies have tokens that no merge makes, and some parts come after what they are parts of.
    content = json.loads(made.to_str())
    vocab = content["model"]["vocab"]
    for extra in ["Ġwholly", "ĠunmergedĠpiece", "xyzzy", "zzy"]:
        vocab[extra] = len(vocab)
    tokens = sorted(vocab, key=vocab.get)
    late = tokens[256:]
    generator.shuffle(late)
    vocab = content["model"]["vocab"] = {token: i for i, token in enumerate(tokens[:256] + late)}
    content["model"]["merges"] = [list(merge) for merge in ranked_merges(vocab)]
    content["model"]["ignore_merges"] = True
    made = Tokenizer.from_str(json.dumps(content))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    made.add_special_tokens(special(*names, *(f"<|reserved_special_token_{i}|>" for i in range(12))))
    begin = made.token_to_id("<|begin_of_text|>")
    template = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
        special_tokens=[("<|begin_of_text|>", begin)],
    )  # fmt: skip
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return made


def qwen2(_generator):
    made = trained(pipeline(split_then_bytes(QWEN2), normalizers.NFC()), byte_characters(), [])
    made.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    made.add_tokens([AddedToken(name, normalized=False) for name in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    return made


def starcoder(_generator):
    steps = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    made = trained(pipeline(pre_tokenizers.Sequence(steps)), byte_characters(), in_vocabulary(4))
    made.add_special_tokens(special(*in_vocabulary(4)))
    return made


def neox(_generator):
    alphabet = byte_characters(NOT_IN_UTF8)
    made = trained(pipeline(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC()), alphabet, in_vocabulary(2))
    made.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    return made


def nfkc(_generator):
    """As Anthropic's: GPT-2's pattern after NFKC, here also for an added token."""
    made = trained(pipeline(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFKC()), byte_characters(), [])
    made.add_special_tokens(special("<EOT>", "<META>"))
    made.add_tokens([AddedToken("\ufb01n", normalized=True), AddedToken("\u2460", normalized=False)])
    return made


def o200k(_generator):
    steps = normalizers.Sequence([normalizers.NFKD(), normalizers.Lowercase(), normalizers.NFC(), normalizers.NFD()])
    made = trained(pipeline(split_then_bytes(O200K), steps), byte_characters(), [])
    made.add_special_tokens(special("<|endoftext|>"))
    made.add_tokens([AddedToken("WORD", normalized=True)])
    return made


def flags(_generator):
    """Every flag of an added token, which no published kind uses together."""
    made = trained(pipeline(pre_tokenizers.ByteLevel(add_prefix_space=True), normalizers.NFC()), byte_characters(), in_vocabulary(1))
    names = ["<w>", "<l>", "<r>", "<lr>", "<wlr>", "word", "  ", "\u6771", "e\u0301t\u00e9", "<", "wor", "<w><l>"]
    made.add_tokens([
        AddedToken(name, single_word="w" in name, lstrip="l" in name, rstrip="r" in name and name[0] == "<",
                   normalized=i % 2 == 0) for i, name in enumerate(names)
    ])  # fmt: skip
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False),
                             AddedToken("<Mask word>", rstrip=True, single_word=True, special=True)])  # fmt: skip
    return made


BERT_PIECES = ["\u3400", "\u4e00\u4e8c", "\uf900", "\U0002b820", "\U0002b920", "\u0130", "\u03a3\u03a3", "\u1e9e", "\u037e", "\u0340",
               "\u1fef", "\u2000", "\u0000", "\ufffd", "\u0085", "\u200b", "\u00ad", "\x7f", "\x1c", "\u302f\u302e", "\U0001d165\u302e",
               "a\u0323\u302f\u0300\u302e", "\u0345\u0300", "x" * 100, "y" * 101, "Z" * 250, "unaffable", "\ue000", "\u0378"]  # fmt: skip
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def bert_vocabulary(lower_case):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    generator = random.Random(7)
    words = [w for w in WORDS + [piece for piece in PIECES + BERT_PIECES if len(piece) < 20] if w]
    lines = [" ".join(generator.choices(words, k=60)) for _ in range(300)]
    letters = [chr(c) for c in range(33, 127)] + [chr(c) for c in range(0x3B1, 0x3CA)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=700, special_tokens=BERT_TOKENS, initial_alphabet=letters, show_progress=False
    )
    made.train_from_iterator(lines, trainer)
    return [token for token, _ in sorted(made.get_vocab().items(), key=lambda item: item[1])]


def bert(lower_case):
    """As transformers makes it from vocab.txt, with Megatron-LM's [BOS] and [EOS]."""

    def make(_generator):
        tokens = bert_vocabulary(lower_case) + ["[BOS]", "[EOS]"]
        ids = {token: i for i, token in enumerate(tokens)}
        try:
            from transformers import BertTokenizerFast

            return BertTokenizerFast(vocab=ids, do_lower_case=lower_case)._tokenizer
        except ImportError:
            made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
            made.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
            made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            made.add_special_tokens(special(*BERT_TOKENS))
            return made

    return make


def bert_variant(**steps):
    """A tokenizer.json whose added tokens are not all in the model's vocabulary."""

    def make(_generator):
        ids = {token: i for i, token in enumerate(bert_vocabulary(steps["lowercase"]))}
        made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=120))
        made.normalizer = normalizers.BertNormalizer(**steps)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece(cleanup=steps["lowercase"])
        made.add_special_tokens(special(*BERT_TOKENS, "[BOS]", "[EOS]"))
        made.add_tokens([AddedToken("Zu", normalized=False, single_word=True), AddedToken(" <x>", lstrip=True, normalized=False)])
        return made

    return make


class SentencePieceModel:
    """A model of SentencePiece, with the part of a Tokenizer's interface that is used here."""

    EXTRA_IDS = 20

    def __init__(self, **options):
        generator = random.Random(7)
        words = [w for w in WORDS + [piece for piece in PIECES + BERT_PIECES if 0 < len(piece) < 20] if "\0" not in w]
        lines = [" ".join(generator.choices(words, k=40)) for _ in range(300)]
        written = io.BytesIO()
        with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
            if options.get("model_type") == "unigram":  # a table of characters that is small
                rules.writelines(f"{source}\t{target}\n" for source, target in SMALL_RULES)
                rules.flush()
                options["normalization_rule_tsv"] = rules.name
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines), model_writer=written, minloglevel=2, hard_vocab_limit=False, **options
            )
        self.bytes = written.getvalue()
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.bytes)
        self.names = [f"<extra_id_{i}>" for i in range(self.EXTRA_IDS)]
        self.names += ["<s>", "</s>", "<unk>", "<pad>", *options.get("user_defined_symbols", [])]

    def save(self, path):
        with open(path, "wb") as file:
            file.write(self.bytes)

    def ids(self, texts, special_tokens):
        """Special tokens are cut out as transformers' T5Tokenizer does it, and the rest is encoded part by part."""
        if not special_tokens:
            return self.processor.encode(texts)
        size = self.processor.get_piece_size()
        special = {name: self.processor.piece_to_id(name) for name in ("<pad>", "<s>", "</s>", "<unk>")}
        special = {name: i for name, i in special.items() if self.processor.id_to_piece(i) == name}
        special |= {f"<extra_id_{i}>": size + self.EXTRA_IDS - 1 - i for i in range(self.EXTRA_IDS)}
        cut = re.compile("(" + "|".join(special) + ")")
        return [
            [i for part in cut.split(text) for i in ([special[part]] if part in special else self.processor.encode(part))]
            for text in texts
        ]

    def id_to_token(self, id):
        return self.processor.id_to_piece(id) if id < self.processor.get_piece_size() else "<extra_id>"


def unigram(source, normalizer, pre_tokenizer, byte_fallback=False):
    """A tokenizer.json of T5's kind: the pieces of a model of SentencePiece, then its sentinels, the last one first."""

    def make(generator):
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(SENTENCE_PIECE_KINDS[source](generator).bytes)
        sentinels = [f"<extra_id_{i}>" for i in range(19, -1, -1)]
        pieces = [(piece.piece, piece.score) for piece in proto.pieces] + [(name, 0.0) for name in sentinels]
        made = Tokenizer(models.Unigram(pieces, 2, byte_fallback))
        made.normalizer = normalizer(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
        made.pre_tokenizer = pre_tokenizer
        made.decoder = decoders.Metaspace()
        made.add_special_tokens(special("<pad>", "</s>", "<unk>", *sentinels))
        return made

    return make


WORDS_OF_T5 = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
UNIGRAM_KINDS = {
    "unigram_t5": unigram("spm_t5", lambda table: table, WORDS_OF_T5),
    "unigram_nfc": unigram("spm_t5", lambda _: normalizers.NFC(), WORDS_OF_T5),
    "unigram_xlm": unigram(
        "spm_t5", lambda table: normalizers.Sequence([table, normalizers.Replace(Regex(" {2,}"), " ")]), pre_tokenizers.Metaspace()
    ),
    "unigram_bytes": unigram(
        "spm_bytes", lambda table: normalizers.Sequence([normalizers.Strip(left=False), table]),
        pre_tokenizers.Metaspace(prepend_scheme="first"), byte_fallback=True,
    ),
    "unigram_whole": unigram("spm_bytes", lambda table: table, pre_tokenizers.Metaspace(split=False, prepend_scheme="never")),
}  # fmt: skip

SMALL_RULES = [
    *((f"{ord(space):X}", "20") for space in "\t\n\r\u00a0\u2003\u3000\u0085"), ("FB01", "66 69"), ("B2", "32"), ("BD", "31 2F 32"),
    ("2168", "49 58"), ("65 301", "E9"), ("212B", "C5"), ("41 30A", "C5"), ("200B", ""), ("AD", ""), ("FF01", "21"),
]  # fmt: skip
T5_IDS = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
SENTENCE_PIECE_KINDS = {
    "spm_t5": lambda _: SentencePieceModel(model_type="unigram", vocab_size=400, character_coverage=0.98, **T5_IDS),
    "spm_bytes": lambda _: SentencePieceModel(model_type="unigram", vocab_size=700, byte_fallback=True,
                                              user_defined_symbols=["<mask>", "one their"], **T5_IDS),
    "spm_llama": lambda _: SentencePieceModel(model_type="bpe", vocab_size=700, byte_fallback=True, split_digits=True,
                                              normalization_rule_name="identity", remove_extra_whitespaces=False),
    "spm_bpe": lambda _: SentencePieceModel(model_type="bpe", vocab_size=400, character_coverage=0.98, add_dummy_prefix=False,
                                            normalization_rule_name="identity"),
}  # fmt: skip

KINDS = {
    "bert_uncased": bert(True),
    "bert_cased": bert(False),
    "bert_lower_accents": bert_variant(lowercase=True, strip_accents=False, clean_text=False, handle_chinese_chars=True),
    "bert_bare_case": bert_variant(lowercase=False, strip_accents=True, clean_text=True, handle_chinese_chars=False),
}  # fmt: skip
try:
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    KINDS |= SENTENCE_PIECE_KINDS | UNIGRAM_KINDS
except ImportError:
    sentencepiece = None  # main() says so
KINDS |= {"llama3": llama3, "qwen2": qwen2, "starcoder": starcoder, "gpt_neox": neox, "flags": flags}
KINDS |= {"nfkc": nfkc, "o200k": o200k}


class RankModel:
    """Ranks in tiktoken, as the libraries that publish them have them: ids of text, and of special tokens that are asked for."""

    def __init__(self, path, pattern, ranks, specials, normal_form=None):
        self.path, self.names, self.normal_form = path, list(specials), normal_form
        self.encoding = tiktoken.Encoding("ranks", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)

    def ids(self, texts, special_tokens):
        if self.normal_form:
            texts = [unicodedata.normalize(self.normal_form, text) for text in texts]
        allowed = "all" if special_tokens else set()
        return [self.encoding.encode(text, allowed_special=allowed, disallowed_special=()) for text in texts]

    def id_to_token(self, i):
        return self.encoding.decode_bytes([i])


def ranks_in(path):
    with open(path, "rb") as file:
        lines = [line.split() for line in file.read().splitlines() if line]
    return {base64.b64decode(token): int(rank) for token, rank in lines if token != b"="}


def numbered(names, first):
    return {name: first + i for i, name in enumerate(names)}


def qwen_ranks(path):
    ranks = ranks_in(path)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + [f"<|extra_{i}|>" for i in range(205)]
    return RankModel(path, QWEN2, ranks, numbered(names, len(ranks)), "NFC")


def whisper_ranks(path):
    languages = open(os.path.join(os.path.dirname(path), "..", "tokenizer.py")).read().split("LANGUAGES = {")[1].split("}")[0]
    languages = re.findall(r'"([a-z]+)": "', languages)[:99]
    tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    names = ["endoftext", "startoftranscript", *languages, *tasks, *(f"{i * 0.02:.2f}" for i in range(1501))]
    ranks = ranks_in(path)
    first = len(ranks) + ("multilingual" in path)  # which has a rank of no token
    return RankModel(path, GPT2, ranks, numbered([f"<|{name}|>" for name in names], first))


def tekken_ranks(path):
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    config = content["config"]
    size, special = config["default_vocab_size"], config["default_num_special_tokens"]
    names = [token["token_str"] for token in content["special_tokens"]] if content.get("special_tokens") else TEKKEN_NAMES
    names = names + [f"<SPECIAL_{i}>" for i in range(len(names), special)]
    ranks = {base64.b64decode(token["token_bytes"]): token["rank"] + special for token in content["vocab"]}
    return RankModel(path, config["pattern"], {t: i for t, i in ranks.items() if i < size}, numbered(names, 0))


def small_ranks(generator):
    """Tokens by bytes, in another order than merges make them: some are made of later ones, some by no merge."""
    vocab = json.loads(llama3(generator).to_str())["model"]["vocab"]
    byte_of = {c: b for b, c in enumerate(byte_characters_in_order())}
    return [bytes(byte_of[c] for c in token) for token in sorted(vocab, key=vocab.get)]


def byte_characters_in_order():
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in itself]
    return [chr(b) if b in itself else chr(256 + others.index(b)) for b in range(256)]


def ranks_qwen(generator):
    path = os.path.join(tempfile.mkdtemp(), "qwen.tiktoken")
    with open(path, "w") as file:
        file.writelines(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(small_ranks(generator)))
    return qwen_ranks(path)


def ranks_tekken(generator):
    tokens = small_ranks(generator)
    path = os.path.join(tempfile.mkdtemp(), "tekken.json")
    config = {"pattern": TEKKEN, "default_num_special_tokens": 30, "default_vocab_size": len(tokens) + 20, "version": "v3"}
    vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(tokens)]
    with open(path, "w") as file:
        json.dump({"config": config, "vocab": vocab}, file)
    return tekken_ranks(path)


class PublishedModel:
    """A model of SentencePiece as it is published, without sentinels."""

    def __init__(self, path):
        self.path = path
        self.processor = sentencepiece.SentencePieceProcessor(model_file=path)
        self.names = []

    def ids(self, texts, _special_tokens):
        return self.processor.encode(texts)

    def id_to_token(self, i):
        return self.processor.id_to_piece(i)


def published(package, pattern, read):
    """The kinds of the files in a package that is installed."""
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations) if spec else []
    return {
        f"published_{package}_{os.path.basename(path)}": lambda _generator, path=path: read(path)
        for folder in folders
        for path in sorted(glob.glob(os.path.join(folder, pattern)))
    }


KINDS |= published("anthropic", "tokenizer.json", Tokenizer.from_file)
if sentencepiece:
    KINDS |= published("ai21_tokenizer", "resources/j2-tokenizer/*.model", PublishedModel)
    KINDS |= published("mistral_common", "data/*.model*", PublishedModel)
if tiktoken:
    KINDS |= {"ranks_qwen": ranks_qwen, "ranks_tekken": ranks_tekken}
    KINDS |= published("dashscope", "resources/*.tiktoken", qwen_ranks)
    KINDS |= published("whisper", "assets/*.tiktoken", whisper_ranks)
    KINDS |= published("mistral_common", "data/tekken_*.json", tekken_ranks)


def random_code_point(generator):
    while True:
        c = generator.randrange(generator.choice([0x80, 0x250, 0x800, 0x3100, 0x10000, 0x110000]))
        if c != 0 and not 0xD800 <= c < 0xE000:
            return chr(c)


def tokenizer_name(kind):
    if kind.startswith("spm") or ".model" in kind:
        return "sentencepiece"
    if kind.startswith("unigram"):
        return "unigram"
    if not kind.startswith("bert"):
        return "gpt2"
    return "bert-cased" if "case" in kind.split("_") or "cased" in kind.split("_") else "bert-uncased"


def save(kind, made, folder, name):
    """tokenizer.json, or the vocab.txt that the kind is about."""
    path = os.path.join(folder, name + ".json")
    if kind in ("bert_uncased", "bert_cased"):
        path = os.path.join(folder, name + ".txt")
        tokens = sorted(made.get_vocab().items(), key=lambda item: item[1])
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(token + "\n" for token, _ in tokens if token not in ("[BOS]", "[EOS]"))
    elif hasattr(made, "path"):
        return shutil.copy(made.path, folder)
    elif kind.startswith("spm"):
        path = os.path.join(folder, name + ".model")
        made.save(path)
    else:
        made.save(path, pretty=False)
    return path


def random_string(generator, added, pieces):
    parts = []
    for _ in range(generator.randint(1, 14)):
        kind = generator.random()
        if kind < 0.3:
            parts.append(generator.choice(["", " "]) + generator.choice(WORDS))
        elif kind < 0.65:
            parts.append(generator.choice(pieces))
        elif kind < 0.75:
            parts.append(generator.choice(["", " "]) + str(generator.randrange(10 ** generator.randint(1, 8))))
        elif kind < 0.87:
            parts.append("".join(random_code_point(generator) for _ in range(generator.randint(1, 4))))
        elif added:
            name = generator.choice(added)
            parts.append(generator.choice([name, name, name[:-1], " " + name + "  ", name + "x"]))
    return "".join(parts) or "x"


def random_strings(kind, made, count, seed):
    generator = random.Random(f"{kind} {seed}")
    if hasattr(made, "names"):
        added = made.names
    else:
        added = [token.content for token in made.get_added_tokens_decoder().values()]
    pieces = PIECES + BERT_PIECES if kind.startswith(("bert", "spm", "unigram")) else PIECES
    return [random_string(generator, added, pieces) for _ in range(count)]


def their_ids(made, texts, special_tokens):
    if hasattr(made, "ids"):
        return made.ids(texts, special_tokens)
    made.encode_special_tokens = not special_tokens
    return [encoding.ids for encoding in made.encode_batch(texts, add_special_tokens=False)]


def are_comparable(kind, made, text, special_tokens):
    """Not a special token of Unigram that is text."""
    if isinstance(made, PublishedModel) and special_tokens:
        return False
    if special_tokens or not kind.startswith("unigram"):
        return True
    return all(token.content not in text for token in made.get_added_tokens_decoder().values())


def our_ids(program, name, folder, path, texts, special_tokens, extra_ids):
    source = os.path.join(folder, "texts.jsonl")
    target = os.path.join(folder, "tokens" if special_tokens else "text")
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)
    command = [program, "--input", source, "--output", target, "--tokenizer", name, "--vocab-file", path, "--overwrite"]
    command += ["--special-tokens"] if special_tokens else []
    command += ["--extra-ids", str(extra_ids)] if extra_ids else []
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    with h5py.File(target + "-00000.h5") as file:
        tokens, starts = file["tokens"][:].tolist(), file["documents"][:].tolist()
        end = int(file.attrs["eod_id"])
    documents = [tokens[a:b] for a, b in zip(starts, starts[1:])]
    assert all(document[-1] == end for document in documents)
    return [document[:-1] for document in documents]


def check(program, kind, count, seed, more_texts):
    made = KINDS[kind](random.Random(11))
    texts = random_strings(kind, made, count, seed) + more_texts
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        path = save(kind, made, folder, "tokenizer")
        for special_tokens in (False, True):
            theirs = their_ids(made, texts, special_tokens)
            cases = [case for case in zip(texts, theirs) if are_comparable(kind, made, case[0], special_tokens)]
            if not cases:
                continue
            kept = [(text, ids) for text, ids in cases if ids]
            # Documents without tokens are left out: all that have none are, and the one that has some is not.
            without = [text for text, ids in cases if not ids]
            name = tokenizer_name(kind)
            options = (special_tokens, getattr(made, "EXTRA_IDS", 0))
            alone = our_ids(program, name, folder, path, [*without, kept[0][0]], *options)
            if len(alone) != 1:
                print(f"{kind}: {len(alone) - 1} of {len(without)} strings have tokens here and none there")
                differing += len(alone) - 1
            ours = our_ids(program, name, folder, path, [text for text, _ in kept], *options)
            assert len(ours) == len(kept), (len(ours), len(kept))
            wrong = [(text, ids, mine) for (text, ids), mine in zip(kept, ours) if ids != mine]
            for text, ids, mine in wrong[:3]:
                print(f"{kind}: {text!r}\n  tokenizers {[made.id_to_token(i) for i in ids]}\n"
                      f"  here       {[made.id_to_token(i) for i in mine]}")  # fmt: skip
            differing += len(wrong)
            tokens = "tokens" if special_tokens else "text"
            print(f"{kind:<18} special tokens as {tokens:<6}: {len(cases)} strings, {len(wrong)} differ", flush=True)
    return differing


def write_golden(folder, only):
    os.makedirs(folder, exist_ok=True)
    for kind, make in KINDS.items():
        if not kind.startswith(only):
            continue
        made = make(random.Random(11))
        save(kind, made, folder, kind)
        texts = random_strings(kind, made, 100, "golden")
        as_text, as_tokens = (their_ids(made, texts, special_tokens) for special_tokens in (False, True))
        cases = [{"text": t, "ids": a, "special": b} for t, a, b in zip(texts, as_text, as_tokens)]
        for case in cases:
            if not are_comparable(kind, made, case["text"], False):
                case["ids"] = None
        if kind.startswith("bert"):
            for case in cases:
                case["decoded"] = made.decode(case["ids"], skip_special_tokens=False)
        with open(os.path.join(folder, kind + ".cases.json"), "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strings", type=int, default=100_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--program", default="./megatron_preprocess")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--golden")
    parser.add_argument("--text", nargs="+", default=[])
    arguments = parser.parse_args()
    if arguments.golden:
        return write_golden(arguments.golden, arguments.only)
    more_texts = []
    for path in arguments.text:
        with open(path, encoding="utf-8") as file:
            more_texts += [line for line in file.read().split("\n") if line]
    kinds = [kind for kind in KINDS if kind.startswith(arguments.only)]
    differing = sum(check(arguments.program, kind, arguments.strings, arguments.seed, more_texts) for kind in kinds)
    left_out = [kind for kind in SENTENCE_PIECE_KINDS | UNIGRAM_KINDS if kind not in KINDS and kind.startswith(arguments.only)]
    if left_out:
        print("check_tokenizers: without the package sentencepiece these were left out:", *left_out)
    return 1 if differing else 77 if left_out else 0


if __name__ == "__main__":
    sys.exit(main())
