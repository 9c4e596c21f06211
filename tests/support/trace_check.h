// The rules of the trace event format, checked on a whole file: events are complete, slices of a track lie inside each
// other, times rise, arrows leave a slice and arrive in a later one, to within the clocks' error.
#pragma once

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/text/strict_json.h"

namespace megatron::test {

struct CheckedTrace {
  struct Slice {
    std::int64_t begin = 0, end = 0;
    std::string name, category;
  };
  nlohmann::json facts;
  std::map<std::int64_t, std::string> processes;              // names
  std::map<std::int64_t, std::vector<Slice>> slices;          // by process, in the order of their beginnings
  std::vector<std::pair<std::int64_t, std::int64_t>> arrows;  // from process, to process
  std::set<std::string> arrives_in;                           // names of slices, without numbers
  int under_way = 0;                                          // operations

  /// Slices of this process whose name is `name` or begins with it and a space.
  std::int64_t count(std::int64_t process, const std::string& name) const {
    std::int64_t number = 0;
    const auto found = slices.find(process);
    if (found == slices.end()) return 0;
    for (const Slice& slice : found->second) number += slice.name == name || slice.name.starts_with(name + " ");
    return number;
  }
  /// Whether one of `inner` lies within one of `outer` everywhere.
  bool within(std::int64_t process, const std::string& inner, const std::string& outer) const {
    bool all = count(process, inner) > 0;
    for (const Slice& slice : slices.at(process)) {
      if (slice.name != inner && !slice.name.starts_with(inner + " ")) continue;
      bool found = false;
      for (const Slice& other : slices.at(process)) {
        const bool named = other.name == outer || other.name.starts_with(outer + " ");
        found |= named && other.begin <= slice.begin && slice.end <= other.end;
      }
      all &= found;
    }
    return all;
  }
};

/// Throws std::runtime_error that says what is wrong.
class TraceCheck {
 public:
  static CheckedTrace of(const std::string& text) {
    TraceCheck check;
    check.read(parse_strict_json(text, 4));
    return check.result_;
  }

 private:
  using Json = nlohmann::json;
  struct End {
    std::int64_t process = 0, time = 0;
  };

  static void require(bool good, const std::string& what, const Json& event = {}) {
    if (!good) throw std::runtime_error(what + ": " + event.dump());
  }
  static std::int64_t nanoseconds(const Json& number) { return std::llround(1000 * number.get<double>()); }

  void read(const Json& all) {
    result_.facts = all.at("otherData");
    for (const Json& event : all.at("traceEvents")) add(event);
    for (const auto& [process, slices] : result_.slices) {
      require(result_.processes.contains(process), "a process without a name");
      require(threads_.contains(process), "a thread without a name");
    }
    for (const auto& [number, leaves] : leaves_) {
      require(arrives_.contains(number), "an arrow that does not arrive");
      const End& arrives = arrives_.at(number);
      const std::int64_t error = clock_error(leaves.process) + clock_error(arrives.process);
      require(leaves.time <= arrives.time + error, "an arrow that arrives before it leaves");
      result_.arrows.emplace_back(leaves.process, arrives.process);
    }
    require(arrives_.size() == leaves_.size(), "an arrow that comes from nowhere");
    require(open_.empty(), "an operation that stays under way");
    require(arriving_.empty(), "an arrow that arrives where nothing follows");
  }
  std::int64_t clock_error(std::int64_t process) const {
    const auto errors = result_.facts.find("clock_error_ns");
    return errors == result_.facts.end() ? 0 : errors->at(static_cast<std::size_t>(process)).get<std::int64_t>();
  }

  void add(const Json& event) {
    const std::string phase = event.at("ph");
    const std::int64_t process = event.at("pid");
    if (phase == "M") return add_name(event, process);
    const std::int64_t time = nanoseconds(event.at("ts"));
    require(time >= 0, "a time before the beginning", event);
    require(!event.at("name").get<std::string>().empty() && event.at("cat").is_string(), "no name", event);
    if (phase == "b" || phase == "e") return add_under_way(event, process, time, phase == "b");
    std::int64_t& last = last_[process];
    require(time >= last, "a time that goes back", event);
    last = time;
    if (phase == "X") return add_slice(event, process, time);
    require(phase == "s" || phase == "f", "an unknown kind of event", event);
    const std::int64_t number = event.at("id");
    if (phase == "f") {
      require(!event.contains("bp"), "an arrow to the slice around its end, which may have begun too early", event);
      require(arrives_.try_emplace(number, End{process, time}).second, "a number twice", event);
      arriving_[process] = time;
      return;
    }
    const std::vector<CheckedTrace::Slice>& slices = result_.slices[process];
    require(!slices.empty() && slices.back().begin <= time && time <= slices.back().end, "an arrow outside", event);
    require(leaves_.try_emplace(number, End{process, time}).second, "a number twice", event);
  }
  void add_name(const Json& event, std::int64_t process) {
    const std::string what = event.at("name");
    if (what == "process_name") result_.processes[process] = event.at("args").at("name");
    if (what == "thread_name") threads_.insert(process);
  }
  void add_slice(const Json& event, std::int64_t process, std::int64_t time) {
    require(event.at("tid") == 1, "another thread", event);
    const std::int64_t end = time + nanoseconds(event.at("dur"));
    require(end >= time, "a slice that ends before it begins", event);
    std::vector<std::int64_t>& around = around_[process];
    while (!around.empty() && around.back() <= time) around.pop_back();
    require(around.empty() || end <= around.back(), "a slice that ends after the one around it", event);
    around.push_back(end);
    const std::string name = event.at("name");
    if (const auto arriving = arriving_.find(process); arriving != arriving_.end()) {
      require(arriving->second < time, "an arrow that arrives when the next slice has begun", event);
      result_.arrives_in.insert(name.substr(0, name.find(' ')));
      arriving_.erase(arriving);
    }
    result_.slices[process].push_back({time, end, name, event.at("cat")});
  }
  void add_under_way(const Json& event, std::int64_t process, std::int64_t time, bool begins) {
    const auto key = std::pair(process, event.at("id2").at("local").get<std::string>());
    if (begins) {
      require(open_.try_emplace(key, event).second, "an operation begins twice", event);
      return;
    }
    const auto begun = open_.find(key);
    require(begun != open_.end() && begun->second.at("name") == event.at("name"), "an end without a beginning", event);
    require(nanoseconds(begun->second.at("ts")) <= time, "an operation that ends before it begins", event);
    open_.erase(begun);
    ++result_.under_way;
  }

  CheckedTrace result_;
  std::set<std::int64_t> threads_;
  std::map<std::int64_t, std::int64_t> last_;                 // time of a process' track
  std::map<std::int64_t, std::vector<std::int64_t>> around_;  // ends of the slices that are open there
  std::map<std::int64_t, End> leaves_, arrives_;              // by an arrow's number
  std::map<std::int64_t, std::int64_t> arriving_;             // times of arrows to a process' next slice
  std::map<std::pair<std::int64_t, std::string>, Json> open_;
};

}  // namespace megatron::test
