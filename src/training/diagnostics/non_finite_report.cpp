#include "training/diagnostics/non_finite_report.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/core/half.h"
#include "base/system/host_name.h"
#include "distributed/comm/gather.h"

namespace megatron {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ModelPlace, name, layer, index)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BadTensors, count, first, last)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NonFiniteReport, loss, masters, values, gradients, replayed_loss, replayed_gradients,
                                   loss_scale, replayed_loss_scale)

namespace {

constexpr std::int64_t kStagingElements = std::int64_t{64} << 10;

template <class T>
bool all_finite(const T* values, std::int64_t count, Device& device, std::vector<float>& staging) {
  auto* here = reinterpret_cast<T*>(staging.data());
  for (std::int64_t first = 0; first < count; first += kStagingElements) {
    const std::int64_t now = std::min(count - first, kStagingElements);
    device.copy_to_host(here, values + first, static_cast<std::size_t>(now) * sizeof(T));
    if (!std::all_of(here, here + now, [](T x) { return std::isfinite(wide(x)); })) return false;
  }
  return true;
}

bool all_finite(ConstTensor values, Device& device, std::vector<float>& staging) {
  const std::int64_t count = values.elements();
  switch (values.dtype()) {
    case DType::bf16: return all_finite(values.as<BFloat16>(), count, device, staging);
    case DType::f16: return all_finite(values.as<Float16>(), count, device, staging);
    default: return all_finite(values.as<float>(), count, device, staging);
  }
}

bool before(const ModelPlace& a, const ModelPlace& b) {
  return std::tie(a.layer, a.index) < std::tie(b.layer, b.index);
}

struct Report {
  std::string host;
  NonFiniteReport step;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Report, host, step)

/// The reports of all ranks, by rank.
class Findings {
 public:
  Findings(const GridShape& shape, std::vector<Report> reports) : shape_(shape), reports_(std::move(reports)) {}

  std::string describe() const {
    if (const std::string where = where_bad(&NonFiniteReport::masters, nullptr); !where.empty()) {
      return fmt::format(
          "parameters themselves are not finite, {}; no step can succeed, resume from an older checkpoint", where);
    }
    if (const std::string where = where_bad(&NonFiniteReport::values, nullptr); !where.empty()) {
      return fmt::format(
          "parameters that are finite in fp32 are too large for 16-bit values, {}; no step can succeed, resume from an "
          "older checkpoint with a wider precision.compute",
          where);
    }
    const bool in_replay =
        std::any_of(reports_.begin(), reports_.end(), [](const Report& report) { return report.step.bad_in_replay(); });
    const auto loss = in_replay ? &NonFiniteReport::replayed_loss : &NonFiniteReport::loss;
    const auto gradients = in_replay ? &NonFiniteReport::replayed_gradients : &NonFiniteReport::gradients;
    std::string where = where_bad(gradients, loss);  // on ranks whose own loss is bad, if there are any
    if (where.empty()) where = where_bad(gradients, nullptr);
    if (where.empty() && !any(loss)) {
      return "the loss is finite, every gradient as well, but the norm of all is too large for a float";
    }
    return fmt::format("the loss {}, {}; the step repeated {}",
                       any(loss) ? fmt::format("of {} is not finite", samples_of(loss)) : "is finite",
                       where.empty() ? "every gradient as well" : "gradients are not finite " + where,
                       outcome_of_replay(in_replay));
  }

 private:
  std::string outcome_of_replay(bool in_replay) const {
    const double before = at(0).loss_scale, now = at(0).replayed_loss_scale;
    if (now == before) {
      return in_replay ? "gave the same" : "gave finite numbers: suspect memory or processor there";
    }
    return fmt::format("at a loss scale of {} gave {}", now, in_replay ? "the same" : "finite numbers");
  }

  const NonFiniteReport& at(int rank) const { return reports_[static_cast<std::size_t>(rank)].step; }

  bool any(bool NonFiniteReport::*what) const {
    return std::any_of(reports_.begin(), reports_.end(), [&](const Report& report) { return report.step.*what; });
  }

  /// "from X on rank 2 (...) to Y on rank 4 (...)" over the ranks where `only` holds; empty if nothing is bad there.
  std::string where_bad(BadTensors NonFiniteReport::*what, bool NonFiniteReport::*only) const {
    int first = -1, last = -1;
    for (int rank = 0; rank < shape_.ranks(); ++rank) {
      const BadTensors& bad = at(rank).*what;
      if (bad.count == 0 || (only != nullptr && !(at(rank).*only))) continue;
      if (first < 0 || before(bad.first, (at(first).*what).first)) first = rank;
      if (last < 0 || before((at(last).*what).last, bad.last)) last = rank;
    }
    if (first < 0) return {};
    const ModelPlace &begin = (at(first).*what).first, &end = (at(last).*what).last;
    if (first == last && begin.name == end.name) return "in " + tensor_on(first, begin);
    return fmt::format("from {} to {}", tensor_on(first, begin), tensor_on(last, end));
  }

  std::string samples_of(bool NonFiniteReport::*loss) const {
    std::vector<int> bad(static_cast<std::size_t>(shape_.data));
    for (int rank = 0; rank < shape_.ranks(); ++rank) {
      if (at(rank).*loss) bad[static_cast<std::size_t>(coordinates_of(rank, shape_).data)] = 1;
    }
    const auto count = std::count(bad.begin(), bad.end(), 1);
    if (count == shape_.data) return "all samples";
    const auto first = std::find(bad.begin(), bad.end(), 1) - bad.begin();
    return fmt::format("data rank {}'s samples{}", first, count > 1 ? fmt::format(" and of {} more", count - 1) : "");
  }

  std::string tensor_on(int rank, const ModelPlace& place) const {
    const GridCoordinates at = coordinates_of(rank, shape_);
    std::string where = reports_[static_cast<std::size_t>(rank)].host;
    if (shape_.tensor > 1) where += fmt::format(", tensor rank {}", at.tensor);
    if (shape_.data > 1) where += fmt::format(", data rank {}", at.data);
    if (shape_.expert > 1) where += fmt::format(", expert rank {}", at.data % shape_.expert);
    if (shape_.pipeline > 1) where += fmt::format(", stage {}", at.pipeline);
    return fmt::format("{} on rank {} ({})", place.name, rank, where);
  }

  GridShape shape_;
  std::vector<Report> reports_;
};

}  // namespace

// By layer: a rank declares tables that layers share first, and the chunks of virtual stages one after the other.
void BadTensors::add(const Parameter& parameter) {
  const ModelPlace place{parameter.name, parameter.layer, parameter.index};
  if (count == 0 || before(place, first)) first = place;
  if (count == 0 || before(last, place)) last = place;
  ++count;
}

bool has_bad_number(const ParameterPart& part, Device& device) {
  std::vector<float> staging(static_cast<std::size_t>(std::min(kStagingElements, part.values.elements())));
  return !all_finite(part.values, device, staging);
}

BadTensors find_bad_tensors(const std::vector<ParameterPart>& parts, Device& device) {
  BadTensors bad;
  for (const ParameterPart& part : parts) {
    if (has_bad_number(part, device)) bad.add(*part.parameter);
  }
  return bad;
}

std::string describe_non_finite_step(const ProcessGrid& grid, const NonFiniteReport& mine) {
  Communicator& world = grid.world();
  const std::vector<Report> reports = gather(world, Report{host_name(), mine});
  return world.broadcast_text(world.rank() == 0 ? Findings(grid.shape(), reports).describe() : "", 0);
}

}  // namespace megatron
