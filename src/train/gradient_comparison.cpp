#include "train/gradient_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "checkpoint/overlap.h"
#include "comm/agreement.h"

namespace megatron {

namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // elements on their way at once
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Header {
  std::string name;
  Shape shape;
  double norm = 0;
};

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::isfinite(sum) ? std::sqrt(sum) : kInfinity;
}

// Names, shapes and norms of the reference, to all.
std::vector<Header> share_headers(Communicator& world, const ReferenceGradients* reference) {
  nlohmann::json list = nlohmann::json::array();
  if (reference != nullptr) {
    for (const ReferenceGradients::Tensor& tensor : reference->tensors) {
      nlohmann::json shape = nlohmann::json::array();
      for (int i = 0; i < tensor.shape.rank(); ++i) shape.push_back(tensor.shape[i]);
      list.push_back({tensor.name, shape, norm_of(tensor.values)});
    }
  }
  std::vector<Header> headers;
  for (const auto& entry : nlohmann::json::parse(world.broadcast_text(list.dump(), 0))) {
    Header header{entry.at(0), {}, entry.at(2).is_number() ? entry.at(2).get<double>() : kInfinity};
    const auto& extents = entry.at(1);
    internal_check(extents.size() == 1 || extents.size() == 2, "a gradient is a vector or a matrix");
    header.shape = extents.size() == 1 ? Shape{extents[0].get<std::int64_t>()}
                                       : Shape{extents[0].get<std::int64_t>(), extents[1].get<std::int64_t>()};
    headers.push_back(std::move(header));
  }
  return headers;
}

// Names that the reference lacks would never be looked at.
void require_known(Communicator& world, const std::vector<Header>& headers, const std::vector<Piece>& held) {
  std::set<std::string> known;
  for (const Header& header : headers) known.insert(header.name);
  agree(world, [&] {
    for (const Piece& piece : held) {
      verify(known.contains(piece.name), ErrorKind::internal, "the layout has the parameter {}, one rank does not",
             piece.name);
    }
  });
}

// What one rank holds of the reference.
class Comparison {
 public:
  Comparison(const std::vector<Piece>& held, double unit, Device& device) : unit_(unit), device_(device) {
    for (const Piece& piece : held) pieces_[piece.name].push_back(&piece);
  }

  /// Of elements [first, first + chunk.size()) of a whole tensor: the sum of the differences' squares. `seen`: of each
  /// of them, how often it was compared (adds).
  double chunk(const Header& header, std::int64_t first, std::span<const float> chunk, std::span<std::int32_t> seen) {
    const auto held = pieces_.find(header.name);
    if (held == pieces_.end()) return 0;
    Shape origin = header.shape;
    for (int i = 0; i < origin.rank(); ++i) origin[i] = 0;
    const StoredPiece stored{{origin, header.shape}, first, static_cast<std::int64_t>(chunk.size()), 0, 0};
    double squares = 0;
    for (const Piece* piece : held->second) {
      runs_.clear();
      append_overlap(*piece, 0, stored, runs_);
      for (const Run& run : runs_) {
        const auto from = static_cast<std::size_t>(run.from), count = static_cast<std::size_t>(run.count);
        squares += compare(*piece, run, chunk.subspan(from, count));
        for (std::int32_t& times : seen.subspan(from, count)) ++times;
      }
    }
    return squares;
  }

 private:
  double compare(const Piece& piece, const Run& run, std::span<const float> expected) {
    if (mine_.size() < expected.size()) mine_.resize(expected.size());
    device_.copy_to_host(mine_.data(), piece.value.as<float>() + run.to, expected.size_bytes());
    double squares = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = unit_ * mine_[i] - expected[i];
      squares += difference * difference;
    }
    return std::isfinite(squares) ? squares : kInfinity;
  }

  double unit_;
  Device& device_;
  std::map<std::string, std::vector<const Piece*>> pieces_;
  std::vector<Run> runs_;
  std::vector<float> mine_;
};

// Every element of a tensor, each of them as often as there are copies of the tensor, and on one rank once.
class Completeness {
 public:
  Completeness(Communicator& world, const Header& header) : world_(world), header_(header) {}

