#!/bin/bash
# ACS training: train.py on 16 GPUs of 2 nodes, ZeRO 3, compile on, recompute optimisation on, 50 steps.
# The job with docker, on one machine with 8 GPUs and without Slurm:
#   bash docker.sh
set -euo pipefail
umask 077

RUN_DIR=/fsx/runs/r1
JOB_ID=${JOB_ID:-docker-$$}
RANKS=${RANKS:-8}
GPUS_PER_NODE=$RANKS
cd -- "$RUN_DIR"
fail() {
  printf 'job %s: %s\n' "$JOB_ID" "$1" >&2
  exit "${2:-2}"
}
[[ $RANKS =~ ^[1-9][0-9]{0,3}$ ]] || fail "RANKS is '${RANKS:0:40}'; it must be the number of GPUs."

# Each may be set in the environment, for example: MICRO_BATCH_SIZE=1 bash docker.sh
# What is set is checked below, before anything is launched.
for name in MICRO_BATCH_SIZE GLOBAL_BATCH_SIZE TRAIN_ITERS LEARNING_RATE ZERO_STAGE COMPILE CHECKPOINT_OPTIMIZATION LOG_INTERVAL SAVE_INTERVAL SAVE_DIR SCRIPT DRIVER_CHECK; do
  [[ -z ${!name:-} ]] || printf 'job %s: %s=%s comes from the environment\n' "$JOB_ID" "$name" "${!name}"
done
# An empty value means the profile's.
[[ -n ${MICRO_BATCH_SIZE:-} ]] || MICRO_BATCH_SIZE=1 # sequences a GPU computes at once
[[ -n ${GLOBAL_BATCH_SIZE:-} ]] || GLOBAL_BATCH_SIZE=64 # sequences a step, over all GPUs
[[ -n ${TRAIN_ITERS:-} ]] || TRAIN_ITERS=50 # optimizer steps
[[ -n ${LEARNING_RATE:-} ]] || LEARNING_RATE=0.0001 # the highest learning rate
[[ -n ${ZERO_STAGE:-} ]] || ZERO_STAGE=3 # what ZeRO splits: 1 optimizer, 2 gradients too, 3 weights too
[[ -n ${COMPILE:-} ]] || COMPILE=1 # 1 compiles the model
[[ -n ${CHECKPOINT_OPTIMIZATION:-} ]] || CHECKPOINT_OPTIMIZATION=true # true lets the image choose what is recomputed
[[ -n ${LOG_INTERVAL:-} ]] || LOG_INTERVAL=1 # steps between log lines
[[ -n ${SAVE_INTERVAL:-} ]] || SAVE_INTERVAL=100 # steps between checkpoints, 0 saves nothing
[[ -n ${SAVE_DIR:-} ]] || SAVE_DIR=/fsx/runs/r1/checkpoints # where checkpoints go
[[ -n ${SCRIPT:-} ]] || SCRIPT=/workspace/train.py # the training script, as the container sees it
[[ -n ${DRIVER_CHECK:-} ]] || DRIVER_CHECK=1 # 0 starts with any driver
[[ -n ${IMAGE:-} ]] || IMAGE=egslingjun-registry.cn-wulanchabu.cr.aliyuncs.com/egslingjun/training-nv-pytorch:25.10-serverless # as docker names it
[[ -n $IMAGE ]] || fail "IMAGE is empty: the notes of release 25.10 do not name its tag, so give the image's address."
: "${DOCKER:=docker}"
command -v "$DOCKER" >/dev/null || fail "$DOCKER is not installed on this machine."

# --- rules of the image -------------------------------------------------------------------------
whole() {
  if [[ ! ${!1} =~ ^(0|[1-9][0-9]{0,11})$ ]] || ((${!1} < $2)); then
    fail "$1 is '${!1}'; it must be a whole number of at least $2."
  fi
}
switch() {
  [[ ${!1} == 0 || ${!1} == 1 ]] || fail "$1 is '${!1}'; it must be 0 or 1."
}
[[ $CHECKPOINT_OPTIMIZATION == true || $CHECKPOINT_OPTIMIZATION == false ]] ||
  fail "CHECKPOINT_OPTIMIZATION is '$CHECKPOINT_OPTIMIZATION'; it must be true or false."
