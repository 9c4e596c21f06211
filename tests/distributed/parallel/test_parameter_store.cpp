#include <cmath>
#include <map>

#include "backend/ops/backends.h"
#include "base/core/philox.h"
#include "distributed/parallel/parameter.h"
#include "support/boxes.h"
#include "support/catch.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;

namespace {

/// A parameter of which a rank holds the box of `extent` at `offset`.
Parameter boxed(const std::string& name, Shape global, Shape offset, Shape extent, double deviation = 0) {
  Parameter parameter(global.rank() == 1 ? Role::vector : Role::matrix);
  parameter.name = name;
  parameter.global_shape = global;
  parameter.box = {offset, extent};
  parameter.initialization.deviation = deviation;
  return parameter;
}

Parameter vector_of(const std::string& name, std::int64_t size, double constant = 0) {
  Parameter parameter = boxed(name, {size}, {0}, {size});
  parameter.initialization.constant = constant;
  return parameter;
}

}  // namespace

TEST_CASE("parameter store: parameters lie in order at multiples of 64 bytes") {
  const Backend backend = make_cpu_backend();
  ParameterStore store;
  CHECK(store.declare(vector_of("a", 5)) == 0);
  CHECK(store.declare(vector_of("b", 7)) == 1);
  CHECK(store.declare(vector_of("c", 3), /*adjacent=*/true) == 2);
  CHECK(store.declare(vector_of("d", 40), /*adjacent=*/true) == 3);
  CHECK(store.declare(vector_of("e", 16)) == 4);
  store.allocate(*backend.device, DType::f32);
  CHECK(store.at(0).first == 0);
  CHECK(store.at(1).first == 16);
  CHECK(store.at(2).first == 23);
  CHECK(store.at(3).first == 26);
  CHECK(store.at(4).first == 80);
  CHECK(store.flat_elements() == 96);
  CHECK(store.parameter_elements() == 5 + 7 + 3 + 40 + 16);

  CHECK(store.values().elements() == 96);
  CHECK(store.gradients().elements() == 96);
  for (const Parameter& parameter : store.all()) {
    CHECK(parameter.value.as<float>() == store.values().as<float>() + parameter.first);
    CHECK(parameter.gradient.as<float>() == store.gradients().as<float>() + parameter.first);
    CHECK(parameter.value.shape() == parameter.box.extent);
    CHECK(parameter.gradient.shape() == parameter.box.extent);
  }
}

TEST_CASE("gradients of 16-bit values are f32") {
  const Backend backend = make_cpu_backend();
  ParameterStore store;
  store.declare(vector_of("a", 5));
  store.allocate(*backend.device, DType::bf16);
  CHECK(store.at(0).value.dtype() == DType::bf16);
  CHECK(store.at(0).gradient.dtype() == DType::f32);
}

TEST_CASE("a store without memory has the same places") {
  ParameterStore store;
  store.declare(vector_of("a", 5));
  store.declare(vector_of("b", 7));
  store.allocate_sizing(DType::f32);
  CHECK(store.at(1).first == 16);
  CHECK(store.values().elements() == 23);
  CHECK(store.at(1).value.shape() == Shape{7});
}

TEST_CASE("joint views span adjacent parameters and refuse others") {
  const Backend backend = make_cpu_backend();
  ParameterStore store;
  const int query = store.declare(boxed("query", {8, 6}, {2, 0}, {2, 6}));
  store.declare(boxed("key", {8, 6}, {2, 0}, {2, 6}), true);
  store.declare(boxed("value", {8, 6}, {2, 0}, {2, 6}), true);
  const int apart = store.declare(boxed("output", {6, 8}, {0, 2}, {6, 2}));
  store.allocate(*backend.device, DType::f32);
  const Tensor matrix = store.joint_value(query, 3, 6), vector = store.joint_gradient(query, 3, 0);
  CHECK(matrix.shape() == Shape{6, 6});
  CHECK(vector.shape() == Shape{36});
  for (int i = 0; i < 3; ++i) {
    CHECK(matrix.slice(0, 2 * i, 2).data() == store.at(query + i).value.data());
    CHECK(vector.slice(0, 12 * i, 12).data() == store.at(query + i).gradient.data());
  }
  CHECK(store.joint_value(apart, 1, 2).data() == store.at(apart).value.data());
  CHECK_THROWS_AS(store.joint_value(query, 4, 6), Error);  // 36 elements end inside a block of 16: there is a gap
}

