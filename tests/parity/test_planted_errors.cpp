// Errors of the kinds that parallel trainers have had, planted one by one into a tiny run: the check of collectives and
// of records names each, with the line that says what it is not. On every layout: test_planted_layouts.cpp. Errors that
// only a comparison with one rank can see: training/loop/test_planted_defects.cpp. The table: docs/exactness.md.
#include "parity/planted_runs.h"
#include "parity/subjects.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const std::vector<std::string> kExpertRanks = {"moe.experts=4", "moe.every=2", "parallel.expert=2"};
const std::vector<std::string> kShardedMuon = with(kSharded, kMuon);
// A layer is too little for four copies: buckets of matrices are not padded.
const std::vector<std::string> kUnequalParts = with(kShardedMuon, {"model.layers=1", "model.ffn_hidden_size=512"});

}  // namespace

// ---- What is communicated -------------------------------------------------------------------------------------------

TEST_CASE("planted: shares of a layer that are not summed") {
  check_found({.name = "no sum",
               .tensor = 2,
               .found = {"the result is not the sum of the ranks' shares"},
               .line = {"src/models/layers/embedding.cpp", "forward", "kEmbeddingShares"},
               .communication = without_sums("tensor")});
}

TEST_CASE("planted: a sum that is made twice too large") {
  check_found({.name = "twice",
               .tensor = 2,
               .found = {"the result is not the sum"},
               .line = {"src/models/layers/embedding.cpp", "forward", "kEmbeddingShares"},
               .communication = scaled_sums("tensor", 2)});
}

TEST_CASE("planted: gradients that are not summed over the copies") {
  check_found(
      {.name = "no sum of copies",
       .data = 2,
       .found = {"gradients of a copy's samples"},
       .line = {"src/distributed/parallel/gradient_reducer.cpp", "reduce_from", "start_all_reduce(gradients, experts"},
       .communication = without_sums("data")});
}

TEST_CASE("planted: gradients that are divided by the number of copies") {
  check_found({.name = "factor of the data size",
               .data = 2,
               .found = {"off by"},
               .line = {"src/distributed/parallel/gradient_reducer.cpp", "reduce_from", "start_"},
               .communication = scaled_sums("data", 0.5f)});
}

TEST_CASE("planted: a tied table that is not summed") {
  check_found({.name = "no sum of a tie",
               .pipeline = 2,
               .found = {"a parameter that stages share"},
               .line = {"src/distributed/parallel/gradient_reducer.cpp", "sum", "all_reduce("},
               .communication = without_sums("tie 0")});
}

TEST_CASE("planted: shared key heads that are not summed") {
  check_found({.name = "no sum of keys",
               .tensor = 2,
               .how = {"model.query_groups=1"},
               .found = {"keys and values that tensor ranks share"},
               .line = {"src/distributed/parallel/gradient_reducer.cpp", "sum", "all_reduce("},
               .communication = without_sums("kv_replicas")});
}

TEST_CASE("planted: norms that are not summed under sequence parallelism") {
  CommunicationDefect defect{.group = "tensor"};
  defect.forgets_all_reduce = [](const Tensor& values, Reduce reduce) {
    return values.dtype() == DType::f32 && reduce == Reduce::sum && values.shape().rank() == 1;  // the head's: a matrix
  };
  check_found({.name = "no sum of norms",
               .tensor = 2,
               .how = kSequence,
               .found = {"tensor ranks each use a part of"},
               .line = {"src/distributed/parallel/gradient_reducer.cpp", "sum", "all_reduce(store.gradients_of(range)"},
               .communication = defect});
}

TEST_CASE("planted: a maximum of logits that is each rank's own") {
  CommunicationDefect defect{.group = "tensor"};
  defect.forgets_all_reduce = [](const Tensor&, Reduce reduce) { return reduce == Reduce::maximum; };
  check_found({.name = "no maximum",
               .tensor = 2,
               .found = {"afterwards the ranks have different bits"},
               .line = {"src/models/layers/vocabulary_loss.cpp", "measure", "kLogitMaxima"},
               .communication = defect});
}

