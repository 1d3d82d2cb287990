#!/bin/sh
# Usage: fuzz/run.sh TARGET [SECONDS | FILE]
# Builds a fuzz target and runs it for so long (10 s unless told), or on one file:
# an input that failed lies in fuzz/artifacts/TARGET/. New inputs are kept in
# fuzz/corpus/TARGET/; the ones to start from are in fuzz/seeds/TARGET/.
set -eu
target=$1
how_long=${2:-10}
case $how_long in */*) how_long=$(realpath "$how_long") ;; esac
cd "$(dirname "$0")"

# The coverage that libFuzzer steers by, from LLVM passes that the stable compiler
# has. With --target, RUSTFLAGS leave build scripts alone, which have no libFuzzer
# to link with.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --release --locked --target "$host" --target-dir target --bin "$target"
binary=target/$host/release/$target

if [ -f "$how_long" ]; then
    exec "$binary" "$how_long"
fi
mkdir -p "corpus/$target" "artifacts/$target"
exec "$binary" -max_total_time="$how_long" -timeout=10 -rss_limit_mb=1024 \
    -print_final_stats=1 -artifact_prefix="artifacts/$target/" \
    "corpus/$target" "seeds/$target"
