# The CUDA compiler for the plug-in of device kernels (cuda/). CMake's language CUDA is not enabled: its check takes seconds, and
# fails where there is no nvcc.
#   REIGEN_CUDA                auto (on where nvcc is 12.4 or newer), ON (nvcc is required), OFF. auto is off under REIGEN_SANITIZE,
#                              whose flags nvcc does not pass on
#   REIGEN_CUDA_ARCHITECTURES  devices that get machine code of their own, as numbers: 90 or "80;90". native: the devices of this
#                              machine, or 90 if nvidia-smi shows none. The plug-in always has PTX too. Every other device from compute
#                              capability 7.5 on compiles it when it first loads the plug-in
# nvcc is looked for below CUDA_ROOT and CUDA_HOME (variables of CMake or of the environment), in /usr/local/cuda, then in PATH.
# Sets REIGEN_HAVE_CUDA, REIGEN_NVCC, REIGEN_NVCC_ARCHITECTURES (arguments), REIGEN_NVCC_INCLUDE, REIGEN_NVCC_RUNTIME (libcudart.so).
set(REIGEN_CUDA auto CACHE STRING "Build the plug-in of CUDA kernels: auto, ON or OFF")
set(REIGEN_CUDA_ARCHITECTURES native CACHE STRING "Devices that the CUDA kernels are compiled for: numbers as in sm_90, or native")
set(REIGEN_HAVE_CUDA OFF CACHE INTERNAL "")
set(REIGEN_NVCC_OLDEST 12.4)

# Says why there is no plug-in. If REIGEN_CUDA asked for it, the configuration ends with an error.
function(_reigen_no_cuda why)
  if(REIGEN_CUDA STREQUAL "auto")
    message(STATUS "no plug-in of CUDA kernels: ${why}")
  else()
    message(FATAL_ERROR "REIGEN_CUDA=${REIGEN_CUDA}, but ${why}. CUDA_ROOT names the folder that holds bin/nvcc; without it: "
      "-DREIGEN_CUDA=OFF")
  endif()
endfunction()

if(NOT REIGEN_CUDA)
  return()
endif()
if(REIGEN_CUDA STREQUAL "auto" AND REIGEN_SANITIZE)
  return()
endif()
find_program(REIGEN_NVCC nvcc PATHS "${CUDA_ROOT}/bin" "$ENV{CUDA_ROOT}/bin" "${CUDA_HOME}/bin" "$ENV{CUDA_HOME}/bin"
  /usr/local/cuda/bin NO_DEFAULT_PATH)
find_program(REIGEN_NVCC nvcc)
mark_as_advanced(REIGEN_NVCC)
if(NOT REIGEN_NVCC)
  _reigen_no_cuda("nvcc was not found")
  return()
endif()
execute_process(COMMAND "${REIGEN_NVCC}" --version OUTPUT_VARIABLE _said ERROR_VARIABLE _said)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _release "${_said}")
set(_release "${CMAKE_MATCH_1}")
if(NOT _release OR _release VERSION_LESS REIGEN_NVCC_OLDEST)
  _reigen_no_cuda("${REIGEN_NVCC} has the version \"${_release}\" and ${REIGEN_NVCC_OLDEST} is needed")
  return()
endif()

# The program that checks kernels needs the headers and the runtime library. The plug-in itself needs only the runtime library.
file(REAL_PATH "${REIGEN_NVCC}" _root)
cmake_path(GET _root PARENT_PATH _root)
cmake_path(GET _root PARENT_PATH _root)
find_path(REIGEN_NVCC_INCLUDE cuda_runtime_api.h HINTS "${_root}" PATH_SUFFIXES include)
find_library(REIGEN_NVCC_RUNTIME NAMES cudart libcudart.so.13 libcudart.so.12 HINTS "${_root}" PATH_SUFFIXES lib64 lib)
mark_as_advanced(REIGEN_NVCC_INCLUDE REIGEN_NVCC_RUNTIME)
if(NOT REIGEN_NVCC_INCLUDE OR NOT REIGEN_NVCC_RUNTIME)
  _reigen_no_cuda("beside ${REIGEN_NVCC} are no cuda_runtime_api.h and libcudart.so")
  return()
endif()

# nvcc fails with a host compiler that is too new for it, so this is checked now rather than in the build.
set(_pair "${REIGEN_NVCC} ${CMAKE_CXX_COMPILER}")
if(NOT REIGEN_NVCC_COMPILES STREQUAL _pair)
  file(WRITE "${PROJECT_BINARY_DIR}/cuda/probe.cu" "#include <cstddef>\n__global__ void probe() {}\n")
  execute_process(COMMAND "${REIGEN_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++20 -arch=compute_75 -c probe.cu -o probe.o
    WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/cuda" RESULT_VARIABLE _failed OUTPUT_VARIABLE _said ERROR_VARIABLE _said)
  if(_failed)
    _reigen_no_cuda("${REIGEN_NVCC} does not compile with ${CMAKE_CXX_COMPILER}: ${_said}")
    return()
  endif()
  set(REIGEN_NVCC_COMPILES "${_pair}" CACHE INTERNAL "The compilers that were seen to work together")
endif()

set(_numbers "${REIGEN_CUDA_ARCHITECTURES}")
if(_numbers STREQUAL "native")
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    RESULT_VARIABLE _failed OUTPUT_VARIABLE _said ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]+" _numbers "${_said}")
  list(REMOVE_DUPLICATES _numbers)
  list(TRANSFORM _numbers REPLACE "\\." "")
  if(_failed OR NOT _numbers)
    set(_numbers 90)
  endif()
endif()
# The code of all devices comes from one PTX, which is compiled once from C++, so every device does the same operations.
list(TRANSFORM _numbers PREPEND "sm_")
list(JOIN _numbers "," _codes)
set(REIGEN_NVCC_ARCHITECTURES -gencode "arch=compute_75,code=[compute_75,${_codes}]")
set(REIGEN_HAVE_CUDA ON CACHE INTERNAL "")
message(STATUS "CUDA kernels: ${REIGEN_NVCC} ${_release} for ${_codes} and PTX")
