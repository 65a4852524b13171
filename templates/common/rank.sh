#!/bin/bash
# One rank of the job: says which one it is in the words trainers know, and passes signals on.
set -euo pipefail

if [[ ${GPT_TUNE_LAUNCH:-} == srun ]]; then
  export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS
fi
# One rank a node tells how NCCL chose its network; the others only warn.
if [[ -z ${NCCL_DEBUG:-} && -n ${GPT_TUNE_NCCL_DEBUG:-} ]]; then
  export NCCL_DEBUG=WARN
  if ((LOCAL_RANK == 0)); then
    export NCCL_DEBUG=$GPT_TUNE_NCCL_DEBUG
  fi
fi

# A scheduler that binds one GPU to each task shows it as the task's device 0.
if [[ ${GPT_TUNE_LAUNCH:-} == srun && -n ${CUDA_VISIBLE_DEVICES:-} && $CUDA_VISIBLE_DEVICES != *,* ]]; then
  LOCAL_RANK=0
fi

trainer=
asked=0
# Trainers save on TERM; the early warning comes as USR1, which would kill a program that ignores it.
# shellcheck disable=SC2317 # reached through the trap
pass_on() {
  asked=1
  [[ -z $trainer ]] || kill -TERM "$trainer" 2>/dev/null || true
}
trap pass_on TERM USR1
trap '' INT

# A second shell waits in the foreground: bash loses the code of a process that ends while a trap runs in `wait`.
exec 3>&1
exec 4< <(
  trap : TERM USR1
  ended=0
  (
    printf '%s\n' "$BASHPID"
    # Slurm sends a signal to every process of a task: the early warning itself must not reach the trainer.
    trap '' USR1
    exec "$@" >&3 3>&- 4<&-
  ) || ended=$?
  printf '%s\n' "$ended"
)
read -r trainer <&4
((asked == 0)) || kill -TERM "$trainer" 2>/dev/null || true
code=137
read -r code <&4 || code=137
trap '' TERM USR1
# The job's script looks here for who failed first; thousands of ranks that did well say nothing.
if [[ -n ${GPT_TUNE_CODES:-} ]] && ((code != 0 || WORLD_SIZE <= 64)); then
  if printf '%s\n' "$code" >"$GPT_TUNE_CODES/.$RANK"; then
    mv -f -- "$GPT_TUNE_CODES/.$RANK" "$GPT_TUNE_CODES/$RANK"
  fi
fi
exit "$code"
