#!/usr/bin/env python3
"""Checks megatron_eval against transformers, on the model and the files of tests/golden/evaluation.

Usage: python3 scripts/checks/check_evaluation.py [--program ./megatron_eval] [--ranks N [--tensor T] [--pipeline P]]
                                                                               (torch, transformers, tokenizers)

Imports the model, exports it again with megatron_checkpoint, which must be next to the program, and evaluates every
task with both. Counts and accuracies must be equal, losses to 1e-5. Ends with 1 if anything differs, with 77 where a
package is missing.
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
    from tokenizers import Tokenizer, models, pre_tokenizers

    import evaluation_oracle
except ImportError as error:
    print("check_evaluation: skipped,", error)
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden")
ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=ENVIRONMENT, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def differences(ours, theirs):
    for key in sorted(set(ours) | set(theirs)):
        if key not in ours or key not in theirs:
            yield f"{key} is there once"
        elif key in ("loss", "token_ratio") and abs(ours[key] - theirs[key]) > 1e-5:
            yield f"{key}: {ours[key]} and {theirs[key]}"
        elif "perplexity" in key and abs(ours[key] / theirs[key] - 1) > 1e-4:
            yield f"{key}: {ours[key]} and {theirs[key]}"
        elif key in ("task", "examples", "tokens") or key.startswith("accuracy"):
            if ours[key] != theirs[key]:
                yield f"{key}: {ours[key]} and {theirs[key]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default=os.path.join(ROOT, "megatron_eval"))
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--tensor", default="1")
    parser.add_argument("--pipeline", default="1")
    options = parser.parse_args()
    checkpoint_program = os.path.join(os.path.dirname(options.program), "megatron_checkpoint")
    start = [os.path.join(ROOT, "scripts", "launch.sh"), str(options.ranks)] if options.ranks > 1 else []
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        source, checkpoint, exported = (os.path.join(folder, name) for name in ("source", "checkpoint", "exported"))
        shutil.copytree(os.path.join(GOLDEN, "evaluation"), source)
        for name in ("vocab.json", "merges.txt"):
            shutil.copy(os.path.join(GOLDEN, "bpe", name), source)
        run(checkpoint_program, "import", source, checkpoint)
        run(checkpoint_program, "export", checkpoint, exported)
        model = transformers.AutoModelForCausalLM.from_pretrained(exported).double().eval()
        tokenizer = Tokenizer(models.BPE.from_file(f"{exported}/vocab.json", f"{exported}/merges.txt"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids if text else []
        context = model.config.n_positions
        for case in evaluation_oracle.all_results(model, encode, source, context, tokenizer.token_to_id("<|endoftext|>")):
            output = os.path.join(folder, "result.json")
            command = [*start, options.program, checkpoint, "--task", case["result"]["task"], "--data",
                       os.path.join(source, case["data"]), "--output", output, "--force", "--device", "cpu", "--tensor",
                       options.tensor, "--pipeline", options.pipeline]  # fmt: skip
            if case.get("stride"):
                command += ["--stride", str(case["stride"])]
            if case.get("strict"):
                command += ["--strict"]
            run(*command)
            with open(output, encoding="utf-8") as file:
                found = list(differences(json.load(file), case["result"]))
            print("differs" if found else "same   ", {k: v for k, v in case.items() if k != "result"}, *found)
            failures += bool(found)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
