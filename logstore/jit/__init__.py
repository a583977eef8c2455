"""Kernels: functions over arrays that run as plain Python until compiling them pays.

Modules and packages named `kernels` decorate their functions with `kernel`. Each function has two
forms with one source: plain Python, which is exact but slow, for work below the compilation
threshold; and code compiled by numba, which takes a tenth of a second per function and is then
cached on disk. `pays` decides by the time that callers estimate for their work. Only this package
uses numba, and imports it when a kernel is compiled or loaded.

============== =================================================================
`kernel`       kernels, also bound to fixed arguments or called directly
`policy`       the decision to compile the kernels of a package
`twins`        the plain twin of a kernel, and its fingerprint
`compiler`     compiling and loading by numba
`borrowing`    array arguments without reference counting
`background`   loading in the background while Python does the work
`files`        the files of compiled kernels
`instructions` operations that Python cannot express, with their plain twins
`machine`      the compiled forms of instructions
`crc32c`       the CRC-32C: its tables and its instructions
`arrays`       types of arrays
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
    "load_in_background",
    "load_u64",
    "pays",
    "popcount",
    "prefetch",
    "store_be_i32",
    "store_be_i64",
    "store_u64",
]
