#include "training/diagnostics/tensor_comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "checkpoint/store/manifest.h"
#include "checkpoint/store/overlap.h"
#include "distributed/comm/agreement.h"
#include "distributed/comm/gather.h"

namespace megatron {

namespace {

constexpr std::int64_t kChunk = std::int64_t{1} << 20;  // elements on their way at once

struct Header {
  std::string name;
  Shape shape;
  double scale = 0;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Header, name, shape, scale)

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::isfinite(sum) ? std::sqrt(sum) : kInfiniteDifference;
}

// Names, shapes and scales of the reference, to all.
std::vector<Header> share_headers(Communicator& world, const WholeTensors* reference) {
  internal_check((reference != nullptr) == (world.rank() == 0), "rank 0 has the reference, and no other", world.rank());
  std::vector<Header> headers;
  if (reference != nullptr) {
    for (const WholeTensors::Tensor& tensor : reference->tensors) {
      headers.push_back({tensor.name, tensor.shape, std::isfinite(tensor.scale) ? tensor.scale : kInfiniteDifference});
    }
  }
  return broadcast(world, headers);
}

// Names that the reference lacks would never be looked at.
void require_known(Communicator& world, const std::vector<Header>& headers, const std::vector<TensorSlice>& held) {
  std::set<std::string> known;
  for (const Header& header : headers) known.insert(header.name);
  agree(world, [&] {
    for (const TensorSlice& slice : held) {
      verify(known.contains(slice.name), ErrorKind::internal, "the layout has the parameter {}, one rank does not",
             slice.name);
    }
  });
}

// This rank's parts of the reference's tensors.
class HeldTensors {
 public:
  HeldTensors(const std::vector<TensorSlice>& held, double unit, Device& device) : unit_(unit), device_(device) {
    for (const TensorSlice& slice : held) slices_[slice.name].push_back(&slice);
  }

  /// Sum of the differences' squares over elements [first, first + chunk.size()) of a whole tensor. Adds to `seen`, for
  /// each of them, how often it was compared.
  double compare(const Header& header, std::int64_t first, std::span<const float> chunk, std::span<std::int32_t> seen) {
    double squares = 0;
    each_run(header, first, chunk,
             [&](const TensorSlice& slice, const CopySegment& segment, std::span<const float> expected) {
               squares += compare(slice, segment, expected);
               for (std::int32_t& times : seen.subspan(static_cast<std::size_t>(segment.from), expected.size()))
                 ++times;
             });
    return squares;
  }

  /// Sets those elements to the chunk times the unit.
  void set(const Header& header, std::int64_t first, std::span<const float> chunk) {
    each_run(header, first, chunk,
             [&](const TensorSlice& slice, const CopySegment& segment, std::span<const float> values) {
               mine_.resize(std::max(mine_.size(), values.size()));
               std::transform(values.begin(), values.end(), mine_.begin(),
                              [&](float value) { return static_cast<float>(unit_ * value); });
               device_.copy_to_device(slice.value.as<float>() + segment.to, mine_.data(), values.size_bytes());
             });
  }

 private:
  template <class Work>
  void each_run(const Header& header, std::int64_t first, std::span<const float> chunk, const Work& work) {
    const auto held = slices_.find(header.name);
    if (held == slices_.end()) return;
    Shape origin = header.shape;
    for (int i = 0; i < origin.rank(); ++i) origin[i] = 0;
    const StoredSlice stored{{origin, header.shape}, first, static_cast<std::int64_t>(chunk.size()), 0, 0};
    for (const TensorSlice* slice : held->second) {
      segments_.clear();
      append_overlap(*slice, 0, stored, segments_);
      for (const CopySegment& segment : segments_) {
        work(*slice, segment,
             chunk.subspan(static_cast<std::size_t>(segment.from), static_cast<std::size_t>(segment.count)));
      }
    }
  }

  double compare(const TensorSlice& slice, const CopySegment& segment, std::span<const float> expected) {
    mine_.resize(std::max(mine_.size(), expected.size()));
    device_.copy_to_host(mine_.data(), slice.value.as<float>() + segment.to, expected.size_bytes());
    double squares = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double difference = unit_ * mine_[i] - expected[i];
      squares += difference * difference;
    }
    return std::isfinite(squares) ? squares : kInfiniteDifference;
  }

  double unit_;
  Device& device_;
  std::map<std::string, std::vector<const TensorSlice*>> slices_;
  std::vector<CopySegment> segments_;
  std::vector<float> mine_;
};

// Every element of a tensor, each of them as often as there are copies of the tensor, and on one rank once.
class Completeness {
 public:
  Completeness(Communicator& world, const Header& header) : world_(world), header_(header) {}

