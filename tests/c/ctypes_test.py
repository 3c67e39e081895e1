#!/usr/bin/env python3
"""Uses the C interface from Python, through ctypes: two ranks add up an array. Takes the path of libreigen_c.so."""
import ctypes
import sys

reigen = ctypes.CDLL(sys.argv[1])
reigen.reigen_error_message.restype = ctypes.c_char_p
reigen.reigen_memory_data.restype = ctypes.c_void_p
FLOAT64, SUM = 8, 0
COUNT = 1000


class CallOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("work", ctypes.POINTER(ctypes.c_void_p)), ("only_caller", ctypes.c_int),
                ("tag", ctypes.c_char_p), ("factor", ctypes.c_double)]


def check(status):
    if status != 0:
        raise RuntimeError(f"{status}: {reigen.reigen_error_message().decode()}")


world, memory, work = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
check(reigen.reigen_init(None, ctypes.byref(world)))
rank, size = reigen.reigen_rank(world), reigen.reigen_size(world)

check(reigen.reigen_allocate(world, ctypes.c_size_t(COUNT * 8), ctypes.byref(memory)))
data = ctypes.c_void_p(reigen.reigen_memory_data(memory))
values = (ctypes.c_double * COUNT).from_address(data.value)
values[:] = [rank + i for i in range(COUNT)]
check(reigen.reigen_all_reduce(world, data, data, ctypes.c_size_t(COUNT), FLOAT64, SUM, None))
assert list(values) == [size * (size - 1) / 2 + size * i for i in range(COUNT)], values[:10]

options = CallOptions()
check(reigen.reigen_call_options_default(ctypes.byref(options), ctypes.c_size_t(ctypes.sizeof(options))))
options.work, options.tag, options.factor = ctypes.pointer(work), b"from Python", 0.5
check(reigen.reigen_all_reduce(world, data, data, ctypes.c_size_t(COUNT), FLOAT64, SUM, ctypes.byref(options)))
check(reigen.reigen_work_wait(work, ctypes.c_int64(60000)))
assert values[1] == size * (size * (size - 1) / 2 + size) / 2, values[1]
reigen.reigen_work_release(work)

try:
    check(reigen.reigen_all_reduce(world, data, data, ctypes.c_size_t(1), 99, SUM, None))
except RuntimeError as error:
    assert "78: [reigen_all_reduce] unknown data type\n  got: 99" in str(error), error
else:
    raise AssertionError("an unknown data type was taken")

check(reigen.reigen_barrier(world, None))
reigen.reigen_memory_release(memory)
reigen.reigen_comm_release(world)
print(f"rank {rank} of {size} passed")
