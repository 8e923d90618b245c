#!/bin/sh
# Builds kernels-4.bc, kernels-8.bc and kernels-16.bc of kernels.c, for vectors of so many numbers, and packs them into
# kernels.tar.xz, two thirds smaller, since they are much alike: ./build.sh [FOLDER].
# They are LLVM's code for no machine yet (le64 has neither features nor a calling convention of its own). Needs clang
# and xz (Debian: clang-14, xz-utils).
cd "$(dirname "$0")" && built=$(mktemp -d) || exit
for lanes in 4 8 16; do
  clang --target=le64-unknown-unknown -DLANES=$lanes -O2 -Xclang -disable-llvm-passes -ffp-contract=fast \
    -fno-math-errno -ffreestanding -fno-ident -emit-llvm -c -o "$built/kernels-$lanes.bc" kernels.c || exit
done
tar -C "$built" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - . | xz -9e > "${1:-.}/kernels.tar.xz"
rm -r "$built"