TEST_CASE("planted: a norm without the other ranks' gradients") {
  check_found({.name = "no sum of squares",
               .tensor = 2,
               .found = {"squares and losses of a rank's part of the model"},
               .line = {"src/training/optimizer/update_step.cpp", "sum_up", "kModelSums"},
               .communication = without_sums("model", DType::f64)});
}

TEST_CASE("planted: stale weights, gathered into the wrong places") {
  check_found({.name = "stale weights",
               .data = 2,
               .how = kSharded,
               .found = {"what arrived from rank"},
               .line = {"src/distributed/parallel/parameter_all_gather.cpp", "start", "start_all_gather"},
               .communication = {.group = "data", .swaps_gathered_parts = true}});
}

TEST_CASE("planted: stale weights, which their owners do not broadcast") {
  check_found({.name = "stale weights of owners",
               .data = 4,
               .how = kUnequalParts,
               .found = {"new weights of the rank that updates them", "what arrived from rank"},
               .line = {"src/distributed/parallel/parameter_all_gather.cpp", "start", "start_broadcast"},
               .communication = {.group = "data", .forgets_broadcasts = true}});
}

TEST_CASE("planted: matrices that are updated with another rank's parts") {
  check_found({.name = "parts of other matrices",
               .tensor = 2,
               .how = kMuon,
               .found = {"parts of matrices", "what arrived from rank"},
               .line = {"src/training/optimizer/whole_matrix.cpp", "make_together", "kMatrixParts"},
               .communication = {.group = "tensor", .swaps_exchanged_parts = true}});
}

TEST_CASE("planted: tokens that come back from another rank's expert") {
  check_found({.name = "tokens of other experts",
               .data = 4,
               .how = kExpertRanks,
               .found = {"rows by the rank of their expert", "what arrived from rank"},
               .line = {"src/models/experts/expert_exchange.h", "operator\\(\\)", "kTokensOfExperts"},
               .communication = {.group = "expert", .swaps_exchanged_parts = true}});
}

TEST_CASE("planted: heads that have another context rank's rows") {
  check_found({.name = "other rows",
               .how = {"parallel.context=2", "parallel.context_exchange=ulysses"},
               .found = {"rows of attention's heads", "what arrived from rank"},
               .line = {"src/distributed/parallel/context_region.cpp", "to_heads", "kRowsOfHeads"},
               .communication = {.group = "context", .swaps_exchanged_parts = true}});
}

TEST_CASE("planted: keys that come round twice") {
  check_found({.name = "the same keys again",
               .how = {"parallel.context=4", "parallel.context_exchange=ring", "model.attention_dropout=0"},
               .found = {"go round", "is not what it sent"},
               .line = {"src/models/attention/ring_attention.cpp", "start", "kPassedKeys"},
               .communication = {.group = "context", .repeats_received_messages = true}});
}

TEST_CASE("planted: a micro-batch that comes twice") {
  check_found({.name = "the same again",
               .pipeline = 2,
               .found = {"is not what it sent"},
               .line = {"src/training/pipeline/executor.cpp", "forward", "kStageOutput"},
               .communication = {.group = "pipeline", .repeats_received_messages = true}});
}

// ---- What records say -----------------------------------------------------------------------------------------------

TEST_CASE("planted: a norm that is taken for one that all ranks compute") {
  check_found(
      {.name = "no sum by its record",
       .tensor = 2,
       .how = kSequence,
       .found = {"gradients that all tensor ranks have", "not the same bits as rank 0"},
       .line = {"src/distributed/parallel/gradient_meanings.cpp", "expect_shares_of_gradients", "kWholeGradients"},
       .record = is_replica});
}

TEST_CASE("planted: a norm that is summed though all ranks compute it") {
  check_found(
      {.name = "a sum by its record",
       .tensor = 2,
       .found = {"so these are no shares"},
       .line = {"src/distributed/parallel/gradient_meanings.cpp", "expect_shares_of_gradients", "kPartialGradients"},
       .record = is_partial});
}

TEST_CASE("planted: a parameter that norms count on every rank") {
  check_found({.name = "counted twice",
               .tensor = 2,
               .found = {"final_norm.weight: norms count it twice: ranks 0 and 1"},
               .record = [](Parameter& parameter) { parameter.owner |= parameter.name == "final_norm.weight"; }});
}

