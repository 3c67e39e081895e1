// Collectives of tensors: values, and gradients compared with autograd in one process that holds all ranks' tensors.
#include "reigen/tensor/collectives.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "harness/torch.h"
#include "parallel/oracle.h"

namespace reigen::tensor::tensor_collectives_test {
namespace {

using namespace testing_oracle;  // NOLINT: the vocabulary of these tests
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

std::uint64_t as_seed(std::size_t number) { return static_cast<std::uint64_t>(number); }

// A collective, and the same computation in one process.
struct Case {
  std::function<at::Tensor(int rank)> input;
  std::function<at::Tensor(const at::Tensor& own, Communicator& world)> ours;
  std::function<Tensors(const Tensors& all)> reference;  // each rank's result
};

// The loss is the sum over the ranks of every result times some numbers.
void expect_same(int ranks, const Case& one) {
  SCOPED_TRACE(fmt::format("{} ranks", ranks));
  Tensors inputs;
  for (int q = 0; q < ranks; ++q) inputs.push_back(one.input(q).requires_grad_());
  const Tensors expected = one.reference(inputs);
  at::Tensor loss = torch::zeros({}, torch::kDouble);
  for (std::size_t q = 0; q < expected.size(); ++q) {
    loss = loss + (expected[q] * numbers(100 + as_seed(q), expected[q].sizes())).sum();
  }
  loss.backward();
  const auto results = on_ranks(ranks, [&](Communicator& world) -> Tensors {
    const auto rank = static_cast<std::size_t>(world.rank());
    const at::Tensor own = one.input(world.rank()).requires_grad_();
    const at::Tensor result = one.ours(own, world);
    EXPECT_TRUE(result.is_contiguous());
    EXPECT_TRUE(result.requires_grad());
    (result * numbers(100 + as_seed(rank), result.sizes())).sum().backward();
    at::NoGradGuard no_grad;
    EXPECT_FALSE(one.ours(own, world).requires_grad());
    return {result.detach(), own.grad()};
  });
  for (std::size_t q = 0; q < results.size(); ++q) {
    ASSERT_EQ(results[q].size(), 2U);
    EXPECT_EQ(results[q][0].sizes(), expected[q].sizes());
    EXPECT_LE(distance({results[q][0]}, {expected[q].detach()}), 1e-12) << "rank " << q;
    EXPECT_LE(distance({results[q][1]}, {inputs[q].grad()}), 1e-12) << "rank " << q;
  }
}

void expect_same_on_all_sizes(const std::function<Case(int ranks)>& make) {
  for (const int ranks : {1, 2, 3, 4}) expect_same(ranks, make(ranks));
}

at::Tensor sum_of(const Tensors& tensors) {
  at::Tensor sum = tensors[0];
  for (std::size_t q = 1; q < tensors.size(); ++q) sum = sum + tensors[q];
  return sum;
}

at::Tensor matrix(int rank) { return numbers(as_seed(static_cast<std::size_t>(rank)), {5, 3}); }

TEST(TensorAllReduce, SumsAndItsGradientIsTheSum) {
  expect_same_on_all_sizes([](int) {
    return Case{matrix, [](const at::Tensor& own, Communicator& world) { return all_reduce(own, world); },
                [](const Tensors& all) { return Tensors(all.size(), sum_of(all)); }};
  });
}

TEST(TensorAllReduce, AveragesWithScalesOfEachRanksOwn) {
  expect_same_on_all_sizes([](int ranks) {
    return Case{matrix,
                [](const at::Tensor& own, Communicator& world) {
                  return all_reduce(own, world,
                                    {.op = ReduceOp::kAvg, .prescale = 2.0 + world.rank(), .postscale = 0.5});
                },
                [ranks](const Tensors& all) {
                  Tensors scaled;
                  for (std::size_t q = 0; q < all.size(); ++q)
                    scaled.push_back(all[q] * (2.0 + static_cast<double>(q)));
                  return Tensors(all.size(), sum_of(scaled) / ranks * 0.5);
                }};
  });
  expect_same_on_all_sizes([](int) {
    return Case{matrix,
                [](const at::Tensor& own, Communicator& world) {
                  return all_reduce(own, world, {.prescale = 0.3, .postscale = 1.0 + world.rank()});
                },
                [](const Tensors& all) {
                  Tensors results;
                  for (std::size_t q = 0; q < all.size(); ++q) {
                    results.push_back(sum_of(all) * 0.3 * (1.0 + static_cast<double>(q)));
                  }
                  return results;
                }};
  });
}

TEST(TensorAllReduce, TakesAnyStridesAndGradientsOfGradients) {
  expect_same_on_all_sizes([](int) {
    return Case{matrix,
                [](const at::Tensor& own, Communicator& world) { return all_reduce(own.t().slice(0, 0, 3, 2), world); },
                [](const Tensors& all) { return Tensors(all.size(), sum_of(all).t().slice(0, 0, 3, 2)); }};
  });
  const Tensors second = agreed(3, [](Communicator& world) -> Tensors {
    const at::Tensor x = torch::full({2}, 3.0, torch::kDouble).requires_grad_();
    const at::Tensor y = all_reduce(x * x, world);
    const at::Tensor first = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];  // P · 2x
    return {first.detach(), torch::autograd::grad({(first * first).sum()}, {x})[0]};    // of sum (2Px)²: P² · 8x
  });
  EXPECT_TRUE(second[0].equal(torch::full({2}, 18.0, torch::kDouble)));
  EXPECT_TRUE(second[1].equal(torch::full({2}, 9.0 * 24.0, torch::kDouble)));
}

TEST(TensorAllReduce, OtherReductionsHaveNoGradient) {
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProd}) {
    const auto texts = errors_on(2, [op](Communicator& world) {
      const at::Tensor x = torch::full({2}, 2.0 + world.rank()).requires_grad_();
      const at::Tensor y = all_reduce(x, world, {.op = op});
      const float expected = op == ReduceOp::kMin ? 2 : op == ReduceOp::kMax ? 3 : 6;
      EXPECT_TRUE(y.detach().equal(torch::full({2}, expected)));
      y.sum().backward();
    });
    EXPECT_THAT(texts, Each(AllOf(HasSubstr("[all_reduce] this reduction has no gradient"), HasSubstr("detach()"))));
  }
}

