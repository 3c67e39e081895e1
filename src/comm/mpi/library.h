// The MPI of this process: there is one, and it can be started once. Nothing else in Reigen belongs to a whole process;
// MPI leaves no choice.
//
// A program that called MPI_Init_thread itself keeps MPI, and ends it itself. Otherwise MPI is started by the first
// group and ended when the process exits with code 0. With another code it is not, because MPI_Finalize waits for the
// other ranks: mpirun then ends the job with that code. After a group has ended with operations under way, MPI_Finalize
// gets five seconds, for some of those it waits for may be dead.
#pragma once

#include <mpi.h>

#include <mutex>
#include <string>
#include <vector>

namespace reigen::comm::mpi {

class Library {
 public:
  // Starts MPI if nobody has. Throws BackendError.
  static Library& get();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Held around MPI's functions when MPI can serve one thread at a time only; costs nothing otherwise.
  std::unique_lock<std::mutex> guard();
  // A group ended with operations under way.
  void finalize_in_time();

 private:
  Library();

  int rank_ = 0;
  int size_ = 1;
  bool one_thread_at_a_time_ = false;
  std::mutex mutex_;
};

// Throws BackendError with MPI's own words unless `code` is MPI_SUCCESS.
void check(int code, const char* function);
std::string error_text(int code);
// Empties `requests` once all of them are done.
bool all_done(std::vector<MPI_Request>& requests);

// True in a process that mpirun, mpiexec or srun started as a rank: alone, MPI_Init would make a world of one.
bool started_by_mpi();

}  // namespace reigen::comm::mpi
