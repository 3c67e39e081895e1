#include "optim/passes/run_rule.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/flat/gradient_rows.h"

namespace reigen::optim {
namespace {

kernels::Block block_of(const Update& update, const Piece& piece) {
  return kernels::slice(kernels::sizes_of(update.layout), update.block, piece.first, piece.count);
}

std::vector<Piece> pieces_of(const std::vector<Update>& updates) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(updates.size());
  for (const Update& update : updates) sizes.push_back(update.block.count);
  return cut(sizes);
}

// Whether the piece is in this rank's share. A piece is never in two shares, because shares begin and end only where
// pieces begin and end.
bool is_own(const std::vector<Update>& updates, const Piece& piece) {
  const Update& update = updates[piece.part];
  return piece.first >= update.begin && piece.first < update.end;
}

bool awaits_average(const Update& update) { return update.range != nullptr && optim::awaits_average(*update.range); }

// Returns the mean over the ranks of a block's gradients. The mean is in memory of this thread, so that it remains in
// the caches of the thread's core.
const void* mean_of(const Update& update, const Piece& piece) {
  thread_local std::vector<double> mean(static_cast<std::size_t>(tensor::kBlockElements));
  update.range->rows()->average_into(update.segment, update.range->gradient_slot(update.segment), piece.first,
                                     piece.count, mean.data());
  return mean.data();
}

}  // namespace

void for_each_block(const std::vector<Update>& updates, const BlockWork& work) {
  std::vector<Piece> pieces = pieces_of(updates);
  std::erase_if(pieces, [&](const Piece& piece) { return !is_own(updates, piece); });
  for_each_piece(pieces, [&](std::size_t i) {
    const Update& update = updates[pieces[i].part];
    kernels::Block block = block_of(update, pieces[i]);
    if (awaits_average(update)) block.gradients = mean_of(update, pieces[i]);
    work(update, block);
    // The check comes after the update, because the gradients are then in the second-level cache. An earlier check
    // would wait for memory.
    if (update.not_finite != nullptr && !kernels::kernels().finite(update.layout, block.gradients, block.count)) {
      update.not_finite->store(true);
    }
  });
}

namespace {

// Adds the sums of the other boxes of parameters of which this rank has one.
void add_up_boxes(const std::vector<Update>& updates, std::vector<kernels::Squares>& sums) {
  const Communicator* owners = nullptr;
  std::vector<kernels::Squares> of_boxes;
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].box_owners == nullptr) continue;
    owners = updates[i].box_owners;
    of_boxes.push_back(sums[i]);
  }
  if (owners == nullptr) return;
  owners->all_reduce(of_boxes.data(), of_boxes.data(), 2 * of_boxes.size(), DataType::kFloat64, ReduceOp::kSum,
                     {.tag = "squares of boxes"});
  auto next = of_boxes.begin();
  for (std::size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].box_owners != nullptr) sums[i] = *next++;
  }
}

// Returns the sums of every update, added up over its pieces. If the parameters are divided among ranks, other ranks
// have computed the sums of some pieces.
std::vector<kernels::Squares> add_up_pieces(const std::vector<Update>& updates, const std::vector<Piece>& pieces,
                                            std::vector<kernels::Squares> of_pieces) {
  if (!updates.empty() && updates.front().ranks != nullptr) {
    // Each sum is computed by one rank, and all other ranks have 0 in its place. Adding zeros changes no bit.
    static_assert(sizeof(kernels::Squares) == 2 * sizeof(double));
    updates.front().ranks->all_reduce(of_pieces.data(), of_pieces.data(), 2 * of_pieces.size(), DataType::kFloat64,
                                      ReduceOp::kSum, {.tag = "squares of blocks"});
  }
  std::vector<kernels::Squares> sums(updates.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    sums[pieces[i].part].first += of_pieces[i].first;
    sums[pieces[i].part].second += of_pieces[i].second;
  }
  add_up_boxes(updates, sums);
  return sums;
}

}  // namespace

std::vector<kernels::Squares> sums_of_blocks(const std::vector<Update>& updates, const BlockSums& work) {
  const std::vector<Piece> pieces = pieces_of(updates);
  std::vector<kernels::Squares> of_pieces(pieces.size());
  for_each_piece(pieces, [&](std::size_t i) {
    const Update& update = updates[pieces[i].part];
    if (!is_own(updates, pieces[i])) return;
    // Averages in place, because the step after these sums reads the gradients once more.
    if (awaits_average(update)) {
      update.range->rows()->average(update.segment, update.range->gradient_slot(update.segment), pieces[i].first,
                                    pieces[i].count);
    }
    of_pieces[i] = work(update, block_of(update, pieces[i]));
  });
  for (const Update& update : updates) {
    if (update.range != nullptr) update.range->rows()->set_awaits_average(false);
  }
  return add_up_pieces(updates, pieces, std::move(of_pieces));
}

kernels::Block own_block(const Update& update) {
  const std::int64_t first = std::clamp(update.begin, std::int64_t{0}, update.block.count);
  const std::int64_t last = std::clamp(update.end, first, update.block.count);
  return kernels::slice(kernels::sizes_of(update.layout), update.block, first, last - first);
}

// On a GPU the check for finite gradients is a pass of its own, which reads the gradients once more.
void note_not_finite(const std::vector<Update>& updates) {
  if (updates.front().not_finite == nullptr) return;
  const auto none = [](const Update&) { return kernels::NoStep{}; };
  for (const kernels::Squares& chunk :
       sums_on_device(updates.front().device, kernels::Rule::kFinite, device_parts(updates, none))) {
    if (chunk.first != 0) updates.front().not_finite->store(true);
  }
}

std::vector<kernels::Squares> add_up(const std::vector<Update>& updates,
                                     const std::vector<kernels::Squares>& of_own_chunks) {
  const std::vector<Piece> pieces = pieces_of(updates);
  std::vector<kernels::Squares> of_pieces(pieces.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (is_own(updates, pieces[i])) of_pieces[i] = of_own_chunks[next++];
  }
  return add_up_pieces(updates, pieces, std::move(of_pieces));
}

}  // namespace reigen::optim
