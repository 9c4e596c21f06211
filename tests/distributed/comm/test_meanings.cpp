// Meanings of tensors: a call that says none, or one that its verb cannot take, does not compile.
#include "distributed/comm/meanings.h"

#include "distributed/comm/communicator.h"
#include "support/catch.h"

using namespace megatron;

namespace {

template <class Ranks, class... Said>
concept Sums = requires(Ranks& group, Tensor values, const Said&... said) {
  group.all_reduce(values, said...);
};
template <class Ranks, class... Said>
concept SumsValue = requires(Ranks& group, const Said&... said) {
  group.all_reduce_value(1, said...);
};
template <class Ranks, class... Said>
concept Scatters = requires(Ranks& group, Tensor values, const Said&... said) {
  group.reduce_scatter(values, values, said...);
};
template <class Ranks, class... Said>
concept Gathers = requires(Ranks& group, Tensor values, const Said&... said) {
  group.all_gather(values, values, said...);
};
template <class Ranks, class... Said>
concept Exchanges = requires(Ranks& group, Tensor values, const Said&... said) {
  group.all_to_all(values, values, said...);
};
template <class Ranks, class... Said>
concept Broadcasts = requires(Ranks& group, Tensor values, const Said&... said) {
  group.broadcast(values, 0, said...);
};
template <class Ranks, class... Said>
concept Sends = requires(Ranks& group, Tensor values, const Said&... said) {
  group.start_send(values, 0, 0, said...);
};
template <class Ranks, class... Said>
concept Receives = requires(Ranks& group, Tensor values, const Said&... said) {
  group.start_receive(values, 0, 0, said...);
};

}  // namespace

TEST_CASE("meanings: a verb that is told nothing does not compile") {
  STATIC_REQUIRE_FALSE(Sums<Communicator>);
  STATIC_REQUIRE_FALSE(SumsValue<Communicator>);
  STATIC_REQUIRE_FALSE(Scatters<Communicator>);
  STATIC_REQUIRE_FALSE(Gathers<Communicator>);
  STATIC_REQUIRE_FALSE(Exchanges<Communicator>);
  STATIC_REQUIRE_FALSE(Broadcasts<Communicator>);
  STATIC_REQUIRE_FALSE(Sends<Communicator>);
  STATIC_REQUIRE_FALSE(Receives<Communicator>);
}

TEST_CASE("meanings: verbs take their own kind of tensor, and no other") {
  STATIC_REQUIRE(Sums<Communicator, Partial>);
  STATIC_REQUIRE_FALSE(Sums<Communicator, Divided>);
  STATIC_REQUIRE_FALSE(Sums<Communicator, Replicated>);
  STATIC_REQUIRE(SumsValue<Communicator, Partial>);
  STATIC_REQUIRE_FALSE(SumsValue<Communicator, Own>);
  STATIC_REQUIRE(Scatters<Communicator, Partial>);
  STATIC_REQUIRE_FALSE(Scatters<Communicator, Replicated>);
  STATIC_REQUIRE(Gathers<Communicator, Divided>);
  STATIC_REQUIRE_FALSE(Gathers<Communicator, Partial>);
  STATIC_REQUIRE(Exchanges<Communicator, Divided>);
  STATIC_REQUIRE_FALSE(Exchanges<Communicator, Partial>);
  STATIC_REQUIRE(Broadcasts<Communicator, Own>);
  STATIC_REQUIRE_FALSE(Broadcasts<Communicator, Divided>);
  STATIC_REQUIRE(Sends<Communicator, Own>);
  STATIC_REQUIRE_FALSE(Sends<Communicator, Replicated>);
  STATIC_REQUIRE(Receives<Communicator, Own>);
  STATIC_REQUIRE_FALSE(Receives<Communicator, Partial>);
}
