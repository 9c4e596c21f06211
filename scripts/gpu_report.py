#!/usr/bin/env python3
"""Makes rows of the table of docs/gpu_validation.md out of what scripts/gpu_session.sh left.

    scripts/gpu_report.py FOLDER        (summary.tsv, session.log and rows.jsonl lie there)

One row per step that began; speeds as tokens per second and TFLOP/s of the model, next to PyTorch's where it ran.
"""
import json
import sys
from pathlib import Path


def session_of(log):
    """Date, commit and device, of the last session that the log has."""
    found = [line.split("\t")[1:4] for line in log.splitlines() if line.startswith("== session\t")]
    return found[-1] if found else ["unknown date", "unknown", "unknown device"]


def version_of(log):
    """The line of `megatron_train --version` that names CUDA and the driver."""
    found = [line.strip() for line in log.splitlines() if "driver" in line and "CUDA" in line]
    return found[0] if found else ""


def speed_of(text):
    """One of megatron_bench's lines of JSON, in words."""
    row = json.loads(text)
    return (f"{row['tokens_per_second']:,.0f} tokens/s, {row['model_gflops_per_rank'] / 1e3:.1f} TFLOP/s of the "
            f"model, {row['step_seconds'] * 1e3:.1f} ms per step")


def words_of(result, seconds, last):
    if last.startswith("{"):
        try:
            last = speed_of(last)
        except (ValueError, KeyError):
            pass
    return f"{result}, {seconds} s: {last}" if seconds else f"{result}: {last}"


def comparison_of(line):
    """A row of bench_pytorch_gpu.py, in words; none of another program."""
    try:
        row = json.loads(line)
    except ValueError:  # the machine went away while it was written
        return None
    if "pytorch_tokens_per_second" not in row:
        return None
    return (f"{row['case']} against PyTorch {row['torch']}, {row['variant']}",
            f"{row['ours_tokens_per_second']:,.0f} against {row['pytorch_tokens_per_second']:,.0f} tokens/s, ratio "
            f"{row['ratio']:.2f}; {row['ours_model_tflops']:.1f} TFLOP/s of the model")


def table(folder):
    log = (folder / "session.log").read_text(errors="replace")
    date, commit, device = session_of(log)
    where = ", ".join(part for part in (device, version_of(log), f"commit {commit}") if part)
    lines = []
    for line in (folder / "summary.tsv").read_text().splitlines():
        step, result, seconds, last = line.split("\t")
        lines.append((step, words_of(result, seconds, last)))
    for line in (folder / "rows.jsonl").read_text().splitlines():
        if (row := comparison_of(line)) is not None:
            lines.append(row)
    escaped = [[cell.replace("|", "\\|") for cell in (date, where, *line)] for line in lines]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in escaped)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        sys.stdout.write(table(Path(sys.argv[1])))
    except OSError as error:
        sys.exit(f"gpu_report: {error}")