switch DRIVER_CHECK
# The interface that ranks meet over follows from the size of the pod.
case $GPUS_PER_NODE in
  1) interface=eth0 ;;
  2) interface=eth0 ;;
  4) interface=eth0 ;;
  8) interface=eth0 ;;
  16) interface=hpn0 ;;
  *) fail "Pods of ACS have 1, 2, 4, 8, 16 GPUs, not $GPUS_PER_NODE." ;;
esac
if [[ -n ${NCCL_SOCKET_IFNAME:-} && $NCCL_SOCKET_IFNAME != "$interface" ]]; then
  fail "NCCL_SOCKET_IFNAME is '$NCCL_SOCKET_IFNAME', but a pod with $GPUS_PER_NODE GPUs has $interface: ranks would not meet."
fi
export NCCL_SOCKET_IFNAME=$interface
# Recompute optimisation: the image's memory model chooses how many layers are computed again. Off is not there.
checkpoint_optimization=$CHECKPOINT_OPTIMIZATION
if [[ $CHECKPOINT_OPTIMIZATION == true ]]; then
  export CHECKPOINT_OPTIMIZATION
else
  unset CHECKPOINT_OPTIMIZATION
fi
# CUDA 12.8 needs driver 575, or on data-centre GPUs a branch that its compatibility package knows.
if ((DRIVER_CHECK)) && command -v nvidia-smi >/dev/null; then
  read -r found < <(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null) || found=
  if [[ $found =~ ^([0-9]{3})\.[0-9.]+$ ]]; then
    good=0
    at_least() { [[ $(printf '%s\n' "$1" "$found" | sort -V | head -n 1) == "$1" ]]; }
    case ${BASH_REMATCH[1]} in
      470) ! at_least 470.57 || good=1 ;;
      525) ! at_least 525.85 || good=1 ;;
      535) ! at_least 535.86 || good=1 ;;
      *) ! at_least 575 || good=1 ;;
    esac
    ((good)) || fail "Driver $found is too old for CUDA 12.8, which needs 575 or newer (DRIVER_CHECK=0 tries it anyway)."
  fi
fi

# --- arithmetic ---------------------------------------------------------------------------------
for name in MICRO_BATCH_SIZE GLOBAL_BATCH_SIZE TRAIN_ITERS LOG_INTERVAL; do
  whole "$name" 1
