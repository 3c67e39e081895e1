# Compiles through ccache where it is installed. A second build of the same sources then takes a minute, also in another
# checkout. -DREIGEN_CCACHE=OFF turns it off. A compiler launcher that the caller has set remains in use.
option(REIGEN_CCACHE "Compile through ccache where it is installed" ${PROJECT_IS_TOP_LEVEL})
# Not for clang: its precompiled headers record the time of every header, so a cached one is invalid in another checkout.
if(NOT REIGEN_CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_C_COMPILER_LAUNCHER OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
find_program(REIGEN_CCACHE_PROGRAM ccache)
if(NOT REIGEN_CCACHE_PROGRAM)
  return()
endif()
# Checksums of precompiled headers (reigen_with_sum.sh). Only Ninja makes a header anew when its launcher changes.
set(checksums "")
if(CMAKE_GENERATOR MATCHES "Ninja")
  set(checksums CCACHE_PCH_EXTSUM=1)
endif()
# ccache compares paths relative to the checkout, not absolute ones, and precompiled headers by their contents.
set(CMAKE_CXX_COMPILER_LAUNCHER
    env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content ${checksums}
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${REIGEN_CCACHE_PROGRAM}")
set(CMAKE_C_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
add_compile_options(-fpch-preprocess)
if(checksums)
  set(REIGEN_PCH_LAUNCHER "${CMAKE_CURRENT_LIST_DIR}/reigen_with_sum.sh" "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()
