"""Collectives from Python, by its own ctypes: every rank brings an array, all get the mean.

  reigen run -n 2 python3 collectives.py WHERE_REIGEN_IS_INSTALLED/lib/libreigen_c.so
"""
import ctypes
import sys

reigen = ctypes.CDLL(sys.argv[1])
reigen.reigen_error_message.restype = ctypes.c_char_p
FLOAT64, AVG = 8, 1  # reigen/c/comm.h
COUNT = 6


def check(status):
    if status != 0:
        print("error:", reigen.reigen_error_message().decode(), file=sys.stderr)
        sys.exit(status)


world = ctypes.c_void_p()
check(reigen.reigen_init(None, ctypes.byref(world)))
rank, size = reigen.reigen_rank(world), reigen.reigen_size(world)

values = (ctypes.c_double * COUNT)(*[rank + i for i in range(COUNT)])
# For a numpy array, pass array.ctypes.data_as(ctypes.c_void_p). The array must be contiguous.
data = ctypes.cast(values, ctypes.c_void_p)
check(reigen.reigen_all_reduce(world, data, data, ctypes.c_size_t(COUNT), FLOAT64, AVG, None))
check(reigen.reigen_barrier(world, None))
if rank == 0:
    print(f"{size} ranks: the last mean is {values[COUNT - 1]:g}")
reigen.reigen_comm_release(world)