TEST(TensorAllReduce, InPlaceAndOtherTypes) {
  for (const int ranks : {2, 3, 4}) {
    agreed(ranks, [ranks](Communicator& world) -> Tensors {
      const at::Tensor whole = torch::arange(12, torch::kLong).view({3, 4}) + world.rank();
      at::Tensor plain = whole.clone();
      const auto before = plain._version();
      all_reduce_(plain, world);
      EXPECT_GT(plain._version(), before);
      at::Tensor turned = whole.clone();
      all_reduce_(turned.t(), world);  // the caller's memory, through a view
      const at::Tensor expected = torch::arange(12, torch::kLong).view({3, 4}) * ranks + ranks * (ranks - 1) / 2;
      EXPECT_TRUE(plain.equal(expected));
      EXPECT_TRUE(turned.equal(expected));
      EXPECT_TRUE(all_reduce(torch::zeros({0, 3}), world).equal(torch::zeros({0, 3})));
      const at::Tensor any = all_reduce(torch::full({2}, world.rank() == 1), world, {.op = ReduceOp::kMax});
      EXPECT_TRUE(any.equal(torch::ones({2}, torch::kBool)));
      const at::Tensor half = all_reduce(torch::full({3}, 0.5, torch::kHalf), world, {.postscale = 2});
      EXPECT_TRUE(half.equal(torch::full({3}, static_cast<double>(ranks), torch::kHalf)));
      const at::Tensor rest = torch::full({}, 4.0);
      all_reduce_(rest, world, {.op = ReduceOp::kAvg, .prescale = 0.5});
      EXPECT_EQ(rest.item<float>(), 2);
      const at::Tensor negative = at::_neg_view(torch::ones({2}));
      EXPECT_TRUE(all_reduce(negative, world).equal(torch::full({2}, -static_cast<float>(ranks))));
      return {plain};
    });
  }
}

