#include "planning/layout_search/recording.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "planning/layout_search/work.h"

namespace megatron {

namespace {

/// Writes down what each verb is asked for, and passes it on.
class RecordingOps final : public Ops {
 public:
  RecordingOps(Recorder& recorder, std::unique_ptr<CountingOps> inner)
      : recorder_(recorder), inner_(std::move(inner)) {}

#define MEGATRON_VERB(name, parameters, arguments) \
  void name parameters override {                  \
    record(Work::name arguments);                  \
    inner_->name arguments;                        \
  }
  MEGATRON_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB
#define MEGATRON_VERB(name, parameters, arguments)        \
  void name parameters override {                         \
    if (recorder_.in_parts()) return Ops::name arguments; \
    record(Work::name arguments);                         \
    inner_->name arguments;                               \
  }
  MEGATRON_FUSED_VERBS(MEGATRON_VERB)
#undef MEGATRON_VERB

  std::size_t workspace_bytes() const override {
    return inner_->workspace_bytes();
  }
  void reserve(std::size_t bytes) override {
    inner_->reserve(bytes);
  }
  void read(ConstTensor x, void* host) override {
    inner_->read(x, host);
  }

 private:
  template <class... Works>
  void record(const std::tuple<Works...>& works) {
    std::apply([&](const auto&... each) { (recorder_.add(each), ...); }, works);
  }

  Recorder& recorder_;
  std::unique_ptr<CountingOps> inner_;
};

/// Writes down collectives and messages. The counting communicator's own ticket is the lowest bit of this one's.
class RecordingCommunicator final : public CountingCommunicator {
 public:
  RecordingCommunicator(Recorder& recorder, int rank, int size, const std::string& name, bool staged,
                        std::vector<int> members)
      : CountingCommunicator(rank, size, name, staged), recorder_(recorder), members_(std::move(members)) {}

  std::unique_ptr<Communicator> split_known(const std::vector<int>& colours, const std::string& name) override {
    internal_check(colours.size() == members_.size(), "split needs one colour for every rank", colours.size(),
                   members_.size());
    const int own = colours[static_cast<std::size_t>(rank())];
    std::vector<int> members;
    int place = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      if (colours[i] != own) continue;
      if (static_cast<int>(i) == rank()) place = static_cast<int>(members.size());
      members.push_back(members_[i]);
    }
    const int size = static_cast<int>(members.size());
    return std::make_unique<RecordingCommunicator>(recorder_, place, size, name, staged(), std::move(members));
  }

 private:
  std::uint64_t do_all_reduce(Tensor values, Reduce reduce) override {
    return start(Verb::all_reduce, values.bytes(), CountingCommunicator::do_all_reduce(values, reduce));
  }
  std::uint64_t do_all_gather(ConstTensor part, Tensor whole) override {
    return start(Verb::all_gather, whole.bytes(), CountingCommunicator::do_all_gather(part, whole));
  }
  std::uint64_t do_reduce_scatter(ConstTensor whole, Tensor part) override {
    return start(Verb::reduce_scatter, whole.bytes(), CountingCommunicator::do_reduce_scatter(whole, part));
  }
  std::uint64_t do_broadcast(Tensor values, int root) override {
    return start(Verb::broadcast, values.bytes(), CountingCommunicator::do_broadcast(values, root));
  }
  std::uint64_t do_all_to_all(ConstTensor send, Tensor receive) override {
    return start(Verb::all_to_all, send.bytes(), CountingCommunicator::do_all_to_all(send, receive));
  }
  std::uint64_t do_send(ConstTensor values, int to, int channel) override {
    const std::uint64_t inner = CountingCommunicator::do_send(values, to, channel);
    if (name() != "pipeline") return start(Verb::send, values.bytes(), inner);
    recorder_.add(SentMessage{static_cast<double>(values.bytes())});
    return inner;
  }

  std::uint64_t start(Verb verb, std::size_t bytes, std::uint64_t inner) {
    if (group_ < 0) group_ = recorder_.add_group(name(), members_);
    const int ticket = recorder_.next_ticket();
    recorder_.add(StartedCollective{verb, group_, ticket, static_cast<double>(bytes)});
    return (static_cast<std::uint64_t>(ticket) + 1) << 1 | inner;
  }
  void finish(std::uint64_t ticket) override {
    const std::uint64_t number = ticket >> 1;
    if (number > 0) recorder_.add(Waited{static_cast<int>(number - 1)});
    CountingCommunicator::finish(ticket & 1);
  }

  Recorder& recorder_;
  std::vector<int> members_;  // ranks of the world
  int group_ = -1;
};

}  // namespace

std::string MemoryWork::key() const {
  return kind.empty() ? std::string(operation) : fmt::format("{}_{}", operation, kind);
}

std::unique_ptr<Ops> Recorder::around(std::unique_ptr<CountingOps> ops) {
  return std::make_unique<RecordingOps>(*this, std::move(ops));
}

std::unique_ptr<CountingCommunicator> Recorder::tensors(int rank, int size, bool staged) {
  std::vector<int> all(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) all[static_cast<std::size_t>(i)] = i;
  return std::make_unique<RecordingCommunicator>(*this, rank, size, "world", staged, std::move(all));
}

void Recorder::begin(const char* name, std::int64_t) {
  for (std::size_t i = 0; i < kSectionCount; ++i) {
    const auto section = static_cast<Section>(i);
    if (std::strcmp(name_of(section), name) == 0) return add(EnteredSection{section});
  }
  internal_check(false, "a section that timers do not have");
}

int Recorder::add_group(const std::string& name, const std::vector<int>& members) {
  std::map<int, int> on_node;
  for (const int member : members) ++on_node[member / ranks_per_node_];
  GroupFacts facts{.name = name, .ranks = static_cast<int>(members.size()), .nodes = static_cast<int>(on_node.size())};
  for (const auto& [node, count] : on_node) facts.ranks_on_node = std::max(facts.ranks_on_node, count);
  result.groups.push_back(facts);
  return static_cast<int>(result.groups.size()) - 1;
}

}  // namespace megatron
