"""Kernels: functions over arrays that run as the Python they are, until compiling them pays.

Modules and packages named `kernels` decorate their functions with `kernel`. One source serves
twice: as plain Python, exact and slow, for small work; and compiled by numba, which takes a tenth
of a second a function and is then kept on disk. `pays` decides, by the time that callers estimate
for the work ahead. Only this package knows numba, and imports it when something is compiled or
loaded: small work never waits for it.

============== =================================================================
`kernel`       kernels, bound to arguments that stay the same, or called directly
`policy`       when the kernels of a room are compiled
`twins`        the plain twin of a kernel, and its fingerprint
`compiler`     compiling and loading, by numba
`lent`         arrays as arguments, without a count of references
`beside`       loading, while Python does the work
`files`        where compiled kernels are kept
`instructions` operations that no Python can say, with their plain twins
`machine`      the compiled forms of instructions
`crc32c`       the CRC-32C: its tables and its instructions
`arrays`       types of arrays
============== =================================================================
"""

from logstore.jit.arrays import COPY_BLOCK, Bytes, Int32s, Int64s, UInt64s
from logstore.jit.beside import load_beside
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
from logstore.jit.policy import compile_always, follow, pays

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
    "copy_block",
    "copy_u8",
    "follow",
    "inline_kernel",
    "kernel",
    "kernel_like",
    "load_be_i32",
    "load_be_i64",
    "load_beside",
    "load_u64",
    "pays",
    "popcount",
    "prefetch",
    "store_be_i32",
    "store_be_i64",
    "store_u64",
]