TEST(TensorAllReduce, RefusesWhatCannotBeMoved) {
  const auto text = [](const std::function<void(Communicator&)>& call) { return errors_on(2, call); };
  EXPECT_THAT(text([](Communicator& world) { all_reduce(torch::ones({2}, torch::kComplexFloat), world); }),
              Each(HasSubstr("ComplexFloat")));
  EXPECT_THAT(text([](Communicator& world) { all_reduce(torch::ones({2}, torch::kMeta), world); }),
              Each(AllOf(HasSubstr("a tensor on meta"), HasSubstr("on the CPU"))));
  EXPECT_THAT(text([](Communicator& world) {
                all_reduce(torch::ones({2, 2}).to_sparse(), world);
              }),
              Each(HasSubstr("sparse")));
  EXPECT_THAT(text([](Communicator& world) { all_reduce(at::Tensor(), world); }), Each(HasSubstr("undefined")));
  EXPECT_THAT(text([](Communicator& world) { all_reduce(torch::ones(2, torch::kInt), world, {.prescale = 0.5}); }),
              Each(AllOf(HasSubstr("only floating point can be scaled"), HasSubstr("got: Int, prescale 0.5"))));
  EXPECT_THAT(text([](Communicator& world) { all_reduce(torch::ones(2), world, {.postscale = 1 / 0.0}); }),
              Each(HasSubstr("not a finite number")));
  EXPECT_THAT(text([](Communicator& world) { all_reduce_(torch::ones(2).requires_grad_() * 1, world); }),
              Each(AllOf(HasSubstr("in place"), HasSubstr("all_reduce() gives"))));
}

TEST(TensorAllReduce, ShapesThatDifferAreNamedOnBoth) {
  on_ranks(2, [](Communicator& world) -> Tensors {
    const at::Tensor x = world.rank() == 0 ? torch::ones({2, 3}) : torch::ones({3, 2});
    try {
      all_reduce(x, world);
      ADD_FAILURE() << "no error";
    } catch (const CollectiveMismatch& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("[2, 3]"), HasSubstr("[3, 2]")));
    }
    return {x};
  });
}

TEST(TensorGroupedAllReduce, GivesTheBitsOfSingleOnes) {
  for (const int ranks : {1, 2, 3, 4}) {
    agreed(ranks, [](Communicator& world) -> Tensors {
      const auto seed = as_seed(static_cast<std::size_t>(world.rank()) * 10);
      const Tensors mixed{numbers(seed, {3, 5}).to(torch::kFloat),
                          numbers(seed + 1, {7}),
                          numbers(seed + 2, {4, 2}).to(torch::kFloat).t(),
                          torch::ones({0, 2}),
                          torch::arange(5, torch::kLong),
                          numbers(seed + 3, {})};
      for (const bool average : {false, true}) {
        const ReduceOptions options{.op = average ? ReduceOp::kAvg : ReduceOp::kSum};
        Tensors single;
        for (const at::Tensor& one : mixed) single.push_back(all_reduce(one, world, options));
        EXPECT_TRUE(same_bits(grouped_all_reduce(mixed, world, options), single));
        Tensors in_place;
        for (const at::Tensor& one : mixed) in_place.push_back(one.clone());
        grouped_all_reduce_(in_place, world, options);
        EXPECT_TRUE(same_bits(in_place, single));
      }
      EXPECT_TRUE(grouped_all_reduce({}, world).empty());
      return {torch::zeros(1)};
    });
  }
}

TEST(TensorGroupedAllReduce, GradientsOfAllEvenOfThoseThatNobodyUsed) {
  for (const int ranks : {2, 3}) {
    const Tensors gradients = agreed(ranks, [](Communicator& world) -> Tensors {
      const double r = world.rank();
      const at::Tensor a = torch::ones({2, 2}, torch::kDouble).requires_grad_();
      const at::Tensor b = torch::ones({3}).requires_grad_();
      const at::Tensor c = torch::ones({2}, torch::kDouble);
      const at::Tensor d = torch::ones({1}, torch::kDouble).requires_grad_();
      const Tensors y = grouped_all_reduce({a, b, c, d}, world, {.op = ReduceOp::kAvg, .prescale = 3});
      ((r + 1) * y[0].sum() + y[1].to(torch::kDouble).sum() + y[2].sum()).backward();
      return {a.grad(), b.grad(), d.grad()};
    });
    ASSERT_EQ(gradients.size(), 3U);
    EXPECT_TRUE(torch::allclose(gradients[0], torch::full({2, 2}, 3 * (ranks + 1) / 2.0, torch::kDouble), 0, 1e-12));
    EXPECT_TRUE(gradients[1].equal(torch::full({3}, 3.0)));
    EXPECT_TRUE(gradients[2].equal(torch::zeros({1}, torch::kDouble)));
  }
}

