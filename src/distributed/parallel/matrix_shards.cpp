#include "distributed/parallel/matrix_shards.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace megatron {

namespace {

/// One parameter, or several that lie side by side.
struct Unit {
  int first = kNone, count = 0;  ///< indices
  std::int64_t room = 0;         ///< elements, to the next place where a parameter may begin
  double cost = 0;
};

/// Units of one copy.
struct CopyUnits {
  std::vector<Unit> units = {};
  std::int64_t room = 0;
  double cost = 0;

  void add(const Unit& unit) {
    units.push_back(unit);
    room += unit.room;
    cost += unit.cost;
  }
};

/// Longest processing time first. Units without a cost come last, and fill what has most room left.
std::vector<CopyUnits> share_out(std::vector<Unit> units, int copies) {
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) {
    return std::tuple(-a.cost, -a.room) < std::tuple(-b.cost, -b.room);
  });
  std::vector<CopyUnits> parts(static_cast<std::size_t>(copies));
  for (const Unit& unit : units) {
    std::min_element(parts.begin(), parts.end(), [&](const CopyUnits& a, const CopyUnits& b) {
      return unit.cost > 0 ? std::tuple(a.cost, a.room) < std::tuple(b.cost, b.room) : a.room < b.room;
    })->add(unit);
  }
  return parts;
}

std::int64_t longest_of(const std::vector<CopyUnits>& parts) {
  return std::max_element(parts.begin(), parts.end(),
                          [](const CopyUnits& a, const CopyUnits& b) { return a.room < b.room; })
      ->room;
}

/// Units of a bucket that is being filled, or that is full.
struct Content {
  CopyGroup copies = CopyGroup::dense;
  std::vector<Unit> units = {};
  bool tables = false, matrices = false;
  bool tied = false;  ///< a tied parameter alone
  bool padded = true;

  std::int64_t room() const {
    std::int64_t sum = 0;
    for (const Unit& unit : units) sum += unit.room;
    return sum;
  }
  double padding(int shards) const {
    const auto used = static_cast<double>(room());
    return static_cast<double>(longest_of(share_out(units, shards)) * shards) / used - 1;
  }
};

class MatrixShards {
 public:
  MatrixShards(std::vector<Parameter>& parameters, Shards shards, std::int64_t enough)
      : parameters_(parameters), shards_(shards), enough_(enough) {}

  std::vector<Bucket> lay_out() {
    const std::vector<Unit> units = units_of_all();
    dense_.open = empty(CopyGroup::dense, units);
    experts_.open = empty(CopyGroup::experts, units);
    for (const Unit& unit : units) add(unit);
    close(dense_.open);
    close(experts_.open);
    std::stable_sort(full_.begin(), full_.end(),
                     [](const Content& a, const Content& b) { return a.units.front().first < b.units.front().first; });
    for (const Content& content : full_) place(content);
    return std::move(buckets_);
  }

 private:
  /// State of one copy group.
  struct Group {
    Content open;
    std::vector<double> costs;  ///< sums by copy over the buckets so far
  };
  Group& group_of(CopyGroup copies) { return copies == CopyGroup::experts ? experts_ : dense_; }
  const Parameter& first_of(const Unit& unit) const { return parameters_[static_cast<std::size_t>(unit.first)]; }
  bool is_table(const Unit& unit) const {
    const Parameter& parameter = first_of(unit);
    return unit.cost == 0 && (parameter.role == Role::embedding || parameter.role == Role::head);
  }

  std::vector<Unit> units_of_all() const {
    std::vector<Unit> units;
    std::int64_t elements = 0;
    for (const Parameter& parameter : parameters_) {
      if (!parameter.adjacent) {
        units.push_back({.first = parameter.index});
        elements = 0;
      }
      internal_check(first_of(units.back()).copies == parameter.copies,
                     "parameters that lie side by side are summed together", parameter.name);
      elements += parameter.elements();
      ++units.back().count;
      units.back().room = round_up(elements, kFlatAlignment);
      units.back().cost += parameter.matrix_cost;
    }
    return units;
  }

  /// An empty bucket of a copy group, padded if what it may share out is not too little.
  Content empty(CopyGroup group, const std::vector<Unit>& all) const {
    Content best;
    for (const Unit& unit : all) {
      const Parameter& parameter = first_of(unit);
      if (parameter.copies == group && parameter.tie == kNone && !is_table(unit)) best.units.push_back(unit);
    }
    return {.copies = group, .padded = best.units.empty() || best.padding(shards_.of(group)) <= kTooMuchPadding};
  }

