# LibTorch's modules and optimizers (torch/csrc/api) take 20 s and more to compile. A user who includes <torch/torch.h>
# knows this cost. reigen.h and the header of programs must not include them, directly or through other headers.
file(WRITE "${SCRATCH}/all.cc" "#include <reigen/reigen.h>\n#include <reigen/train/program.h>\n")
set(includes -I "${INCLUDE}" -isystem "${TORCH}/include/torch/csrc/api/include")
if(NOT TORCH STREQUAL "/usr")  # the compiler knows /usr/include, and would search it too early
  list(APPEND includes -isystem "${TORCH}/include")
endif()
execute_process(COMMAND ${CXX} -std=c++20 -M ${includes} "${SCRATCH}/all.cc"
                RESULT_VARIABLE result OUTPUT_VARIABLE files ERROR_VARIABLE errors)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "the headers cannot be read:\n${errors}")
endif()
string(REGEX MATCHALL "[^ \n\\]+/torch/csrc/api/[^ \n\\]+" heavy "${files}")
if(heavy)
  list(GET heavy 0 first)
  message(FATAL_ERROR "reigen/reigen.h or reigen/train/program.h brings modules of LibTorch: ${first}\n"
                      "Declare what they need; give the rest a header of its own.")
endif()
if(NOT files MATCHES "ATen/core/Tensor\\.h")
  message(FATAL_ERROR "no file of LibTorch was seen: the test looks in the wrong place\n${files}")
endif()

# The compiler's messages must name the most common mistakes.
execute_process(COMMAND ${CXX} -std=c++20 -fsyntax-only ${includes} "${FOLDER}/${MISTAKES}"
                RESULT_VARIABLE result OUTPUT_VARIABLE ignored ERROR_VARIABLE errors)
if(result EQUAL 0)
  message(FATAL_ERROR "mistakes.cc compiled")
endif()
foreach(words "which option is wrong\\? write LoaderOptions" "num_workers" "pass parallel\\.parameters\\(\\)"
        "MyTask must derive from reigen::train::Task" "MyData must derive from reigen::train::DataModule"
        "MyTask overrides module\\(\\) and training_step\\(\\)")
  if(NOT errors MATCHES "error[^\n]*" OR NOT errors MATCHES "${words}")
    message(FATAL_ERROR "the compiler does not say '${words}':\n${errors}")
  endif()
endforeach()