at::Tensor uneven(int rank) {  // 0, 2, 4, 6 rows
  return numbers(as_seed(static_cast<std::size_t>(rank)), {2 * rank, 3, 2});
}

TEST(TensorAllGather, TakesRowsOfAnyNumber) {
  expect_same_on_all_sizes([](int) {
    return Case{uneven, [](const at::Tensor& own, Communicator& world) { return all_gather(own, world); },
                [](const Tensors& all) { return Tensors(all.size(), torch::cat(all)); }};
  });
  expect_same_on_all_sizes([](int) {
    return Case{matrix, [](const at::Tensor& own, Communicator& world) { return all_gather(own.t(), world); },
                [](const Tensors& all) {
                  Tensors turned;
                  for (const at::Tensor& one : all) turned.push_back(one.t());
                  return Tensors(all.size(), torch::cat(turned));
                }};
  });
  const Tensors none = agreed(3, [](Communicator& world) -> Tensors {
    return {all_gather(torch::ones({0, 4}), world), all_gather(torch::ones({2, 0}), world)};
  });
  EXPECT_EQ(none[0].sizes(), at::IntArrayRef({0, 4}));
  EXPECT_EQ(none[1].sizes(), at::IntArrayRef({6, 0}));
}

TEST(TensorAllGather, NamesWhoDiffersAndHowAndGoesOn) {
  const auto differing = [](const std::function<at::Tensor(bool differs)>& make) {
    return errors_on(3, [&](Communicator& world) { all_gather(make(world.rank() == 2), world); });
  };
  EXPECT_THAT(differing([](bool differs) {
                return torch::ones({2, differs ? 5 : 4});
              }),
              Each(AllOf(HasSubstr("the tensor of rank 2 of 3"), HasSubstr("rank 2: Float [2, 5]"),
                         HasSubstr("rank 0: Float [2, 4]"))));
  EXPECT_THAT(differing([](bool differs) {
                return torch::ones({2, 4}, differs ? torch::kInt : torch::kFloat);
              }),
              Each(AllOf(HasSubstr("rank 2: Int [2, 4]"), HasSubstr("rank 0: Float [2, 4]"))));
  EXPECT_THAT(differing([](bool differs) {
                return differs ? torch::ones({2}) : torch::ones({2, 4});
              }),
              Each(AllOf(HasSubstr("rank 2: Float [2]"), HasSubstr("rank 0: Float [2, 4]"))));
  EXPECT_THAT(differing([](bool differs) { return torch::ones({2}).requires_grad_(differs); }),
              Each(AllOf(HasSubstr("rank 2: Float [2], requires a gradient"), HasSubstr("rank 0: Float [2];"))));
  EXPECT_THAT(differing([](bool) { return torch::ones({}); }), Each(HasSubstr("unsqueeze(0)")));
}

TEST(TensorBroadcast, GivesRootsAndSumsGradientsThere) {
  for (const int root : {0, 1}) {
    for (const int ranks : {2, 3, 4}) {
      expect_same(
          ranks,
          Case{matrix, [root](const at::Tensor& own, Communicator& world) { return broadcast(own.t(), root, world); },
               [root](const Tensors& all) {
                 const at::Tensor given = all[static_cast<std::size_t>(root)].t();
                 Tensors results(all.size(), given);
                 for (std::size_t q = 0; q < all.size(); ++q) results[q] = given + 0 * all[q].t();
                 return results;
               }});
    }
  }
  const Tensors same = agreed(3, [](Communicator& world) -> Tensors {
    at::Tensor plain = torch::full({2, 3}, world.rank(), torch::kInt);
    broadcast_(plain, 2, world);
    at::Tensor turned = torch::full({2, 3}, static_cast<double>(world.rank()));
    broadcast_(turned.t(), 1, world);
    return {plain, turned};
  });
  EXPECT_TRUE(same[0].equal(torch::full({2, 3}, 2, torch::kInt)));
  EXPECT_TRUE(same[1].equal(torch::ones({2, 3})));
  EXPECT_THAT(errors_on(2, [](Communicator& world) { broadcast(torch::ones(2), 2, world); }),
              Each(HasSubstr("root out of range")));
}

