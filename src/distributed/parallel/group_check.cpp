#include "distributed/parallel/group_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <string_view>

#include "base/core/philox.h"
#include "distributed/comm/group_members.h"

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

/// From the sources' top on.
std::string place_of(const Statement& said) {
  const std::string_view file = said.where.file;
  std::size_t first = file.rfind("src/");
  if (first == std::string_view::npos) first = file.rfind("tests/");
  return fmt::format("{}:{}", file.substr(first == std::string_view::npos ? 0 : first), said.where.line);
}

std::vector<int> members_of(const GridShape& shape, std::string_view group, int rank) {
  std::vector<int> members;
  const std::optional<std::vector<int>> colours = colours_of_group(shape, group);
  if (!colours) return members;
  for (std::size_t other = 0; other < colours->size(); ++other) {
    if ((*colours)[other] == (*colours)[static_cast<std::size_t>(rank)]) members.push_back(static_cast<int>(other));
  }
  return members;
}

/// Groups of this kind that the rank is in; none if there is no such.
std::vector<std::vector<int>> groups_of(const GridShape& shape, Group group, int rank) {
  if (group == Group::world) return {members_of(shape, "world", rank)};
  if (group != Group::tie) return {members_of(shape, name_of(group), rank)};
  std::vector<std::vector<int>> ties;
  for (std::size_t i = 0; i < shape.ties.size(); ++i) {
    ties.push_back(members_of(shape, std::string(kTieName) + std::to_string(i), rank));
  }
  return ties;
}

}  // namespace

struct GroupCheck::SentPrint {
  TensorPrint print;
  Pending pending;
};

GroupCheck::GroupCheck(const GridShape& shape, int world_rank, Communicator& group, Device* device)
    : shape_(shape),
      name_(group.name()),
      rank_(group.rank()),
      world_rank_(world_rank),
      side_(group.host().split(0, group.rank(), "check of " + group.name())),
      members_(static_cast<std::size_t>(group.size())),
      device_(device) {
  side_->all_gather(Tensor(&world_rank, {1}, DType::i32), Tensor(members_.data(), {group.size()}, DType::i32),
                    kPassedOn);
}

GroupCheck::~GroupCheck() {
  if (std::uncaught_exceptions() > 0) return;  // messages under way are abandoned
  for (const auto& sent : sent_) {
    try {
      sent->pending.wait();
    } catch (...) {  // the transport's end was reported by an earlier wait
    }
  }
}

std::string GroupCheck::line(Verb verb, const Statement& said) const {
  return fmt::format("{}: {} \"{}\" in group '{}' ({})", place_of(said),
                     verb == Verb::none ? "use of" : fmt::format("{} of", megatron::name_of(verb)), said.meaning->what,
                     name_, list_of(members_));
}

