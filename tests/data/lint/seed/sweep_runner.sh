#!/bin/bash
# Sweep over layouts and network variables.
set -euo pipefail

SCRIPT=gpt/slurm/pretrain_gpt_103b.sbatch
RESULTS=sweep_results
NODES=8
mkdir -p "$RESULTS" logs

submit() {
  local name="$1" tp="$2" pp="$3" zero="$4" mbs="$5" gbs="$6"
  shift 6
  local extra="${*:-}"
  local given="TP=${tp},PP=${pp},ZERO_STAGE=${zero},MICRO_BATCH_SIZE=${mbs},GLOBAL_BATCH_SIZE=${gbs},CONFIG_NAME=${name}"
  local cmd="sbatch --partition=dev --nodes=${NODES}"
  cmd+=" --export=ALL,${given}"
  cmd+=" --job-name=sweep_${name}"
  if [ -n "$extra" ]; then
    cmd+=" --export=ALL,${given},${extra}"
  fi
  cmd+=" ${SCRIPT}"
  local id
  id=$(eval "$cmd" | awk '{print $NF}')
  echo "${id},${name},${tp},${pp},${zero},${mbs},${gbs}" >> "$RESULTS/sweep_jobs.csv"
}

echo "job_id,config_name,tp,pp,zero,mbs,gbs" > "$RESULTS/sweep_jobs.csv"
submit 01_baseline   8 2 0 1 64
submit 02_more_pp    8 4 0 1 64
submit 03_zero1      8 2 1 1 64
submit 04_larger_mbs 8 2 1 2 128
submit 05_pp4_zero1  8 4 1 1 128
submit 06_zero2      8 2 2 1 64
submit 07_full_pp    8 8 0 1 64

submit 13_tree       8 2 1 1 64 "NCCL_ALGO=Tree"
submit 14_no_tuner   8 2 1 1 64 "NCCL_TUNER_PLUGIN="
submit 15_chunk_4mb  8 2 1 1 64 "NCCL_P2P_NET_CHUNKSIZE=4194304"
submit 17_buffer     8 2 1 1 64 "NCCL_BUFFERSIZE=16777216"
