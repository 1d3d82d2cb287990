#!/usr/bin/env bash
# Lists the lines of src that the simulation does not reach, and fails if any function
# has more of them than unreached.txt, or if one there does not exist. Needs llvm-tools
# (rustup component add llvm-tools). SEEDS=2000 by default.
set -euo pipefail
cd "$(dirname "$0")/../.."
awk 'NF == 3 && !/^#/ { print $1, $2 }' tests/simulation/unreached.txt | {
    status=0
    while read -r file name; do
        grep -qs "fn $name\b" "$file" || { echo "unreached.txt: $file has no $name" >&2; status=1; }
    done
    exit $status
}
folder=$PWD/target/coverage
mkdir -p "$folder"
rm -f "$folder"/*.profraw
tools=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin
export RUSTFLAGS="-Cinstrument-coverage" LLVM_PROFILE_FILE="$folder/%p-%m.profraw"
test_binary=$(SERVER_SIM_SEEDS=${SEEDS:-2000} cargo test --locked --target-dir "$folder/build" --lib simulated_world 2>&1 \
    | tee "$folder/log" | sed -n 's/.*Running unittests src\/lib.rs (\(.*\))/\1/p')
grep -q '^test result: ok' "$folder/log" || { tail -n 40 "$folder/log" >&2; exit 1; }
"$tools/llvm-profdata" merge -sparse "$folder"/*.profraw -o "$folder/all.profdata"
"$tools/llvm-cov" show "$test_binary" --instr-profile="$folder/all.profdata" --show-line-counts src \
    | awk -F'|' '/^\/.*\.rs:$/ { file = $0; sub(/.*\/src\//, "src/", file); sub(/:$/, "", file); tests = 0; name = "-" }
        /mod tests \{/ { tests = 1 }
        match($3, /^ *(pub(\([a-z: ]*\))? )?(const )?fn [a-z_0-9]+/) { name = substr($3, RSTART, RLENGTH); sub(/.* /, "", name) }
        !tests && file !~ /tests\.rs$/ && $2 ~ /^ *0$/ { number = $1; sub(/^ */, "", number); print file ":" number ":" name ":" $3 }' \
    | sort -u | tee "$folder/unreached"
awk -F: 'FILENAME ~ /unreached.txt$/ { if (split($0, words, " ") == 3 && !/^#/) listed[words[1] " " words[2]] += words[3]; next }
    { unreached[$1 " " $3] += 1 }
    END { for (place in unreached) if (unreached[place] > listed[place]) {
              print place ": " unreached[place] " lines are not reached, " listed[place] + 0 " are listed" > "/dev/stderr"; more = 1 }
          exit more }' tests/simulation/unreached.txt "$folder/unreached"