TEST_CASE("planted: a parameter that norms leave out") {
  check_found({.name = "not counted",
               .tensor = 2,
               .data = 2,
               .found = {"final_norm.weight: norms leave 32 of its 32 elements out"},
               .record = [](Parameter& parameter) { parameter.owner &= parameter.name != "final_norm.weight"; }});
}

TEST_CASE("planted: a table that is not tied") {
  check_found({.name = "no tie",
               .pipeline = 2,
               .found = {"embedding.word.weight: ranks 0 and 1 hold the same elements, and no sum"},
               .record = [](Parameter& parameter) { parameter.tie = kNone; }});
}

TEST_CASE("planted: key heads that are taken for split ones") {
  check_found({.name = "no shared keys",
               .tensor = 2,
               .how = {"model.query_groups=1"},
               .found = {"hold the same elements, and no sum of gradients connects them"},
               .record = [](Parameter& parameter) {
                 if (parameter.tensor == Placement::kv_replicated) parameter.tensor = Placement::split;
               }});
}

TEST_CASE("planted: experts that are summed over ranks with other experts") {
  check_found({.name = "experts over all copies",
               .data = 4,
               .how = kExpertRanks,
               .found = {"experts", "sums its gradient over group 'copies', in which rank 1 has"},
               .record = [](Parameter& parameter) { parameter.copies = CopyGroup::dense; }});
}

TEST_CASE("planted: a router that is summed over the copies of experts alone") {
  check_found({.name = "router over half of the copies",
               .data = 4,
               .how = kExpertRanks,
               .found = {"router.weight: ranks 0 and 1 hold the same elements, and no sum"},
               .record = [](Parameter& parameter) {
                 if (parameter.role == Role::router) parameter.copies = CopyGroup::experts;
               }});
}

// ---- What the code does ---------------------------------------------------------------------------------------------

TEST_CASE("planted: gradients that are summed twice") {
  check_found({.name = "twice",
               .data = 2,
               .found = {"it is a sum over these ranks already"},
               .line = {"src/distributed/parallel/gradient_reducer.cpp", "reduce_from", "start_"},
               .after_backward = sum_again});
  check_found({.name = "twice, sharded",
               .data = 2,
               .how = kSharded,
               .found = {"it is a sum over these ranks already"},
               .line = {"src/distributed/parallel/gradient_reducer.cpp", "reduce_from", "start_"},
               .after_backward = sum_again});
}

TEST_CASE("planted: a mean over each rank's own targets") {
  check_found({.name = "local counts",
               .data = 2,
               .found = {"counts that the loss is a mean over"},
               .line = {"src/training/step/replica.cpp", "play_training", "kLossCounts"},
               .counts = count_alone});
}

TEST_CASE("planted: a dropout mask of other samples on a tensor rank") {
  check_found(
      {.name = "another mask",
       .tensor = 2,
       .found = {"rows that all tensor ranks have", "rank 1 has not the same bits as rank 0"},
       .operations = [](DefectiveOps& ops) { ops.with_dropout = [](Dropout& dropout) { ++dropout.first_sample; }; }});
}

TEST_CASE("planted: layers that sum over the data ranks") {
  for (const std::vector<std::string>& how : {std::vector<std::string>(), kSequence}) {
    check_found({.name = "over the data ranks",
                 .tensor = 2,
                 .data = 2,
                 .how = how,
                 .found = {how.empty() ? "all-reduce" : "reduce-scatter", "embeddings of the words that a rank has",
                           "they are of group 'tensor'"},
                 .line = {"src/models/layers/embedding.cpp", "forward", "kEmbeddingShares"},
                 .over_data_ranks = true});
  }
}

TEST_CASE("planted: layers that read weights before they have arrived") {
  check_found({.name = "no wait",
               .data = 2,
               .how = kSharded,
               .found = {"the loss of step 2 is not finite"},
               .pass = without_waiting});
  check_found({.name = "no wait, Muon",
               .data = 4,
               .how = kUnequalParts,
               .found = {"the loss of step 2 is not finite"},
               .pass = without_waiting});
}
