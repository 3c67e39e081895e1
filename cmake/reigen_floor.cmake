# Each folder is one static library: reigen_floor(NAME comm SOURCES ... USES store ... [TORCH] [COORDINATES] [LINK ...])
# Headers of include/reigen/<name>/ are public, everything under src/<name>/ is private.

set(REIGEN_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion)
# clang 17 and newer warn about code of libstdc++ 12 itself in std::stable_sort. clang's -Wshadow also warns about a constant of another source
# that is compiled in the same file, and its -Wpass-failed about loops that it does not vectorise.
list(APPEND REIGEN_WARNINGS $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations> $<$<CXX_COMPILER_ID:Clang>:-Wno-shadow>
  $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>)
if(REIGEN_WERROR)
  list(APPEND REIGEN_WARNINGS -Werror)
endif()
# __FILE__ has no path of the checkout, so that ccache finds the same source of another checkout.
add_compile_options("-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
if(REIGEN_SANITIZE)
  string(REPLACE "," ";" _sanitizers "${REIGEN_SANITIZE}")
  foreach(_s IN LISTS _sanitizers)
    add_compile_options(-fsanitize=${_s})
    add_link_options(-fsanitize=${_s})
  endforeach()
  add_compile_options(-fno-omit-frame-pointer -fno-sanitize-recover=all)
endif()
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
# With sanitizers, half of the build time goes into optimising the code that they insert. Without optimisation the tests take twice as long.
if(REIGEN_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -DNDEBUG")
elseif(REIGEN_LINE_NUMBERS)
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -DNDEBUG")
else()
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g0 -DNDEBUG")
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# g++ collects garbage whenever its heap has grown by a third. With LibTorch's headers, that takes a fifth of the compile time.
set(REIGEN_FASTER_COMPILER $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-expand=1000>
                           $<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=2000000>)

# Libraries that only our own sources include. The installed package does not require them.
set(REIGEN_HEADER_ONLY nlohmann_json::nlohmann_json CLI11::CLI11 tomlplusplus::tomlplusplus)

# Flags of every target of Reigen. With -ffp-contract=off, the kernels of all instruction sets give the same bits.
function(reigen_target_defaults target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${REIGEN_WARNINGS} -ffp-contract=off ${REIGEN_FASTER_COMPILER})
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
endfunction()

# Settings of the processor that g++ 13 and newer have with -O2 on x86-64, and not with -O1. A precompiled header made with -O2 is used with -O1
# only if they are the same.
include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-munroll-only-small-loops REIGEN_CAN_UNROLL_SMALL_LOOPS)
set(REIGEN_AS_WITH_O2 "")
if(REIGEN_CAN_UNROLL_SMALL_LOOPS AND NOT REIGEN_SANITIZE)
  set(REIGEN_AS_WITH_O2 "$<$<CONFIG:RelWithDebInfo,Release>:-munroll-only-small-loops;-mvzeroupper>")
endif()

# For targets that read options, start processes, write files and call the code that computes. There, the passes that
# -O2 has beyond -O1 take a third of the compile time and gain nothing. Loops over many values have options of their own
# (set_source_files_properties), or are in floors without this.
function(reigen_coordinates target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo,Release>:-O1> "${REIGEN_AS_WITH_O2}")
endfunction()

function(reigen_floor)
  cmake_parse_arguments(F "TORCH;COORDINATES" "NAME" "SOURCES;HEADERS;USES;LINK" ${ARGN})
  set(target reigen_${F_NAME})
  add_library(${target} STATIC ${F_SOURCES})
  add_library(reigen::${F_NAME} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${F_NAME})
  set(headers "")
  foreach(header IN LISTS F_HEADERS)
    list(APPEND headers "${PROJECT_SOURCE_DIR}/include/reigen/${F_NAME}/${header}")
  endforeach()
  target_sources(${target} PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  reigen_target_defaults(${target})
  if(F_COORDINATES)
    reigen_coordinates(${target})
  endif()
  foreach(used IN LISTS F_USES)
    target_link_libraries(${target} PUBLIC reigen_${used})
  endforeach()
  foreach(library IN LISTS F_LINK)
    if(library IN_LIST REIGEN_HEADER_ONLY)
      set(library "$<BUILD_INTERFACE:${library}>")
    endif()
    target_link_libraries(${target} PUBLIC "${library}")
  endforeach()
  set_property(GLOBAL APPEND PROPERTY REIGEN_FLOORS ${target})
  if(F_TORCH)
    reigen_use_torch(${target})
    set_property(GLOBAL APPEND PROPERTY REIGEN_TORCH_FLOORS ${target})
  else()
    reigen_use_precompiled(${target} reigen_pch)
  endif()
endfunction()

# For a target that only makes a precompiled header, and its empty source. CMake makes no header if its only source skips precompiled headers. If
# the source uses the header, its object takes 5 to 9 s, because g++ compiles the header's deferred code at the end of the file. So this source
# is compiled without __cplusplus: CMake's header is then empty, and g++ does not use the precompiled one.
function(reigen_only_makes_headers target source)
  if(REIGEN_PCH_LAUNCHER)
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${REIGEN_PCH_LAUNCHER}")
  endif()
  set_source_files_properties("${source}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON
    COMPILE_OPTIONS "$<$<CXX_COMPILER_ID:GNU>:-U__cplusplus;-w>")
endfunction()

# CMake compiles executables with -fPIE. They could not use a precompiled header made with -fPIC.
function(reigen_use_precompiled target headers)
  target_precompile_headers(${target} REUSE_FROM ${headers})
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# What sources include most of the standard library.
set(REIGEN_STANDARD_HEADERS <algorithm> <array> <chrono> <cmath> <cstring> <filesystem> <fstream> <functional> <map> <memory> <mutex> <optional>
  <set> <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>)

# Compiles once the headers that sources without LibTorch include most. It is called in the root folder before all floors.
function(reigen_make_headers)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/reigen_pch.cc" CONTENT "")
  add_library(reigen_pch OBJECT "${PROJECT_BINARY_DIR}/reigen_pch.cc")
  reigen_only_makes_headers(reigen_pch "${PROJECT_BINARY_DIR}/reigen_pch.cc")
  reigen_target_defaults(reigen_pch)
  target_link_libraries(reigen_pch PRIVATE fmt::fmt)
  target_precompile_headers(reigen_pch PRIVATE ${REIGEN_STANDARD_HEADERS} <fmt/format.h> <fmt/ranges.h>)
endfunction()

# For targets that only tests use. They are not optimised, because optimisation is a third to half of the compile time. COMPUTES: for a
# test that runs for long; it is optimised a little. They have no line numbers for debuggers, which are 6 % of their compile time; a build of
# type Debug has them.
function(reigen_test_defaults target)
  cmake_parse_arguments(D "COMPUTES" "" "" ${ARGN})
  reigen_target_defaults(${target})
  if(D_COMPUTES)
    reigen_coordinates(${target})
  else()
    target_compile_options(${target} PRIVATE -O0)
  endif()
  if(NOT REIGEN_SANITIZE)  # their reports have line numbers
    target_compile_options(${target} PRIVATE $<$<CONFIG:RelWithDebInfo>:-g0>)
  endif()
endfunction()

# Compiles once the headers that all tests include: those of the test framework, with TORCH also those of JSON and LibTorch. It is called
# in the root folder, because Ninja begins with the targets of that folder, and all tests wait for these headers.
function(reigen_make_test_headers)
  cmake_parse_arguments(H "TORCH" "" "" ${ARGN})
  set(headers reigen_test_pch)
  if(H_TORCH)
    set(headers reigen_torch_test_pch)
  endif()
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/${headers}.cc" CONTENT "")
  add_library(${headers} OBJECT "${PROJECT_BINARY_DIR}/${headers}.cc")
  reigen_only_makes_headers(${headers} "${PROJECT_BINARY_DIR}/${headers}.cc")
  reigen_test_defaults(${headers})
  target_link_libraries(${headers} PRIVATE GTest::gmock fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(${headers} PRIVATE <gmock/gmock.h> <gtest/gtest.h> ${REIGEN_STANDARD_HEADERS} <fmt/format.h> <fmt/ranges.h>)
  if(H_TORCH)
    target_link_libraries(${headers} PRIVATE reigen_libtorch)
    reigen_compile_with_torch(${headers})
    # By a path below an include folder: with an absolute path the headers would be compiled anew in every checkout.
    target_include_directories(${headers} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    target_precompile_headers(${headers} PRIVATE <nlohmann/json.hpp> <ATen/ATen.h> <torch/nn/module.h> <harness/torch.h>)
  endif()
endfunction()

function(reigen_use_test_headers target)
  cmake_parse_arguments(H "TORCH" "" "" ${ARGN})
  if(H_TORCH)
    reigen_use_precompiled(${target} reigen_torch_test_pch)
  else()
    reigen_use_precompiled(${target} reigen_test_pch)
  endif()
endfunction()

# reigen_test(NAME comm_all_reduce_test SOURCES ... USES comm ... [TORCH] [COMPUTES] [LABEL unit|multiproc|e2e] [PROCESSORS n]
#             [TIMEOUT s] [SHARDS n] [LONG] [WAITS])
# There is one CTest entry for each program. An entry for each test case would start the program hundreds of times. SHARDS: n entries, NAME_1
# to NAME_n, each of which runs every n-th test case. LONG: the test is among the first to begin, so that no long test runs alone at the end.
# `ctest -j` counts quarters of a processor. A test that WAITS (for deadlines, for the death of a rank) takes one quarter, a test that computes
# takes two, and a test with PROCESSORS 2 takes three.
function(reigen_test)
  cmake_parse_arguments(T "TORCH;COMPUTES;LONG;WAITS" "NAME;LABEL;PROCESSORS;TIMEOUT;SHARDS" "SOURCES;USES;LINK;ARGS" ${ARGN})
  if(NOT TARGET ${T_NAME})
    add_executable(${T_NAME} ${T_SOURCES})
    set(computes "")
    if(T_COMPUTES)
      set(computes COMPUTES)
    endif()
    reigen_test_defaults(${T_NAME} ${computes})
    target_include_directories(${T_NAME} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
    set_target_properties(${T_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    foreach(used IN LISTS T_USES)
      target_link_libraries(${T_NAME} PRIVATE reigen_${used})
    endforeach()
    target_link_libraries(${T_NAME} PRIVATE GTest::gmock ${T_LINK})
    # A precompiled header that is made with optimisation is used only with optimisation, and one without only without.
    if(T_TORCH AND T_COMPUTES)
      reigen_use_torch(${T_NAME})
    elseif(T_TORCH)
      target_link_libraries(${T_NAME} PRIVATE reigen_libtorch)
      reigen_compile_with_torch(${T_NAME})
      reigen_use_test_headers(${T_NAME} TORCH)
    else()
      target_link_libraries(${T_NAME} PRIVATE fmt::fmt)
      if(T_COMPUTES)
        reigen_use_precompiled(${T_NAME} reigen_pch)
      else()
        reigen_use_test_headers(${T_NAME})
      endif()
    endif()
  endif()
  if(NOT T_LABEL)
    set(T_LABEL unit)
  endif()
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(REIGEN_SANITIZE)
    math(EXPR T_TIMEOUT "3 * ${T_TIMEOUT}")
  endif()
  if(T_WAITS)
    set(quarters 1)
  elseif(T_PROCESSORS)
    set(quarters 3)
  else()
    set(quarters 2)
  endif()
  if(REIGEN_SANITIZE AND T_LABEL STREQUAL "e2e")
    set_target_properties(${T_NAME} PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
  set(entries ${T_NAME})
  if(T_SHARDS)
    set(entries "")
    foreach(shard RANGE 1 ${T_SHARDS})
      list(APPEND entries ${T_NAME}_${shard})
    endforeach()
  endif()
  set(index 0)
  foreach(entry IN LISTS entries)
    add_test(NAME ${entry} COMMAND ${T_NAME} ${T_ARGS})
    set_tests_properties(${entry} PROPERTIES LABELS ${T_LABEL} TIMEOUT ${T_TIMEOUT} PROCESSORS ${quarters})
    set(environment "")
    if(T_SHARDS)
      list(APPEND environment "GTEST_TOTAL_SHARDS=${T_SHARDS}" "GTEST_SHARD_INDEX=${index}")
    endif()
    # These tests start hundreds of programs. LibTorch registers its operators at each start, which takes a fifth less of 0.35 s if glibc asks
    # for huge pages.
    if(T_LABEL STREQUAL "e2e")
      list(APPEND environment "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")
    endif()
    set_tests_properties(${entry} PROPERTIES ENVIRONMENT "${environment}")
    if(T_LONG)
      set_tests_properties(${entry} PROPERTIES COST 2000)
    elseif(T_WAITS)
      set_tests_properties(${entry} PROPERTIES COST 1000)
    endif()
    math(EXPR index "${index} + 1")
  endforeach()
endfunction()