  /// `seen`, of the elements from `first` on: how often this rank has compared each; is changed.
  void add(std::int64_t first, std::span<std::int32_t> seen) {
    for (std::int32_t& times : seen) times = times > 1 ? kTwice : times;
    world_.all_reduce(Tensor(seen.data(), {static_cast<std::int64_t>(seen.size())}, DType::i32));
    if (first == 0) copies_ = seen[0];
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] == copies_ && copies_ > 0 && copies_ < kTwice) continue;
      fail(ErrorKind::internal, "element {} of the gradient of {} {} is held by {}, element 0 by {}",
           first + static_cast<std::int64_t>(i), header_.name, header_.shape.to_string(), times(seen[i]),
           times(copies_));
    }
  }
  std::int32_t copies() const { return copies_; }

 private:
  static constexpr std::int32_t kTwice = 1 << 20;  // more than there are ranks
  static std::string times(std::int32_t seen) {
    return seen < kTwice ? fmt::format("{} ranks", seen) : "one rank twice";
  }

  Communicator& world_;
  const Header& header_;
  std::int32_t copies_ = 0;
};

// The size by which a tensor's difference is judged.
double scale_of(const Header& header, const std::vector<Header>& headers) {
  constexpr std::string_view kKeyBias = "attention.key.bias";
  if (!header.name.ends_with(kKeyBias)) return header.norm;
  const std::string query = header.name.substr(0, header.name.size() - kKeyBias.size()) + "attention.query.bias";
  for (const Header& other : headers) {
    if (other.name == query) return other.norm;
  }
  return header.norm;
}

}  // namespace

ReferenceGradients ReferenceGradients::of(const std::vector<Piece>& pieces, Device& device) {
  ReferenceGradients reference;
  for (const Piece& piece : pieces) {
    internal_check(piece.count == piece.global_shape.elements(), "a reference of parts of tensors");
    Tensor& tensor = reference.tensors.emplace_back();
    tensor.name = piece.name;
    tensor.shape = piece.global_shape;
    tensor.values.resize(static_cast<std::size_t>(piece.count));
    device.copy_to_host(tensor.values.data(), piece.value.data(), piece.value.bytes());
  }
  return reference;
}

std::vector<GradientDifference> compare_gradients(Communicator& world, const ReferenceGradients* reference,
                                                  const std::vector<Piece>& held, double unit, Device& device) {
  internal_check((reference != nullptr) == (world.rank() == 0), "rank 0 has the reference, and no other");
  const std::vector<Header> headers = share_headers(world, reference);
  require_known(world, headers, held);
  const auto tensors = static_cast<std::int64_t>(headers.size());
  // By tensor: squares of the differences, summed over all ranks, and the largest of one; and over how many copies.
  std::vector<double> sums(headers.size()), worst(headers.size()), worst_rank(headers.size()), copies(headers.size());
  Comparison comparison(held, unit, device);
  std::vector<float> chunk;
  std::vector<std::int32_t> seen;
  for (std::size_t t = 0; t < headers.size(); ++t) {
    Completeness completeness(world, headers[t]);
    const std::int64_t elements = headers[t].shape.elements();
    for (std::int64_t first = 0; first < elements; first += kChunk) {
      const std::int64_t count = std::min(kChunk, elements - first);
      chunk.resize(static_cast<std::size_t>(count));
      seen.assign(chunk.size(), 0);
      if (reference != nullptr) std::copy_n(reference->tensors[t].values.data() + first, count, chunk.data());
      world.broadcast(Tensor(chunk.data(), {count}, DType::f32), 0);
      worst[t] += comparison.chunk(headers[t], first, chunk, seen);
      completeness.add(first, seen);
    }
    sums[t] = worst[t];
    copies[t] = completeness.copies();
  }
  const std::vector<double> mine = worst;
  world.all_reduce(Tensor(sums.data(), {tensors}, DType::f64));
  world.all_reduce(Tensor(worst.data(), {tensors}, DType::f64), Reduce::maximum);
  for (std::size_t t = 0; t < headers.size(); ++t) worst_rank[t] = mine[t] == worst[t] ? world.rank() : -1;
  world.all_reduce(Tensor(worst_rank.data(), {tensors}, DType::f64), Reduce::maximum);

  std::vector<GradientDifference> differences;
  for (std::size_t t = 0; t < headers.size(); ++t) {
    GradientDifference& difference = differences.emplace_back();
    difference.name = headers[t].name;
    difference.norm = headers[t].norm;
    difference.distance = std::sqrt(std::max(sums[t] / copies[t], worst[t]));
    difference.rank = static_cast<int>(worst_rank[t]);
    const double scale = scale_of(headers[t], headers);
    difference.relative = difference.distance == 0 ? 0 : scale > 0 ? difference.distance / scale : kInfinity;
    if (std::isnan(difference.relative)) difference.relative = kInfinity;  // neither of the two is finite
  }
  return differences;
}

}  // namespace megatron
