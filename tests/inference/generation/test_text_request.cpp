// Requests of --serve-stdio: defaults, every key, and what is refused.
#include "inference/generation/text_request.h"

#include "support/catch.h"
#include "support/memory_limit.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;
using namespace std::string_literals;

namespace {

TextRequest parse(const std::string& line, const TextOptions& defaults = {}, bool beams = false) {
  nlohmann::json id;
  return parse_request(line, defaults, beams, id);
}

}  // namespace

TEST_CASE("text request: what it does not say is as on the command line") {
  TextOptions defaults;
  defaults.sampling.top_k = 7;
  defaults.stops = {"x"};
  defaults.truncate = true;
  const TextRequest request = parse(R"({"prompt": "Once"})", defaults);
  CHECK(request.prompt == "Once");
  CHECK(request.id.is_null());
  CHECK_FALSE(request.stream);
  CHECK(request.options.sampling.top_k == 7);
  CHECK(request.options.stops == defaults.stops);
  CHECK(request.options.truncate);
}

TEST_CASE("text request: every key") {
  const TextRequest request = parse(
      R"({"id": "a", "prompt": "ä\n", "stream": true, "samples": 3, "logprobs": 2, "stop": ["x", "y"],
          "truncate": true, "max_new_tokens": 5, "temperature": 0.5, "top_k": 4, "top_p": 0.9, "top_p_decay": 0.8,
          "top_p_bound": 0.1, "repetition_penalty": 1.2, "seed": 18446744073709551615})");
  CHECK(request.id == "a");
  CHECK(request.prompt == "ä\n");
  CHECK(request.stream);
  CHECK(request.options.samples == 3);
  CHECK(request.options.likeliest == 2);
  CHECK(request.options.stops == std::vector<std::string>{"x", "y"});
  CHECK(request.options.truncate);
  const SamplingOptions& sampling = request.options.sampling;
  CHECK(sampling.max_new_tokens == 5);
  CHECK(sampling.temperature == 0.5);
  CHECK(sampling.top_k == 4);
  CHECK(sampling.top_p == 0.9);
  CHECK(sampling.top_p_decay == 0.8);
  CHECK(sampling.top_p_bound == 0.1);
  CHECK(sampling.repetition_penalty == 1.2);
  CHECK(sampling.seed == ~std::uint64_t{0});
  CHECK(parse(R"({"prompt": "", "stop": "x"})").options.stops == std::vector<std::string>{"x"});
  CHECK(parse(R"({"prompt": "", "greedy": true})").options.sampling.top_k == 1);
  TextOptions greedy;
  greedy.sampling.top_k = 1;
  CHECK(parse(R"({"prompt": "", "greedy": false})", greedy).options.sampling.top_k == 0);
  TextOptions nucleus;
  nucleus.sampling.top_p = 0.9;
  nucleus.sampling.top_p_bound = 0.5;
  CHECK(parse(R"({"prompt": "", "top_p": 0.3})", nucleus).options.sampling.top_p_bound == 0.3);
}

