#include "inference/generation/text_request.h"

#include <map>
#include <vector>

#include "base/core/error.h"
#include "base/text/json_reader.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "config/schema/suggestions.h"

namespace megatron {

namespace {

using nlohmann::json;

constexpr std::size_t kMostMembers = 64, kLongestKey = 64, kLongestId = 1024, kLongestList = std::size_t{64} << 10;

[[noreturn]] void refuse(std::string_view key, const char* wanted) {
  fail(ErrorKind::data, "\"{}\": {}", key, wanted);
}

std::int64_t integer_of(std::string_view key, const json& value) {
  if (!value.is_number_integer()) refuse(key, "a whole number");
  // A number that does not fit is refused with the range of the option.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{1} << 62) return std::int64_t{1} << 62;
  return value.get<std::int64_t>();
}

double number_of(std::string_view key, const json& value) {
  if (!value.is_number()) refuse(key, "a number");
  return value.get<double>();
}

bool flag_of(std::string_view key, const json& value) {
  if (!value.is_boolean()) refuse(key, "true or false");
  return value.get<bool>();
}

std::string text_of(std::string_view key, const json& value) {
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

std::vector<std::string> texts_of(std::string_view key, const json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) refuse(key, "a string or a list of strings");
  std::vector<std::string> texts;
  for (const json& text : value) {
    if (!text.is_string()) refuse(key, "a string or a list of strings");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

struct RequestKey {
  std::string_view name;
  void (*set)(TextRequest& request, std::string_view key, const json& value);
  bool for_beams = false;
};

const RequestKey kKeys[] = {
    {"id", [](TextRequest&, std::string_view, const json&) {}, true},
    {"prompt", [](TextRequest& r, std::string_view key, const json& v) { r.prompt = text_of(key, v); }, true},
    {"stream", [](TextRequest& r, std::string_view key, const json& v) { r.stream = flag_of(key, v); }},
    {"samples", [](TextRequest& r, std::string_view key, const json& v) { r.options.samples = integer_of(key, v); }},
    {"logprobs", [](TextRequest& r, std::string_view key, const json& v) { r.options.likeliest = integer_of(key, v); }},
    {"stop", [](TextRequest& r, std::string_view key, const json& v) { r.options.stops = texts_of(key, v); }},
    {"truncate", [](TextRequest& r, std::string_view key, const json& v) { r.options.truncate = flag_of(key, v); },
     true},
    {"max_new_tokens",
     [](TextRequest& r, std::string_view key, const json& v) {
       r.options.sampling.max_new_tokens = integer_of(key, v);
     },
     true},
    {"temperature",
     [](TextRequest& r, std::string_view key, const json& v) { r.options.sampling.temperature = number_of(key, v); }},
    {"top_k",
     [](TextRequest& r, std::string_view key, const json& v) { r.options.sampling.top_k = integer_of(key, v); }},
    {"top_p",
     [](TextRequest& r, std::string_view key, const json& v) { r.options.sampling.top_p = number_of(key, v); }},
    {"top_p_decay",
     [](TextRequest& r, std::string_view key, const json& v) { r.options.sampling.top_p_decay = number_of(key, v); }},
    {"top_p_bound",
     [](TextRequest& r, std::string_view key, const json& v) { r.options.sampling.top_p_bound = number_of(key, v); }},
    {"repetition_penalty", [](TextRequest& r, std::string_view key,
                              const json& v) { r.options.sampling.repetition_penalty = number_of(key, v); }},
    {"seed",
     [](TextRequest& r, std::string_view key, const json& v) {
       if (!v.is_number_unsigned()) refuse(key, "a whole number, 0 or more");
       r.options.sampling.seed = v.get<std::uint64_t>();
     }},
    {"greedy",
     [](TextRequest& r, std::string_view key, const json& v) {
       if (flag_of(key, v)) {
         r.options.sampling.top_k = 1;
       } else if (r.options.sampling.top_k == 1) {
         r.options.sampling.top_k = 0;
       }
     }},
};

const RequestKey& key_of(const std::string& name) {
  std::vector<std::string> names;
  for (const RequestKey& key : kKeys) {
    if (key.name == name) return key;
    names.emplace_back(key.name);
  }
  const std::string nearest = suggest_choice(name, names);
  fail(ErrorKind::data, "unknown key \"{}\"{}", name, nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?");
}

/// A value of valid JSON. Of lists, which `stop` alone has, only short ones are read.
json value_of(std::string_view key, std::string_view text) {
  const bool list = text.front() == '[' || text.front() == '{';
  verify(!list || text.size() <= kLongestList, ErrorKind::data, "\"{}\": a list of more than {} KiB", key,
         kLongestList >> 10);
  try {
    return json::parse(text);
  } catch (const json::exception&) {  // a number beyond all that a double holds
    refuse(key, "a smaller number");
  }
}

/// The part that answers repeat, exactly as it was given.
json id_of(std::string_view text) {
  verify(text.size() <= kLongestId, ErrorKind::data, "\"id\": at most {} bytes", kLongestId);
  const json id = value_of("id", text);
  verify(!id.is_structured(), ErrorKind::data, "\"id\": a string or a number");
  verify(!id.is_number() || id.dump() == text, ErrorKind::data, "\"id\": {} would come back as {}; give it as a string",
         text, id.dump());
  return id;
}

/// Members by name, with their values as they are written. Nothing is built of what the line holds, however deep it is.
using Members = std::map<std::string, std::string_view, std::less<>>;

Members members_of(std::string_view line, json& id) {
  const std::size_t bad = first_invalid_utf8(line);
  verify(bad == line.size(), ErrorKind::data, "a request is one JSON object per line, and UTF-8: byte {} is not",
         bad + 1);
  Members members;
  JsonReader reader(line);
  try {
    visit_object(reader, "an object", [&](std::string_view key) {
      verify(key.size() <= kLongestKey && members.size() < kMostMembers, ErrorKind::data,
             "a request has at most {} keys of at most {} bytes", kMostMembers, kLongestKey);
      const auto [member, added] = members.try_emplace(std::string(key));
      verify(added, ErrorKind::data, "\"{}\" is there twice", printable(key));
      const std::size_t begin = reader.position();
      reader.skip_value();
      member->second = line.substr(begin, reader.position() - begin);
      if (member->first == "id") id = id_of(member->second);
    });
    reader.expect_end();
  } catch (const JsonError& error) {
    fail(ErrorKind::data, "a request is one JSON object per line: byte {}: {}", error.at + 1, error.reason);
  }
  return members;
}

}  // namespace

TextRequest parse_request(std::string_view line, const TextOptions& defaults, bool beams, nlohmann::json& id) {
  const Members members = members_of(line, id);
  TextRequest request{.id = id, .prompt = {}, .options = defaults};
  for (const auto& [name, value] : members) {
    const RequestKey& key = key_of(name);
    verify(!beams || key.for_beams, ErrorKind::configuration, "\"{}\" has no meaning for beams (--beams)", name);
    key.set(request, name, value_of(name, value));
  }
  verify(members.contains("prompt"), ErrorKind::data, "a request needs a \"prompt\"");
  const bool greedy = members.contains("greedy") && members.at("greedy") == "true";
  verify(!greedy || !(members.contains("temperature") || members.contains("top_k") || members.contains("top_p")),
         ErrorKind::configuration, "\"greedy\" excludes \"temperature\", \"top_k\" and \"top_p\"");
  // A request's nucleus without a bound does not take the command line's.
  SamplingOptions& sampling = request.options.sampling;
  if (members.contains("top_p") && !members.contains("top_p_bound") && sampling.top_p_bound > sampling.top_p) {
    sampling.top_p_bound = sampling.top_p;
  }
  check_text_options(request.options, Spelling::json);
  verify(sampling.max_new_tokens > 0, ErrorKind::configuration, "\"max_new_tokens\": 1 or more");
  return request;
}

}  // namespace megatron
