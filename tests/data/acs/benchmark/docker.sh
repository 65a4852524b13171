#!/bin/bash
# ACS benchmark: ljperf deepspeed-llama3-8b on 8 GPUs of 1 node, CUDA 12.8.
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

# Each may be set in the environment, for example: BENCHMARK=deepspeed/llama3-8b bash docker.sh
# What is set is checked below, before anything is launched.
for name in BENCHMARK CHECKPOINT_OPTIMIZATION DRIVER_CHECK; do
  [[ -z ${!name:-} ]] || printf 'job %s: %s=%s comes from the environment\n' "$JOB_ID" "$name" "${!name}"
done
# An empty value means the profile's.
[[ -n ${BENCHMARK:-} ]] || BENCHMARK=deepspeed/llama3-8b # what ljperf measures
[[ -n ${CHECKPOINT_OPTIMIZATION:-} ]] || CHECKPOINT_OPTIMIZATION=false # true lets the image choose what is recomputed
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
program=(ljperf benchmark --model "$BENCHMARK")

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
run "$DOCKER" run "${options[@]}" "$IMAGE" "${program[@]}"
