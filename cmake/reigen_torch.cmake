# LibTorch for Reigen's own floors: the target that they link, and one precompiled header for all of them.
set(REIGEN_OWN_RPATH ${PROJECT_IS_TOP_LEVEL})
# The LibTorch that scripts/setup has installed here is also used by a project that adds Reigen as a subdirectory.
if(NOT REIGEN_TORCH AND NOT DEFINED ENV{REIGEN_TORCH} AND NOT Torch_DIR AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/../build/libtorch.path")
  file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/../build/libtorch.path" reigen_torch_there LIMIT_COUNT 1)
  if(EXISTS "${reigen_torch_there}/include/ATen/ATen.h")
    set(REIGEN_TORCH "${reigen_torch_there}")
  endif()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/reigen_find_torch.cmake")
if(REIGEN_TORCH_FAULT)
  message(FATAL_ERROR "${REIGEN_TORCH_FAULT}\nscripts/build installs it under build/; -DREIGEN_WITH_TORCH=OFF builds only what does not need it.")
endif()
message(STATUS "LibTorch ${REIGEN_TORCH_VERSION}: ${REIGEN_TORCH}")
# Not empty if LibTorch tells the CUDA stream of a c10::Stream.
file(STRINGS "${REIGEN_TORCH}/include/c10/core/Stream.h" REIGEN_TORCH_TELLS_STREAMS REGEX "native_handle")
# Not empty if LibTorch's allocators tell what they have given out.
set(REIGEN_TORCH_TELLS_MEMORY "")
if(EXISTS "${REIGEN_TORCH}/include/c10/core/CachingDeviceAllocator.h")
  file(STRINGS "${REIGEN_TORCH}/include/c10/core/CachingDeviceAllocator.h" REIGEN_TORCH_TELLS_MEMORY REGEX "DeviceAllocator : public")
endif()
include("${CMAKE_CURRENT_LIST_DIR}/reigen_bundle_torch.cmake")

# LibTorch's headers include omp.h. It comes with g++, but is a separate package for clang.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  include(CheckIncludeFileCXX)
  set(CMAKE_REQUIRED_FLAGS -fopenmp)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
  check_include_file_cxx(omp.h REIGEN_HAS_OMP_H)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
  if(NOT REIGEN_HAS_OMP_H)
    string(REGEX MATCH "^[0-9]+" reigen_clang "${CMAKE_CXX_COMPILER_VERSION}")
    unset(REIGEN_HAS_OMP_H CACHE)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no omp.h, which LibTorch's headers include: apt-get install libomp-${reigen_clang}-dev, or take g++.")
  endif()
endif()

# The installed package must not contain the path of LibTorch on this machine. The package configuration searches for it anew.
add_library(reigen_libtorch INTERFACE)
set_target_properties(reigen_libtorch PROPERTIES EXPORT_NAME libtorch)
target_link_libraries(reigen_libtorch INTERFACE "$<BUILD_INTERFACE:reigen_torch_files>" Threads::Threads)
# LibTorch brings headers of another version of fmt, but no library. A compiler finds them before the system's headers.
target_compile_definitions(reigen_libtorch INTERFACE "$<INSTALL_INTERFACE:FMT_HEADER_ONLY>")

# Header-only, LibTorch's version of fmt would be compiled anew in every file, for 1.5 s of some 15 s. So our sources use the
# system's headers of fmt first, and link the system's library.
# CMAKE_PREFIX_PATH may lead to LibTorch, so this search does not use it.
get_target_property(_reigen_fmt fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
find_path(REIGEN_FMT_HEADERS fmt/format.h PATHS ${_reigen_fmt} NO_DEFAULT_PATH)
find_path(REIGEN_FMT_HEADERS fmt/format.h NO_CMAKE_PATH NO_CMAKE_ENVIRONMENT_PATH REQUIRED)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/system_fmt")
file(CREATE_LINK "${REIGEN_FMT_HEADERS}/fmt" "${PROJECT_BINARY_DIR}/system_fmt/fmt" COPY_ON_ERROR SYMBOLIC)

# -fopenmp: at::parallel_for is header code and runs serially without it.
function(reigen_compile_with_torch target)
  target_include_directories(${target} SYSTEM BEFORE PRIVATE "${PROJECT_BINARY_DIR}/system_fmt")
  target_compile_options(${target} PRIVATE -fopenmp)
endfunction()

# The headers of LibTorch take some ten seconds a file. So they are compiled once, for all targets that need them. The header
# does not include all of torch/torch.h, because every file would instantiate its templates again: five seconds instead of three.
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/torch_pch.cc" CONTENT "")
add_library(reigen_torch_pch OBJECT "${PROJECT_BINARY_DIR}/torch_pch.cc")
reigen_only_makes_headers(reigen_torch_pch "${PROJECT_BINARY_DIR}/torch_pch.cc")
reigen_target_defaults(reigen_torch_pch)
reigen_compile_with_torch(reigen_torch_pch)
target_link_libraries(reigen_torch_pch PRIVATE reigen_libtorch fmt::fmt nlohmann_json::nlohmann_json)
target_precompile_headers(reigen_torch_pch PRIVATE <ATen/ATen.h> <torch/nn/module.h> ${REIGEN_STANDARD_HEADERS} <fmt/format.h> <fmt/ranges.h> <nlohmann/json.hpp>)

function(reigen_use_torch target)
  target_link_libraries(${target} PUBLIC reigen_libtorch)
  reigen_compile_with_torch(${target})
  reigen_use_precompiled(${target} reigen_torch_pch)
endfunction()
