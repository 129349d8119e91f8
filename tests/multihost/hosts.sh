#!/bin/bash
# Several "hosts" on one machine: network namespaces joined by veth pairs whose rate the kernel shapes (htb). Needs root,
# iproute2, util-linux. Nothing outside these namespaces is touched, and no traffic leaves them.
usage() {
  cat <<END
hosts.sh switch HOSTS [RATE] [RAILS]   hosts 0.., each with eth0..eth<RAILS-1> of RATE (1gbit), a switch a rail;
                                       host i has 10.<90+rail>.0.<i+1>/24
hosts.sh torus "2 2 2" [RATE]          a link of its own for each pair of neighbours (a side of 2: one link); host i has
                                       10.96.0.<i+1> on lo, and routes by dimension order to all others
hosts.sh exec HOST COMMAND...          on that host: its own network, host name, processes, IPC, /proc and /dev/shm
hosts.sh agent [OPTIONS] HOST TEXT...  the same in the form of a remote shell, for launchers
hosts.sh rate HOST INTERFACE RATE      shapes what HOST sends there, and what is sent to it
hosts.sh list                          the names of the hosts, with commas
hosts.sh down                          removes all of them
RATE as tc has it: 1gbit, 250mbit. Host names resolve on them. The hosts are called \$TEST_HOSTS0, 1, ... (th0, th1, ... by default).
Exit status: 0, 2 for wrong usage, 77 where the machine cannot do it (no root, no namespaces, no htb), else that of COMMAND.
END
}
set -euo pipefail
name=${TEST_HOSTS:-th}
die() { echo "hosts.sh: $1" >&2; exit "${2:-2}"; }

# shape NAMESPACE INTERFACE RATE: of what goes out. The burst is small, so that 64 KiB already take their time.
shape() {
  [[ "$(tc -n "$1" qdisc show dev "$2")" == *"htb 1:"* ]] || tc -n "$1" qdisc add dev "$2" root handle 1: htb default 10 2>/dev/null ||
    die "tc cannot shape $2 of $1 (sch_htb)" 77
  tc -n "$1" class replace dev "$2" parent 1: classid 1:10 htb rate "$3" ceil "$3" burst 32k cburst 32k quantum 60000
}
able() {
  [ "$(id -u)" = 0 ] || die "network namespaces need root" 77
  command -v ip >/dev/null && command -v tc >/dev/null || die "needs ip and tc of iproute2" 77
  ! grep -q "^${name}[0-9s]" <<<"$(ip netns list)" || die "hosts called ${name}* are there already; hosts.sh down removes them"
}
host() {
  ip netns add "$1" 2>/dev/null || die "cannot make network namespace $1" 77
  ip -n "$1" link set lo up
}
whole() { [[ "$2" =~ ^[0-9]+$ ]] && [ "$2" -ge "$3" ] && [ "$2" -le "$4" ] || die "$1 \"$2\" is not in $3..$4"; }

