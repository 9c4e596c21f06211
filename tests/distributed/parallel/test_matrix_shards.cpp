// Shards on the borders of matrices: which copy owns what, and in which order it lies.
#include <map>

#include "distributed/parallel/parameter.h"
#include "support/catch.h"

using namespace megatron;

namespace {

struct Declared {
  const char* name;
  Role role;
  Shape shape;
  double cost = 0;
  bool adjacent = false;
  CopyGroup copies = CopyGroup::dense;
};

const std::vector<Declared> kLayer = {{"norm", Role::norm, {8}},
                                      {"query", Role::matrix, {8, 8}, 10},
                                      {"key", Role::matrix, {2, 8}, 1, true},
                                      {"value", Role::matrix, {2, 8}, 1, true},
                                      {"bias", Role::vector, {12}},
                                      {"out", Role::matrix, {8, 8}, 10},
                                      {"up", Role::matrix, {32, 8}, 20},
                                      {"down", Role::matrix, {8, 32}, 20}};

int declare(ParameterStore& store, const Declared& declared, const std::string& name, std::int64_t layer) {
  Parameter parameter(declared.role);
  parameter.name = name;
  parameter.layer = layer;
  parameter.global_shape = parameter.box.extent = declared.shape;
  parameter.copies = declared.copies;
  const int index = store.declare(std::move(parameter), declared.adjacent);
  if (declared.cost > 0) store.mark_matrix(index, declared.cost);
  return index;
}

void declare_layers(ParameterStore& store, int layers, const std::vector<Declared>& layer = kLayer) {
  for (int i = 0; i < layers; ++i) {
    for (const Declared& one : layer) declare(store, one, fmt::format("{} {}", one.name, i), i);
  }
}

/// "query 0 key 0 | up 0": the parameters of each copy in each bucket, in the buffer's order.
std::string owners(const ParameterStore& store, std::size_t bucket, int copies) {
  std::string text;
  for (int copy = 0; copy < copies; ++copy) {
    const FlatRange range = store.owned_by({copy, copy})[bucket];
    std::map<std::int64_t, std::string> names;
    for (const Parameter& parameter : store.all()) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, {range})) {
        names[part.first] = parameter.name + (part.count == parameter.elements() ? "" : " (part)");
      }
    }
    for (const auto& [first, name] : names) text += name + ", ";
    text += "| ";
  }
  return text;
}

/// Every parameter that is updated whole has one owner, and every element of the others.
void check_owners(const ParameterStore& store, int copies) {
  for (const Parameter& parameter : store.all()) {
    CAPTURE(parameter.name);
    std::int64_t elements = 0;
    int parts = 0;
    for (int copy = 0; copy < copies; ++copy) {
      for (const FlatRange& part : ParameterStore::parts_in(parameter, store.owned_by({copy, copy}))) {
        elements += part.count;
        ++parts;
        CHECK(store.bucket_of(parameter).first <= part.first);
        CHECK(part.end() <= store.bucket_of(parameter).end());
      }
    }
    CHECK(elements == parameter.elements());
    if (parameter.matrix_cost > 0) CHECK(parts == 1);
  }
}

}  // namespace

TEST_CASE("matrix shards: units are whole, the longest first, vectors fill up") {
  ParameterStore store;
  declare_layers(store, 2);
  store.allocate_sizing(DType::f32, {2}, 1);
  REQUIRE(store.buckets().size() == 2);
  const Bucket& bucket = store.buckets()[0];
  CHECK(bucket.equal_parts);
  CHECK(bucket.first_parameter == 0);
  CHECK(owners(store, 0, 2) == "query 0, key 0, value 0, up 0, | norm 0, bias 0, out 0, down 0, | ");
  // The part of more work goes to the copy that has less so far.
  CHECK(owners(store, 1, 2) == "norm 1, bias 1, out 1, down 1, | query 1, key 1, value 1, up 1, | ");
  check_owners(store, 2);
  for (int copy = 0; copy < 2; ++copy) {
    CHECK(store.part_of(0, {copy}).first == copy * bucket.count / 2);
    CHECK(bucket.owned[static_cast<std::size_t>(copy)].first == store.part_of(0, {copy}).first);
  }
  for (const Parameter& parameter : store.all()) {
    CHECK((parameter.adjacent || parameter.first % 16 == 0));
    if (parameter.adjacent) {
      const Parameter& before = store.at(parameter.index - 1);
      CHECK(parameter.first == before.first + before.elements());
    }
  }
}