TEST_CASE("names are unique, and nothing is declared after the memory is there") {
  const Backend backend = make_cpu_backend();
  ParameterStore store;
  store.declare(vector_of("a", 5));
  CHECK_THROWS_AS(store.declare(vector_of("a", 6)), Error);
  store.allocate(*backend.device, DType::f32);
  CHECK_THROWS_AS(store.declare(vector_of("b", 5)), Error);
}

TEST_CASE("parameter store: initial values follow from seed and name and element") {
  const Backend backend = make_cpu_backend();
  const std::int64_t rows = 12, columns = 20;
  const auto initialised = [&](const std::string& name, Shape offset, Shape extent, std::uint64_t seed) {
    ParameterStore store;
    store.declare(vector_of("before", 3 + offset[0] + offset[1], 0.5));  // another place in the flat buffer
    const int index = store.declare(boxed(name, {rows, columns}, offset, extent, 0.02));
    store.allocate(*backend.device, DType::f32);
    store.initialize(*backend.ops, seed);
    NamedValues whole;
    assemble(store.at(index), store.at(index).value, whole);
    return whole.at(name);
  };
  const std::vector<float> whole = initialised("weight", {0, 0}, {rows, columns}, 7);
  for (const std::int64_t parts : {2, 4}) {
    std::vector<float> by_rows(whole.size()), by_columns(whole.size());
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto add = [](std::vector<float>& sum, const std::vector<float>& x) {
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];  // zero outside the box
      };
      add(by_rows, initialised("weight", {part * rows / parts, 0}, {rows / parts, columns}, 7));
      add(by_columns, initialised("weight", {0, part * columns / parts}, {rows, columns / parts}, 7));
    }
    CHECK(by_rows == whole);
    CHECK(by_columns == whole);
  }
  CHECK(initialised("weight", {0, 0}, {rows, columns}, 8) != whole);
  CHECK(initialised("other", {0, 0}, {rows, columns}, 7) != whole);
  double square_sum = 0;
  for (const float value : whole) square_sum += double{value} * value;
  CHECK(std::sqrt(square_sum / static_cast<double>(whole.size())) == Approx(0.02).epsilon(0.2));
}

TEST_CASE("initialize sets constants, and gaps and gradients to zero") {
  const Backend backend = make_cpu_backend();
  ParameterStore store;
  store.declare(vector_of("a", 5, 1));
  store.declare(vector_of("b", 7));
  store.allocate(*backend.device, DType::f32);
  backend.ops->fill(store.values(), 9);
  backend.ops->fill(store.gradients(), 9);
  store.initialize(*backend.ops, 1);
  for (std::int64_t i = 0; i < store.flat_elements(); ++i) {
    CHECK(store.values().as<float>()[i] == (i < 5 ? 1.0f : 0.0f));
    CHECK(store.gradients().as<float>()[i] == 0);
  }
}

TEST_CASE("optimizer shards: every part begins and ends at 16 bytes") {
  for (int shards = 2; shards <= 128; ++shards) {
    CAPTURE(shards);
    ParameterStore store;
    store.mark_tied(store.declare(vector_of("tied", 37)), 0, true);
    store.declare(vector_of("a", 1000));
    store.declare(vector_of("b", 33));
    store.declare(vector_of("c", 5), /*adjacent=*/true);
    store.declare(vector_of("d", 1));
    store.allocate_sizing(DType::bf16, {shards}, 1200);
    std::int64_t elements = 0;
    for (const FlatRange& bucket : store.buckets()) elements += bucket.count;
    CHECK(elements == store.flat_elements());
    CHECK(elements < store.parameter_elements() + 16 * 5 + 16 * shards * static_cast<int>(store.buckets().size()));
    bool aligned = true;
    for (int rank = 0; rank < shards; ++rank) {
      for (const FlatRange& part : store.owned_by({rank})) {
        // Places in the flat buffers of f32 and 16-bit numbers; and, since counts are multiples too, in the state's.
        for (const std::size_t size : {size_of(DType::bf16), size_of(DType::f32)}) {
          aligned = aligned && part.first * static_cast<std::int64_t>(size) % 16 == 0 &&
                    part.count * static_cast<std::int64_t>(size) % 16 == 0;
        }
      }
    }
    CHECK(aligned);
  }
}

