# Builds tests/downstream/project with reigen from WAY (install, subdirectory) and runs its programs. The project's own
# build folder is kept, like a user's, so the next run compiles only the files that have changed.
set(work "${SCRATCH}/${WAY}")
file(REMOVE_RECURSE "${work}/prefix" "${work}/moved" "${work}/refused" "${work}/other_torch" "${work}/c_build")

include("${CMAKE_CURRENT_LIST_DIR}/run.cmake")

# These projects compile the same code in the next run, and in another checkout, so ccache helps.
set(through_ccache "")
find_program(ccache NAMES ccache)
if(ccache AND CXX_ID STREQUAL "GNU")  # as in cmake/reigen_ccache.cmake, whose comments say why
  set(ENV{CCACHE_BASEDIR} "${SOURCE}")
  set(ENV{CCACHE_NOHASHDIR} 1)
  set(ENV{CCACHE_SLOPPINESS} pch_defines,time_macros,include_file_mtime,include_file_ctime)
  set(through_ccache -DCMAKE_CXX_COMPILER_LAUNCHER=${ccache} -DCMAKE_CXX_FLAGS=-fpch-preprocess)
endif()

# As in cmake/reigen_linker.cmake. The project below is linked by the compiler's own linker, as most users do.
set(by_mold "")
if(BY_MOLD)
  set(by_mold -DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold)
endif()

# Configures the project in ${work}/NAME. Sets `result` and `output` to CMake's exit code and output.
function(configure name)
  execute_process(COMMAND ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/project" -B "${work}/${name}" -G "${CMAKE_GENERATOR}"
                          -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_C_COMPILER=${C_COMPILER} ${through_ccache} ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(result "${result}" PARENT_SCOPE)
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(require_configured)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "configuring the downstream project failed:\n${output}")
  endif()
endfunction()

# A package that contains paths of the build machine would not work on another machine.
function(require_relocatable)
  file(GLOB_RECURSE files "${work}/prefix/*.cmake")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    foreach(path "${BUILD}" "${SOURCE}" "${TORCH}/include" "${TORCH}/lib")
      string(FIND "${text}" "${path}" at)
      if(path AND NOT at EQUAL -1)
        message(FATAL_ERROR "${file} names ${path}")
      endif()
    endforeach()
  endforeach()
endfunction()

# LibTorch of another minor version must be refused with a message.
function(require_version_checked)
  set(fake "${work}/other_torch")
  file(WRITE "${fake}/lib/libtorch_cpu.so" "")
  file(WRITE "${fake}/include/torch/headeronly/version.h" "#define TORCH_VERSION_MAJOR 9\n#define TORCH_VERSION_MINOR 9\n")
  configure(refused -DFROM=install -DWITH_TORCH=ON "-DCMAKE_PREFIX_PATH=${work}/moved" "-DREIGEN_TORCH=${fake}")
  if(result EQUAL 0 OR NOT output MATCHES "LibTorch 9\\.9")
    message(FATAL_ERROR "LibTorch 9.9 was not refused:\n${output}")
  endif()
endfunction()

