#!/bin/sh
# Installs Debian's Slurm and the terminal tools the tests drive, where missing and where we may.
# With the argument `full` also what accounting needs: slurmdbd and MariaDB's server without its service (45 MB).
set -u
need=
command -v slurmctld >/dev/null 2>&1 || [ -x /usr/sbin/slurmctld ] || need="$need slurm-wlm"
command -v munged >/dev/null 2>&1 || [ -x /usr/sbin/munged ] || need="$need munge"
command -v tmux >/dev/null 2>&1 || need="$need tmux"
command -v sshd >/dev/null 2>&1 || [ -x /usr/sbin/sshd ] || need="$need openssh-server"
command -v shellcheck >/dev/null 2>&1 || need="$need shellcheck"
if [ "${1:-}" = full ]; then
  command -v slurmdbd >/dev/null 2>&1 || [ -x /usr/sbin/slurmdbd ] || need="$need slurmdbd"
  command -v mariadbd >/dev/null 2>&1 || [ -x /usr/sbin/mariadbd ] || need="$need mariadb-server-core"
fi
[ -n "$need" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "note: missing$need and no apt-get here; the tests that need them will be skipped." >&2
  exit 0
fi
sudo=
if [ "$(id -u)" != 0 ]; then
  if sudo -n true 2>/dev/null; then sudo="sudo -n"; else
    echo "note: missing$need; install them as root (apt-get install$need) to run the tests that need them." >&2
    exit 0
  fi
fi
echo "Installing$need..." >&2
export DEBIAN_FRONTEND=noninteractive
# The tests start what they need themselves, on ports of their own: no service of the machine is wanted.
policy=/usr/sbin/policy-rc.d
[ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' | $sudo tee "$policy" >/dev/null && $sudo chmod 755 "$policy" && made=1; }
# shellcheck disable=SC2086  # word splitting of $need and $sudo is meant
{ $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends $need; } >/dev/null 2>&1 ||
  echo "note: could not install$need; the tests that need them will be skipped." >&2
[ -z "${made:-}" ] || $sudo rm -f "$policy"
exit 0
