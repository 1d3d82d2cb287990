#!/bin/bash
# Times `poolcounter run k -- true`, `flock file true` and `true` alone, in turn: prints the
# median of ROUNDS (500) each, in microseconds, and the difference from flock in the same
# round, which is less sensitive to other load. Starts its own daemon.
#     bench/run-overhead.sh target/release/poolcounter target/release/poolcounterd
set -eu
command=$(realpath "$1")
daemon=$(realpath "$2")
place=$(mktemp -d)
"$daemon" -l 127.0.0.1 -p 0 2> "$place/log" &
trap 'kill %1; rm -r "$place"' EXIT
until grep -q 'listening on' "$place/log"; do sleep 0.05; done
address=$(sed -nE 's/.*listening on ([^,]*).*/\1/p' "$place/log")

took() { # name command...
    local name=$1 begin=${EPOCHREALTIME/./} end
    shift
    "$@"
    end=${EPOCHREALTIME/./}
    echo $((end - begin)) >> "$place/$name"
}

for ((round = 0; round < ${ROUNDS:-500}; round++)); do
    took true /bin/true
    took flock flock "$place/lock" /bin/true
    took run "$command" -s "$address" run k -- /bin/true
done
paste "$place/flock" "$place/run" | awk '{ print $2 - $1 }' > "$place/run-flock"
for name in true flock run run-flock; do
    sort -n "$place/$name" | awk -v name=$name '{ t[NR] = $1 } END {
        printf "%-9s median %5d us   fastest %5d   a quarter above %5d\n",
            name, t[int((NR + 1) / 2)], t[1], t[int(NR * 3 / 4)] }'
done
