"""Compiles `kernels.tar.xz` for the processor that this is: LLVM's code of `kernels.c`, which knows no processor yet.

That takes less than a second of each process that decodes so, and needs no compiler on the machine: llvmlite is LLVM.
"""

import ctypes
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import torch

OPTIMISED = 2  # as far as clang -O2; more takes three times as long and makes no faster code
_OPENMP = "GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads"


@dataclass(frozen=True)
class Kernels:
    """`step` and `room` of kernels.c, each from the address of a call's struct to a number. They release Python's lock.

    The machine code lives as long as its `engine`.
    """

    step: Callable[[int], int]
    room: Callable[[int], int]
    engine: object


@cache
def kernels() -> Kernels:
    """Compile kernels.c. Raises RuntimeError if LLVM refuses, AttributeError if torch has no OpenMP."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=OPTIMISED
    )
    module = llvm.parse_bitcode(bitcode()[f"kernels-{lanes_of(features)}.bc"])
    module.triple, module.data_layout = llvm.get_default_triple(), str(machine.target_data)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=OPTIMISED))
    passes.getModulePassManager().run(module, passes)
    for name, address in _openmp().items():
        llvm.add_symbol(name, address)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    made = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
    step, room = (made(engine.get_function_address(name)) for name in ("step", "room"))
    return Kernels(step, room, engine)


def bitcode() -> dict[str, bytes]:
    """Return LLVM's code of kernels.c by file name, one file for each length of vectors."""
    with tarfile.open(Path(__file__).with_name("kernels.tar.xz")) as packed:
        files = ((member.name, packed.extractfile(member)) for member in packed)
        return {name.removeprefix("./"): file.read() for name, file in files if file}


def lanes_of(features: Mapping[str, bool]) -> int:
    """How many float32 a vector of this processor holds."""
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


def _openmp() -> dict[str, int]:
    """The addresses of the thread pool that torch has started, so that its threads and ours are the same."""
    library = ctypes.CDLL(torch._C.__file__)
    return {name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _OPENMP}
