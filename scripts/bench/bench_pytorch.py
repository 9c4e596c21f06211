#!/usr/bin/env python3
"""Side by side: megatron_bench and PyTorch train the same models on this machine's CPU, alternately, in one run.

    scripts/bench/bench_pytorch.py [--precisions fp32,bf16] [--cases NAME,...] [--rounds 3] [--steps 5]
                                   [--variants NAME,...] [--json FILE]

Needs a Python with PyTorch (`make bench PYTHON=/path/to/python`) and ./megatron_bench; a C++ compiler if torch.compile is
to take part. For each case every PyTorch variant is tried for a few steps; the fastest then runs in turn with ours, a
fresh process each time, so that whatever else the machine does meets both alike. A round counts by the median of its
steps, a side by the median of its rounds.

The model is GPT-2's, written as PyTorch users would: tied head, learned positions, pre-norm, tanh GELU, causal
scaled_dot_product_attention, the same padded vocabulary, AdamW, clipping at 1, no dropout; BERT and T5 are those of
pytorch_encoders.py, and Mixtral is that of `transformers` (pytorch_mixtral.py), with a loop over its experts and with
grouped products. PyTorch gets huge pages, no trimming and no unmapping by malloc, flushed denormals, and its threads
pinned. Variants in fp32:

    eager, compile     with and without torch.compile
    onednn             eager, its linear layers through oneDNN's matmul (an operator that PyTorch keeps to itself), where
                       plain PyTorch multiplies by MKL; on AMD processors MKL runs at half the speed
    onednn_compile     the two together

and in bf16, where PyTorch multiplies by oneDNN anyway:

    autocast, autocast_compile   parameters and optimizer in fp32, as ours
    pure, pure_compile           all in bf16, moments too: less work and memory, and updates that can round to nothing

each with the faster of PyTorch's fused and foreach AdamW. In bf16 ours in fp32 takes its turn as well. The peer of
tensor 2 is one process with two threads, that of data 2 two processes with DistributedDataParallel over gloo.
"""
import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pytorch_encoders import build_bert, build_t5
from pytorch_gpt import build_model, names_in
from pytorch_mixtral import build_mixtral

ROOT = Path(__file__).resolve().parents[2]

GPT2 = dict(layers=12, hidden=768, heads=12, vocab=50304, real_vocab=50257, positions=1024)
SMALL = dict(layers=4, hidden=256, heads=4, vocab=384, real_vocab=384, positions=256)
BERT = dict(build=build_bert, layers=12, hidden=768, heads=12, vocab=30592, real_vocab=30522, positions=512)
T5 = dict(build=build_t5, layers=4, decoder_layers=4, hidden=768, heads=12, vocab=32128, real_vocab=32128, positions=512,
          decoder_positions=128)
MIXTRAL = dict(build=build_mixtral, layers=6, hidden=768, heads=12, vocab=8192, real_vocab=8192, positions=256,
               experts=8, top_k=2, ffn=1536, balance=0.01)
CASES = {  # by the names of megatron_bench; batch and sequence are of the whole job
    "gpt2_124m_4x256": dict(model=GPT2, batch=4, sequence=256, processes=1, threads=1),
    "gpt2_124m_1x1024": dict(model=GPT2, batch=1, sequence=1024, processes=1, threads=1),
    "small_8x256": dict(model=SMALL, batch=8, sequence=256, processes=1, threads=1),
    "bert_base_8x512": dict(model=BERT, batch=8, sequence=512, processes=1, threads=1),
    "t5_base_4x512": dict(model=T5, batch=4, sequence=512, processes=1, threads=1),
    "mixtral_4x256": dict(model=MIXTRAL, batch=4, sequence=256, processes=1, threads=1, forms=["grouped", "loop"]),
    "gpt2_124m_tensor2": dict(model=GPT2, batch=4, sequence=256, processes=1, threads=2),
    "gpt2_124m_data2": dict(model=GPT2, batch=4, sequence=256, processes=2, threads=1),
}
VARIANTS = {
    "fp32": ["eager", "compile", "onednn", "onednn_compile"],
    "bf16": ["autocast", "autocast_compile", "pure", "pure_compile"],
}


# ---- the PyTorch side, in its own processes -------------------------------------------------------------------------