TEST_CASE("buckets can be cut into equal parts for any number of data ranks") {
  for (const int shards : {2, 3, 4, 5, 7, 8, 12, 16, 24}) {
    CAPTURE(shards);
    ParameterStore store;
    const int tied = store.declare(vector_of("tied", 37));
    store.mark_tied(tied, 0, true);
    store.declare(vector_of("a", 100));
    store.declare(vector_of("b", 33));
    store.declare(vector_of("c", 5), /*adjacent=*/true);
    store.declare(vector_of("d", 1));
    store.allocate_sizing(DType::f32, {shards}, 120);
    // A tied one alone, and none between parameters that lie side by side.
    REQUIRE(store.buckets().size() == 3);
    CHECK(store.at(1).first == store.buckets()[1].first);
    CHECK(store.at(3).first == store.at(2).first + 33);
    CHECK(store.at(4).first == store.buckets()[2].first);
    std::int64_t end = 0;
    for (std::size_t bucket = 0; bucket < 3; ++bucket) {
      CHECK(store.buckets()[bucket].first == end);
      CHECK(store.buckets()[bucket].count % shards == 0);
      CHECK(store.buckets()[bucket].first % 16 == 0);
      for (int rank = 0; rank < shards; ++rank) {
        const FlatRange part = store.part_of(bucket, {rank});
        CHECK(part.first == end);
        CHECK(part.count == store.buckets()[bucket].count / shards);
        CHECK(store.owned_by({rank})[bucket].first == part.first);
        end = part.end();
      }
    }
    CHECK(store.flat_elements() == end);
    // Every element of every parameter has exactly one owner.
    for (const Parameter& parameter : store.all()) {
      std::int64_t next = parameter.first;
      std::map<std::int64_t, std::int64_t> parts;
      for (int rank = 0; rank < shards; ++rank) {
        for (const FlatRange& part : ParameterStore::parts_in(parameter, store.owned_by({rank}))) {
          parts[part.first] = part.count;
        }
      }
      for (const auto& [first, count] : parts) {
        CHECK(first == next);
        next += count;
      }
      CHECK(next == parameter.first + parameter.elements());
    }
  }
}

TEST_CASE("optimizer shards: parts of equal length cut parameters anywhere") {
  ParameterStore store;
  store.declare(vector_of("a", 20));
  store.declare(vector_of("b", 28), /*adjacent=*/true);
  store.declare(vector_of("c", 12), /*adjacent=*/true);
  store.allocate_sizing(DType::f32, {4});
  REQUIRE(store.buckets().size() == 1);
  CHECK(store.flat_elements() == 64);
  // In the order of declaration; which elements of a parameter, not only how many, is what a checkpoint's slices say.
  const auto owned = [&](int rank) {
    std::string parts;
    for (const Parameter& parameter : store.all()) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, store.owned_by({rank}))) {
        const std::int64_t first = part.first - parameter.first;
        parts += fmt::format("{}[{}..{}] at {} ", parameter.name, first, first + part.count - 1, part.first);
      }
    }
    return parts;
  };
  CHECK(owned(0) == "a[0..15] at 0 ");
  CHECK(owned(1) == "a[16..19] at 16 b[0..11] at 20 ");
  CHECK(owned(2) == "b[12..27] at 32 ");
  CHECK(owned(3) == "c[0..11] at 48 ");
}

TEST_CASE("buckets: none has parameters of two copy groups") {
  ParameterStore store;
  for (const auto& [name, copies] : {std::pair("a", CopyGroup::dense),
                                     {"b", CopyGroup::dense},
                                     {"c", CopyGroup::experts},
                                     {"d", CopyGroup::experts},
                                     {"e", CopyGroup::dense}}) {
    Parameter parameter = vector_of(name, 20);
    parameter.copies = copies;
    store.declare(std::move(parameter));
  }
  store.allocate_sizing(DType::f32);
  REQUIRE(store.buckets().size() == 3);
  CHECK(store.buckets()[0].end() == 52);
  CHECK(store.buckets()[1].first == 64);
  CHECK(store.buckets()[1].end() == 116);
  CHECK(store.buckets()[1].copies == CopyGroup::experts);
  CHECK(store.buckets()[2].first == 128);
  CHECK(store.buckets()[2].copies == CopyGroup::dense);
}

