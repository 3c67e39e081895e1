# The umbrella target reigen::reigen, and the files that `cmake --install` installs: headers, libraries, and a package of two components.
# COMPONENTS comm has reigen::comm, libreigen_c.so and the other floors without LibTorch. COMPONENTS reigen, the default, has reigen::reigen with LibTorch.
get_property(_floors GLOBAL PROPERTY REIGEN_FLOORS)
get_property(_torch_floors GLOBAL PROPERTY REIGEN_TORCH_FLOORS)

if(REIGEN_WITH_TORCH)
  add_library(reigen_reigen INTERFACE)
  add_library(reigen::reigen ALIAS reigen_reigen)
  set_target_properties(reigen_reigen PROPERTIES EXPORT_NAME reigen)
  target_sources(reigen_reigen INTERFACE FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include"
                 FILES "${PROJECT_SOURCE_DIR}/include/reigen/reigen.h")
  target_link_libraries(reigen_reigen INTERFACE ${_floors})
endif()
if(NOT REIGEN_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(_package "${CMAKE_INSTALL_LIBDIR}/cmake/reigen")
set(_core_floors ${_floors})
list(REMOVE_ITEM _core_floors ${_torch_floors})
install(TARGETS ${_core_floors} EXPORT reigen_core ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" FILE_SET HEADERS)
install(TARGETS reigen_c_shared EXPORT reigen_core LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
file(RELATIVE_PATH _pc_to_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" _pc_to_prefix "${_pc_to_prefix}")
configure_file("${CMAKE_CURRENT_LIST_DIR}/reigen_c.pc.in" "${PROJECT_BINARY_DIR}/reigen_c.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/reigen_c.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
install(EXPORT reigen_core NAMESPACE reigen:: DESTINATION "${_package}")
set(_torch_version "")
if(REIGEN_WITH_TORCH)
  set(_torch_version "${REIGEN_TORCH_VERSION}")
  install(TARGETS ${_torch_floors} reigen_libtorch reigen_reigen EXPORT reigen_torch
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" FILE_SET HEADERS)
  install(EXPORT reigen_torch NAMESPACE reigen:: DESTINATION "${_package}")
endif()
get_property(_container_libraries GLOBAL PROPERTY REIGEN_LINKED_CONTAINER_LIBRARIES)
configure_file("${CMAKE_CURRENT_LIST_DIR}/reigen-config.cmake.in" "${PROJECT_BINARY_DIR}/reigen-config.cmake" @ONLY)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/reigen-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/reigen-config.cmake" "${PROJECT_BINARY_DIR}/reigen-config-version.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/reigen_find_torch.cmake" "${CMAKE_CURRENT_LIST_DIR}/reigen_find_pcre2.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/reigen_find_containers.cmake"
              "${CMAKE_CURRENT_LIST_DIR}/reigen_shared_libstdcxx.cmake"
        DESTINATION "${_package}")

# Archives keep their symbols, because programs are linked by them. CMake strips the other files (CMakeLists.txt).
if(REIGEN_STRIP AND CMAKE_STRIP)
  install(CODE "
    file(GLOB archives \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libreigen_*.a\")
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug \${archives})")
endif()