std::string GroupCheck::list_of(const std::vector<int>& ranks) const {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

void GroupCheck::require_group(Verb verb, const Statement& said) const {
  if (said.meaning->group == Group::any) return;
  const std::vector<std::vector<int>> meant = groups_of(shape_, said.meaning->group, world_rank_);
  if (std::find(meant.begin(), meant.end(), members_) != meant.end()) return;
  const std::string_view wanted = said.meaning->group == Group::tie     ? "tie"
                                  : said.meaning->group == Group::world ? "world"
                                                                        : name_of(said.meaning->group);
  fail(ErrorKind::numerics, "{}: they are of group '{}' ({})", line(verb, said), wanted,
       meant.empty() ? "none here" : list_of(meant.front()));
}

std::vector<TensorPrint> GroupCheck::prints(ConstTensor values, int parts) {
  const auto* bytes = static_cast<const std::byte*>(values.data());
  if (device_ != nullptr) {
    read_.resize(values.bytes());
    device_->copy_to_host(read_.data(), values.data(), values.bytes());
    bytes = read_.data();
  }
  return prints_of(bytes, values.dtype(), values.elements(), parts);
}

// Every rank learns all ranks' prints, so that all find the same errors.
std::vector<GroupCheck::Seen> GroupCheck::exchange(Verb verb, const Statement& said, ConstTensor values, int peer,
                                                   int parts) {
  const auto size = members_.size();
  std::vector<TensorPrint> own = prints(values, parts);
  const TensorPrint& share = own[summed_part(verb)];
  const bool repeats = is_sum(said) && !can_be_equal(said) && !share.zero && sums_.contains(share.bits);
  own.resize(size);
  std::uint64_t call = hash_name(place_of(said));
  for (const std::uint64_t fact :
       {static_cast<std::uint64_t>(verb), hash_name(said.meaning->what), static_cast<std::uint64_t>(values.dtype()),
        static_cast<std::uint64_t>(values.elements()), static_cast<std::uint64_t>(peer + 1)}) {
    call = mix64(call ^ fact);
  }
  const Header header{call, results_, repeats ? 1U : 0U};
  const std::size_t each = sizeof header + size * sizeof(TensorPrint);
  std::vector<std::byte> mine(each), all(each * size);
  std::memcpy(mine.data(), &header, sizeof header);
  std::memcpy(mine.data() + sizeof header, own.data(), each - sizeof header);
  const auto as_tensor = [](std::vector<std::byte>& bytes) {
    return Tensor(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, DType::u8);
  };
  side_->all_gather(as_tensor(mine), as_tensor(all), kPassedOn);
  std::vector<Seen> ranks(size);
  for (std::size_t i = 0; i < size; ++i) {
    std::memcpy(&ranks[i].header, all.data() + i * each, sizeof header);
    ranks[i].prints.resize(size);
    std::memcpy(ranks[i].prints.data(), all.data() + i * each + sizeof header, each - sizeof header);
  }
  const auto differ = [&](auto of) {
    return std::any_of(ranks.begin(), ranks.end(), [&](const Seen& rank) { return of(rank) != of(ranks[0]); });
  };
  if (differ([](const Seen& rank) { return rank.header.call; })) {
    const std::string here = fmt::format("{}, {} {}", line(verb, said), values.elements(), name_of(values.dtype()));
    const std::vector<std::string> calls = side_->gather_texts(here, 0);
    std::string text;
    for (std::size_t i = 0; i < calls.size(); ++i) text += fmt::format("\n  rank {} at {}", members_[i], calls[i]);
    fail(ErrorKind::numerics, "{}", side_->broadcast_text("the ranks of a group communicate differently:" + text, 0));
  }
  if (differ([](const Seen& rank) { return rank.header.results; })) {
    fail(ErrorKind::numerics, "{}: afterwards the ranks have different bits", last_result_);
  }
  return ranks;
}

void GroupCheck::require_hold(Verb verb, const Statement& said, const std::vector<Seen>& ranks) const {
  std::vector<int> repeating, others;  // ranks without the first one's bits
  bool finite = true;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i].header.repeats != 0) repeating.push_back(members_[i]);
    for (const TensorPrint& print : ranks[i].prints) finite = finite && std::isfinite(print.size);
    const auto same = [](const TensorPrint& a, const TensorPrint& b) { return a.bits == b.bits; };
    const auto& own = ranks[i].prints;
    if (!std::equal(own.begin(), own.end(), ranks[0].prints.begin(), same)) others.push_back(members_[i]);
  }
  if (!finite) return;  // overflows may be equal everywhere, and NaN is not one number
  const auto& first = ranks[0].prints;
  const bool zero = std::all_of(first.begin(), first.end(), [](const TensorPrint& print) { return print.zero; });
  const std::string text = line(verb, said);
  switch (said.meaning->hold) {
    case Hold::replicated:
      verify(others.empty(), ErrorKind::numerics, "{}: {} {} not the same bits as rank {}", text, list_of(others),
             others.size() == 1 ? "has" : "have", members_[0]);
      break;
    case Hold::partial:
      if (!repeating.empty()) {
        const auto made = sums_.find(ranks[static_cast<std::size_t>(rank_)].prints[summed_part(verb)].bits);
        fail(ErrorKind::numerics, "{}: on {} it is a sum over these ranks already{}", text, list_of(repeating),
             made == sums_.end() ? "" : ", made by " + made->second);
      }
      [[fallthrough]];
    case Hold::divided:
      verify(!others.empty() || zero || can_be_equal(said), ErrorKind::numerics,
             "{}: all ranks have the same bits, so these are no {} (or all ranks have equal samples)", text,
             said.meaning->hold == Hold::partial ? "shares: they were summed before, or each rank has computed all"
                                                 : "parts: each rank has the whole");
      break;
    case Hold::own:
    case Hold::any: break;
  }
}

std::size_t GroupCheck::summed_part(Verb verb) const {
  return verb == Verb::reduce_scatter ? static_cast<std::size_t>(rank_) : 0;
}

std::vector<TensorPrint> GroupCheck::expected_of(const CheckedCall& call, const std::vector<Seen>& ranks) const {
  const auto own = static_cast<std::size_t>(rank_);
  std::vector<TensorPrint> expected;
  const auto sum = [&](std::size_t part) {
    TensorPrint all;
    for (const Seen& rank : ranks) {
      all.product += rank.prints[part].product;
      all.size += rank.prints[part].size;
    }
    return all;
  };
  switch (call.verb) {  // no default: a new verb must say what it makes
    case Verb::all_reduce: return {sum(0)};
    case Verb::reduce_scatter: return {sum(own)};
    case Verb::all_gather:
      for (const Seen& rank : ranks) expected.push_back(rank.prints[0]);
      return expected;
    case Verb::all_to_all:
      for (const Seen& rank : ranks) expected.push_back(rank.prints[own]);
      return expected;
    case Verb::broadcast: return {ranks[static_cast<std::size_t>(call.peer)].prints[0]};
    case Verb::none:
    case Verb::send:
    case Verb::receive:
    case Verb::barrier:
    case Verb::split: break;
  }
  return expected;
}