TEST_CASE("optimizer shards: experts are divided among their own copies") {
  ParameterStore store;
  for (const auto& [name, copies] : {std::pair("a", CopyGroup::dense),
                                     {"b", CopyGroup::experts},
                                     {"c", CopyGroup::experts},
                                     {"d", CopyGroup::dense}}) {
    Parameter parameter = vector_of(name, 20);
    parameter.copies = copies;
    store.declare(std::move(parameter));
  }
  const GridShape shape{.tensor = 2, .context = 2, .data = 4, .expert = 4};
  store.allocate_sizing(DType::f32, shards_of(shape));
  REQUIRE(store.buckets().size() == 3);
  CHECK(store.buckets()[0].count == 8 * 16);  // multiples of 16 elements, for eight copies
  CHECK(store.buckets()[1].count == 2 * 32);  // 52 elements with a gap, for two
  CHECK(store.flat_elements() == 128 + 64 + 128);
  const Shard shard = shard_at({.tensor = 1, .context = 1, .data = 3}, shape);
  CHECK(shard.dense == 7);
  CHECK(shard.experts == 1);
  const std::vector<FlatRange> owned = store.owned_by(shard);
  REQUIRE(owned.size() == 3);
  CHECK((owned[0].first == 7 * 16 && owned[0].count == 16));
  CHECK((owned[1].first == 128 + 32 && owned[1].count == 32));
  CHECK((owned[2].first == 128 + 64 + 7 * 16 && owned[2].count == 16));
  // Two data ranks that share all experts out have no copies of each other's.
  ParameterStore alone;
  Parameter expert = vector_of("expert", 20);
  expert.copies = CopyGroup::experts;
  alone.declare(std::move(expert));
  alone.allocate_sizing(DType::f32, shards_of({.data = 2, .expert = 2}));
  CHECK(alone.owned_by({1, 0})[0].count == 32);
  ParameterStore wrong;
  CHECK_THROWS_AS(wrong.allocate_sizing(DType::f32, {1, 2}), Error);
}

TEST_CASE("a large model has larger buckets, not more than can be in flight") {
  ParameterStore store;
  const std::int64_t size = ParameterStore::kBucketElements, count = 3 * ParameterStore::kMostBuckets;
  for (std::int64_t i = 0; i < count; ++i) store.declare(vector_of(std::to_string(i), size));
  store.allocate_sizing(DType::f32);
  CHECK(store.buckets().size() == ParameterStore::kMostBuckets);
  std::int64_t elements = 0;
  for (const FlatRange& bucket : store.buckets()) elements += bucket.count;
  CHECK(elements == count * size);
}

TEST_CASE("tied parameters: one counts only if it is told to and counted before") {
  ParameterStore store;
  const int first = store.declare(vector_of("a", 5)), second = store.declare(vector_of("b", 5));
  Parameter copy = vector_of("c", 5);
  copy.owner = false;
  const int third = store.declare(std::move(copy));
  store.mark_tied(first, 1, true);
  store.mark_tied(second, 0, false);
  store.mark_tied(third, 0, true);
  CHECK(store.at(first).tie == 1);
  CHECK(store.at(second).tie == 0);
  CHECK(store.at(first).owner);
  CHECK_FALSE(store.at(second).owner);
  CHECK_FALSE(store.at(third).owner);
}

TEST_CASE("parameter store: values alone keep their places without gradients") {
  Backend backend = make_cpu_backend();
  ParameterStore whole, values;
  for (ParameterStore* store : {&whole, &values}) {
    for (const std::int64_t size : {37, 100, 5}) {
      Parameter parameter(Role::vector);
      parameter.name = std::to_string(size);
      parameter.global_shape = {size};
      parameter.box = {{0}, {size}};
      store->declare(parameter);
    }
  }
  whole.allocate(*backend.device, DType::f32);
  values.allocate_values(*backend.device, DType::bf16);
  CHECK(values.gradients().empty());
  CHECK(values.values().bytes() * 2 == whole.values().bytes());
  for (int i = 0; i < 3; ++i) {
    CHECK(values.at(i).first == whole.at(i).first);
    CHECK(values.at(i).gradient.empty());
    CHECK(values.at(i).value.shape() == whole.at(i).value.shape());
  }
  Parameter again(Role::vector);
  again.name = "37";
  ParameterStore twice;
  twice.declare(again);
  CHECK_THROWS_AS(twice.declare(again), Error);
}
