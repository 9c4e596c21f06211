#!/usr/bin/env python3
"""Side by side: megatron_bench and PyTorch train the same models on this machine's GPU, alternately, in one run.

    scripts/bench/bench_pytorch_gpu.py [--cases NAME,...] [--variants NAME,...] [--rounds 1] [--steps 20] [--json FILE]

Needs a Python whose PyTorch sees the GPU (`make gpu-bench PYTHON=/path/to/python`) and ./megatron_bench, built with the
CUDA backend. Each variant of PyTorch runs in turn with ours, a fresh process each time, so that clocks and heat meet
both alike. A round counts by the median of its steps, a side by the median of its rounds. A row is printed, and appended to
FILE as a line of JSON, as soon as it is known: whatever ends this program later takes no earlier row with it. From the
environment: MEGATRON_BENCH, the command that starts ours ("./run ./megatron_bench" of a gpu_pack, "./megatron_bench"
elsewhere).

The model is GPT-2's, written as PyTorch users would: tied head, learned positions, pre-norm, tanh GELU, causal
scaled_dot_product_attention by its flash kernel, the same padded vocabulary, fused AdamW, clipping at 1, no dropout. A
step is timed from the tokens on the GPU to the end of the update, by waiting for the GPU after each. Variants:

    compile_autocast   (default) torch.compile; fp32 weights, matrix products in bf16 by autocast: what ours keeps, too
    autocast           the same without torch.compile
    compile_bf16       torch.compile; weights, gradients and moments in bf16: less memory and traffic, less precise than
                       ours, whose master weights, gradients and moments are fp32
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pytorch_gpt import build_model, names_in

ROOT = Path(__file__).resolve().parents[2]

CASES = {  # by the names of megatron_bench
    "gpu_gpt2_124m": dict(layers=12, hidden=768, heads=12, vocab=50304, sequence=1024, batch=64),
    "gpu_gpt2_1558m": dict(layers=48, hidden=1600, heads=25, vocab=50304, sequence=1024, batch=16),
    "gpu_7b_4_layers": dict(layers=4, hidden=4096, heads=32, vocab=50304, sequence=4096, batch=4),
}
REAL_VOCAB = 50257
VARIANTS = ["compile_autocast", "autocast", "compile_bf16"]


# ---- the PyTorch side, in its own process ----------------------------------------------------------------------------


def worker(case_name, variant, steps):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    shape = CASES[case_name]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = build_model(torch, dict(shape, positions=shape["sequence"])).to("cuda")
    if variant.endswith("bf16"):
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    train = torch.compile(model) if variant.startswith("compile") else model
    tokens, targets = torch.randint(REAL_VOCAB, (2, shape["batch"], shape["sequence"]), device="cuda")

    seconds, losses = [], []
    for step in range(5 + steps):
        torch.cuda.synchronize()
        start = time.monotonic()
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), \
                torch.autocast("cuda", torch.bfloat16, enabled=variant.endswith("autocast")):
            loss = train(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= 5:
            seconds.append(time.monotonic() - start)
        losses.append(loss.item())
    assert losses[-1] < losses[0], losses  # the same batch again and again: it learns
    print(json.dumps(dict(seconds=seconds, peak=torch.cuda.max_memory_allocated(), torch=torch.__version__,
                          device=torch.cuda.get_device_name())), flush=True)


def run_pytorch(case_name, variant, steps):
    """Step seconds and peak memory; None if it does not run here."""
    result = subprocess.run([sys.executable, __file__, "--worker", case_name, variant, str(steps)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        print(f"  pytorch {variant} failed: {result.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return json.loads(result.stdout.splitlines()[-1])


# ---- ours, and the comparison ----------------------------------------------------------------------------------------


def run_ours(case_name, steps):
    """Step seconds and operations of the model; None if it does not run here."""
    start = shlex.split(os.environ.get("MEGATRON_BENCH", "")) or [ROOT / program for program in ("run", "megatron_bench")
                                                                  if (ROOT / program).exists()]
    command = [*map(str, start), "--json", "--device", "cuda", "--case", case_name, "--steps", str(steps)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        print(f"  {' '.join(command)} ended with {result.returncode}", file=sys.stderr)
        return None
    line = json.loads(result.stdout.splitlines()[-1])
    return dict(seconds=[line["step_seconds"]], model_flops=line["model_gflops_per_rank"] * 1e9 * line["step_seconds"])


def median_of(runs):
    return statistics.median(statistics.median(run["seconds"]) for run in runs)


def compare(case_name, variant, arguments):
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(run_ours(case_name, arguments.steps))
        theirs.append(run_pytorch(case_name, variant, arguments.steps))
        if ours[-1] is None or theirs[-1] is None:
            return None
    case = CASES[case_name]
    tokens = case["batch"] * case["sequence"]
    return dict(case=case_name, variant=variant, ours_tokens_per_second=tokens / median_of(ours),
                pytorch_tokens_per_second=tokens / median_of(theirs), ratio=median_of(theirs) / median_of(ours),
                ours_model_tflops=ours[0]["model_flops"] / median_of(ours) / 1e12,
                pytorch_peak_bytes=max(run["peak"] for run in theirs), torch=theirs[0]["torch"],
                device=theirs[0]["device"], rounds=arguments.rounds, steps=arguments.steps)


HEADING = f"{'case':<18}{'ours tok/s':>12}{'TFLOP/s':>9}{'PyTorch':>11}{'ratio':>8}  variant"


def text_of(row):
    return (f"{row['case']:<18}{row['ours_tokens_per_second']:>12.0f}{row['ours_model_tflops']:>9.1f}"
            f"{row['pytorch_tokens_per_second']:>11.0f}{row['ratio']:>8.2f}  {row['variant']}")


def main():
    if sys.argv[1:2] == ["--worker"]:
        case_name, variant, steps = sys.argv[2:]
        return worker(case_name, variant, int(steps))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=names_in(CASES), default=list(CASES))
    parser.add_argument("--variants", type=names_in(VARIANTS), default=VARIANTS[:1])
    parser.add_argument("--rounds", type=int, default=1, help="alternations of ours and PyTorch")
    parser.add_argument("--steps", type=int, default=20, help="measured in each round")
    parser.add_argument("--json", type=Path, help="file that each row is appended to, as a line of JSON")
    arguments = parser.parse_args()

    rows = 0
    for case_name in arguments.cases:
        for variant in arguments.variants:
            row = compare(case_name, variant, arguments)
            if row is None:
                continue
            if rows == 0:
                print(f"{row['device']}, PyTorch {row['torch']}; medians of {arguments.rounds} rounds' medians of "
                      f"{arguments.steps} steps; TFLOP/s of the model, counted causally\n{HEADING}")
            print(text_of(row), flush=True)
            rows += 1
            if arguments.json:
                with arguments.json.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    if rows == 0:
        sys.exit("bench_pytorch_gpu: no comparison was made")


if __name__ == "__main__":
    main()
