#!/usr/bin/env bash
# A real Slurm of one node on this machine, for tests: controller, node daemon and munge, without systemd or root's
# configuration, in a folder of its own.
#
#   local_slurm.sh install       install Slurm and munge (Debian and Ubuntu, as root)
#   local_slurm.sh start DIR     start it; prints the line that makes Slurm's commands use it
#   local_slurm.sh stop DIR      end its daemons
#
# The node has GPUS fake GPUs (default 2) and CPUS cores (default 8), whatever this machine has. A GPU needs a device
# file, because with any other file Slurm sets no CUDA_VISIBLE_DEVICES; no job opens the file.
set -euo pipefail

install() {
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends slurm-wlm munge
}

free_ports() {
  python3 -c '
import socket
sockets = [socket.socket() for _ in range(2)]
for one in sockets: one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in sockets))'
}

start() {
  local dir host user ports devices=(null zero full random urandom tty ptmx console)
  mkdir -p "$1/state" "$1/spool"
  dir="$(cd "$1" && pwd)" host="$(hostname -s)" user="$(id -un)"
  read -r -a ports <<< "$(free_ports)"
  cat > "$dir/slurm.conf" << END
ClusterName=isocompute
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
AuthInfo=socket=$dir/munge.sock
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=15
KillWait=5
NodeName=$host NodeAddr=127.0.0.1 CPUs=${CPUS:-8} Gres=gpu:${GPUS:-2}
PartitionName=main Nodes=$host Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=$host MaxTime=10 State=UP
END
  (( ${GPUS:-2} == 0 )) || printf 'Name=gpu File=/dev/%s\n' "${devices[@]:0:${GPUS:-2}}" > "$dir/gres.conf"
  export SLURM_CONF="$dir/slurm.conf"
  (umask 077 && head -c 128 /dev/urandom > "$dir/munge.key")
  munged --force --key-file="$dir/munge.key" --socket="$dir/munge.sock" --pid-file="$dir/munged.pid" \
    --log-file="$dir/munged.log" --seed-file="$dir/munge.seed"
  slurmctld
  slurmd
  timeout 30 bash -c 'until sinfo -h -o %T | grep -qx idle; do sleep 0.1; done' || {
    tail -n 5 "$dir"/slurm*.log >&2
    return 1
  }
  printf 'export SLURM_CONF=%q\n' "$SLURM_CONF"
}

stop() {
  local name pid
  for name in slurmd slurmctld munged; do
    pid="$(cat "$1/$name.pid" 2> /dev/null)" || continue
    kill "$pid" 2> /dev/null || continue
    for _ in {1..100}; do
      kill -0 "$pid" 2> /dev/null || break
      sleep 0.1
    done
  done
}

case "${1:-}" in
  install) install ;;
  start | stop) "$1" "${2:?the folder of the cluster}" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
