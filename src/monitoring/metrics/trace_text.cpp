#include "monitoring/metrics/trace_text.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/core/error.h"
#include "base/system/durable_file.h"
#include "monitoring/metrics/json_fields.h"

namespace megatron {

namespace {

// The format's microseconds.
std::string microseconds(std::int64_t nanoseconds) {
  return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

std::string arguments(const TraceSlice& slice) {
  return slice.arguments.empty() ? "" : ",\"args\":{" + slice.arguments + "}";
}

}  // namespace

void TraceText::metadata(std::string_view what, const TraceTrack& track, std::string_view name) {
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"M\",\"name\":\"{}\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}", what,
                 track.process, track.thread, in_quotes(name));
}

void TraceText::name_process(std::int64_t process, std::string_view name) {
  metadata("process_name", {process}, name);
  fmt::format_to(
      std::back_inserter(text_),
      ",\n{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"tid\":1,\"args\":{{\"sort_index\":{0}}}}}",
      process);
}

void TraceText::name_thread(const TraceTrack& track, std::string_view name) {
  metadata("thread_name", track, name);
}

void TraceText::slice(const TraceTrack& track, const TraceSlice& slice) {
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{},\"name\":{},\"cat\":\"{}\"{}}}",
                 track.process, track.thread, microseconds(slice.begin), microseconds(slice.end - slice.begin),
                 in_quotes(slice.name), slice.category, arguments(slice));
}

void TraceText::arrow_leaves(const TraceTrack& track, std::int64_t time, std::int64_t number) {
  fmt::format_to(
      std::back_inserter(text_),
      ",\n{{\"ph\":\"s\",\"pid\":{},\"tid\":{},\"ts\":{},\"id\":{},\"name\":\"message\",\"cat\":\"message\"}}",
      track.process, track.thread, microseconds(time), number);
}

void TraceText::arrow_arrives(const TraceTrack& track, std::int64_t time, std::int64_t number) {
  fmt::format_to(
      std::back_inserter(text_),
      ",\n{{\"ph\":\"f\",\"pid\":{},\"tid\":{},\"ts\":{},\"id\":{},\"name\":\"message\",\"cat\":\"message\"}}",
      track.process, track.thread, microseconds(time), number);
}

void TraceText::under_way_begins(std::int64_t process, const TraceSlice& slice, std::int64_t number) {
  fmt::format_to(std::back_inserter(text_),
                 ",\n{{\"ph\":\"b\",\"pid\":{},\"tid\":1,\"ts\":{},\"id2\":{{\"local\":\"0x{:x}\"}},\"name\":{},"
                 "\"cat\":\"{}\"{}}}",
                 process, microseconds(slice.begin), number, in_quotes(slice.name), slice.category, arguments(slice));
}

void TraceText::under_way_ends(std::int64_t process, const TraceSlice& slice, std::int64_t number) {
  fmt::format_to(
      std::back_inserter(text_),
      ",\n{{\"ph\":\"e\",\"pid\":{},\"tid\":1,\"ts\":{},\"id2\":{{\"local\":\"0x{:x}\"}},\"name\":{},\"cat\":\"{}\"}}",
      process, microseconds(slice.end), number, in_quotes(slice.name), slice.category);
}

TraceFile::TraceFile(OutputFile output, const nlohmann::json& facts)
    : output_(std::move(output)), temporary_(temporary_name(output_.path)), file_(temporary_, std::ios::binary) {
  file_ << "{\"displayTimeUnit\":\"ms\",\n\"otherData\":"
        << facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << ",\n\"traceEvents\":[";
  check();
}

TraceFile::~TraceFile() {
  if (!temporary_.empty()) remove_quietly(temporary_);
}

void TraceFile::check() const {
  verify(file_.good(), ErrorKind::filesystem, "cannot write {}; make room, or check the folder's rights", temporary_);
}

void TraceFile::write(std::string_view events) {
  if (events.empty()) return;
  if (first_) events.remove_prefix(1);  // the comma
  first_ = false;
  file_ << events;
  check();
}

void TraceFile::publish() {
  file_ << "\n]}\n";
  file_.close();
  check();
  sync_path(temporary_);
  publish_output(temporary_, output_);
  temporary_.clear();
}

}  // namespace megatron