def onednn_linear(torch):
    """A linear layer whose products are oneDNN's, forward and backward."""

    @torch.library.custom_op("megatron::product", mutates_args=())
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # a [m, k] times b [n, k] transposed, by oneDNN
        return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")

    @product.register_fake
    def _(a, b):
        return a.new_empty(a.shape[0], b.shape[0])

    class OneDnnProduct(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            context.save_for_backward(x, weight)
            return product(x, weight)

        @staticmethod
        def backward(context, dy):
            x, weight = context.saved_tensors
            return product(dy, weight.t()), product(dy.t(), x.t())

    def linear(x, weight, bias=None):
        y = OneDnnProduct.apply(x.reshape(-1, x.shape[-1]), weight).view(*x.shape[:-1], -1)
        return y if bias is None else y + bias

    return linear


def peak_resident_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def worker(case_name, variant, steps, rank, port):
    import torch

    case = CASES[case_name]
    processes = case["processes"]
    *form, how, adam = variant.split("/")
    torch.manual_seed(1)
    torch.set_num_threads(case["threads"])
    torch.set_flush_denormal(True)
    build = case["model"].get("build", build_model)
    shape = dict(case["model"], form=form[0]) if form else case["model"]
    model = build(torch, shape, onednn_linear(torch) if how.startswith("onednn") else None)
    if how.startswith("pure"):
        model = model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=adam == "fused", foreach=adam == "foreach")
    train = model
    if processes > 1:
        import torch.distributed as distributed
        distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
        train = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)
    if how.endswith("compile"):
        train = torch.compile(train)
    batch, sequence = case["batch"] // processes, case["sequence"]
    torch.manual_seed(2 + rank)
    tokens, targets = torch.randint(case["model"]["real_vocab"], (2, batch, sequence))

    wall, cpu, losses = [], [], []
    for step in range(2 + steps):
        wall_start, cpu_start = time.monotonic(), time.process_time()
        with torch.autocast("cpu", torch.bfloat16, enabled=how.startswith("autocast")):
            loss = train(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=processes == 1)
        losses.append(loss.item())
        if step >= 2:
            wall.append(time.monotonic() - wall_start)
            cpu.append(time.process_time() - cpu_start)
    assert losses[-1] < losses[0], losses  # the same batch again and again: it learns
    print(json.dumps(dict(wall=wall, cpu=cpu, peak=peak_resident_bytes(), torch=torch.__version__)), flush=True)
    if processes > 1:
        distributed.destroy_process_group()


def pytorch_environment(threads, cpus):
    environment = dict(os.environ)
    environment.update(
        OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), GOMP_CPU_AFFINITY=" ".join(map(str, cpus)),
        GLIBC_TUNABLES="glibc.malloc.hugetlb=1", THP_MEM_ALLOC_ENABLE="1",
        MALLOC_TOP_PAD_=str(256 << 20), MALLOC_TRIM_THRESHOLD_=str(1 << 40), MALLOC_MMAP_MAX_="0")
    return environment


