#!/usr/bin/env python3
"""Trains inputs/demo.toml on one rank of the CPU and of the GPU, as a user would, and compares what comes out.

    scripts/gpu_parity.py [--steps 20] [--folder build/gpu_parity] [--set KEY=VALUE ...]

fp32: losses as on the CPU (1e-5 relative in the first four steps, 1e-3 after them, when Adam has made full steps of
gradients that are nothing but rounding); twice the same bits; stopped and resumed, the same bits. bf16: losses as on
the CPU in bf16 (2e-2 relative). Prints a line per check and a count at the end; ends with 1 if one failed.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).absolute().parent.parent


def call(program, *arguments):
    start = [ROOT / "run"] if (ROOT / "run").exists() else []  # of a gpu_pack: with its libraries
    result = subprocess.run([*start, ROOT / program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True)
    return result.returncode, result.stdout


def succeed(program, *arguments):
    code, text = call(program, *arguments)
    if code != 0:
        raise RuntimeError(f"{program} ended with {code}: " + " / ".join(text.strip().splitlines()[-15:]))


class Parity:
    def __init__(self, arguments):
        self.steps, self.folder, self.more = arguments.steps, arguments.folder, arguments.set
        self.passed = self.failed = 0
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        succeed("megatron_preprocess", "sample-corpus", "--output", self.folder / "text.jsonl")
        succeed("megatron_preprocess", "--input", self.folder / "text.jsonl", "--output", self.folder / "text",
                "--tokenizer", "byte")

    def run(self, name):
        return self.folder / name

    def train(self, name, device, precision, *more):
        """Trains the run of this name, or continues it; the losses of its steps so far."""
        settings = ["parallel.tensor=1", "parallel.pipeline=1", f"train.steps={self.steps}", "run.log_every=1",
                    f"run.device={device}", f"precision.compute={precision}", f"run.directory={self.run(name)}",
                    f"data.train={self.folder / 'text'}", *self.more, *more]
        succeed("megatron_train", ROOT / "inputs/demo.toml", *[word for each in settings for word in ("--set", each)])
        lines = [json.loads(line) for line in (self.run(name) / "metrics.jsonl").read_text().splitlines()]
        return [line["loss"] for line in lines if line["kind"] == "train"]

    def check(self, what, good, detail):
        self.passed, self.failed = self.passed + good, self.failed + (not good)
        print(f"{'ok' if good else 'FAILED':<8}{what}: {detail}", flush=True)

    def compare_losses(self, what, ours, theirs, bound, later_bound):
        off = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
        first, later = max(off[:4]), max(off[4:], default=0)
        self.check(what, len(ours) == len(theirs) == self.steps and first <= bound and later <= later_bound,
                   f"{len(ours)} steps, off by {first:.1e} in the first four ({bound:g} allowed), {later:.1e} after them "
                   f"({later_bound:g})")

    def compare_bits(self, what, a, b):
        code, text = call("megatron_checkpoint", "diff", self.run(a), self.run(b))
        self.check(what, code == 0, "equal" if code == 0 else " ".join(text.split())[:200])

    def all_checks(self):
        once = self.train("cuda", "cuda", "fp32")
        self.compare_losses("fp32, GPU against CPU", once, self.train("cpu", "cpu", "fp32"), 1e-5, 1e-3)
        self.train("again", "cuda", "fp32")
        self.compare_bits("fp32 twice on the GPU", "cuda", "again")
        self.train("stopped", "cuda", "fp32", f"train.stop_after={self.steps // 2}")
        self.train("stopped", "cuda", "fp32")
        self.compare_bits("fp32, stopped and resumed on the GPU", "cuda", "stopped")
        self.compare_losses("bf16, GPU against CPU", self.train("cuda_bf16", "cuda", "bf16"),
                            self.train("cpu_bf16", "cpu", "bf16"), 2e-2, 2e-2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", type=Path, default=ROOT / os.environ.get("BUILD", "build") / "gpu_parity")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="for all runs")
    parity = Parity(parser.parse_args())
    try:
        parity.all_checks()
    except RuntimeError as error:
        parity.check("a run", False, error)
    print(f"{parity.passed} passed, {parity.failed} failed")
    return parity.failed > 0


if __name__ == "__main__":
    sys.exit(main())
