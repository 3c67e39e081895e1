# The headers of NCCL and of the CUDA runtime for the backend "nccl". No CUDA compiler is needed. Neither library is linked: a program opens
# each when it is first needed. REIGEN_NCCL: auto (if the headers are installed), ON (they are required), OFF. NCCL_ROOT and
# CUDA_ROOT (variables of CMake or of the environment) say where they are. Sets REIGEN_HAVE_NCCL, and REIGEN_HAVE_NCCL_HEADERS,
# with which the backend's logic can be tested, also under sanitizers, which do not understand NCCL.
set(REIGEN_NCCL auto CACHE STRING "Build the backend nccl: auto, ON or OFF")
set(REIGEN_HAVE_NCCL OFF CACHE INTERNAL "")
set(REIGEN_HAVE_NCCL_HEADERS OFF CACHE INTERNAL "")

function(reigen_use_nccl_headers target)
  target_include_directories(${target} SYSTEM PRIVATE "${REIGEN_NCCL_INCLUDE}" "${REIGEN_CUDA_INCLUDE}")
endfunction()

if(NOT REIGEN_NCCL)
  return()
endif()
set(_nccl_places "${NCCL_ROOT}" "$ENV{NCCL_ROOT}")
set(_cuda_places "${CUDA_ROOT}" "$ENV{CUDA_ROOT}" "$ENV{CUDA_HOME}" /usr/local/cuda)
find_path(REIGEN_NCCL_INCLUDE nccl.h HINTS ${_nccl_places} PATH_SUFFIXES include)
find_path(REIGEN_CUDA_INCLUDE cuda_runtime_api.h HINTS ${_cuda_places} PATH_SUFFIXES include)
# The library may be missing here. Its folder is only the last place in which a program looks for it.
find_library(REIGEN_NCCL_LIBRARY NAMES libnccl.so.2 nccl NAMES_PER_DIR HINTS ${_nccl_places} PATH_SUFFIXES lib lib64)
mark_as_advanced(REIGEN_NCCL_LIBRARY)
set(_missing "")
foreach(_part REIGEN_NCCL_INCLUDE REIGEN_CUDA_INCLUDE)
  mark_as_advanced(${_part})
  if(NOT ${_part})
    list(APPEND _missing ${_part})
  endif()
endforeach()
if(NOT _missing)
  set(REIGEN_HAVE_NCCL_HEADERS ON CACHE INTERNAL "")
endif()
if(REIGEN_NCCL STREQUAL "auto" AND REIGEN_SANITIZE)
  return()
endif()
if(_missing AND NOT REIGEN_NCCL STREQUAL "auto")
  message(FATAL_ERROR "NCCL not found (${_missing}): set NCCL_ROOT and CUDA_ROOT to the folders that hold include/nccl.h and "
    "include/cuda_runtime_api.h, or turn it off with -DREIGEN_NCCL=OFF")
elseif(_missing)
  message(STATUS "NCCL not found: no backend nccl (NCCL_ROOT and CUDA_ROOT say where it is)")
  return()
endif()
set(REIGEN_HAVE_NCCL ON CACHE INTERNAL "")
message(STATUS "NCCL: ${REIGEN_NCCL_INCLUDE}, ${REIGEN_CUDA_INCLUDE}; opened when the backend nccl is asked for")

# `opener`: the source that opens the library. It looks last in the folder where the library is on this machine.
function(reigen_use_nccl target opener)
  reigen_use_nccl_headers(${target})
  set(_folder "")
  if(REIGEN_NCCL_LIBRARY)
    cmake_path(GET REIGEN_NCCL_LIBRARY PARENT_PATH _folder)
  endif()
  set_property(SOURCE ${opener} APPEND PROPERTY COMPILE_DEFINITIONS "REIGEN_NCCL_FOLDER=\"${_folder}\"")
endfunction()