TEST(TensorReduceScatter, CutsRowsAsEvenlyAsPossible) {
  for (const bool average : {false, true}) {
    expect_same_on_all_sizes([average](int ranks) {
      return Case{matrix,  // 5 rows
                  [average](const at::Tensor& own, Communicator& world) {
                    return reduce_scatter(own, world,
                                          {.op = average ? ReduceOp::kAvg : ReduceOp::kSum,
                                           .prescale = 1.0 + world.rank(),
                                           .postscale = 3.0 - world.rank()});
                  },
                  [average, ranks](const Tensors& all) {
                    Tensors scaled;
                    for (std::size_t q = 0; q < all.size(); ++q) scaled.push_back(all[q] * static_cast<double>(q + 1));
                    Tensors results;
                    std::int64_t begin = 0;
                    for (int q = 0; q < ranks; ++q) {
                      const std::int64_t rows = 5 / ranks + (q < 5 % ranks ? 1 : 0);
                      results.push_back(sum_of(scaled).narrow(0, begin, rows) * (3.0 - q) / (average ? ranks : 1));
                      begin += rows;
                    }
                    return results;
                  }};
    });
  }
  on_ranks(4, [](Communicator& world) -> Tensors {  // fewer rows than ranks
    const at::Tensor own = reduce_scatter(torch::ones({2, 3}), world);
    EXPECT_EQ(own.size(0), world.rank() < 2 ? 1 : 0);
    return {own};
  });
  EXPECT_THAT(errors_on(2, [](Communicator& world) { reduce_scatter(torch::ones({}), world); }),
              Each(HasSubstr("unsqueeze(0)")));
}

// Rank r sends (r + 2·q) % 3 rows to rank q.
std::vector<std::int64_t> splits_of(int rank, int ranks) {
  std::vector<std::int64_t> splits;
  for (int q = 0; q < ranks; ++q) splits.push_back((rank + 2 * q) % 3);
  return splits;
}

TEST(TensorAllToAll, ExchangesRowsAndBringsTheirGradientsBack) {
  expect_same_on_all_sizes([](int ranks) {
    return Case{[ranks](int rank) {
                  std::int64_t rows = 0;
                  for (const std::int64_t one : splits_of(rank, ranks)) rows += one;
                  return numbers(as_seed(static_cast<std::size_t>(rank)), {rows, 2});
                },
                [ranks](const at::Tensor& own, Communicator& world) {
                  const AllToAllResult result = all_to_all(own, splits_of(world.rank(), ranks), world);
                  for (int q = 0; q < ranks; ++q) {
                    EXPECT_EQ(result.received_splits[static_cast<std::size_t>(q)],
                              splits_of(q, ranks)[static_cast<std::size_t>(world.rank())]);
                  }
                  return result.tensor;
                },
                [ranks](const Tensors& all) {
                  Tensors results;
                  for (int r = 0; r < ranks; ++r) {
                    Tensors parts;
                    for (int q = 0; q < ranks; ++q) {
                      parts.push_back(all[static_cast<std::size_t>(q)].split_with_sizes(
                          splits_of(q, ranks))[static_cast<std::size_t>(r)]);
                    }
                    results.push_back(torch::cat(parts));
                  }
                  return results;
                }};
  });
  on_ranks(3, [](Communicator& world) -> Tensors {
    const AllToAllResult even = all_to_all(torch::full({6, 2}, world.rank(), torch::kInt), {}, world);
    EXPECT_EQ(even.received_splits, (std::vector<std::int64_t>{2, 2, 2}));
    EXPECT_TRUE(even.tensor.select(1, 0).equal(torch::tensor({0, 0, 1, 1, 2, 2}, torch::kInt)));
    return {even.tensor};
  });
}

TEST(TensorAllToAll, RefusesSplitsThatDoNotFit) {
  const std::vector<std::vector<std::int64_t>> kBad{{1, 2, 3}, {3, 2}, {5, -1}, {}};
  for (const auto& splits : kBad) {
    EXPECT_THAT(errors_on(2,
                          [&](Communicator& world) {
                            all_to_all(torch::ones({3, 2}), splits, world);
                          }),
                Each(AllOf(HasSubstr("the splits do not fit the rows"), HasSubstr("for 3 rows"))));
  }
  EXPECT_THAT(errors_on(2,
                        [](Communicator& world) {
                          all_to_all(torch::ones({2, 2 + world.rank()}), {}, world);
                        }),
              Each(AllOf(HasSubstr("rank 1: Float [2, 3]"), HasSubstr("rank 0: Float [2, 2]"))));
}

}  // namespace
}  // namespace reigen::tensor::tensor_collectives_test
