// Records of all ranks together: right ones pass, and each kind of mistake is named. Planted into models:
// parity/test_planted_errors.cpp.
#include "distributed/parallel/record_check.h"

#include "distributed/comm/thread_communicator.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

constexpr GridShape kShape{.tensor = 2, .data = 2};

/// Two rows of a matrix of four on each of two tensor ranks, or all of it.
Parameter matrix(const ProcessGrid& grid, Placement placement) {
  Parameter parameter(Role::matrix);
  parameter.name = "weight";
  parameter.global_shape = {4, 3};
  parameter.tensor = placement;
  const bool split = placement == Placement::split;
  parameter.box = {{split ? 2 * grid.at().tensor : 0, 0}, {split ? 2 : 4, 3}};
  parameter.owner = split || grid.at().tensor == 0;
  return parameter;
}

using Change = std::function<void(Parameter& parameter, const GridCoordinates& at)>;

void check(Placement placement, const Change& change = {}) {
  run_as_threads(kShape.ranks(), [&](Communicator& world) {
    const ProcessGrid grid(world, kShape);
    ParameterStore store;
    Parameter parameter = matrix(grid, placement);
    if (change) change(parameter, grid.at());
    store.declare(parameter);
    check_records(grid, store);
  });
}

void require_found(const std::string& found, Placement placement, const Change& change) {
  require_error(ErrorKind::numerics, {"weight: ", found}, [&] { check(placement, change); });
}

TensorSlice share(std::int64_t first, std::int64_t count, std::int64_t row = 0, std::int64_t rows = 4) {
  return {.name = "weight", .global_shape = {4, 3}, .box = {{row, 0}, {rows, 3}}, .first = first, .count = count};
}

void check_shares_of(const std::vector<std::vector<TensorSlice>>& ranks) {
  run_as_threads(static_cast<int>(ranks.size()),
                 [&](Communicator& world) { check_shares(world, ranks[static_cast<std::size_t>(world.rank())]); });
}

}  // namespace

TEST_CASE("records: right ones of every placement pass") {
  for (const Placement placement : {Placement::split, Placement::replica, Placement::partial}) check(placement);
}

TEST_CASE("records: a sum over ranks that hold something else is found") {
  require_found("rank 0 sums its gradient over group 'tensor', in which rank 1 has another part of it",
                Placement::split,
                [](Parameter& parameter, const GridCoordinates&) { parameter.tensor = Placement::partial; });
  require_found("in which rank 1 has another part of it", Placement::replica,
                [](Parameter& parameter, const GridCoordinates& at) {
                  if (at.tensor == 1) parameter.box.extent[0] = 3;
                });
}

TEST_CASE("records: ranks with the same elements and no sum are found") {
  require_found("ranks 0 and 1 hold the same elements, and no sum of gradients connects them", Placement::replica,
                [](Parameter& parameter, const GridCoordinates&) { parameter.tensor = Placement::split; });
}

TEST_CASE("records: elements that norms count twice or never are found") {
  require_found("norms count it twice: ranks 0 and 1", Placement::replica,
                [](Parameter& parameter, const GridCoordinates&) { parameter.owner = true; });
  require_found("norms leave 12 of its 12 elements out", Placement::replica,
                [](Parameter& parameter, const GridCoordinates&) { parameter.owner = false; });
  require_found("norms leave 6 of its 12 elements out", Placement::split,
                [](Parameter& parameter, const GridCoordinates& at) { parameter.owner = at.tensor == 0; });
}

TEST_CASE("shares: every element is saved once, or it is named") {
  check_shares_of({{share(0, 5)}, {share(5, 7)}});
  check_shares_of({{share(0, 6, 0, 2)}, {share(0, 6, 2, 2)}});
  const auto require_share = [](const std::string& found, const std::vector<std::vector<TensorSlice>>& ranks) {
    require_error(ErrorKind::numerics, {"weight: ", found}, [&] { check_shares_of(ranks); });
  };
  require_share("element 0 of a part is saved twice", {{share(0, 12)}, {share(0, 12)}});
  require_share("element 4 of a part is saved twice", {{share(0, 5)}, {share(4, 8)}});
  require_share("2 of 12 elements are saved by no rank", {{share(0, 5)}, {share(7, 5)}});
  require_share("elements of two parts are the same", {{share(0, 9, 0, 3)}, {share(0, 6, 2, 2)}});
}

TEST_CASE("shares: parts that are cut along any axis are compared") {
  const auto tile = [](std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns) {
    return TensorSlice{.name = "weight",
                       .global_shape = {4, 6},
                       .box = {{row, column}, {rows, columns}},
                       .first = 0,
                       .count = rows * columns};
  };
  check_shares_of({{tile(0, 0, 4, 1)}, {tile(0, 1, 4, 1), tile(0, 2, 4, 2)}, {tile(0, 4, 4, 2)}});
  check_shares_of({{tile(0, 0, 2, 3), tile(2, 3, 2, 3)}, {tile(0, 3, 2, 3), tile(2, 0, 2, 3)}});
  for (const TensorSlice& wrong : {tile(1, 1, 1, 1), tile(0, 5, 4, 1), tile(3, 2, 1, 2)}) {
    require_error(ErrorKind::numerics, {"weight: elements of two parts are the same"}, [&] {
      check_shares_of({{tile(0, 0, 2, 3), tile(2, 3, 2, 3), wrong}, {tile(0, 3, 2, 3), tile(2, 0, 2, 3)}});
    });
  }
}
