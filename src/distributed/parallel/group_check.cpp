#include "distributed/parallel/group_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/core/philox.h"

namespace megatron {

namespace {

constexpr std::size_t kMostSums = 1 << 14;

bool is_sum(const Statement& said) {
  return said.meaning->hold == Hold::partial && said.meaning->reduce == Reduce::sum;
}

bool can_be_equal(const Statement& said) {
  return said.meaning->equal == Equal::by_chance || said.meaning->reduce == Reduce::maximum;
}

bool is_float(DType type) {
  return type != DType::i32 && type != DType::u8;
}

/// Whether ranks get different parts of a tensor.
bool goes_in_parts(Verb verb) {
  return verb == Verb::reduce_scatter || verb == Verb::all_to_all;
}

}  // namespace

std::size_t kept_back_bytes(const CheckedCall& call, int rank) {
  const bool kept = call.verb == Verb::all_gather || (call.verb == Verb::broadcast && call.peer != rank);
  return kept ? call.output.bytes() : 0;
}

GroupCheck::GroupCheck(const GridShape& shape, int world_rank, Communicator& group, Device* device, Communicator& moved)
    : device_(device),
      exchange_(group, moved),
      group_{shape, world_rank, group.name(), group.rank(), exchange_.gather(world_rank)} {}

std::vector<TensorPrint> GroupCheck::prints(ConstTensor values, int parts) const {
  if (device_ == nullptr) {
    return prints_of(static_cast<const std::byte*>(values.data()), values.dtype(), values.elements(), parts);
  }
  std::vector<std::byte> read(values.bytes());
  device_->copy_to_host(read.data(), values.data(), read.size());
  return prints_of(read.data(), values.dtype(), values.elements(), parts);
}

// Every rank learns all ranks' prints, so that all find the same errors.
GroupCheck::Seen GroupCheck::exchange(const SaidCall& call, ConstTensor values, int peer) {
  const bool in_parts = goes_in_parts(call.verb);
  const std::vector<TensorPrint> own = prints(values, in_parts ? static_cast<int>(group_.size()) : 1);
  const TensorPrint& share = own[call.verb == Verb::reduce_scatter ? static_cast<std::size_t>(group_.rank) : 0];
  CallPrint print{.call = hash_of(call),
                  .results = results_.print(),
                  .repeats = is_sum(call.said) && !can_be_equal(call.said) && !share.zero && sums_.contains(share.bits),
                  .tensor = in_parts ? print_of_parts(own) : own[0]};
  for (const std::uint64_t fact :
       {static_cast<std::uint64_t>(values.dtype()), static_cast<std::uint64_t>(values.elements()),
        static_cast<std::uint64_t>(peer + 1)}) {
    print.call = mix64(print.call ^ fact);
  }
  Seen seen{exchange_.gather(print), {}, share.bits};
  const auto another = [&](const CallPrint& rank) { return rank.call != seen.ranks[0].call; };
  if (std::any_of(seen.ranks.begin(), seen.ranks.end(), another)) {
    const std::string here = fmt::format("{}, {} {}", group_.line(call), values.elements(), name_of(values.dtype()));
    fail(ErrorKind::numerics, "the ranks of a group communicate differently:{}",
         exchange_.gather_lines(here, group_.members));
  }
  require_same_results(seen.ranks);
  if (in_parts) seen.parts = exchange_.exchange(own);
  return seen;
}

void GroupCheck::require_same_results(const std::vector<CallPrint>& ranks) {
  const CommonResults::Print& first = ranks[0].results;
  const auto all = [&](auto same) { return std::all_of(ranks.begin(), ranks.end(), same); };
  // Ranks that have waited for other calls are compared by a later one.
  if (!all([&](const CallPrint& rank) { return rank.results.count == first.count; })) return;
  if (all([&](const CallPrint& rank) { return rank.results == first; })) return results_.compared();
  std::vector<std::uint64_t> own;
  for (const CommonResults::Result& result : results_.since()) own.push_back(result.bits);
  const std::vector<std::uint64_t> bits = exchange_.gather(own);
  std::size_t wrong = 0;
  const auto differs = [&](std::size_t rank) { return bits[rank * own.size() + wrong] != bits[wrong]; };
  for (; wrong + 1 < own.size(); ++wrong) {
    bool found = false;
    for (std::size_t rank = 1; rank < ranks.size(); ++rank) found = found || differs(rank);
    if (found) break;
  }
  fail(ErrorKind::numerics, "{}: afterwards the ranks have different bits", group_.line(results_.since()[wrong].call));
}

void GroupCheck::require_hold(const SaidCall& call, const Seen& seen) const {
  std::vector<int> repeating, others;  // ranks without the first one's bits
  bool finite = true;
  for (std::size_t i = 0; i < seen.ranks.size(); ++i) {
    if (seen.ranks[i].repeats) repeating.push_back(group_.members[i]);
    if (seen.ranks[i].tensor.bits != seen.ranks[0].tensor.bits) others.push_back(group_.members[i]);
    finite = finite && std::isfinite(seen.ranks[i].tensor.size);
  }
  if (!finite) return;  // overflows may be equal everywhere, and NaN is not one number
  switch (call.said.meaning->hold) {
    case Hold::replicated:
      if (others.empty()) return;
      fail(ErrorKind::numerics, "{}: {} {} not the same bits as rank {}", group_.line(call),
           CheckedGroup::list_of(others), others.size() == 1 ? "has" : "have", group_.members[0]);
    case Hold::partial:
      if (!repeating.empty()) {
        const auto made = sums_.find(seen.own);
        fail(ErrorKind::numerics, "{}: on {} it is a sum over these ranks already{}", group_.line(call),
             CheckedGroup::list_of(repeating), made == sums_.end() ? "" : ", made by " + group_.line(made->second));
      }
      [[fallthrough]];
    case Hold::divided:
      if (!others.empty() || seen.ranks[0].tensor.zero || can_be_equal(call.said)) return;
      fail(ErrorKind::numerics,
           "{}: all ranks have the same bits, so these are no {} (or all ranks have equal samples)", group_.line(call),
           call.said.meaning->hold == Hold::partial ? "shares: they were summed before, or each rank has computed all"
                                                    : "parts: each rank has the whole");
    case Hold::own:
    case Hold::any: return;
  }
}

std::vector<TensorPrint> GroupCheck::expected_of(const CheckedCall& call, const Seen& seen) const {
  std::vector<TensorPrint> whole;
  for (const CallPrint& rank : seen.ranks) whole.push_back(rank.tensor);
  switch (call.verb) {  // no default: a new verb must say what it makes
    case Verb::all_reduce: return {print_of_sum(whole)};
    case Verb::reduce_scatter: return {print_of_sum(seen.parts)};
    case Verb::all_gather: return whole;
    case Verb::all_to_all: return seen.parts;
    case Verb::broadcast: return {whole[static_cast<std::size_t>(call.peer)]};
    case Verb::none:
    case Verb::send:
    case Verb::receive:
    case Verb::barrier:
    case Verb::split: break;
  }
  return {};
}

// Nothing may read what is on its way: it becomes NaN, but for this rank's own part of it.
void GroupCheck::keep_back(Open& open, int parts, int own) const {
  open.memory = Buffer(device_ != nullptr ? static_cast<Allocator&>(*device_) : host_memory(), open.output.bytes());
  open.result = open.memory.tensor(open.output.shape(), open.output.dtype());
  if (!is_float(open.output.dtype())) return;
  const std::size_t bytes = open.output.bytes() / static_cast<std::size_t>(parts);
  const std::vector<std::byte> nan(device_ != nullptr ? bytes : 0, std::byte{0xFF});
  for (int i = 0; i < parts; ++i) {
    if (i == own) continue;
    auto* const to = static_cast<std::byte*>(open.output.data()) + static_cast<std::size_t>(i) * bytes;
    if (device_ == nullptr) {
      std::memset(to, 0xFF, bytes);
    } else {
      device_->copy_to_device(to, nan.data(), bytes);
    }
  }
}

CollectiveCheck::Started GroupCheck::starts(const CheckedCall& call) {
  const SaidCall said{call.verb, call.said};
  group_.require_meant(said);
  if (call.said.meaning->hold == Hold::any || group_.size() == 1) return {0, call.output};
  if (call.verb == Verb::send) {
    exchange_.send(prints(call.input, 1)[0], call.peer, call.channel);
    return {};
  }
  Open open{.call = said, .output = call.output, .result = call.output, .peer = call.peer};
  if (call.verb == Verb::receive) {
    open.message = exchange_.start_receive(call.peer, call.channel);
  } else {
    const Seen seen = exchange(said, call.input, call.verb == Verb::broadcast ? call.peer : -1);
    if (call.verb != Verb::all_to_all) require_hold(said, seen);
    open.expected = expected_of(call, seen);
    open.own = seen.own;
    if (call.verb == Verb::all_reduce) open.number = results_.starts();
    if (kept_back_bytes(call, group_.rank) > 0) {
      const bool gather = call.verb == Verb::all_gather;
      keep_back(open, gather ? static_cast<int>(group_.size()) : 1, gather ? group_.rank : -1);
    }
  }
  const Tensor result = open.result;
  open_.emplace(++last_ticket_, std::move(open));
  return {last_ticket_, result};
}

void GroupCheck::keep_sum(std::uint64_t bits, const SaidCall& call) {
  if (sums_.size() >= kMostSums) sums_.clear();
  sums_.emplace(bits, call);
}

void GroupCheck::check_result(const Open& open) {
  const std::vector<TensorPrint> seen = prints(open.result, static_cast<int>(open.expected.size()));
  const Verb verb = open.call.verb;
  if (verb == Verb::all_reduce || verb == Verb::reduce_scatter) {
    const double off = std::abs(seen[0].product - open.expected[0].product), size = open.expected[0].size;
    const double allowed = 4 * static_cast<double>(group_.size()) * roundoff_of(open.output.dtype()) * size;
    const bool comparable =
        open.call.said.meaning->reduce == Reduce::sum && std::isfinite(size) && std::isfinite(seen[0].size);
    if (comparable && off > allowed) {
      fail(ErrorKind::numerics, "{}: the result is not the sum of the ranks' shares: off by {:.1e} of its terms",
           group_.line(open.call), off / size);
    }
    if (is_sum(open.call.said) && seen[0].bits != open.own && !seen[0].zero) keep_sum(seen[0].bits, open.call);
    if (verb == Verb::all_reduce) results_.ends(open.number, {seen[0].bits, open.call});
    return;
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i].bits == open.expected[i].bits) continue;
    fail(ErrorKind::numerics, "{}: what arrived from rank {} is not what it sent", group_.line(open.call),
         group_.members[open.expected.size() == 1 ? static_cast<std::size_t>(open.peer) : i]);
  }
}

