# ctest reads this file before it runs tests. Ranks of tests are threads or processes that share two cores. A thread of OpenMP that has no work
# spins for a while by default, which takes half of the processor time of the tests with LibTorch. With "passive" it sleeps.
if(NOT DEFINED ENV{OMP_WAIT_POLICY})
  set(ENV{OMP_WAIT_POLICY} passive)
endif()
