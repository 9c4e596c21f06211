#include "backend/tensor/tensor.h"
#include "support/catch.h"

#include <numeric>
#include <vector>

using namespace megatron;

TEST_CASE("shapes count, compare and print") {
  CHECK(Shape{}.elements() == 0);
  CHECK(Shape{}.rank() == 0);
  CHECK(Shape{4, 2, 64}.elements() == 512);
  CHECK(Shape{4, 0, 64}.elements() == 0);
  CHECK(Shape{4, 2, 64}.to_string() == "[4, 2, 64]");
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{6} == Shape{6, 1});
  CHECK_THROWS_AS((Shape{1, 2, 3, 4, 5, 6}), Error);
  CHECK_THROWS_AS(Shape{-1}, Error);
  const std::vector<std::int64_t> extents = {4, 2};
  CHECK(Shape(extents) == Shape{4, 2});
}

TEST_CASE("tensors: an error shows the shapes and types that differ") {
  float memory[6] = {};
  const Tensor x(memory, {2, 3}, DType::f32);
  CHECK_THROWS_WITH(x.view({5, 4}), Contains(": [2, 3], [5, 4] ("));
  CHECK_THROWS_WITH(x.as<double>(), Contains(": f64, f32 ("));
  CHECK_THROWS_WITH(x.slice(1, 2, 2), Contains(": 2, 2, 3 ("));
}

TEST_CASE("an absent tensor is empty and a present one is not") {
  float memory[6] = {};
  CHECK(ConstTensor().empty());
  CHECK_FALSE(static_cast<bool>(Tensor()));
  CHECK_FALSE(Tensor(memory, {2, 3}, DType::f32).empty());
}

TEST_CASE("views: the same memory in other shapes") {
  std::vector<float> memory(24);
  std::iota(memory.begin(), memory.end(), 0.0f);
  const Tensor x(memory.data(), {2, 3, 4}, DType::f32);
  CHECK(x.contiguous());
  CHECK(x.bytes() == 96);
  CHECK(x.stride(0) == 12);
  CHECK(x.stride(2) == 1);

  SECTION("view") {
    const Tensor y = x.view({6, 4});
    CHECK(y.data() == x.data());
    CHECK(y.stride(0) == 4);
    CHECK_THROWS_AS(x.view({5, 4}), Error);
  }
  SECTION("a slice of the first dimension stays contiguous") {
    const Tensor y = x.slice(0, 1, 1);
    CHECK(y.contiguous());
    CHECK(y.as<float>()[0] == 12.0f);
    CHECK(y.shape() == Shape{1, 3, 4});
  }
  SECTION("a slice of the last dimension keeps the strides") {
    const Tensor y = x.slice(2, 1, 2);
    CHECK(y.shape() == Shape{2, 3, 2});
    CHECK(y.stride(1) == 4);
    CHECK(y.as<float>()[y.stride(0) + y.stride(1)] == 17.0f);
    CHECK_FALSE(y.contiguous());
    CHECK_THROWS_AS(y.view({12}), Error);
  }
  SECTION("slices outside are refused") {
    CHECK_THROWS_AS(x.slice(2, 3, 2), Error);
    CHECK_THROWS_AS(x.slice(2, -1, 2), Error);
    CHECK_THROWS_AS(x.slice(3, 0, 1), Error);
  }
  SECTION("heads of a slice: split_last keeps the outer strides") {
    const Tensor heads = x.slice(2, 0, 4).split_last(2);
    CHECK(heads.shape() == Shape{2, 3, 2, 2});
    CHECK(heads.stride(1) == 4);
    CHECK(heads.stride(2) == 2);
    const Tensor of_slice = x.view({2, 12}).slice(1, 4, 8).split_last(4);
    CHECK(of_slice.shape() == Shape{2, 4, 2});
    CHECK(of_slice.stride(0) == 12);
    CHECK(of_slice.as<float>()[of_slice.stride(0) + of_slice.stride(1) + 1] == 12 + 4 + 2 + 1.0f);
    CHECK_THROWS_AS(x.split_last(3), Error);
  }
  SECTION("swapped: two dimensions and their strides change places") {
    const Tensor parts = x.view({2, 3, 4}), swapped = parts.swapped(0, 1);
    CHECK(swapped.shape() == Shape{3, 2, 4});
    CHECK(swapped.stride(0) == parts.stride(1));
    CHECK(swapped.stride(1) == parts.stride(0));
    CHECK(swapped.data() == parts.data());
    CHECK_THROWS_AS(parts.swapped(0, 2), Error);
  }
  SECTION("a wrong element type is refused") {
    CHECK_THROWS_AS(x.as<double>(), Error);
    CHECK_THROWS_AS(x.as<std::int32_t>(), Error);
  }
  SECTION("extents of one do not break contiguity") {
    CHECK(x.slice(0, 0, 1).slice(1, 0, 1).contiguous());
    CHECK_FALSE(x.slice(1, 0, 1).contiguous());
  }
}
