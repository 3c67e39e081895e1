#include "comm/tcp/tcp_backend.h"

#include "comm/call/block_table.h"
#include "comm/self/self_backend.h"
#include "comm/tcp/collective.h"
#include "comm/tcp/group.h"
#include "comm/tcp/message.h"

namespace reigen::comm::tcp {

namespace {

class TcpBackend : public Backend {
 public:
  TcpBackend(const GroupOptions& options, std::shared_ptr<BlockTable> blocks)
      : group_(options), blocks_(std::move(blocks)) {}

  const std::string& name() const override { return name_; }
  std::string last_algorithm() const override {
    const schedule::Algorithm* const last = group_.last_algorithm();
    return last == nullptr ? "" : last->name;
  }
  std::unique_ptr<Operation> start(const Call& call, std::uint64_t sequence) override {
    if (call.kind == OperationKind::kSend) return std::make_unique<Send>(group_, pair_with(call.root), call);
    if (call.kind == OperationKind::kRecv) return std::make_unique<Recv>(group_, pair_with(call.root), call);
    return std::make_unique<Collective>(group_, call, sequence);
  }
  base::CoreShare core_share() const override { return group_.core_share(); }
  void sleep(const std::function<bool()>& ready, std::chrono::nanoseconds limit) override {
    group_.sleep(ready, limit);
  }
  void wake() override { group_.wake(); }
  void check_peers(const Operation& operation, std::chrono::nanoseconds waited) override {
    static_cast<const CheckedOperation&>(operation).check_peers(waited);
  }
  void look_for(const std::vector<int>& ranks) override { group_.look_for(ranks); }
  void throw_if_ended() override { group_.throw_if_ended(UINT64_MAX); }
  void heartbeat() override { group_.control().beat(); }
  void leave() override { group_.leave(); }
  void publish_abort(const AbortCause& cause) override { group_.publish_abort(cause); }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return blocks_->add(self::allocate(bytes), bytes); }
  std::shared_ptr<void> hold(const void* pointer) override { return blocks_->hold(pointer); }
  std::optional<std::uint64_t> network_bytes() const override { return group_.bytes_sent(); }
  std::unique_ptr<Backend> make_child(const GroupOptions& options, const std::vector<int>& /*members*/) override {
    return std::make_unique<TcpBackend>(options, blocks_);
  }

 private:
  Pair& pair_with(int rank) { return pairs_[static_cast<std::size_t>(rank)]; }

  const std::string name_ = "tcp";
  Group group_;
  const std::shared_ptr<BlockTable> blocks_;  // of this group and the groups split from it
  std::vector<Pair> pairs_{static_cast<std::size_t>(group_.size())};
};

}  // namespace

std::unique_ptr<Backend> make_backend(const GroupOptions& options) {
  return std::make_unique<TcpBackend>(options, std::make_shared<BlockTable>());
}

}  // namespace reigen::comm::tcp