# The C interface can be used without a C++ compiler, with CMake and with pkg-config.
function(require_c_interface)
  run("configuring the C project" ${CMAKE_COMMAND} -S "${CMAKE_CURRENT_LIST_DIR}/c_project" -B "${work}/c_build"
      -G "${CMAKE_GENERATOR}" -DCMAKE_C_COMPILER=${C_COMPILER} "-DCMAKE_PREFIX_PATH=${work}/moved")
  run("building the C project" ${CMAKE_COMMAND} --build "${work}/c_build")
  run("sum_in_c" "${work}/c_build/sum_in_c")
  if(NOT output STREQUAL "sum 2.5\n")
    message(FATAL_ERROR "sum_in_c printed: ${output}")
  endif()
  find_program(pkg_config pkg-config)
  file(GLOB_RECURSE package "${work}/moved/*/reigen_c.pc")
  if(NOT pkg_config)
    return()
  endif()
  cmake_path(GET package PARENT_PATH folder)
  run("pkg-config" ${CMAKE_COMMAND} -E env "PKG_CONFIG_PATH=${folder}" ${pkg_config} --cflags --libs reigen_c)
  separate_arguments(flags UNIX_COMMAND "${output}")
  cmake_path(GET folder PARENT_PATH libraries)
  run("compiling with pkg-config's flags" ${C_COMPILER} "${CMAKE_CURRENT_LIST_DIR}/c_project/sum_in_c.c" -o "${work}/sum_by_pkg_config"
      ${flags} "-Wl,-rpath,${libraries}")
  run("sum_by_pkg_config" "${work}/sum_by_pkg_config")
  if(NOT output STREQUAL "sum 2.5\n")
    message(FATAL_ERROR "sum_by_pkg_config printed: ${output}")
  endif()
endfunction()

# Builds the programs of docs/your_program.md as a user does who copies their folder.
function(require_your_program)
  file(REMOVE_RECURSE "${work}/your_program/runs")
  file(MAKE_DIRECTORY "${work}/your_program/runs")
  set(programs "${SOURCE}/examples/your_program")
  run("configuring examples/your_program" ${CMAKE_COMMAND} -S "${programs}" -B "${work}/your_program" -G "${CMAKE_GENERATOR}"
      -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_C_COMPILER=${C_COMPILER} "-DCMAKE_PREFIX_PATH=${work}/moved" "-DREIGEN_TORCH=${TORCH}"
      -DCMAKE_BUILD_TYPE=None "-DCMAKE_PROJECT_your_program_INCLUDE=${CMAKE_CURRENT_LIST_DIR}/by_hand.cmake" ${through_ccache} ${by_mold})
  run("building examples/your_program" ${CMAKE_COMMAND} --build "${work}/your_program" --parallel 2)
  file(GLOB_RECURSE library "${work}/moved/*/libreigen_c.so")
  find_program(python NAMES python3 REQUIRED)
  run("your_program.py" ${python} "${CMAKE_CURRENT_LIST_DIR}/your_program.py" "${work}/your_program" "${work}/moved/bin/reigen" "${library}"
      "${programs}" "${work}/your_program/runs")
  message(STATUS "${output}")
endfunction()

if(WAY STREQUAL install)
  run("cmake --install" ${CMAKE_COMMAND} --install "${BUILD}" --prefix "${work}/prefix")
  require_relocatable()
  file(RENAME "${work}/prefix" "${work}/moved")
  configure(build -DFROM=install -DCMAKE_BUILD_TYPE=Release -DWITH_TORCH=${WITH_TORCH} "-DCMAKE_PREFIX_PATH=${work}/moved" "-DREIGEN_TORCH=${TORCH}")
  require_configured()
  require_c_interface()
  if(WITH_TORCH)
    require_version_checked()
  endif()
else()
  # Without optimisation this takes half the time. The other WAY builds as users do.
  configure(build -DFROM=subdirectory -DCMAKE_BUILD_TYPE=None -DWITH_TORCH=OFF "-DREIGEN_SOURCE=${SOURCE}" -DCMAKE_UNITY_BUILD=ON
            -DCMAKE_UNITY_BUILD_BATCH_SIZE=40)  # takes a third of the time; scripts/check/includes compiles each source by itself
  require_configured()
endif()
run("building" ${CMAKE_COMMAND} --build "${work}/build" --parallel 2)
run("sum_of_ranks" "${work}/build/sum_of_ranks")
if(NOT output MATCHES "rank sum 6")
  message(FATAL_ERROR "sum_of_ranks printed: ${output}")
endif()
if(WAY STREQUAL install AND WITH_TORCH)
  run("train_line" "${work}/build/train_line")
  if(NOT output MATCHES "slope 3\\.0")
    message(FATAL_ERROR "train_line printed: ${output}")
  endif()
  require_your_program()
endif()
