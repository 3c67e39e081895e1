# LibTorch needs libstdc++.so.6. A program that also has a static C++ library in itself crashes: each of the two libraries has its own
# thread-local pointer for std::call_once, so the first convolution calls a null pointer. This file is installed beside reigen_find_torch.cmake.

# Links the shared library before all others. -static-libstdc++ then adds the static one after it, which no longer provides any symbol.
set(REIGEN_SHARED_LIBSTDCXX "SHELL:-Wl,--push-state,-Bdynamic,--no-as-needed -lstdc++ -Wl,--pop-state")

# Links a program in this way and checks the result. `fault` becomes empty, or a sentence that says what to do.
function(reigen_check_shared_libstdcxx fault)
  set(${fault} "" PARENT_SCOPE)
  set(key "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${CMAKE_EXE_LINKER_FLAGS}")
  if("${REIGEN_SHARED_LIBSTDCXX_SEEN}" STREQUAL "${key}" OR NOT CMAKE_READELF OR CMAKE_TRY_COMPILE_TARGET_TYPE STREQUAL "STATIC_LIBRARY")
    return()
  endif()
  set(folder "${CMAKE_BINARY_DIR}/CMakeFiles/reigen_shared_libstdcxx")
  file(WRITE "${folder}/once.cc" "#include <mutex>\nint main() {\n  std::once_flag once;\n  int calls = 0;\n"
    "  std::call_once(once, [&] { ++calls; });\n  return calls - 1;\n}\n")
  set(program "${folder}/once")
  try_compile(linked "${folder}/build" "${folder}/once.cc" LINK_OPTIONS ${REIGEN_SHARED_LIBSTDCXX} -pthread COPY_FILE "${program}"
              OUTPUT_VARIABLE output CXX_STANDARD 17)
  set(cure "Take another compiler, e.g. -DCMAKE_CXX_COMPILER=/usr/bin/g++ (or CXX=/usr/bin/g++), or leave -static-libstdc++ out.")
  if(NOT linked)
    set(${fault} "${CMAKE_CXX_COMPILER} cannot link a program with the shared libstdc++, which LibTorch needs. ${cure}\n${output}" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND "${CMAKE_READELF}" -dW "${program}" OUTPUT_VARIABLE needed ERROR_QUIET)
  execute_process(COMMAND "${CMAKE_READELF}" -sW "${program}" OUTPUT_VARIABLE symbols ERROR_QUIET)
  # The type of the pointer is TLS. mold adds a symbol of another type, whose name begins like the pointer's.
  string(REGEX MATCHALL "[^\n]* TLS [^\n]*_ZSt15__once_callable[^\n]*" pointers "${symbols}")
  list(FILTER pointers EXCLUDE REGEX " UND ")
  if(NOT needed MATCHES "NEEDED[^\n]*libstdc\\+\\+\\.so" OR pointers)
    set(${fault} "${CMAKE_CXX_COMPILER} links libstdc++ statically, also when it is asked for the shared one. LibTorch brings the shared one, and a program with both dies at its first convolution. ${cure}" PARENT_SCOPE)
    return()
  endif()
  if(NOT CMAKE_CROSSCOMPILING)
    execute_process(COMMAND "${program}" RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
      set(${fault} "A program of ${CMAKE_CXX_COMPILER} does not run with the shared libstdc++ of this machine (${result}), which LibTorch needs: ${output}\n${cure}" PARENT_SCOPE)
      return()
    endif()
  endif()
  set(REIGEN_SHARED_LIBSTDCXX_SEEN "${key}" CACHE INTERNAL "The compiler and flags that link the shared libstdc++")
endfunction()