TEST_CASE("matrix shards: buckets end with layers, what is left joins the last") {
  for (const auto& [layers, copies, buckets] :
       {std::tuple(4, 2, 4), {8, 4, 4}, {9, 4, 5}, {5, 3, 2}, {5, 5, 1}, {9, 5, 2}}) {
    CAPTURE(layers, copies);
    ParameterStore store;
    declare_layers(store, layers);
    store.allocate_sizing(DType::f32, {copies}, 1);
    CHECK(store.buckets().size() == static_cast<std::size_t>(buckets));
    check_owners(store, copies);
    int last = kNone;
    std::int64_t end = 0;
    for (const Bucket& bucket : store.buckets()) {
      CHECK(bucket.first == end);
      CHECK(bucket.first_parameter > last);
      end = bucket.end();
      last = bucket.first_parameter;
    }
    CHECK(store.flat_elements() == end);
    for (const Parameter& parameter : store.all()) {
      CHECK(parameter.index >= store.bucket_of(parameter).first_parameter);
    }
  }
}

TEST_CASE("matrix shards: tables and tied parameters are cut as without matrices") {
  ParameterStore store;
  store.mark_tied(declare(store, {"word", Role::embedding, {40, 8}}, "word", kBeforeLayers), 0, true);
  declare(store, {"position", Role::embedding, {64, 8}}, "position", kBeforeLayers);
  declare_layers(store, 2);
  declare(store, {"head", Role::head, {40, 8}}, "head", kAfterLayers);
  const int tied = declare(store, {"tied", Role::matrix, {8, 8}, 10}, "tied", kAfterLayers);
  store.mark_tied(tied, 1, true);
  store.allocate_sizing(DType::f32, {2}, 1);
  check_owners(store, 2);
  REQUIRE(store.buckets().size() == 6);
  CHECK(owners(store, 0, 2) == "word (part), | word (part), | ");
  CHECK(owners(store, 1, 2) == "position (part), | position (part), | ");
  CHECK(owners(store, 4, 2) == "head (part), | head (part), | ");
  CHECK(owners(store, 5, 2) == "tied, | | ");  // the same on each of its stages
  CHECK_FALSE(store.buckets()[5].equal_parts);
  CHECK(store.buckets()[5].count == 64);
}

TEST_CASE("matrix shards: copy groups have buckets of several layers each") {
  const std::vector<Declared> layer = {{"out", Role::matrix, {8, 8}, 10},
                                       {"router", Role::router, {2, 8}},
                                       {"expert", Role::matrix, {32, 8}, 20, false, CopyGroup::experts}};
  ParameterStore store;
  declare_layers(store, 4, layer);
  store.allocate_sizing(DType::f32, {4, 2}, 1);
  REQUIRE(store.buckets().size() == 3);
  CHECK(store.buckets()[0].copies == CopyGroup::dense);
  CHECK(store.buckets()[0].first_parameter == 0);
  CHECK(owners(store, 0, 4) == "out 0, router 0, | out 1, router 1, | out 2, router 2, | out 3, router 3, | ");
  CHECK(owners(store, 1, 2) == "expert 0, | expert 1, | ");
  CHECK(store.buckets()[1].first_parameter == 2);
  CHECK(owners(store, 2, 2) == "expert 2, | expert 3, | ");
  CHECK(store.buckets()[2].first_parameter == 8);
}

TEST_CASE("matrix shards: more copies than matrices are not padded for") {
  ParameterStore store;
  declare_layers(store, 2);
  store.allocate_sizing(DType::f32, {12}, 1);
  std::int64_t elements = 0;
  for (const Parameter& parameter : store.all()) elements += parameter.elements();
  CHECK(store.flat_elements() <= elements + 16 * static_cast<std::int64_t>(store.all().size()));
  REQUIRE(store.buckets().size() == 2);
  CHECK_FALSE(store.buckets()[0].equal_parts);
  check_owners(store, 12);
  // The next bucket's matrices are other copies'.
  int busy = 0;
  for (int copy = 0; copy < 12; ++copy) {
    const std::vector<FlatRange> owned = store.owned_by({copy});
    if (owned[0].count + owned[1].count >= 64) ++busy;
  }
  CHECK(busy == 8);
}

TEST_CASE("matrix shards: without shards or matrices nothing is moved") {
  const auto places = [](bool marked, Shards shards) {
    ParameterStore store;
    std::vector<Declared> layer = kLayer;
    for (Declared& one : layer) one.cost = marked ? one.cost : 0;
    declare_layers(store, 3, layer);
    store.allocate_sizing(DType::f32, shards, 400);
    std::vector<std::int64_t> first;
    for (const Parameter& parameter : store.all()) first.push_back(parameter.first);
    for (const Bucket& bucket : store.buckets()) {
      CHECK(bucket.owned.empty());
      CHECK(store.at(bucket.first_parameter).first == bucket.first);
    }
    return first;
  };
  CHECK(places(true, {}) == places(false, {}));
  const std::vector<std::int64_t> cut = places(false, {2});
  CHECK(std::is_sorted(cut.begin(), cut.end()));
}