done
whole SAVE_INTERVAL 0
switch COMPILE
[[ $ZERO_STAGE =~ ^[123]$ ]] || fail "ZERO_STAGE is '$ZERO_STAGE'; it must be 1, 2 or 3."
[[ $LEARNING_RATE =~ ^[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$ ]] ||
  fail "LEARNING_RATE is '$LEARNING_RATE'; it must be a number."
batch=$((MICRO_BATCH_SIZE * RANKS))
if ((GLOBAL_BATCH_SIZE % batch != 0)); then
  near=$(((GLOBAL_BATCH_SIZE / batch + 1) * batch))
  ((GLOBAL_BATCH_SIZE < batch)) || near="$((near - batch)) or $near"
  fail "GLOBAL_BATCH_SIZE=$GLOBAL_BATCH_SIZE is not a multiple of MICRO_BATCH_SIZE=$MICRO_BATCH_SIZE x $RANKS GPUs = $batch; use $near."
fi
ACCUMULATION=$((GLOBAL_BATCH_SIZE / batch))
printf 'job %s: %s GPUs, ZeRO %s, micro batch %s x %s accumulation steps = global batch %s, compile %s, recompute optimisation %s\n' \
  "$JOB_ID" "$RANKS" "$ZERO_STAGE" "$MICRO_BATCH_SIZE" "$ACCUMULATION" "$GLOBAL_BATCH_SIZE" "$COMPILE" "$checkpoint_optimization"

config=$RUN_DIR/ds_config-$JOB_ID.json
sed -e "s/\"stage\": [0-9]*/\"stage\": $ZERO_STAGE/" "$RUN_DIR/ds_config.json" >"$config"
if grep -Eq '"stage3_prefetch_bucket_size"[[:space:]]*[:][[:space:]]*"?[0-9]' "$config"; then
  fail "stage3_prefetch_bucket_size has a size in ds_config.json: the image chooses it, so leave it out or write \"auto\"."
fi
mkdir -p -- "$SAVE_DIR"

args=(--model_name_or_path /models/llama
  --deepspeed "$config"
  --per_device_train_batch_size "$MICRO_BATCH_SIZE"
  --gradient_accumulation_steps "$ACCUMULATION"
  --max_steps "$TRAIN_ITERS"
  --learning_rate "$LEARNING_RATE"
  --weight_decay 0.1
  --adam_beta1 0.9
  --adam_beta2 0.95
  --max_grad_norm 1.0
  --lr_scheduler_type cosine
  --warmup_steps 5
  --seed 1234
  --report_to none
  --bf16 True
  --logging_steps "$LOG_INTERVAL"
  --output_dir "$SAVE_DIR"
)
if ((SAVE_INTERVAL > 0)); then
  args+=(--save_strategy steps --save_steps "$SAVE_INTERVAL")
else
  args+=(--save_strategy no)
fi
((COMPILE == 0)) || args+=(--torch_compile True)
newest=$(find "$SAVE_DIR" -maxdepth 1 -name 'checkpoint-*' -printf '%f\n' | sort -V | tail -n 1)
if [[ -n $newest ]]; then
  printf 'job %s: continuing from %s\n' "$JOB_ID" "$newest"
  args+=(--resume_from_checkpoint "$SAVE_DIR/$newest")
fi
# The image's own launcher, with as many ranks as there are GPUs.
program=(python3 -m torch.distributed.run --standalone --nproc-per-node "$RANKS" "$SCRIPT" "${args[@]}")

# Packages in front of the image's own. Without their dependencies: pip could bring another torch or DeepSpeed.
packages=$RUN_DIR/packages
# shellcheck disable=SC2016 # the container's own PYTHONPATH, not this shell's
program=(bash -c 'export PYTHONPATH=$1${PYTHONPATH:+:$PYTHONPATH}; shift; exec "$@"' packages "$packages" "${program[@]}")
install=(python3 -m pip install --no-cache-dir --no-deps --upgrade --target "$packages" datasets==3.6.0)

options=(--rm --init --ipc=host --net=host --privileged --name "gpt-tune-$JOB_ID-$$" --workdir "$RUN_DIR")
[[ ! -t 0 || ! -t 1 ]] || options+=(--interactive --tty)
# A runtime that shows every GPU to every container needs no option: set DOCKER_GPUS= to leave it out.
[[ -z ${DOCKER_GPUS-all} ]] || options+=(--gpus "${DOCKER_GPUS-all}")
options+=(--volume /fsx/runs/r1:/fsx/runs/r1)
# By name: what docker takes from this shell appears in no list of processes and in no file.
for name in NCCL_SOCKET_IFNAME CHECKPOINT_OPTIMIZATION; do
  [[ -z ${!name+set} ]] || options+=(--env "$name")
done

# A warning of the scheduler and a cancel both reach the container as TERM.
child=
asked=
# shellcheck disable=SC2317 # reached through the trap
pass_on() {
  asked=1
  [[ -z $child ]] || kill -TERM "$child" 2>/dev/null || true
}
trap pass_on TERM USR1 INT
run() {
  local code=0
  [[ -z $asked ]] || return 143
  "$@" <&0 &
  child=$!
  while :; do
    code=0
    wait "$child" || code=$?
    kill -0 "$child" 2>/dev/null || break
  done
  child=
  return "$code"
}
run "$DOCKER" run "${options[@]}" "$IMAGE" "${install[@]}"
for name in torch deepspeed; do
  [[ ! -e $packages/$name ]] || fail "The packages bring their own $name, which would replace the image's."
done
run "$DOCKER" run "${options[@]}" "$IMAGE" "${program[@]}"
