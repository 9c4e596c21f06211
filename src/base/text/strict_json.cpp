#include "base/text/strict_json.h"

#include <unordered_set>
#include <vector>

#include "base/core/error.h"
#include "base/text/text.h"

namespace megatron {

namespace {

using nlohmann::json;

/// Looks at the events of a text, without building anything.
class StrictnessCheck : public nlohmann::json_sax<json> {
 public:
  explicit StrictnessCheck(std::size_t deepest) : deepest_(deepest) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& key) override {
    verify(keys_.back().insert(key).second, ErrorKind::checkpoint, "\"{}\" is there twice", printable(key));
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    fail(ErrorKind::checkpoint, "it is not JSON ({})", error.what());
  }

 private:
  bool enter() {
    verify(keys_.size() < deepest_, ErrorKind::checkpoint, "its JSON is nested too deeply");
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  std::size_t deepest_;
  std::vector<std::unordered_set<std::string>> keys_;  // for each open object or list
};

}  // namespace

json parse_strict_json(const std::string& text, std::size_t deepest) {
  // The parser would take it for the end, and leave the bytes after it unread.
  const std::size_t zero = text.find('\0');
  verify(zero == std::string::npos, ErrorKind::checkpoint, "it is not JSON (byte {} is zero)", zero);
  StrictnessCheck check(deepest);
  json::sax_parse(text, &check);
  return json::parse(text);
}

}  // namespace megatron