  /// `seen`, of the elements from `first` on: how often this rank has compared each; is changed.
  void add(std::int64_t first, std::span<std::int32_t> seen) {
    for (std::int32_t& times : seen) times = times > 1 ? kTwice : times;
    world_.all_reduce(Tensor(seen.data(), {static_cast<std::int64_t>(seen.size())}, DType::i32), kReport);
    if (first == 0) copies_ = seen[0];
    for (std::size_t i = 0; i < seen.size(); ++i) {
      if (seen[i] == copies_ && copies_ > 0 && copies_ < kTwice) continue;
      fail(ErrorKind::internal, "element {} of {} {} is held by {}, element 0 by {}",
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

// The reference in chunks, on all ranks: work(index of the tensor, its first element, values).
template <class Work>
void each_chunk(Communicator& world, const WholeTensors* reference, const std::vector<Header>& headers,
                const Work& work) {
  std::vector<float> chunk;
  for (std::size_t t = 0; t < headers.size(); ++t) {
    const std::int64_t elements = headers[t].shape.elements();
    for (std::int64_t first = 0; first < elements; first += kChunk) {
      const std::int64_t count = std::min(kChunk, elements - first);
      chunk.resize(static_cast<std::size_t>(count));
      if (reference != nullptr) std::copy_n(reference->tensors[t].values.data() + first, count, chunk.data());
      world.broadcast(Tensor(chunk.data(), {count}, DType::f32), 0, kReport);
      work(t, first, std::span<const float>(chunk));
    }
  }
}

std::vector<float> values_of(const TensorSlice& slice, Device& device) {
  internal_check(slice.count == slice.global_shape.elements(), "a reference of parts of tensors", slice.count,
                 slice.global_shape);
  std::vector<float> values(static_cast<std::size_t>(slice.count));
  device.copy_to_host(values.data(), slice.value.data(), slice.value.bytes());
  return values;
}

}  // namespace

WholeTensors WholeTensors::of(const std::vector<TensorSlice>& slices, Device& device) {
  WholeTensors whole;
  for (const TensorSlice& slice : slices) {
    Tensor& tensor = whole.tensors.emplace_back();
    tensor.name = slice.name;
    tensor.shape = slice.global_shape;
    tensor.values = values_of(slice, device);
    tensor.scale = norm_of(tensor.values);
  }
  return whole;
}

WholeTensors WholeTensors::of_gradients(const std::vector<TensorSlice>& slices, const std::vector<Parameter>& records,
                                        double unit, Device& device) {
  WholeTensors whole = of(slices, device);
  std::map<std::string, Tensor*> named;
  for (Tensor& tensor : whole.tensors) {
    for (float& value : tensor.values) value = static_cast<float>(unit * value);
    tensor.scale = norm_of(tensor.values);
    named[tensor.name] = &tensor;
  }
  for (const Parameter& record : records) {
    if (record.measured_by == kNone) continue;
    named.at(record.name)->scale = named.at(records[static_cast<std::size_t>(record.measured_by)].name)->scale;
  }
  return whole;
}

void WholeTensors::move_to(const std::vector<TensorSlice>& slices, double floor, Device& device) {
  internal_check(slices.size() == tensors.size(), "as many tensors as before", slices.size(), tensors.size());
  for (std::size_t t = 0; t < slices.size(); ++t) {
    Tensor& tensor = tensors[t];
    internal_check(slices[t].name == tensor.name, "the same parameters in the same order", slices[t].name, tensor.name);
    std::vector<float> values = values_of(slices[t], device);
    for (std::size_t i = 0; i < values.size(); ++i) tensor.values[i] -= values[i];
    tensor.scale = norm_of(tensor.values) + floor * norm_of(values);
    tensor.values = std::move(values);
  }
}

void set_tensors(Communicator& world, const WholeTensors* reference, const std::vector<TensorSlice>& held, double unit,
                 Device& device) {
  const std::vector<Header> headers = share_headers(world, reference);
  HeldTensors mine(held, unit, device);
  each_chunk(world, reference, headers, [&](std::size_t t, std::int64_t first, std::span<const float> chunk) {
    mine.set(headers[t], first, chunk);
  });
}

std::vector<TensorDeviation> compare_tensors(Communicator& world, const WholeTensors* reference,
                                             const std::vector<TensorSlice>& held, double unit, Device& device) {
  const std::vector<Header> headers = share_headers(world, reference);
  require_known(world, headers, held);
  const auto tensors = static_cast<std::int64_t>(headers.size());
  // By tensor: squares of the differences, summed over all ranks, and the largest of one; and over how many copies.
  std::vector<double> sums(headers.size()), worst(headers.size()), worst_rank(headers.size()), copies(headers.size());
  HeldTensors mine(held, unit, device);
  std::vector<std::int32_t> seen;
  std::optional<Completeness> completeness;
  each_chunk(world, reference, headers, [&](std::size_t t, std::int64_t first, std::span<const float> chunk) {
    if (first == 0) completeness.emplace(world, headers[t]);
    seen.assign(chunk.size(), 0);
    worst[t] += mine.compare(headers[t], first, chunk, seen);
    completeness->add(first, seen);
    copies[t] = completeness->copies();
  });
  sums = worst;
  const std::vector<double> own = worst;
  world.all_reduce(Tensor(sums.data(), {tensors}, DType::f64), kReport);
  world.all_reduce(Tensor(worst.data(), {tensors}, DType::f64), kReportMaximum);
  for (std::size_t t = 0; t < headers.size(); ++t) worst_rank[t] = own[t] == worst[t] ? world.rank() : -1;
  world.all_reduce(Tensor(worst_rank.data(), {tensors}, DType::f64), kReportMaximum);

  std::vector<TensorDeviation> differences;
  for (std::size_t t = 0; t < headers.size(); ++t) {
    TensorDeviation& difference = differences.emplace_back();
    difference.name = headers[t].name;
    difference.scale = headers[t].scale;
    difference.distance = std::sqrt(std::max(sums[t] / copies[t], worst[t]));
    if (std::isnan(difference.distance)) difference.distance = kInfiniteDifference;  // neither of the two is finite
    difference.rank = static_cast<int>(worst_rank[t]);
    difference.relative = difference.distance == 0 ? 0
                          : difference.scale > 0   ? difference.distance / difference.scale
                                                   : kInfiniteDifference;
    if (std::isnan(difference.relative)) difference.relative = kInfiniteDifference;
  }
  return differences;
}

}  // namespace megatron
