"""Kernels: array functions that run as plain Python until compiling them is worthwhile.

Functions decorated with `kernel`, in modules and packages named `kernels`, have two forms with the
same source. Plain Python, exact but slow, is used below the compilation threshold. Otherwise numba
compiles them, which takes a tenth of a second per function, and caches the code on disk.
`compile_if_worthwhile` decides, based on the caller's estimate of the work. Only this package uses
numba, which it does not import before it compiles or loads a kernel.

============== =================================================================
`kernel`       kernels, and ways to call them with less overhead
`policy`       when to compile the kernels of a package
`twins`        plain Python twins of kernels, and fingerprints
`compiler`     compiling and loading with numba
`borrowing`    array arguments without reference counting
`background`   loading in the background
`files`        cache files of compiled kernels
`instructions` operations that Python cannot express, with plain twins
`machine`      compiled forms of instructions
`crc32c`       CRC-32C by tables or instructions
`arrays`       array types
============== =================================================================
"""

from logstore.jit.arrays import COPY_BLOCK, Bytes, Int32s, Int64s, UInt64s
from logstore.jit.background import load_in_background
from logstore.jit.instructions import (
    borrowed,
    copy_block,
    copy_u8,
    load_be_i32,
    load_be_i64,
    load_u64,
    popcount,
    prefetch,
    store_be_i32,
    store_be_i64,
    store_u64,
)
from logstore.jit.kernel import Bound, Direct, Kernel, inline_kernel, kernel, kernel_like
from logstore.jit.policy import compile_always, compile_if_worthwhile, follow

__all__ = [
    "COPY_BLOCK",
    "Bound",
    "Bytes",
    "Direct",
    "Int32s",
    "Int64s",
    "Kernel",
    "UInt64s",
    "borrowed",
    "compile_always",
    "compile_if_worthwhile",
    "copy_block",
    "copy_u8",
    "follow",
    "inline_kernel",
    "kernel",
    "kernel_like",
    "load_be_i32",
    "load_be_i64",
    "load_in_background",
    "load_u64",
    "popcount",
    "prefetch",
    "store_be_i32",
    "store_be_i64",
    "store_u64",
]
