#!/bin/sh
# Builds kernels.wasm from kernels.c: ./build.sh [OUTPUT]. Needs clang and wasm-ld (Debian: clang-14, lld-14).
cd "$(dirname "$0")" && exec clang --target=wasm32 -msimd128 -mbulk-memory -O3 -fno-math-errno -nostdlib \
  -Wl,--no-entry,--import-memory,--export=__heap_base,--strip-all -o "${1:-kernels.wasm}" kernels.c
