# Adds a program of this folder to the project examples/your_program, which downstream.cmake builds: it shares that
# project's precompiled header.
function(add_program_by_hand)
  add_executable(shapes_by_hand "${by_hand_folder}/shapes_by_hand.cc")
  target_include_directories(shapes_by_hand PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(shapes_by_hand PRIVATE reigen::reigen)
  target_precompile_headers(shapes_by_hand REUSE_FROM own_loop)
endfunction()
set(by_hand_folder "${CMAKE_CURRENT_LIST_DIR}")
cmake_language(DEFER CALL add_program_by_hand)
