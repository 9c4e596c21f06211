// Texts of any length between ranks, in messages of the verbs.
#include <cstring>

#include "distributed/comm/communicator.h"
#include "distributed/comm/messages.h"

namespace megatron {

std::string Communicator::broadcast_text(const std::string& text, int root) {
  verify(text.size() <= 1U << 30, ErrorKind::internal, "broadcast of a text of {} bytes", text.size());
  auto length = static_cast<std::int32_t>(text.size());
  host().broadcast(Tensor(&length, {1}, DType::i32), root, kReport);
  std::string result = text;
  result.resize(static_cast<std::size_t>(length));
  host().broadcast(Tensor(result.data(), {length}, DType::u8), root, kReport);
  return result;
}

namespace {

// Texts on their way up a tree: each is its length in 8 bytes and its bytes.
void append_text(std::string& texts, std::string_view text) {
  const auto length = static_cast<std::uint64_t>(text.size());
  texts.append(reinterpret_cast<const char*>(&length), sizeof length);
  texts += text;
}

std::string_view take_text(std::string_view& texts) {
  std::uint64_t length = 0;
  internal_check(texts.size() >= sizeof length, "a gathered text without its length", texts.size());
  std::memcpy(&length, texts.data(), sizeof length);
  texts.remove_prefix(sizeof length);
  internal_check(texts.size() >= length, "a gathered text is shorter than its length", texts.size(), length);
  const std::string_view text = texts.substr(0, length);
  texts.remove_prefix(length);
  return text;
}

}  // namespace

// Up a binomial tree: every rank sends its own text and those of the ranks below it to its parent.
std::vector<std::string> Communicator::gather_texts(const std::string& text, int root) {
  verify(text.size() <= 1U << 30, ErrorKind::internal, "gather of a text of {} bytes", text.size());
  const int number = (rank_ + size_ - root) % size_;
  const auto rank_of_number = [&](int n) { return (n + root) % size_; };
  std::string below;
  append_text(below, text);
  for (int child = 0; child < tree_children(number, size_); ++child) {
    const int from = rank_of_number(number + (1 << child));
    double length = 0;
    host().start_receive(Tensor(&length, {1}, DType::f64), from, kChannels, kReport).wait();
    const auto bytes = static_cast<std::size_t>(length), before = below.size();
    below.resize(before + bytes);
    host()
        .start_receive(Tensor(below.data() + before, {static_cast<std::int64_t>(bytes)}, DType::u8), from, kChannels,
                       kReport)
        .wait();
  }
  if (number != 0) {
    const int parent = rank_of_number(number & (number - 1));
    auto length = static_cast<double>(below.size());
    host().start_send(ConstTensor(&length, {1}, DType::f64), parent, kChannels, kReport).wait();
    host()
        .start_send(ConstTensor(below.data(), {static_cast<std::int64_t>(below.size())}, DType::u8), parent, kChannels,
                    kReport)
        .wait();
    return {};
  }
  std::vector<std::string> texts(static_cast<std::size_t>(size_), text);
  std::string_view rest = below;
  // Counting communicators bring nothing: the others' texts stay this rank's.
  for (int other = 0; other < size_ && !rest.empty(); ++other) {
    texts[static_cast<std::size_t>(rank_of_number(other))] = take_text(rest);
  }
  return texts;
}

}  // namespace megatron