def run_pytorch(case_name, variant, steps):
    """Step seconds of the slowest process, CPU seconds of a process, and all processes' peak memory; None if it fails."""
    case = CASES[case_name]
    cpus = sorted(os.sched_getaffinity(0))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(case["processes"]):
        mine = [cpus[(rank + i) % len(cpus)] for i in range(case["threads"])]
        running.append(subprocess.Popen(
            [sys.executable, __file__, "--worker", case_name, variant, str(steps), str(rank), str(port)],
            env=pytorch_environment(case["threads"], mine), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda mine=mine: os.sched_setaffinity(0, mine)))
    outputs = [process.communicate() for process in running]
    if any(process.returncode for process in running):
        print(f"  pytorch {variant} failed: {outputs[0][1].strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    results = [json.loads(output.splitlines()[-1]) for output, _ in outputs]
    return dict(wall=[max(step) for step in zip(*(result["wall"] for result in results))],
                cpu=[statistics.mean(step) for step in zip(*(result["cpu"] for result in results))],
                peak=sum(result["peak"] for result in results), torch=results[0]["torch"])


# ---- ours, and the comparison ----------------------------------------------------------------------------------------


def run_ours(case_name, precision, steps):
    command = [str(ROOT / "megatron_bench"), "--json", "--device", "cpu", "--training-only", "--case", case_name,
               "--precision", precision, "--steps", str(steps)]
    ranks = max(CASES[case_name]["processes"], CASES[case_name]["threads"])
    if ranks > 1:
        command = [str(ROOT / "scripts/launch.sh"), str(ranks)] + command
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    line = json.loads(result.stdout.splitlines()[-1])
    return dict(wall=[line["step_seconds"]], cpu=[line["step_cpu_seconds"]], peak=line["peak_resident_bytes"])


def merged(runs):
    """Medians over the runs of one side, and the least; ours brings the median of its steps already."""
    walls = [statistics.median(run["wall"]) for run in runs]
    return dict(wall=statistics.median(walls), least=min(walls),
                cpu=statistics.median(statistics.median(run["cpu"]) for run in runs),
                peak=statistics.median(run["peak"] for run in runs))


def step_seconds_of(case_name, variant, steps):
    """A few steps of a variant; infinite if it does not run."""
    run = run_pytorch(case_name, variant, steps)
    if run is None:
        return float("inf")
    print(f"  {case_name}: pytorch {variant}: {min(run['wall']):.3f} s a step, {min(run['cpu']):.3f} s of CPU, "
          f"{run['peak'] / 2**30:.2f} GiB", file=sys.stderr, flush=True)
    # Threads of one process add up in its CPU time, which is no measure of a step then.
    return min(run["wall"] if CASES[case_name]["threads"] > 1 else run["cpu"])


def fastest_variant(case_name, variants, steps):
    if forms := CASES[case_name].get("forms"):
        variants = [f"{form}/{how}" for form in forms for how in variants]
    first, *others = variants
    tried = {f"{first}/{adam}": step_seconds_of(case_name, f"{first}/{adam}", steps) for adam in ("fused", "foreach")}
    adam = min(tried, key=tried.get).split("/")[-1]
    for how in others:
        tried[f"{how}/{adam}"] = step_seconds_of(case_name, f"{how}/{adam}", steps)
    best = min(tried, key=tried.get)
    if tried[best] == float("inf"):
        sys.exit(f"bench_pytorch: no variant of PyTorch ran {case_name}")
    return best


def compare(case_name, precision, arguments):
    variants = [name for name in arguments.variants if name in VARIANTS[precision]]
    variant = fastest_variant(case_name, variants, arguments.try_steps)
    ours, ours_fp32, theirs = [], [], []
    for _ in range(arguments.rounds):
        ours.append(run_ours(case_name, precision, arguments.steps))
        theirs.append(run_pytorch(case_name, variant, arguments.steps))
        if precision != "fp32":
            ours_fp32.append(run_ours(case_name, "fp32", arguments.steps))
    theirs = [run for run in theirs if run]
    if not theirs:
        sys.exit(f"bench_pytorch: PyTorch's {variant} ran {case_name} when it was tried, but in none of the rounds")
    case, ours, theirs = CASES[case_name], merged(ours), merged(theirs)
    tokens = case["batch"] * case["sequence"]
    row = dict(case=case_name, precision=precision, variant=variant, ours_tokens_per_second=tokens / ours["wall"],
               pytorch_tokens_per_second=tokens / theirs["wall"], ratio=theirs["wall"] / ours["wall"],
               ratio_of_best_rounds=theirs["least"] / ours["least"],
               ratio_by_cpu_time=theirs["cpu"] / case["threads"] / ours["cpu"], ours_peak_bytes=ours["peak"],
               pytorch_peak_bytes=theirs["peak"])
    if ours_fp32:
        row["times_ours_in_fp32"] = merged(ours_fp32)["wall"] / ours["wall"]
    return row


def print_rows(rows):
    print(f"{'case':<20}{'':>6}{'ours tok/s':>11}{'PyTorch':>10}{'ratio':>8}{'best':>8}{'by CPU':>8}"
          f"{'ours GiB':>10}{'PyTorch':>9}{'/ fp32':>8}  variant")
    for row in rows:
        times = row.get("times_ours_in_fp32")
        print(f"{row['case']:<20}{row['precision']:>6}{row['ours_tokens_per_second']:>11.0f}"
              f"{row['pytorch_tokens_per_second']:>10.0f}{row['ratio']:>8.2f}{row['ratio_of_best_rounds']:>8.2f}"
              f"{row['ratio_by_cpu_time']:>8.2f}{row['ours_peak_bytes'] / 2**30:>10.2f}{row['pytorch_peak_bytes'] / 2**30:>9.2f}"
              f"{f'{times:.2f}' if times else '':>8}  {row['variant']}")


def main():
    if sys.argv[1:2] == ["--worker"]:
        case_name, variant, steps, rank, port = sys.argv[2:]
        return worker(case_name, variant, int(steps), int(rank), int(port))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=names_in(CASES), default=list(CASES))
    every_variant = [name for names in VARIANTS.values() for name in names]
    parser.add_argument("--precisions", type=names_in(VARIANTS), default=list(VARIANTS),
                        help="default: all that have a chosen variant")
    parser.add_argument("--variants", type=names_in(every_variant), default=every_variant)
    parser.add_argument("--rounds", type=int, default=3, help="alternations of ours and PyTorch")
    parser.add_argument("--steps", type=int, default=5, help="measured in each round")
    parser.add_argument("--try-steps", type=int, default=2, help="measured of each variant to find the fastest")
    parser.add_argument("--json", type=Path, help="file for the rows, as JSON")
    arguments = parser.parse_args()

    precisions = [name for name in arguments.precisions if set(arguments.variants) & set(VARIANTS[name])]
    rows = [compare(case_name, precision, arguments) for precision in precisions for case_name in arguments.cases]
    import torch
    print(f"PyTorch {torch.__version__}, its fastest variant each; medians of {arguments.rounds} rounds' medians of "
          f"{arguments.steps} steps; peak resident memory of all ranks; best: the ratio of the best rounds; '/ fp32': times "
          f"ours in fp32")
    print_rows(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
