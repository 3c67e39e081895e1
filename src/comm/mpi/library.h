// The MPI library of this process. A process has only one MPI library, and can start it only once, so Library is a
// global object.
//
// A program that called MPI_Init_thread itself also calls MPI_Finalize itself. Otherwise the first group starts MPI,
// and MPI is finalized when the process exits with code 0. With another exit code MPI is not finalized, because
// MPI_Finalize waits for the other ranks; mpirun then ends the job with that code. If a group has ended with operations
// in flight, the ranks for which MPI_Finalize waits may be dead. So MPI_Finalize then gets at most five seconds, after
// which the process exits without it.
#pragma once

#include <mpi.h>

#include <mutex>
#include <string>
#include <vector>

namespace reigen::comm::mpi {

class Library {
 public:
  // Starts MPI if it has not been started yet. Throws BackendError.
  static Library& get();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Callers hold this lock while they call MPI's functions. If MPI allows only one thread at a time, the lock holds a
  // mutex. Otherwise the lock is empty and costs nothing.
  std::unique_lock<std::mutex> guard();
  // Notes that a group ended with operations in flight, so that MPI_Finalize gets a time limit.
  void finalize_in_time();

 private:
  Library();

  int rank_ = 0;
  int size_ = 1;
  bool one_thread_at_a_time_ = false;
  std::mutex mutex_;
};

// Throws BackendError with MPI's error text unless `code` is MPI_SUCCESS.
void check(int code, const char* function);
std::string error_text(int code);
// Whether all requests are done. Clears `requests` if they are.
bool all_done(std::vector<MPI_Request>& requests);

// Whether mpirun, mpiexec or srun started this process as a rank. In any other process MPI_Init would make a world of
// one rank.
bool started_by_mpi();

}  // namespace reigen::comm::mpi