void GroupCheck::ends(std::uint64_t ticket) {
  const auto at = open_.extract(ticket);
  internal_check(!at.empty(), "a check of a call that has ended", ticket);
  Open& open = at.mapped();
  if (open.message != nullptr) open.expected = {exchange_.finish_receive(*open.message)};
  check_result(open);
  if (open.memory.bytes() == 0) return;
  if (device_ == nullptr) {
    std::memcpy(open.output.data(), open.result.data(), open.output.bytes());
  } else {
    device_->copy_within(open.output.data(), open.result.data(), open.output.bytes());
    device_->synchronize();  // before the memory is given back
  }
}

void GroupCheck::expects(ConstTensor values, const Statement& said) {
  const SaidCall call{Verb::none, said};
  group_.require_meant(call);
  if (said.meaning->hold == Hold::any || group_.size() == 1) return;
  const Seen seen = exchange(call, values, -1);
  require_hold(call, seen);
  // A part is not a share of a sum: summed again over these ranks, it shows.
  const bool zero = seen.ranks[static_cast<std::size_t>(group_.rank)].tensor.zero;
  if (said.meaning->hold == Hold::divided && !zero) keep_sum(seen.own, call);
}

void GroupCheck::finish() {
  static constexpr Any kEnd{"the end of the check", Group::any};
  if (group_.size() == 1) return;
  internal_check(results_.all_ended(), "a check finishes while sums of its group are in flight", group_.name);
  const std::byte nothing{};
  exchange({Verb::none, Said(kEnd)}, ConstTensor(&nothing, {1}, DType::u8), -1);
}

}  // namespace megatron