case "${1:-}" in
  switch)
    hosts=${2:-} rate=${3:-1gbit} rails=${4:-1}
    whole HOSTS "$hosts" 1 64
    whole RAILS "$rails" 1 8
    able
    host "${name}sw"
    for ((i = 0; i < hosts; ++i)); do host "$name$i"; done
    for ((r = 0; r < rails; ++r)); do
      ip -n "${name}sw" link add "br$r" type bridge
      ip -n "${name}sw" link set "br$r" up
      for ((i = 0; i < hosts; ++i)); do
        ip link add "eth$r" netns "$name$i" type veth peer name "p$i.$r" netns "${name}sw"
        ip -n "$name$i" addr add "10.$((90 + r)).0.$((i + 1))/24" dev "eth$r"
        ip -n "${name}sw" link set "p$i.$r" master "br$r"
        ip -n "${name}sw" link set "p$i.$r" up
        ip -n "$name$i" link set "eth$r" up
        shape "$name$i" "eth$r" "$rate"
        shape "${name}sw" "p$i.$r" "$rate"
      done
    done
    ;;
  torus)
    read -ra sides <<<"${2:-}"
    rate=${3:-1gbit} hosts=1
    [ ${#sides[@]} -gt 0 ] || die "torus needs its sides, e.g. \"2 2 2\""
    for side in "${sides[@]}"; do whole "a side of" "$side" 1 16; hosts=$((hosts * side)); done
    whole "the number of hosts" "$hosts" 1 64
    able
    for ((i = 0; i < hosts; ++i)); do
      host "$name$i"
      ip -n "$name$i" addr add "10.96.0.$((i + 1))/32" dev lo
      ip netns exec "$name$i" sysctl -qw net.ipv4.ip_forward=1
    done
    link=0
    declare -A toward  # "from to" -> "address interface" of the link
    for ((i = 0; i < hosts; ++i)); do
      stride=1
      for side in "${sides[@]}"; do
        at=$((i / stride % side))
        if [ "$side" -gt 2 ] || { [ "$side" = 2 ] && [ "$at" = 0 ]; }; then
          j=$((i + ((at + 1) % side - at) * stride)) net="10.97.$((link / 60)).$((link % 60 * 4))"
          ip link add "e$link" netns "$name$i" type veth peer name "e$link" netns "$name$j"
          base=${net%.*} last=${net##*.}
          for end in "$i 1" "$j 2"; do
            read -r who number <<<"$end"
            ip -n "$name$who" addr add "$base.$((last + number))/30" dev "e$link"
            ip -n "$name$who" link set "e$link" up
            shape "$name$who" "e$link" "$rate"
          done
          toward["$i $j"]="$base.$((last + 2)) e$link"
          toward["$j $i"]="$base.$((last + 1)) e$link"
          link=$((link + 1))
        fi
        stride=$((stride * side))
      done
    done
    for ((i = 0; i < hosts; ++i)); do  # dimension order, the shorter way round
      for ((j = 0; j < hosts; ++j)); do
        [ "$i" != "$j" ] || continue
        stride=1
        for side in "${sides[@]}"; do
          at=$((i / stride % side)) wanted=$((j / stride % side))
          if [ "$at" != "$wanted" ]; then
            way=1
            [ $(((wanted - at + side) % side * 2)) -le "$side" ] || way=-1
            next=$((i + ((at + way + side) % side - at) * stride))
            read -r gateway interface <<<"${toward["$i $next"]}"
            ip -n "$name$i" route add "10.96.0.$((j + 1))/32" via "$gateway" dev "$interface" src "10.96.0.$((i + 1))"
            break
          fi
          stride=$((stride * side))
        done
      done
    done
    ;;
  exec | agent)
    verb=$1
    shift
    if [ "$verb" = agent ]; then
      while [[ "${1:-}" == -* ]]; do case "$1" in -l | -p | -o) shift 2 ;; *) shift ;; esac; done
    fi
    [ $# -ge 2 ] || die "$verb needs a host and a command"
    at=$1
    shift
    [ -e "/run/netns/$at" ] || die "there is no host \"$at\" (there are: $("$0" list))"
    if [ "$verb" = agent ]; then text="$*"; else text=$(printf '%q ' "$@"); fi
    # Names resolve to the first rail, or in a torus to the address that all hosts have a route to.
    net=10.90.0
    # Not through a pipe to `grep -q`: it ends early, and what writes into the pipe may then fail.
    [[ "$(ip -n "$at" addr show lo)" != *10.96.0.* ]] || net=10.96.0
    book=$(for one in $("$0" list | tr , ' '); do echo "$net.$((${one#"$name"} + 1)) $one"; done)
    exec ip netns exec "$at" unshare --uts --ipc --pid --fork --kill-child --mount-proc bash -c "
      hostname $at
      mount -t tmpfs tmpfs /dev/shm
      if ! grep -q ' $at\$' /etc/hosts; then  # called on one of the hosts it has the book
        printf '127.0.0.1 localhost\n%s\n' '$book' >/dev/shm/hosts
        mount --bind /dev/shm/hosts /etc/hosts
        rm /dev/shm/hosts
      fi
      $text"
    ;;
  rate)
    [ $# = 4 ] || die "rate needs a host, an interface and a rate"
    shape "$2" "$3" "$4"
    if [ -e "/run/netns/${name}sw" ]; then shape "${name}sw" "p${2#"$name"}.${3#eth}" "$4"; fi
    ;;
  list) ip netns list | awk '{print $1}' | grep -E "^${name}[0-9]+\$" | sort -V | paste -sd, ;;
  down)
    for at in $(ip netns list | awk '{print $1}' | grep -E "^${name}([0-9]+|sw)\$"); do ip netns del "$at"; done
    ;;
  -h | --help | help) usage ;;
  *) usage >&2; exit 2 ;;
esac
