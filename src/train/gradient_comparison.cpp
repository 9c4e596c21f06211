#include "train/gradient_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/overlap.h"

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

// What one rank has found about one tensor.
struct Found {
  double elements = 0, squares = 0;
};

class Comparison {
 public:
  Comparison(const std::vector<Piece>& held, double unit, Device& device) : unit_(unit), device_(device) {
    for (const Piece& piece : held) pieces_[piece.name].push_back(&piece);
  }

  /// Elements [first, first + chunk.size()) of a whole tensor.
  void chunk(const Header& header, std::int64_t first, std::span<const float> chunk, Found& found) {
    const auto held = pieces_.find(header.name);
    if (held == pieces_.end()) return;
    if (first == 0) ++known_;
    Shape origin = header.shape;
    for (int i = 0; i < origin.rank(); ++i) origin[i] = 0;
    const StoredPiece stored{{origin, header.shape}, first, static_cast<std::int64_t>(chunk.size()), 0, 0};
    for (const Piece* piece : held->second) {
      runs_.clear();
      append_overlap(*piece, 0, stored, runs_);
      for (const Run& run : runs_) compare(*piece, run, chunk, found);
    }
  }

  /// Whether the reference had every tensor of this rank.
  bool all_known() const { return known_ == pieces_.size(); }

 private:
  void compare(const Piece& piece, const Run& run, std::span<const float> chunk, Found& found) {
    const auto count = static_cast<std::size_t>(run.count);
    if (mine_.size() < count) mine_.resize(count);
    device_.copy_to_host(mine_.data(), piece.value.as<float>() + run.to, count * sizeof(float));
    const float* expected = chunk.data() + run.from;
    double squares = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double difference = unit_ * mine_[i] - expected[i];
      squares += difference * difference;
    }
    found.elements += static_cast<double>(count);
    found.squares += std::isfinite(squares) ? squares : kInfinity;
  }

  double unit_;
  Device& device_;
  std::map<std::string, std::vector<const Piece*>> pieces_;
  std::size_t known_ = 0;
  std::vector<Run> runs_;
  std::vector<float> mine_;
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
  const auto tensors = static_cast<std::int64_t>(headers.size());
  // By tensor: elements held, squares of their differences; summed over all ranks, and the largest of one.
  std::vector<double> sums(2 * headers.size()), worst(headers.size()), worst_rank(headers.size());
  Comparison comparison(held, unit, device);
  std::vector<float> chunk;
  for (std::size_t t = 0; t < headers.size(); ++t) {
    Found found;
    const std::int64_t elements = headers[t].shape.elements();
    for (std::int64_t first = 0; first < elements; first += kChunk) {
      const std::int64_t count = std::min(kChunk, elements - first);
      chunk.resize(static_cast<std::size_t>(count));
      if (reference != nullptr) std::copy_n(reference->tensors[t].values.data() + first, count, chunk.data());
      world.broadcast(Tensor(chunk.data(), {count}, DType::f32), 0);
      comparison.chunk(headers[t], first, chunk, found);
    }
    sums[2 * t] = found.elements;
    sums[2 * t + 1] = worst[t] = found.squares;
  }
  verify(!world.any(!comparison.all_known()), ErrorKind::numerics,
         "the layout has parameters that one rank does not have: other names");
  const std::vector<double> mine = worst;
  world.all_reduce(Tensor(sums.data(), {2 * tensors}, DType::f64));
  world.all_reduce(Tensor(worst.data(), {tensors}, DType::f64), Reduce::maximum);
  for (std::size_t t = 0; t < headers.size(); ++t) worst_rank[t] = mine[t] == worst[t] ? world.rank() : -1;
  world.all_reduce(Tensor(worst_rank.data(), {tensors}, DType::f64), Reduce::maximum);

  std::vector<GradientDifference> differences;
  for (std::size_t t = 0; t < headers.size(); ++t) {
    const auto elements = static_cast<double>(headers[t].shape.elements());
    const double copies = sums[2 * t] / elements;
    verify(copies >= 1 && copies == std::floor(copies), ErrorKind::numerics,
           "the ranks together hold {} elements of the gradient of {} {}: not a whole number of times", sums[2 * t],
           headers[t].name, headers[t].shape.to_string());
    GradientDifference& difference = differences.emplace_back();
    difference.name = headers[t].name;
    difference.norm = headers[t].norm;
    difference.distance = std::sqrt(std::max(sums[2 * t + 1] / copies, worst[t]));
    difference.rank = static_cast<int>(worst_rank[t]);
    const double scale = scale_of(headers[t], headers);
    difference.relative = difference.distance == 0 ? 0 : scale > 0 ? difference.distance / scale : kInfinity;
    if (std::isnan(difference.relative)) difference.relative = kInfinity;  // neither of the two is finite
  }
  return differences;
}

}  // namespace megatron
