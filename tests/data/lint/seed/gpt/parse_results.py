#!/usr/bin/env python3
"""Turns training logs into benchmark JSON."""

import argparse
import csv
import json
import os
import re

ITERATION = re.compile(r"iteration\s+(\d+)/\s*(\d+)")
ELAPSED = re.compile(r"elapsed time per iteration \(ms\):\s*([\d.]+)")
LOSS = re.compile(r"lm loss:\s*([\d.eE+\-]+)")
TFLOPS = re.compile(r"TFLOPs:\s*([\d.]+)")
WARMUP = 5


def read_steps(path):
    steps = []
    with open(path) as log:
        for line in log:
            iteration, loss = ITERATION.search(line), LOSS.search(line)
            if iteration is None or loss is None:
                continue
            step = {"step": int(iteration.group(1)), "lm_loss": float(loss.group(1))}
            elapsed = ELAPSED.search(line)
            if elapsed:
                step["step_time_s"] = float(elapsed.group(1)) / 1000
            rate = TFLOPS.search(line)
            if rate:
                step["tflops_per_gpu"] = float(rate.group(1))
            steps.append(step)
    return steps


def estimate_tflops(seconds, batch_size, seq_length=2048, hidden_size=12288, num_layers=80, total_gpus=64):
    """TFLOPS per GPU from the time of a step."""
    vocab_size = 50257
    s, h, layers = seq_length, hidden_size, num_layers
    per_step = 8 * batch_size * s * h**2 * layers * (1 + s / (6 * h) + vocab_size / (12 * h * layers))
    return per_step / (seconds * total_gpus * 1e12)


def result(steps, name, job_id, tp=8, pp=2, zero_stage=1, mbs=1, gbs=64, seq_length=2048, nodes=8, gpus_per_node=8):
    for step in steps:
        if "tflops_per_gpu" not in step:
            step["tflops_per_gpu"] = estimate_tflops(step["step_time_s"], gbs, seq_length)
    return {
        "metadata": {
            "job_id": job_id,
            "nodes": nodes,
            "gpus_per_node": gpus_per_node,
            "model": "deepspeed-gpt-103b",
            "sweep_config": {"config_name": name, "tp": tp, "pp": pp, "zero_stage": zero_stage, "gbs": gbs},
        },
        "steps": steps[WARMUP:],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs-dir", default="logs")
    parser.add_argument("--output-dir", default="sweep_results")
    parser.add_argument("--jobs-csv", default="sweep_results/jobs_done.csv")
    parser.add_argument("--log-file")
    parser.add_argument("--config-name", default="single_run")
    args = parser.parse_args()
    found = []
    if args.log_file:
        found.append(result(read_steps(args.log_file), args.config_name, "unknown"))
    else:
        with open(args.jobs_csv) as jobs:
            for row in csv.DictReader(jobs):
                log = os.path.join(args.logs_dir, f"sweep_{row['config_name']}_{row['job_id']}.out")
                found.append(
                    result(
                        read_steps(log), row["config_name"], row["job_id"], tp=int(row["tp"]), pp=int(row["pp"]),
                        zero_stage=int(row["zero"]), mbs=int(row["mbs"]), gbs=int(row["gbs"]),
                    )
                )
    with open(os.path.join(args.output_dir, "sweep_summary.json"), "w") as out:
        json.dump(found, out)


if __name__ == "__main__":
    main()