  void add(const Unit& unit) {
    const Parameter& parameter = first_of(unit);
    Content& open = group_of(parameter.copies).open;
    if (parameter.tie != kNone) {
      // Alone, and cut or owned whatever else its stage has: as on the other stages.
      full_.push_back(
          {.copies = open.copies, .units = {unit}, .matrices = unit.cost > 0, .tied = true, .padded = false});
      return;
    }
    const bool table = is_table(unit), matrix = unit.cost > 0;
    if ((table && open.matrices) || (matrix && open.tables) || is_full(open, parameter)) close(open);
    open.units.push_back(unit);
    open.tables |= table;
    open.matrices |= matrix;
  }

  bool is_full(const Content& open, const Parameter& next) const {
    if (open.room() < enough_) return false;
    if (!open.matrices) return open.tables;  // biases and norms wait for matrices
    return first_of(open.units.back()).layer != next.layer &&
           (!open.padded || open.padding(shards_.of(open.copies)) <= kMostPadding);
  }

  /// A bucket that ends early joins the one before it if that saves more than a bucket may be padded.
  void close(Content& open) {
    Content content = open;
    open.units.clear();
    open.tables = open.matrices = false;
    if (content.units.empty()) return;
    const auto before = std::find_if(full_.rbegin(), full_.rend(), [&](const Content& full) {
      return full.copies == content.copies && full.matrices && !full.tied;
    });
    if (content.matrices && content.padded && before != full_.rend()) {
      Content both = *before;
      both.units.insert(both.units.end(), content.units.begin(), content.units.end());
      const int shards = shards_.of(content.copies);
      const auto length = [&](const Content& one) { return longest_of(share_out(one.units, shards)) * shards; };
      const std::int64_t saved = length(*before) + length(content) - length(both);
      if (static_cast<double>(saved) > kMostPadding * static_cast<double>(both.room())) {
        *before = both;
        return;
      }
    }
    full_.push_back(std::move(content));
  }

  void place(const Content& content) {
    const std::int64_t first = buckets_.empty() ? 0 : buckets_.back().end();
    Bucket bucket{{first, 0}, content.copies, content.units.front().first};
    const int shards = shards_.of(content.copies);
    if (!content.matrices) {
      bucket.count = round_up(put(content.units, first).count, kFlatAlignment * shards);
    } else {
      const std::vector<CopyUnits> parts = parts_by_copy(content, shards);
      bucket.equal_parts = content.padded;
      const std::int64_t longest = longest_of(parts);
      std::int64_t next = first;
      for (const CopyUnits& part : parts) {
        bucket.owned.push_back(put(part.units, next));
        next += content.padded ? longest : part.room;
      }
      bucket.count = next - first;
    }
    buckets_.push_back(std::move(bucket));
  }

  /// Parts of the most work go to the copies that have least so far. A tied matrix is the first copy's on every stage.
  std::vector<CopyUnits> parts_by_copy(const Content& content, int shards) {
    std::vector<CopyUnits> parts = share_out(content.units, shards);
    if (content.tied) return parts;
    std::stable_sort(parts.begin(), parts.end(),
                     [](const CopyUnits& a, const CopyUnits& b) { return a.cost > b.cost; });
    std::vector<double>& costs = group_of(content.copies).costs;
    costs.resize(parts.size());
    std::vector<std::size_t> copies(parts.size());
    std::iota(copies.begin(), copies.end(), std::size_t{0});
    std::stable_sort(copies.begin(), copies.end(), [&](std::size_t a, std::size_t b) { return costs[a] < costs[b]; });
    std::vector<CopyUnits> by_copy(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      costs[copies[i]] += parts[i].cost;
      by_copy[copies[i]] = std::move(parts[i]);
    }
    return by_copy;
  }

  /// Units one after the other in the order of declaration.
  FlatRange put(std::vector<Unit> units, std::int64_t first) {
    std::sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.first < b.first; });
    std::int64_t next = first;
    for (const Unit& unit : units) {
      std::int64_t place = next;
      for (int i = unit.first; i < unit.first + unit.count; ++i) {
        Parameter& parameter = parameters_[static_cast<std::size_t>(i)];
        parameter.first = place;
        place += parameter.elements();
      }
      next += unit.room;
    }
    return {first, next - first};
  }

  std::vector<Parameter>& parameters_;
  Shards shards_;
  std::int64_t enough_;
  Group dense_, experts_;
  std::vector<Content> full_;
  std::vector<Bucket> buckets_;
};

}  // namespace

std::vector<Bucket> lay_out_matrix_shards(std::vector<Parameter>& parameters, Shards shards, std::int64_t enough) {
  return MatrixShards(parameters, shards, enough).lay_out();
}

}  // namespace megatron
