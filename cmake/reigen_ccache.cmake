# Compiles through ccache where it is installed, so that a second build of the same sources takes a minute, in another
# checkout too: -DREIGEN_CCACHE=OFF to do without. A launcher that the caller has set stays.
option(REIGEN_CCACHE "Compile through ccache where it is installed" ${PROJECT_IS_TOP_LEVEL})
# Not for clang, whose precompiled headers know the time of every header: one out of the cache fits no other checkout.
if(NOT REIGEN_CCACHE OR CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_C_COMPILER_LAUNCHER OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  return()
endif()
find_program(REIGEN_CCACHE_PROGRAM ccache)
if(NOT REIGEN_CCACHE_PROGRAM)
  return()
endif()
# Paths count from the checkout, not from the root of the disk; precompiled headers are known by what is in them.
set(CMAKE_CXX_COMPILER_LAUNCHER
    env "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_COMPILERCHECK=content
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime "${REIGEN_CCACHE_PROGRAM}")
set(CMAKE_C_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
add_compile_options(-fpch-preprocess)
