// A store that the ranks of a group keep together: each rank has a full copy of it. When a new group is split off, its
// ranks meet in this store. A split therefore costs a few rounds of the group, whatever the number of ranks, and no
// access to the job's store.
//
// A round is one all_gather of bytes in the group: every rank sends the operations on the store that it has not sent
// yet, and every rank applies the operations of all ranks, in the order of the ranks. A rank makes rounds while it
// waits for an answer. In end() it makes rounds until every rank has called end(). So each rank of the group must call
// end(), even after an error. A rank that calls end() with an error sends it. The other ranks then stop waiting for
// answers, because the rank that failed sends no more operations.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error_record.h"
#include "reigen/comm/communicator.h"
#include "reigen/store/store.h"
#include "store/table.h"

namespace reigen::comm {

// Says that the group that is being split ended in a round (RoundStore::failure() returns the error), or that another
// rank failed (RoundStore::error()). MeetingEnded is not an Error, because code that forms a group translates the rank
// numbers in an Error to another group. The numbers in failure() and error() must not be translated: they are numbers
// of the group that is being split.
class MeetingEnded final : public std::runtime_error {
 public:
  MeetingEnded() : std::runtime_error("the group that is split has ended") {}
};

class RoundStore final : public store::Store {
 public:
  explicit RoundStore(Communicator group) : group_(std::move(group)) {}

  // These functions do what Store specifies, and may also throw MeetingEnded. try_get() makes no round: it sees the
  // operations up to the last round. All ranks have the same store after a round, so ranks that wait for the same key
  // go on after the same round.
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, const Deadline& deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t delta) override;
  std::string compare_and_set(const std::string& key, const std::optional<std::string>& expected,
                              const std::string& desired) override;
  bool erase(const std::string& key) override;

  // Collective: every rank of the group must call it. `error`: why this rank leaves; null if it does not fail. After
  // end(), only failure() and error() may be called.
  void end(const std::exception_ptr& error = nullptr);
  // The error that ended the group in a round, with rank numbers of that group; null if there was none.
  std::exception_ptr failure() const { return failure_; }
  // The error of a rank that called end() with one; of several, the lowest rank in the first round that has one. Its
  // text begins with the rank. After end() every rank has the same.
  const std::optional<base::ErrorRecord>& error() const { return error_; }

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
    std::int64_t number = 0;  // kAdd: the sum; kErase: 1 if the key was there
    std::exception_ptr error = nullptr;
  };

  // What a rank sends in a round.
  struct Message {
    bool has_ended = false;
    std::string error = {};  // the record of the error with which the rank ended; empty if there is none
    std::vector<Operation> operations = {};
  };
  static std::string encode(const Message& message);
  static Message decode(const std::string& text);
  Answer apply(const Operation& operation);
  Answer ask(Operation operation);
  void round();

  std::optional<Communicator> group_;  // empty after end()
  store::Table table_;
  std::vector<Operation> untold_;  // operations that this rank has not sent yet
  Answer answer_;                  // the answer to this rank's last operation
  bool has_ended_ = false;
  std::string own_error_;  // encoded; empty if there is none
  std::optional<base::ErrorRecord> error_;
  bool all_have_ended_ = false;
  bool was_quiet_ = false;  // no rank sent an operation in the last round
  std::exception_ptr failure_;
};

}  // namespace reigen::comm
