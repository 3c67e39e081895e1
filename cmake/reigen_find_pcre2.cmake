# Finds PCRE2 (the library of 8-bit characters) and makes the target PCRE2::8BIT, under the name that PCRE2's own CMake package has. Debian's
# package has no CMake package. This file is installed beside the package configuration, which uses it too. If PCRE2 is missing, sets
# REIGEN_PCRE2_FAULT to a sentence.
set(REIGEN_PCRE2_FAULT "")
if(NOT TARGET PCRE2::8BIT)
  find_path(REIGEN_PCRE2_INCLUDE pcre2.h)
  find_library(REIGEN_PCRE2_LIBRARY pcre2-8)
  mark_as_advanced(REIGEN_PCRE2_INCLUDE REIGEN_PCRE2_LIBRARY)
  if(REIGEN_PCRE2_INCLUDE AND REIGEN_PCRE2_LIBRARY)
    add_library(PCRE2::8BIT UNKNOWN IMPORTED)
    set_target_properties(PCRE2::8BIT PROPERTIES IMPORTED_LOCATION "${REIGEN_PCRE2_LIBRARY}"
                          INTERFACE_INCLUDE_DIRECTORIES "${REIGEN_PCRE2_INCLUDE}")
  else()
    set(REIGEN_PCRE2_FAULT "PCRE2 not found: install libpcre2-dev, or pass -DCMAKE_PREFIX_PATH=/path/to/pcre2.")
  endif()
endif()
