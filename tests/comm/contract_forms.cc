// The part of the contract on the three forms of a call: blocking, started, and in a list. All give the same result.
#include <functional>
#include <string>
#include <vector>

#include "comm/contract.h"
#include "reigen/comm/call_list.h"

namespace reigen::testing {
namespace {

constexpr std::size_t kCount = 3000;  // elements of a block
constexpr DataType kType = DataType::kFloat64;
constexpr ReduceOp kOp = ReduceOp::kSum;

// The memory of one call and its other arguments. In uneven calls the block of rank q has q + 1 elements.
struct Given {
  const Communicator& world;
  double* in;
  double* out;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> alike;  // all_to_all_v: the same count for every rank
  int root;
  int next;
  int previous;
};

struct Forms {
  std::string name;
  std::function<void(const Given&)> block;
  std::function<Work(const Given&)> start;
  std::function<void(CallList&, const Given&)> list;
};

std::vector<Forms> all_forms() {
  const comm::StartOptions lazy{.progress = comm::Progress::kCaller, .tag = "forms"};
  const comm::CallOptions tag{.tag = "forms"};
  return {
      {"all_reduce", [=](const Given& g) { g.world.all_reduce(g.in, g.out, kCount, kType, kOp, tag); },
       [=](const Given& g) { return g.world.start_all_reduce(g.in, g.out, kCount, kType, kOp, lazy); },
       [=](CallList& c, const Given& g) { c.all_reduce(g.in, g.out, kCount, kType, kOp, tag); }},
      {"broadcast", [=](const Given& g) { g.world.broadcast(g.out, kCount, kType, g.root, tag); },
       [=](const Given& g) { return g.world.start_broadcast(g.out, kCount, kType, g.root, lazy); },
       [=](CallList& c, const Given& g) { c.broadcast(g.out, kCount, kType, g.root, tag); }},
      {"all_gather", [=](const Given& g) { g.world.all_gather(g.in, g.out, kCount, kType, tag); },
       [=](const Given& g) { return g.world.start_all_gather(g.in, g.out, kCount, kType, lazy); },
       [=](CallList& c, const Given& g) { c.all_gather(g.in, g.out, kCount, kType, tag); }},
      {"reduce_scatter", [=](const Given& g) { g.world.reduce_scatter(g.in, g.out, kCount, kType, kOp, tag); },
       [=](const Given& g) { return g.world.start_reduce_scatter(g.in, g.out, kCount, kType, kOp, lazy); },
       [=](CallList& c, const Given& g) { c.reduce_scatter(g.in, g.out, kCount, kType, kOp, tag); }},
      {"reduce", [=](const Given& g) { g.world.reduce(g.in, g.out, kCount, kType, kOp, g.root, tag); },
       [=](const Given& g) { return g.world.start_reduce(g.in, g.out, kCount, kType, kOp, g.root, lazy); },
       [=](CallList& c, const Given& g) { c.reduce(g.in, g.out, kCount, kType, kOp, g.root, tag); }},
      {"gather", [=](const Given& g) { g.world.gather(g.in, g.out, kCount, kType, g.root, tag); },
       [=](const Given& g) { return g.world.start_gather(g.in, g.out, kCount, kType, g.root, lazy); },
       [=](CallList& c, const Given& g) { c.gather(g.in, g.out, kCount, kType, g.root, tag); }},
      {"scatter", [=](const Given& g) { g.world.scatter(g.in, g.out, kCount, kType, g.root, tag); },
       [=](const Given& g) { return g.world.start_scatter(g.in, g.out, kCount, kType, g.root, lazy); },
       [=](CallList& c, const Given& g) { c.scatter(g.in, g.out, kCount, kType, g.root, tag); }},
      {"all_to_all", [=](const Given& g) { g.world.all_to_all(g.in, g.out, kCount, kType, tag); },
       [=](const Given& g) { return g.world.start_all_to_all(g.in, g.out, kCount, kType, lazy); },
       [=](CallList& c, const Given& g) { c.all_to_all(g.in, g.out, kCount, kType, tag); }},
      {"all_gather_v", [=](const Given& g) { g.world.all_gather_v(g.in, g.out, g.counts, kType, tag); },
       [=](const Given& g) { return g.world.start_all_gather_v(g.in, g.out, g.counts, kType, lazy); },
       [=](CallList& c, const Given& g) { c.all_gather_v(g.in, g.out, g.counts, kType, tag); }},
      {"reduce_scatter_v", [=](const Given& g) { g.world.reduce_scatter_v(g.in, g.out, g.counts, kType, kOp, tag); },
       [=](const Given& g) { return g.world.start_reduce_scatter_v(g.in, g.out, g.counts, kType, kOp, lazy); },
       [=](CallList& c, const Given& g) { c.reduce_scatter_v(g.in, g.out, g.counts, kType, kOp, tag); }},
      {"gather_v", [=](const Given& g) { g.world.gather_v(g.in, g.out, g.counts, kType, g.root, tag); },
       [=](const Given& g) { return g.world.start_gather_v(g.in, g.out, g.counts, kType, g.root, lazy); },
       [=](CallList& c, const Given& g) { c.gather_v(g.in, g.out, g.counts, kType, g.root, tag); }},
      {"scatter_v", [=](const Given& g) { g.world.scatter_v(g.in, g.out, g.counts, kType, g.root, tag); },
       [=](const Given& g) { return g.world.start_scatter_v(g.in, g.out, g.counts, kType, g.root, lazy); },
       [=](CallList& c, const Given& g) { c.scatter_v(g.in, g.out, g.counts, kType, g.root, tag); }},
      // Each rank sends its own number of elements to every other rank.
      {"all_to_all_v", [=](const Given& g) { g.world.all_to_all_v(g.in, g.alike, g.out, g.counts, kType, tag); },
       [=](const Given& g) { return g.world.start_all_to_all_v(g.in, g.alike, g.out, g.counts, kType, lazy); },
       [=](CallList& c, const Given& g) { c.all_to_all_v(g.in, g.alike, g.out, g.counts, kType, tag); }},
      {"barrier", [=](const Given& g) { g.world.barrier(tag); },
       [=](const Given& g) { return g.world.start_barrier(lazy); }, [=](CallList& c, const Given&) { c.barrier(tag); }},
      // The messages are short, so a blocking send does not wait for its recv.
      {"send and recv",
       [=](const Given& g) {
         if (g.world.size() == 1) return;
         g.world.send(g.in, 100, kType, g.next, tag);
         g.world.recv(g.out, 100, kType, g.previous, tag);
       },
       [=](const Given& g) {
         if (g.world.size() == 1) return Work();
         g.world.start_send(g.in, 100, kType, g.next, lazy).wait();
         return g.world.start_recv(g.out, 100, kType, g.previous, lazy);
       },
       [=](CallList& c, const Given& g) {
         if (g.world.size() == 1) return;
         c.send(g.in, 100, kType, g.next, tag);
         c.recv(g.out, 100, kType, g.previous, tag);
       }},
  };
}

}  // namespace

TEST_P(CommunicatorContract, EachFormOfACallDoesTheSame) {
  run_ranks(options(), [](Rank& r) {
    auto& world = r.world();
    const auto p = static_cast<std::size_t>(r.size());
    TestBuffer<double> in(world, kCount * p, false);
    TestBuffer<double> out(world, kCount * p, false);
    Given given{.world = world,
                .in = in.data(),
                .out = out.data(),
                .counts = {},
                .alike = std::vector<std::size_t>(p, static_cast<std::size_t>(r.rank()) + 1),
                .root = r.size() - 1,
                .next = (r.rank() + 1) % r.size(),
                .previous = (r.rank() + r.size() - 1) % r.size()};
    for (std::size_t q = 0; q < p; ++q) given.counts.push_back(q + 1);
    const auto run = [&](const auto& call) {
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<double>(i % 1000) + 1000.0 * r.rank();
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = -1.0 - r.rank();
      call();
      return std::vector<double>(out.data(), out.data() + out.size());
    };
    for (const Forms& forms : all_forms()) {
      const auto blocking = run([&] { forms.block(given); });
      EXPECT_EQ(run([&] { forms.start(given).wait(); }), blocking) << forms.name;
      CallList calls;
      forms.list(calls, given);
      EXPECT_EQ(run([&] { world.run(calls); }), blocking) << forms.name;
      EXPECT_EQ(run([&] { world.start(calls).wait(); }), blocking) << forms.name;
      const bool receives = p > 1 && forms.name != "barrier" && (r.rank() == given.root || forms.name != "reduce");
      const bool of_root = forms.name == "reduce" || forms.name.starts_with("gather");
      const bool gives = forms.name == "broadcast" && r.rank() == given.root;
      if (receives && !(of_root && r.rank() != given.root) && !gives) {
        EXPECT_NE(blocking.front(), -1.0 - r.rank()) << forms.name << " does nothing";
      }
    }
  });
}

}  // namespace reigen::testing
