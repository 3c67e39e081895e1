// MPI's counts are ints. A Block describes any number of bytes by a datatype and a number of elements of this type that
// fits into an int.
// Thread rule: one thread at a time.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace reigen::comm::mpi {

inline constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // the most elements in one MPI call; tests use fewer

// `bytes` bytes as `count()` elements of `type()`. Up to `most` bytes the elements are single bytes. Above `most` bytes
// there is one element of a derived datatype.
class Block {
 public:
  explicit Block(std::size_t bytes, std::size_t most = kMostAtOnce);
  ~Block();
  Block(const Block&) = delete;  // a datatype has one owner
  Block& operator=(const Block&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_BYTE;
  int count_ = 0;
};

struct Piece {
  std::size_t begin;
  int count;
};

// Divides elements 0 to count - 1 into pieces whose counts fit into an int. Reductions run piece by piece. For zero
// elements the result is one empty piece.
std::vector<Piece> pieces_of(std::size_t count, std::size_t most = kMostAtOnce);

}  // namespace reigen::comm::mpi
