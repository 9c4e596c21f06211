#include "distributed/parallel/print_exchange.h"

#include <exception>
#include <type_traits>

namespace megatron {

namespace {

template <class T>
Tensor bytes_of(T* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {values, {static_cast<std::int64_t>(count * sizeof(T))}, DType::u8};
}

template <class T>
ConstTensor bytes_of(const T* values, std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {values, {static_cast<std::int64_t>(count * sizeof(T))}, DType::u8};
}

}  // namespace

PrintExchange::PrintExchange(Communicator& group, Communicator& moved)
    : moved_(moved), side_(group.host().split(0, group.rank(), "check of " + group.name())) {}

PrintExchange::~PrintExchange() {
  if (std::uncaught_exceptions() > 0) return;  // messages under way are abandoned
  for (const auto& sent : sent_) {
    try {
      sent->pending.wait_moving(moved_);
    } catch (...) {  // the transport's end was reported by an earlier wait
    }
  }
}

template <class T>
void PrintExchange::gather_into(const T* own, std::size_t count, std::vector<T>& all) {
  all.resize(count * static_cast<std::size_t>(side_->size()));
  side_->start_all_gather(bytes_of(own, count), bytes_of(all.data(), all.size()), kPassedOn).wait_moving(moved_);
}

std::vector<int> PrintExchange::gather(int number) {
  std::vector<int> all;
  gather_into(&number, 1, all);
  return all;
}

std::vector<std::uint64_t> PrintExchange::gather(const std::vector<std::uint64_t>& numbers) {
  std::vector<std::uint64_t> all;
  gather_into(numbers.data(), numbers.size(), all);
  return all;
}

std::vector<CallPrint> PrintExchange::gather(const CallPrint& own) {
  std::vector<CallPrint> all;
  gather_into(&own, 1, all);
  return all;
}

std::vector<TensorPrint> PrintExchange::exchange(std::vector<TensorPrint> own) {
  std::vector<TensorPrint> all(own.size());
  side_->start_all_to_all(bytes_of(own.data(), own.size()), bytes_of(all.data(), all.size()), kPassedOn)
      .wait_moving(moved_);
  return all;
}

std::string PrintExchange::gather_lines(const std::string& own, const std::vector<int>& ranks) {
  const std::vector<std::string> lines = side_->gather_texts(own, 0);
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) text += fmt::format("\n  rank {} at {}", ranks[i], lines[i]);
  return side_->broadcast_text(text, 0);
}

void PrintExchange::send(const TensorPrint& print, int to, int channel) {
  std::erase_if(sent_, [](const auto& sent) {
    const bool done = sent->pending.ready();
    if (done) sent->pending.wait();
    return done;
  });
  sent_.push_back(std::make_unique<Message>(Message{print, {}}));
  Message& message = *sent_.back();
  message.pending =
      side_->start_send(bytes_of(static_cast<const TensorPrint*>(&message.print), 1), to, channel, kPassedOn);
}

std::unique_ptr<PrintExchange::Message> PrintExchange::start_receive(int from, int channel) {
  auto message = std::make_unique<Message>();
  message->pending = side_->start_receive(bytes_of(&message->print, 1), from, channel, kPassedOn);
  return message;
}

TensorPrint PrintExchange::finish_receive(Message& message) {
  message.pending.wait_moving(moved_);
  return message.print;
}

}  // namespace megatron