// Nothing may read what is on its way: it becomes NaN, but for this rank's own part of it.
void GroupCheck::keep_back(Open& open, int parts, int own) {
  open.memory = Buffer(device_ != nullptr ? static_cast<Allocator&>(*device_) : host_memory(), open.output.bytes());
  open.result = open.memory.tensor(open.output.shape(), open.output.dtype());
  if (!is_float(open.output.dtype())) return;
  const std::vector<std::byte> nan(open.output.bytes() / static_cast<std::size_t>(parts), std::byte{0xFF});
  for (int i = 0; i < parts; ++i) {
    if (i == own) continue;
    auto* const to = static_cast<std::byte*>(open.output.data()) + static_cast<std::size_t>(i) * nan.size();
    if (device_ == nullptr) {
      std::memcpy(to, nan.data(), nan.size());
    } else {
      device_->copy_to_device(to, nan.data(), nan.size());
    }
  }
}

void GroupCheck::send_print(const CheckedCall& call) {
  std::erase_if(sent_, [](const auto& sent) {
    const bool done = sent->pending.ready();
    if (done) sent->pending.wait();
    return done;
  });
  auto sent = std::make_unique<SentPrint>(SentPrint{prints(call.input, 1)[0], {}});
  sent->pending = side_->start_send(ConstTensor(&sent->print, {sizeof(TensorPrint)}, DType::u8), call.peer,
                                    call.channel, kPassedOn);
  sent_.push_back(std::move(sent));
}

CollectiveCheck::Started GroupCheck::starts(const CheckedCall& call) {
  require_group(call.verb, call.said);
  if (call.said.meaning->hold == Hold::any || members_.size() == 1) return {0, call.output};
  if (call.verb == Verb::send) {
    send_print(call);
    return {};
  }
  Open open{call.verb, call.said, call.output, call.output, call.peer, call.channel, {}};
  if (call.verb != Verb::receive) {
    const bool in_parts = call.verb == Verb::reduce_scatter || call.verb == Verb::all_to_all;
    const std::vector<Seen> ranks =
        exchange(call.verb, call.said, call.input, call.verb == Verb::broadcast ? call.peer : -1,
                 in_parts ? static_cast<int>(members_.size()) : 1);
    if (call.verb != Verb::all_to_all) require_hold(call.verb, call.said, ranks);
    open.expected = expected_of(call, ranks);
    open.own = ranks[static_cast<std::size_t>(rank_)].prints[summed_part(call.verb)].bits;
    if (call.verb == Verb::all_gather) keep_back(open, static_cast<int>(members_.size()), rank_);
    if (call.verb == Verb::broadcast && call.peer != rank_) keep_back(open, 1, -1);
  }
  const Tensor result = open.result;
  open_.emplace(++last_ticket_, std::move(open));
  return {last_ticket_, result};
}

void GroupCheck::keep_sum(const TensorPrint& print, const std::string& text) {
  if (print.zero) return;
  if (sums_.size() >= kMostSums) sums_.clear();
  sums_.emplace(print.bits, text);
}

void GroupCheck::check_result(const Open& open) {
  const std::vector<TensorPrint> seen = prints(open.result, static_cast<int>(open.expected.size()));
  const std::string text = line(open.verb, open.said);
  if (open.verb == Verb::all_reduce || open.verb == Verb::reduce_scatter) {
    const double off = std::abs(seen[0].product - open.expected[0].product), size = open.expected[0].size;
    const double allowed = 4 * static_cast<double>(members_.size()) * roundoff_of(open.output.dtype()) * size;
    if (open.said.meaning->reduce == Reduce::sum && std::isfinite(size) && std::isfinite(seen[0].size)) {
      verify(off <= allowed, ErrorKind::numerics,
             "{}: the result is not the sum of the ranks' shares: off by {:.1e} of its terms", text, off / size);
    }
    if (is_sum(open.said) && seen[0].bits != open.own) keep_sum(seen[0], text);
  } else {
    for (std::size_t i = 0; i < seen.size(); ++i) {
      verify(seen[i].bits == open.expected[i].bits, ErrorKind::numerics,
             "{}: what arrived from rank {} is not what it sent", text,
             members_[open.expected.size() == 1 ? static_cast<std::size_t>(open.peer) : i]);
    }
  }
  if (open.verb == Verb::all_reduce || open.verb == Verb::all_gather) {
    results_ = mix64(results_ ^ seen[0].bits);
    last_result_ = text;
  }
}

void GroupCheck::ends(std::uint64_t ticket) {
  const auto at = open_.extract(ticket);
  internal_check(!at.empty(), "a check of a call that has ended", ticket);
  Open& open = at.mapped();
  if (open.verb == Verb::receive) {
    open.expected.resize(1);
    side_
        ->start_receive(Tensor(open.expected.data(), {sizeof(TensorPrint)}, DType::u8), open.peer, open.channel,
                        kPassedOn)
        .wait();
  }
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
  require_group(Verb::none, said);
  if (said.meaning->hold == Hold::any || members_.size() == 1) return;
  const std::vector<Seen> ranks = exchange(Verb::none, said, values, -1, 1);
  require_hold(Verb::none, said, ranks);
  // A part is not a share of a sum: summed again over these ranks, it shows.
  if (said.meaning->hold == Hold::divided)
    keep_sum(ranks[static_cast<std::size_t>(rank_)].prints[0], line(Verb::none, said));
}

}  // namespace megatron
