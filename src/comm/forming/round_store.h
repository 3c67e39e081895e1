// A store that the ranks of a group keep together: each rank has all of it. Ranks that are split off a group meet
// there, so that a split costs some rounds of the group, however many ranks it has, and no trip to the job's store.
//
// A round is one all_gather of bytes in the group: every rank gives the operations that it has not told yet, and every
// rank applies those of all, in the order of the ranks. A rank makes rounds while it waits for an answer. In end() it
// makes them until every rank is there, so each rank of the group must come to end(), also after an error.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "reigen/comm/communicator.h"
#include "reigen/store/store.h"
#include "store/table.h"

namespace reigen::comm {

// The group ended in a round; RoundStore::failure() says how. It is not an Error: code that forms a group translates
// the ranks of Errors into the numbers of that group, and the ranks of failure() are those of the group that is split.
class MeetingEnded final : public std::runtime_error {
 public:
  MeetingEnded() : std::runtime_error("the group that is split has ended") {}
};

class RoundStore final : public store::Store {
 public:
  explicit RoundStore(Communicator group) : group_(std::move(group)) {}

  // As Store says; they also throw MeetingEnded. try_get() makes no round: it sees what was told until
  // the last one. Ranks that wait for one key therefore make the same rounds, and go on after the same one.
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, const Deadline& deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override;
  bool erase(const std::string& key) override;

  // Collective. No call may follow. What ends the group is in failure().
  void end();
  // What ended the group in a round, with its numbers of ranks.
  std::exception_ptr failure() const { return failure_; }

 private:
  enum class Kind : std::uint8_t { kSet, kAdd, kCompareAndSet, kErase };
  struct Operation {
    Kind kind = Kind::kSet;
    std::string key = {};
    std::string value = {};
    std::optional<std::string> expected = {};
    std::int64_t delta = 0;
  };
  struct Answer {
    std::string value = {};
    std::int64_t number = 0;  // a sum; 1: the key was there
    std::exception_ptr error = nullptr;
  };

  static std::string encode(const std::vector<Operation>& operations, bool has_ended);
  static std::vector<Operation> decode(const std::string& text);
  Answer apply(const Operation& operation);
  Answer ask(Operation operation);
  void round();

  std::optional<Communicator> group_;  // none after the end
  store::Table table_;
  std::vector<Operation> untold_;
  Answer answer_;  // to this rank's last operation
  bool has_ended_ = false;
  bool all_have_ended_ = false;
  bool was_quiet_ = false;  // in the last round nobody told anything
  std::exception_ptr failure_;
};

}  // namespace reigen::comm
