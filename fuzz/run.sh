#!/bin/sh
# Usage: fuzz/run.sh TARGET [SECONDS | FILE]
# Builds a fuzz target and runs it for SECONDS (default: 10), or on one file. An input
# that failed is kept in target/fuzz/artifacts/TARGET/, new inputs in
# target/fuzz/corpus/TARGET/; the seeds are in fuzz/seeds/TARGET/. FUZZ_SEED sets the
# random seed (default: another one each time).
set -eu
target=$1
how_long=${2:-10}
case $how_long in */*) how_long=$(realpath "$how_long") ;; esac
cd "$(dirname "$0")"

# libFuzzer needs this coverage; it comes from LLVM passes that the stable compiler
# has. With --target, RUSTFLAGS do not apply to build scripts, which do not link
# libFuzzer.
host=$(rustc -vV | sed -n 's/^host: //p')
RUSTFLAGS="--cfg fuzzing -Ccodegen-units=1 -Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --profile fuzz --locked --target "$host" --target-dir ../target --bin "$target"
kept=../target/fuzz
binary=../target/$host/fuzz/$target

if [ -f "$how_long" ]; then
    exec "$binary" "$how_long"
fi
mkdir -p "$kept/corpus/$target" "$kept/artifacts/$target"
exec "$binary" -max_total_time="$how_long" -seed="${FUZZ_SEED:-0}" -timeout=10 -rss_limit_mb=1024 \
    -print_final_stats=1 -artifact_prefix="$kept/artifacts/$target/" \
    "$kept/corpus/$target" "seeds/$target"
