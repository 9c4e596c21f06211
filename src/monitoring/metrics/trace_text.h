// A timeline as JSON in the trace event format, which https://ui.perfetto.dev and chrome://tracing open: slices on the
// tracks of threads, arrows between them, and operations under way. Knows the format, not what is drawn.
//
// Times are nanoseconds from the beginning of the picture, at least 0, and rise along a track as they are added.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/system/durable_file.h"

namespace megatron {

/// Where a slice lies: a thread of a process, by their numbers in the picture.
struct TraceTrack {
  std::int64_t process = 0, thread = 1;
};

struct TraceSlice {
  std::int64_t begin = 0, end = 0;
  std::string name, category;
  std::string arguments = {};  ///< the members of an object as JSON: "\"bytes\":512"; may be empty
};

/// The last time that belongs to it.
inline std::int64_t last_moment(const TraceSlice& slice) {
  return slice.end > slice.begin ? slice.end - 1 : slice.begin;
}

/// Grows event by event; each is a line that begins with a comma.
class TraceText {
 public:
  void name_process(std::int64_t process, std::string_view name);
  void name_thread(const TraceTrack& track, std::string_view name);
  void slice(const TraceTrack& track, const TraceSlice& slice);
  /// The arrow of this number leaves the slice that was added last, at a time within it.
  void arrow_leaves(const TraceTrack& track, std::int64_t time, std::int64_t number);
  /// It arrives at this time and points to the slice that is added next, which begins later: Perfetto reverses an arrow
  /// that points to a slice which began before the one that it leaves, as a wait for its message does.
  void arrow_arrives(const TraceTrack& track, std::int64_t time, std::int64_t number);
  /// Begin and end of an operation of this name under way, which may overlap with others; `number` tells those of a
  /// process apart.
  void under_way_begins(std::int64_t process, const TraceSlice& slice, std::int64_t number);
  void under_way_ends(std::int64_t process, const TraceSlice& slice, std::int64_t number);

  const std::string& text() const { return text_; }
  void clear() { text_.clear(); }

 private:
  void metadata(std::string_view what, const TraceTrack& track, std::string_view name);
  std::string text_;
};

/// The file, complete or not there: written under another name, and renamed by publish(). Errors: filesystem.
class TraceFile {
 public:
  /// `facts`: an object about the whole, which viewers show as the trace's metadata.
  TraceFile(OutputFile output, const nlohmann::json& facts);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void write(std::string_view events);  ///< all of TraceText::text(), or a piece of it
  void publish();

 private:
  void check() const;
  OutputFile output_;
  std::string temporary_;
  std::ofstream file_;
  bool first_ = true;
};

}  // namespace megatron