TEST_CASE("text request: what is refused, and why") {
  const auto refused = [](const std::string& line, ErrorKind kind, const std::vector<std::string>& words) {
    CAPTURE(line);
    require_error(kind, words, [&] { parse(line); });
  };
  const ErrorKind data = ErrorKind::data, configuration = ErrorKind::configuration;
  refused("", data, {"one JSON object per line"});
  refused("{\"prompt\": \"a\"", data, {"one JSON object per line"});
  refused("{\"prompt\": \"\xff\"}", data, {"one JSON object per line"});
  refused("[1]", data, {"one JSON object per line"});
  refused("{}", data, {"needs a \"prompt\""});
  refused(R"({"prompt": 3})", data, {"\"prompt\": a string"});
  refused(R"({"prompt": "", "max_tokens": 3})", data, {"unknown key \"max_tokens\""});
  refused(R"({"prompt": "", "temprature": 3})", data, {"did you mean \"temperature\"?"});
  refused(R"({"prompt": "", "top_k": 1.5})", data, {"\"top_k\": a whole number"});
  refused(R"({"prompt": "", "seed": -1})", data, {"\"seed\""});
  refused(R"({"prompt": "", "stop": [3]})", data, {"\"stop\""});
  refused(R"({"prompt": "", "stream": 1})", data, {"\"stream\": true or false"});
  refused(R"({"prompt": "", "id": [1]})", data, {"\"id\""});
  refused(R"({"prompt": "", "temperature": 0})", configuration, {"\"temperature\": more than 0"});
  refused(R"({"prompt": "", "temperature": 1e999})", data, {"\"temperature\": a smaller number"});
  refused(R"({"prompt": "", "top_p": 1.1})", configuration, {"\"top_p\": between 0 and 1"});
  refused(R"({"prompt": "", "max_new_tokens": -1})", configuration, {"\"max_new_tokens\""});
  refused(R"({"prompt": "", "max_new_tokens": 0})", configuration, {"\"max_new_tokens\": 1 or more"});
  refused(R"({"prompt": "", "max_new_tokens": 18446744073709551615})", configuration, {"\"max_new_tokens\""});
  refused(R"({"prompt": "", "samples": 0})", configuration, {"\"samples\""});
  refused(R"({"prompt": "", "stop": ""})", configuration, {"\"stop\": at least one character"});
  refused(R"({"prompt": "", "greedy": true, "top_p": 0.5})", configuration, {"\"greedy\" excludes"});
  refused(std::string(1 << 20, '['), data, {"one JSON object per line"});
  refused(R"({"prompt": "a", "top_k": 1, "prompt": "b"})", data, {"\"prompt\" is there twice"});
  refused("{\"prompt\": \"a\"}\0"s, data, {"byte 16: expected nothing more, found byte 0x00"});
  refused("{\"" + std::string(100, 'x') + "\": 1}", data, {"at most 64 keys of at most 64 bytes"});
  refused("{\"prompt\": \"\", \"stop\": [\"" + std::string(70000, 'x') + "\"]}", data, {"\"stop\": a list of more"});
}

#ifndef MEGATRON_TEST_SANITIZED
TEST_CASE("text request: deep and long lines cost no more than their length") {
  const MemoryLimit limit(std::size_t{200} << 20);
  const auto refused = [](const std::string& line, const std::string& words) {
    require_error(ErrorKind::data, {words}, [&] { parse(line); });
  };
  constexpr std::size_t kMany = std::size_t{16} << 20;
  const std::string deep(kMany, '[');
  refused(deep, "expected an object");
  refused("{\"prompt\": " + deep, "found the end");
  std::string closed = "{\"prompt\": ";
  closed += deep.substr(0, kMany / 2);
  closed += std::string(kMany / 2, ']');
  closed += '}';
  refused(closed, "\"prompt\": a list");
}
#endif

TEST_CASE("text request: an id comes back as it was given, or is refused") {
  nlohmann::json id;
  for (const std::string text : {"12345678901234567890", "-5", "0.5", "\"\xc3\xa4\"", "null", "true"}) {
    parse_request("{\"prompt\": \"\", \"id\": " + text + "}", {}, false, id);
    CHECK(id.dump() == text);
  }
  for (const std::string text : {"12345678901234567890123", "1e3", "0.10", "-0", "0.12345678901234567890"}) {
    require_error(ErrorKind::data, {"\"id\": " + text + " would come back as", "string"},
                  [&] { parse_request("{\"id\": " + text + ", \"prompt\": \"\"}", {}, false, id); });
  }
  require_error(ErrorKind::data, {"\"id\": at most 1024 bytes"},
                [&] { parse_request("{\"id\": \"" + std::string(2000, 'x') + "\"}", {}, false, id); });
}

TEST_CASE("text request: the number of a refused one is known") {
  nlohmann::json id;
  require_error(ErrorKind::data, {"unknown key"}, [&] { parse_request(R"({"id": 5, "x": 1})", {}, false, id); });
  CHECK(id == 5);
}

TEST_CASE("text request: beams have no use for the keys of sampling") {
  CHECK(parse(R"({"id": 1, "prompt": "a", "max_new_tokens": 3, "truncate": true})", {}, true).prompt == "a");
  require_error(ErrorKind::configuration, {"\"seed\"", "beams"},
                [] { parse(R"({"prompt": "a", "seed": 3})", {}, true); });
}
