#!/usr/bin/env python3
"""Checks with transformers that exported models have a tokenizer that AutoTokenizer loads, with the ids of ours.

Usage: python3 scripts/checks/check_tokenizer_export.py [--program ./megatron_checkpoint]     (torch, transformers, tokenizers)

Gives a small random model each kind of tokenizer in turn: the files of tests/golden/tokenizer_kinds, vocab.txt,
vocab.json with merges.txt, and bytes. Imports it, lets megatron_generate continue a prompt without any option for the vocabulary, exports
it, and compares ids and decoded texts of AutoTokenizer with those of the tokenizer that it had. megatron_generate and
megatron_preprocess must be next to the program. Ends with 1 if anything differs, with 77 where a package is missing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
except ImportError as error:
    print("check_tokenizer_export: skipped,", error)
    sys.exit(77)

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
KINDS = ("llama3", "qwen2", "starcoder", "gpt_neox", "flags", "bert_lower_accents", "bert_bare_case")
VOCABULARIES = {"vocab.txt, uncased": "bert_uncased.txt", "vocab.txt, cased": "bert_cased.txt"}
TEXTS = ["Hello, it's 1984.", "  two  spaces\n\nand\ttabs ", "naïve 東京 \U0001f600 e\u0301", "don't WE'VE 12345", "\x00\x7f\u0080"]
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=ENVIRONMENT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def save_model(folder, vocab_size):
    config = transformers.LlamaConfig(
        vocab_size=vocab_size, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64, eos_token_id=None,  # an id of the model's own would be kept
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)


def two_files(folder):
    """GPT-2's form, and what `tokenizers` itself makes of it."""
    paths = [os.path.join(GOLDEN, "bpe", name) for name in ("vocab.json", "merges.txt")]
    for path in paths:
        shutil.copy(path, folder)
    made = Tokenizer(models.BPE.from_file(*paths))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def word_piece(folder, name):
    """BERT's form, and what transformers itself makes of it with Megatron-LM's [BOS] and [EOS]."""
    shutil.copy(os.path.join(GOLDEN, "tokenizer_kinds", VOCABULARIES[name]), os.path.join(folder, "vocab.txt"))
    with open(os.path.join(folder, "vocab.txt"), encoding="utf-8") as file:
        tokens = [*file.read().split("\n")[:-1], "[BOS]", "[EOS]"]
    lower_case = "uncased" in name
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"do_lower_case": lower_case}, file)
    made = transformers.BertTokenizerFast(vocab={token: i for i, token in enumerate(tokens)}, do_lower_case=lower_case)
    return made._tokenizer


def check(programs, name, folder):
    model, imported, exported = (os.path.join(folder, part) for part in ("model", "imported", "exported"))
    os.makedirs(model)
    options, theirs = [], None
    if name == "bytes":
        corpus = os.path.join(folder, "corpus")
        with open(corpus + ".jsonl", "w", encoding="utf-8") as file:
            file.write(json.dumps({"text": TEXTS[0]}) + "\n")
        run(programs["preprocess"], "--input", corpus + ".jsonl", "--output", corpus, "--tokenizer", "byte")
        options = ["--data-prefix", corpus]
    elif name == "vocab.json and merges.txt":
        theirs = two_files(model)
    elif name in VOCABULARIES:
        theirs = word_piece(model, name)
    else:
        shutil.copy(os.path.join(GOLDEN, "tokenizer_kinds", name + ".json"), os.path.join(model, "tokenizer.json"))
        theirs = Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    save_model(model, 257 if theirs is None else theirs.get_vocab_size())
    run(programs["checkpoint"], "import", model, imported, *options)
    written = run(programs["generate"], imported, "--prompt", TEXTS[0], "--max-new-tokens", "5")
    run(programs["checkpoint"], "export", imported, exported)

    loaded = transformers.AutoTokenizer.from_pretrained(exported)
    problems = [] if written.startswith(TEXTS[0]) else ["generation"]
    for text in TEXTS:
        ids = loaded(text, add_special_tokens=False)["input_ids"]
        expected = list(text.encode()) if theirs is None else theirs.encode(text, add_special_tokens=False).ids
        back = text if theirs is None else theirs.decode(expected, skip_special_tokens=False)
        if ids != expected or loaded.decode(ids) != back:
            problems.append(ascii(text))
    if name in KINDS:
        files = [os.path.join(part, "tokenizer.json") for part in (model, exported)]
        if open(files[0], "rb").read() != open(files[1], "rb").read():
            problems.append("tokenizer.json is another")
    end = json.load(open(os.path.join(exported, "config.json"), encoding="utf-8"))["eos_token_id"]
    if loaded.eos_token_id != end:
        problems.append(f"eos_token_id {loaded.eos_token_id} and {end}")
    print(f"{name:<26} {'ok' if not problems else 'WRONG: ' + '; '.join(problems)}", flush=True)
    return len(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="./megatron_checkpoint")
    program = os.path.abspath(parser.parse_args().program)
    folder = os.path.dirname(program)
    programs = {name: os.path.join(folder, "megatron_" + name) for name in ("generate", "preprocess")}
    programs["checkpoint"] = program
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    problems = 0
    for name in (*KINDS, *VOCABULARIES, "vocab.json and merges.txt", "bytes"):
        with tempfile.TemporaryDirectory() as scratch:
            problems += check(programs, name, scratch)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
