#!/bin/bash
# Second sweep: ZeRO 2 and 3 without pipeline, and fusions.
set -euo pipefail

mkdir -p logs
while read -r name tp pp zero mbs fusions; do
  sbatch --partition=dev --nodes=8 \
    --export=ALL,TP="$tp",PP="$pp",ZERO_STAGE="$zero",MICRO_BATCH_SIZE="$mbs",ENABLE_FUSIONS="$fusions",CONFIG_NAME="$name" \
    gpt/slurm/pretrain_gpt_103b.sbatch
done <<EOF
21_zero2_tp8 8 1 2 1 0
22_zero2_mbs2 8 1 2 2 0
24_zero3_tp8 8 1 3 1 0
26_zero3_tp4 4 1 3 1 0
29_fused 8 8 0 1 1
EOF
