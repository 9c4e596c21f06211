#include "generation/text_request.h"

#include <functional>
#include <vector>

#include "base/error.h"
#include "config/suggestions.h"

namespace megatron {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(std::string_view key, const char* wanted) {
  fail(ErrorKind::data, "\"{}\": {}", key, wanted);
}

std::int64_t integer_of(std::string_view key, const json& value) {
  if (!value.is_number_integer()) refuse(key, "a whole number");
  // What does not fit is refused with the range of the option.
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

}  // namespace

TextRequest parse_request(std::string_view line, const TextOptions& defaults, bool beams, nlohmann::json& id) {
  // The parser would take it for the end of the line.
  verify(line.find('\0') == std::string_view::npos, ErrorKind::data,
         "a request is one JSON object per line, without zero bytes");
  json object;
  try {
    object = json::parse(line);
  } catch (const json::exception& error) {
    fail(ErrorKind::data, "a request is one JSON object per line: {}", error.what());
  }
  verify(object.is_object(), ErrorKind::data, "a request is one JSON object per line");
  if (const auto found = object.find("id"); found != object.end()) {
    verify(!found->is_structured(), ErrorKind::data, "\"id\": a string or a number");
    id = *found;
  }
  TextRequest request{.id = id, .prompt = {}, .options = defaults};
  for (const auto& [name, value] : object.items()) {
    const RequestKey& key = key_of(name);
    verify(!beams || key.for_beams, ErrorKind::configuration, "\"{}\" has no meaning for beams (--beams)", name);
    key.set(request, name, value);
  }
  verify(object.contains("prompt"), ErrorKind::data, "a request needs a \"prompt\"");
  verify(!object.contains("greedy") || !object.at("greedy").get<bool>() ||
             !(object.contains("temperature") || object.contains("top_k") || object.contains("top_p")),
         ErrorKind::configuration, "\"greedy\" excludes \"temperature\", \"top_k\" and \"top_p\"");
  // A request's nucleus without a bound does not take the command line's.
  SamplingOptions& sampling = request.options.sampling;
  if (object.contains("top_p") && !object.contains("top_p_bound") && sampling.top_p_bound > sampling.top_p) {
    sampling.top_p_bound = sampling.top_p;
  }
  check_text_options(request.options, Spelling::json);
  verify(sampling.max_new_tokens > 0, ErrorKind::configuration, "\"max_new_tokens\": 1 or more");
  return request;
}

}  // namespace megatron
