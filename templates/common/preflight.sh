#!/bin/bash
# Looks at one node before a job's GPUs wait for it. The job script starts it once on every node.
#   preflight.sh look CHECKS OPTIONS...    CHECKS: node (the machine), software (what the trainer will see) or all
#   preflight.sh judge OPTIONS...          reads what all nodes said: nothing, or one sentence and code 71
# A look prints one line a finding: preflight TAB node TAB check TAB fact|warn|fail TAB what TAB what to do.
# It needs bash and coreutils only. Commands that a broken mount or driver can hold up have limits of their own.
set -uo pipefail

readonly STOPPED=71       # the code of a job that must not start
readonly CLOCK_SECONDS=30 # nodes further apart than this: files look newer than they are, credentials expire
readonly SHM_MIB=512      # NCCL's buffers inside a node; a container's default of 64 MiB stops it at start
readonly RUN_MIB=1024     # logs, data caches and configurations of a run
readonly USED_MIB=4096    # memory of a GPU that somebody else holds
readonly AWAY="exclude this node and tell the administrators"

node=${SLURMD_NODENAME:-$(hostname)}

say() { # CHECK KIND WHAT CURE
  local what=${3//[$'\t\r\n']/ } cure=${4:-}
  printf 'preflight\t%s\t%s\t%s\t%s\t%s\n' "$node" "$1" "$2" "$what" "${cure//[$'\t\r\n']/ }"
}
limited() { # SECONDS COMMAND...
  timeout -k 2 "$@" 2>/dev/null
}
shown() { # a path on one line
  local text
  printf -v text '%q' "$1"
  printf '%s' "$text"
}

look_at_clock() {
  say clock fact "$(date +%s)"
}

# The run folder must be the one that the job's first node wrote to, and take what this node writes.
look_at_run_folder() {
  local where
  where=$(shown "$folder")
  if ! limited 10 test -r "$folder/nonce"; then
    say run-folder fail "the run folder ($where) is not there" "mount the shared file system on this node, or set site.run_root to a folder that all nodes share"
  elif [[ $(limited 10 cat "$folder/nonce") != "$nonce" ]]; then
    say run-folder fail "the run folder ($where) is not the one of the first node" "set site.run_root to a folder that all nodes share"
  elif ! limited 10 touch "$folder/seen-$node"; then
    say run-folder fail "the run folder ($where) cannot be written" "check its owner, its quota and how it is mounted here"
  else
    free_space disk "$folder" "$RUN_MIB" "the run folder"
  fi
}

free_space() { # CHECK PATH MIB NAME
  local line free
  line=$(limited 10 df -Pm -- "$2" | tail -n 1) || return 0
  read -r _ _ _ free _ <<<"$line"
  [[ $free =~ ^[0-9]+$ ]] && ((free < $3)) || return 0
  say "$1" fail "$4 has $free MiB free and needs $3" "free some space there, or choose another folder"
}

look_at_image() {
  [[ $image == /* ]] || return 0
  limited 10 test -r "$image" ||
    say image fail "the image $(shown "$image") cannot be read" "put it on a file system that every node mounts"
}

look_at_gpus() {
  local listed code=0 seen number used driver
  ((gpus > 0)) || return 0
  if ! command -v nvidia-smi >/dev/null; then
    seen=$(find /dev -maxdepth 1 -name 'nvidia[0-9]*' 2>/dev/null | wc -l)
    ((seen >= gpus)) || say gpus fail "no nvidia-smi, and $seen of $gpus GPUs in /dev" "$AWAY"
    return 0
  fi
  listed=$(limited 25 nvidia-smi --query-gpu=index,memory.used,driver_version --format=csv,noheader,nounits) || code=$?
  if ((code == 124 || code == 137)); then
    say gpus fail "nvidia-smi does not answer" "$AWAY"
    return 0
  elif ((code != 0)); then
    say gpus fail "nvidia-smi ends with code $code: the driver does not work" "$AWAY"
    return 0
  fi
  seen=$(grep -c '^ *[0-9]' <<<"$listed")
  if ((seen < gpus)); then
    say gpus fail "$seen of $gpus GPUs are seen" "$AWAY"
    return 0
  fi
  while IFS=', ' read -r number used driver; do
    if [[ $used =~ ^[0-9]+$ ]] && ((used > USED_MIB)); then
      say gpus warn "GPU $number has $used MiB in use already" "see who holds it with nvidia-smi"
    fi
  done <<<"$listed"
  say driver fact "${driver:-unknown}"
}

# GPUs that the scheduler hands to this job.
look_at_given_gpus() {
  local -a given
  ((gpus > 0)) && [[ -n ${CUDA_VISIBLE_DEVICES:-} ]] || return 0
  IFS=, read -r -a given <<<"$CUDA_VISIBLE_DEVICES"
  ((${#given[@]} >= gpus)) ||
    say gpus fail "CUDA_VISIBLE_DEVICES names ${#given[@]} of $gpus GPUs" "ask for $gpus GPUs a node, or start fewer ranks"
}

# A driver runs programs of its own CUDA generation and older ones.
look_at_cuda() {
  local wanted offered
  ((gpus > 0)) && command -v nvidia-smi >/dev/null || return 0
  wanted=$(limited 20 "$python" -c '
import importlib.util, pathlib, re
found = importlib.util.find_spec("torch")
text = pathlib.Path(found.origin).with_name("version.py").read_text() if found and found.origin else ""
version = re.search(r"^cuda\b[^=]*= *.(\d+\.\d+)", text, re.MULTILINE)
print(version.group(1) if version else "")') || wanted=
  [[ -n $wanted ]] || wanted=${CUDA_VERSION:-}
  offered=$(limited 25 nvidia-smi | sed -nE 's/.*CUDA[A-Za-z ]* Version: *([0-9]+\.[0-9]+).*/\1/p' | head -n 1)
  [[ $wanted =~ ^[0-9]+(\.[0-9]+)? && $offered =~ ^[0-9]+\.[0-9]+ ]] || return 0
  if ((${wanted%%.*} > ${offered%%.*})); then
    say cuda fail "the software needs CUDA $wanted and the driver offers $offered" "use software built for CUDA ${offered%%.*}, or nodes with a newer driver"
  fi
}

look_at_network() { # software too: the libraries that count are the trainer's
  local tool found code=0
  case $network in
    efa)
      tool=$(command -v fi_info || command -v /opt/amazon/efa/bin/fi_info) || {
        if [[ $inside == 1 ]]; then
          say network warn "the image has no fi_info, so that nobody can say whether it would use EFA" "add the EFA installer to the image"
        else
          say network fail "there is no fi_info, so no EFA" "install EFA there, or set site.network_profile=none"
        fi
        return 0
      }
      # Without -p: what libfabric chooses by itself is what NCCL's plugin gets.
      found=$(limited 20 "$tool" -t FI_EP_RDM | sed -nE 's/^ *provider: *([^ ]+).*/\1/p' | head -n 1) || code=$?
      if [[ $found != efa ]]; then
        say network fail "libfabric chooses ${found:-nothing} instead of EFA" "$AWAY; check the EFA driver and the security group"
      fi
      ;;
    infiniband)
      found=$(limited 10 cat "${PREFLIGHT_SYS:-/sys}"/class/infiniband/*/ports/*/state | grep -c ACTIVE) || code=$?
      [[ ${found:-0} != 0 ]] || say network fail "no InfiniBand port is active" "$AWAY"
      ;;
  esac
}

look_at_shared_memory() {
  local free
  ((gpus > 1)) || return 0
  read -r _ _ _ free _ < <(limited 5 df -Pm /dev/shm | tail -n 1)
  [[ ${free:-} =~ ^[0-9]+$ ]] && ((free < SHM_MIB)) || return 0
  say shm fail "/dev/shm has $free MiB free and NCCL needs $SHM_MIB" "empty it, or give the container a larger one (--shm-size, or the host's)"
}

look_at_paths() {
  local path
  for path in ${reads[@]+"${reads[@]}"}; do
    if ! limited 10 test -r "$path"; then
      say data fail "$(shown "$path") cannot be read" "mount its file system on this node, or correct its permissions"
    elif limited 10 test -f "$path"; then
      say data fact "$(limited 10 stat -L -c %s -- "$path") $(shown "$path")"
    fi
  done
  for path in ${writes[@]+"${writes[@]}"}; do
    if ! { limited 10 mkdir -p -- "$path" && limited 10 touch -- "$path/.preflight-$nonce-$node"; }; then
      say checkpoints fail "checkpoints cannot be written to $(shown "$path")" "mount its file system on this node, or correct its permissions"
      continue
    fi
    [[ $inside == 0 ]] || rm -f -- "$path/.preflight-$nonce-$node"
    ((save_mib == 0)) || free_space disk "$path" "$save_mib" "the checkpoint folder"
  done
}

look() {
  local checks=$1
  say hello fact "$checks"
  if [[ $checks != software ]]; then
    look_at_clock
    look_at_run_folder
    look_at_image
    look_at_gpus
    [[ $inside == 1 ]] || look_at_network
  fi
  if [[ $checks != node ]]; then
    look_at_given_gpus
    look_at_cuda
    [[ $inside == 0 ]] || look_at_network
    look_at_paths
    look_at_shared_memory
  fi
  say end fact "$checks"
}

# --- judging all nodes' lines ----------------------------------------------------------------------

stop() { # CHECK NODE WHAT CURE OTHERS...
  local also=("${@:5}") more=
  if ((${#also[@]} == 1)); then
    more=" (${also[0]} too)"
  elif ((${#also[@]} > 1)); then
    more=" (${also[0]} and $((${#also[@]} - 1)) more nodes too)"
  fi
  printf 'preflight (%s): %s: %s%s; %s.\n' "$1" "$2" "$3" "$more" "$4"
  exit "$STOPPED"
}

lines_of() { # CHECK KIND: node TAB what TAB cure, of every node
  awk -F '\t' -v check="$1" -v kind="$2" \
    '$1 == "preflight" && ($3 == check || check == "") && $4 == kind { print $2 "\t" $5 "\t" $6 "\t" $3 }' "$report"
}

judge_failures() {
  local check host what cure first said='' cure_of='' rest=()
  for check in run-folder image gpus cuda network data checkpoints disk shm; do
    first=
    rest=()
    while IFS=$'\t' read -r host what cure _; do
      if [[ -z $first ]]; then
        first=$host said=$what cure_of=$cure
      elif [[ $host != "$first" && " ${rest[*]-} " != *" $host "* ]]; then
        rest+=("$host")
      fi
    done < <(lines_of "$check" fail)
    [[ -z $first ]] || stop "$check" "$first" "$said" "$cure_of" ${rest[@]+"${rest[@]}"}
  done
}

judge_silence() {
  local host last silent=() said=
  for host in "${expected[@]}"; do
    grep -qxF "preflight"$'\t'"$host"$'\t'"end"$'\t'"fact"$'\t'"$checks"$'\t' "$report" && continue
    silent+=("$host")
    [[ -z $said ]] || continue
    last=$(awk -F '\t' -v host="$host" '$1 == "preflight" && $2 == host { last = $3 } END { print last }' "$report")
    said="no answer within $seconds s"
    [[ -z $last || $last == hello ]] || said="no end within $seconds s, the last thing it told was $last"
  done
  ((${#silent[@]} > 0)) || return 0
  if [[ $checks == software ]]; then
    # An image that starts slowly is no fault: the ranks have more time.
    printf 'preflight warns: the image did not start on %s within %s s\n' "${silent[0]}" "$seconds"
    return 0
  fi
  stop silent "${silent[0]}" "$said" "$AWAY" "${silent[@]:1}"
}

# A node's clock was read between the moments that the first node started and ended the look.
judge_clocks() {
  local host told behind=
  while IFS=$'\t' read -r host told _; do
    if ((told < started - CLOCK_SECONDS)); then
      behind="$((started - told)) s behind"
    elif ((told > ended + CLOCK_SECONDS)); then
      behind="$((told - ended)) s ahead"
    else
      continue
    fi
    stop clock "$host" "its clock is $behind the first node's" "$AWAY; its time service does not run"
  done < <(lines_of clock fact)
}

# Every node has written to the same folders, and reads the same data.
judge_shared() {
  local host what path first
  while IFS=$'\t' read -r host _; do
    [[ $checks == software || -e $folder/seen-$host ]] ||
      stop run-folder "$host" "what it wrote to the run folder is not seen by the first node" "set site.run_root to a folder that all nodes share"
    for path in ${writes[@]+"${writes[@]}"}; do
      [[ $inside == 1 || -e $path/.preflight-$nonce-$host ]] ||
        stop checkpoints "$host" "$(shown "$path") is a folder of its own" "choose a checkpoint folder that all nodes share"
    done
  done < <(lines_of hello fact)
  declare -A sizes=()
  while IFS=$'\t' read -r host what _; do
    path=${what#* }
    first=${sizes[$path]:=${what%% *}}
    [[ $first == "${what%% *}" ]] ||
      stop data "$host" "$path has ${what%% *} bytes and $first on another node" "copy the same data to every node, or use a shared folder"
  done < <(lines_of data fact)
}

judge() {
  local host what cure check
  judge_failures
  judge_silence
  judge_shared
  judge_clocks
  while IFS=$'\t' read -r host what cure check; do
    printf 'preflight warns (%s): %s: %s; %s.\n' "$check" "$host" "$what" "$cure"
  done < <(lines_of "" warn | head -n 5)
}

mode=${1:-}
checks=${2:-all}
shift 2 || exit 2
folder='' nonce='' image='' network=none report='' python=python3 inside=0 gpus=0 save_mib=0 seconds=0 started=0 ended=0
reads=() writes=() expected=()
while (($# > 1)); do
  case $1 in
    --folder) folder=$2 ;;
    --nonce) nonce=$2 ;;
    --image) image=$2 ;;
    --network) network=$2 ;;
    --report) report=$2 ;;
    --python) python=$2 ;;
    --inside) inside=$2 ;;
    --gpus) gpus=$2 ;;
    --save-mib) save_mib=$2 ;;
    --seconds) seconds=$2 ;;
    --started) started=$2 ;;
    --ended) ended=$2 ;;
    --expect) expected+=("$2") ;;
    --read) reads+=("$2") ;;
    --write) writes+=("$2") ;;
    *) exit 2 ;;
  esac
  shift 2
done
case $mode in
  look)
    [[ -z $report ]] || exec >>"$report"
    look "$checks"
    ;;
  judge) judge ;;
  *) exit 2 ;;
esac
