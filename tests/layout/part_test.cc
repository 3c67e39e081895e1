#include "reigen/layout/part.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "checkpoint/layouts.h"
#include "reigen/base/error.h"

namespace reigen::layout {
namespace {

std::vector<layout::Run> runs_of(const Shape& tensor, const Part& part) {
  std::vector<layout::Run> result;
  Runs runs(tensor, part);
  while (const auto run = runs.next()) result.push_back(*run);
  return result;
}

// The numbers of the elements of a part, found one by one.
std::vector<std::int64_t> elements_of(const Shape& tensor, const Part& part) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = part.first; i < part.first + part.count; ++i) {
    std::int64_t rest = i;
    std::int64_t element = 0;
    std::int64_t stride = 1;
    for (std::size_t d = tensor.size(); d > 0; --d) {
      element += (part.offset[d - 1] + rest % part.shape[d - 1]) * stride;
      rest /= part.shape[d - 1];
      stride *= tensor[d - 1];
    }
    result.push_back(element);
  }
  return result;
}

// Runs of a box in sections, cut anywhere, have the same elements as the plain parts into which it falls.
TEST(Part, PlainPartsHaveTheElementsOfAPartWithAView) {
  const Shape tensor{12, 5};
  const Part box{.offset = {0, 1, 0}, .shape = {3, 2, 5}, .view = {3, 4, 5}};
  for (std::int64_t first = 0; first <= 30; ++first) {
    for (std::int64_t count = 0; first + count <= 30; ++count) {
      Part part = box;
      part.first = first;
      part.count = count;
      check_part("x", tensor, part);
      std::vector<std::int64_t> seen, plain;
      for (const layout::Run& run : runs_of(tensor, part)) {
        for (std::int64_t i = 0; i < run.count; ++i) seen.push_back(run.global + i);
      }
      for (const PlainPart& one : plain_parts(tensor, part)) {
        EXPECT_EQ(one.local, static_cast<std::int64_t>(plain.size()));
        check_part("x", tensor, one.part);
        for (const std::int64_t element : elements_of(tensor, one.part)) plain.push_back(element);
      }
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(count));
      EXPECT_EQ(plain, seen);
    }
  }
}

TEST(Part, RunsAreTheElementsOfThePart) {
  std::mt19937 random(1);
  const auto below = [&](std::int64_t end) { return static_cast<std::int64_t>(random()) % end; };
  for (int round = 0; round < 3000; ++round) {
    Shape shape(static_cast<std::size_t>(below(5)));
    Part part;
    for (std::int64_t& size : shape) size = 1 + below(5);
    for (const std::int64_t size : shape) {
      part.shape.push_back(1 + below(size));
      part.offset.push_back(below(size - part.shape.back() + 1));
    }
    const std::int64_t box = numel(part.shape);
    part.first = below(box);
    part.count = below(box - part.first + 1);
    check_part("x", shape, part);
    std::vector<std::int64_t> got;
    std::int64_t end = -1;
    for (const layout::Run& run : runs_of(shape, part)) {
      EXPECT_NE(run.global, end) << "two runs that are one";
      EXPECT_EQ(run.local, static_cast<std::int64_t>(got.size()));
      for (std::int64_t i = 0; i < run.count; ++i) got.push_back(run.global + i);
      end = run.global + run.count;
    }
    ASSERT_EQ(got, elements_of(shape, part)) << "round " << round;
  }
}

TEST(Part, AWholeTensorIsOneRun) {
  EXPECT_EQ(runs_of({4, 5, 6}, whole({4, 5, 6})), (std::vector<layout::Run>{{0, 0, 120}}));
  EXPECT_EQ(runs_of({}, whole({})), (std::vector<layout::Run>{{0, 0, 1}}));
  EXPECT_TRUE(runs_of({3, 0}, whole({3, 0})).empty());
  EXPECT_EQ(runs_of({4, 5}, flat_part({4, 5}, 3, 9)), (std::vector<layout::Run>{{3, 0, 9}}));
}

TEST(Part, WhatTwoPartsHaveInCommonIsCopiedOnce) {
  const Shape shape = {6, 7};
  for (const auto to_layout : testing_checkpoint::kLayouts) {
    for (const auto from_layout : testing_checkpoint::kLayouts) {
      std::vector<int> copied(42, 0);
      for (int to = 0; to < 4; ++to) {
        for (int from = 0; from < 3; ++from) {
          for (const Part& into : testing_checkpoint::parts_of(shape, 0, to_layout, to, 4)) {
            const auto wanted = elements_of(shape, into);
            for (const Part& out_of : testing_checkpoint::parts_of(shape, 0, from_layout, from, 3)) {
              const auto there = elements_of(shape, out_of);
              for_each_common(shape, into, out_of, [&](std::int64_t t, std::int64_t f, std::int64_t count) {
                for (std::int64_t i = 0; i < count; ++i) {
                  const auto element = wanted.at(static_cast<std::size_t>(t + i));
                  EXPECT_EQ(element, there.at(static_cast<std::size_t>(f + i)));
                  ++copied.at(static_cast<std::size_t>(element));
                }
              });
            }
          }
        }
      }
      EXPECT_EQ(copied, std::vector<int>(42, 1));
    }
  }
}

TEST(Part, PartsOutsideAreRefused) {
  EXPECT_THROW(check_part("x", {3}, flat_part({3}, 2, 2)), InvalidArgument);
  EXPECT_THROW(check_part("x", {3}, flat_part({3}, -1, 2)), InvalidArgument);
  EXPECT_THROW(check_part("x", {3, 4}, {.offset = {1, 0}, .shape = {3, 4}, .count = 12}), InvalidArgument);
  EXPECT_THROW(check_part("x", {3, 4}, {.offset = {0}, .shape = {3}, .count = 3}), InvalidArgument);
  EXPECT_THROW(numel({1 << 30, 1 << 30, 16}), InvalidArgument);
  EXPECT_THROW(numel({-1}), InvalidArgument);
  EXPECT_EQ(numel({0, INT64_MAX / 32}), 0);
}

}  // namespace
}  // namespace reigen::layout
