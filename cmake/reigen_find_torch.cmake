# Finds LibTorch without its own CMake package, which stops on machines without the CUDA toolkit
# (docs/decisions/0003-libtorch-without-its-cmake-package.md). Installed beside the package configuration, which uses it too.
# Order: -DREIGEN_TORCH or the environment's, Torch_DIR, an importable Python torch. (scripts/setup installs the pinned wheel and passes REIGEN_TORCH.)
# Sets REIGEN_TORCH, REIGEN_TORCH_VERSION (major.minor) and the target reigen_torch_files; or REIGEN_TORCH_FAULT, a sentence.

set(REIGEN_TORCH_FAULT "")
set(_reigen_torch "${REIGEN_TORCH}")
if(NOT _reigen_torch)
  set(_reigen_torch "$ENV{REIGEN_TORCH}")
endif()
if(NOT _reigen_torch AND Torch_DIR)
  get_filename_component(_reigen_torch "${Torch_DIR}/../../.." ABSOLUTE)
endif()
if(NOT _reigen_torch)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_FOUND)
    execute_process(COMMAND "${Python3_EXECUTABLE}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                    OUTPUT_VARIABLE _reigen_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()
if(NOT EXISTS "${_reigen_torch}/lib/libtorch_cpu.so")
  set(REIGEN_TORCH_FAULT "LibTorch not found (looked for lib/libtorch_cpu.so in '${_reigen_torch}'); pass -DREIGEN_TORCH=/path/to/libtorch.")
  return()
endif()

set(_reigen_version_lines "")
foreach(_reigen_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  if(NOT _reigen_version_lines AND EXISTS "${_reigen_torch}/include/${_reigen_header}")
    file(STRINGS "${_reigen_torch}/include/${_reigen_header}" _reigen_version_lines REGEX "define TORCH_VERSION(_MAJOR|_MINOR) ")
  endif()
endforeach()
string(REGEX MATCH "MAJOR ([0-9]+)" _ "${_reigen_version_lines}")
set(REIGEN_TORCH_VERSION "${CMAKE_MATCH_1}")
string(REGEX MATCH "MINOR ([0-9]+)" _ "${_reigen_version_lines}")
string(APPEND REIGEN_TORCH_VERSION ".${CMAKE_MATCH_1}")
if(REIGEN_TORCH_VERSION VERSION_LESS "2.6")
  set(REIGEN_TORCH_FAULT "LibTorch ${REIGEN_TORCH_VERSION} in ${_reigen_torch} is too old: 2.6 or newer is needed.")
  return()
endif()
set(REIGEN_TORCH "${_reigen_torch}")

# An imported target: its headers are system headers, whose warnings are not ours.
if(NOT TARGET reigen_torch_files)
  add_library(reigen_torch_files INTERFACE IMPORTED GLOBAL)
  target_include_directories(reigen_torch_files INTERFACE "${REIGEN_TORCH}/include" "${REIGEN_TORCH}/include/torch/csrc/api/include")
  target_link_libraries(reigen_torch_files INTERFACE "${REIGEN_TORCH}/lib/libtorch_cpu.so" "${REIGEN_TORCH}/lib/libc10.so")
  # The wheel's libraries need others beside them that we do not link. -fopenmp: at::parallel_for is header code.
  target_link_options(reigen_torch_files INTERFACE "-Wl,-rpath,${REIGEN_TORCH}/lib" "-Wl,--allow-shlib-undefined" -fopenmp)
endif()
