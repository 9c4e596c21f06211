// Results as JSON, and on their way between ranks.
#include "distributed/comm/gather.h"
#include "inference/generation/text_result.h"
#include "support/catch.h"

using namespace megatron;
using nlohmann::json;

namespace {

Generated some_text() {
  return {.tokens = {5, 300},
          .ending = Ending::stop_text,
          .log_probabilities = {-0.1, -2.0 / 3},
          .likeliest = {{{5, -0.1}, {7, -3}}, {{9, -0.5}, {300, -2.0 / 3}}},
          .score = 1.0 / 3};
}

}  // namespace

TEST_CASE("text result: a line of JSON has what was asked for") {
  const TextResult result{.prompt = 3, .sample = 1, .text = "a\xC3\n", .made = some_text()};
  const auto members = [](const nlohmann::ordered_json& line) {
    std::vector<std::string> names;
    for (const auto& [name, value] : line.items()) names.push_back(name);
    return names;
  };
  const auto plain = result_json(result, {});
  CHECK(members(plain) == std::vector<std::string>{"sample", "text", "tokens", "finished", "logprobs"});
  CHECK(plain.at("text") == "a\xEF\xBF\xBD\n");
  CHECK(plain.at("finished") == true);
  CHECK(json_line(plain).back() == '\n');
  CHECK(json::parse(json_line(plain)).at("logprobs").at(1).get<double>() == -2.0 / 3);
  const auto all = result_json(result, {.log_probabilities = false, .likeliest = true, .score = true});
  CHECK(members(all) == std::vector<std::string>{"sample", "text", "tokens", "finished", "score", "top_logprobs"});
  CHECK(all.at("top_logprobs").dump() == "[[[5,-0.1],[7,-3.0]],[[9,-0.5],[300,-0.6666666666666666]]]");
  TextResult cut = result;
  cut.made.ending = Ending::length;
  CHECK(result_json(cut, {}).at("finished") == false);
}

TEST_CASE("text result: scores of a prompt, token by token") {
  Generated scored = some_text();
  const std::vector<std::int32_t> tokens = {256, 5, 300};
  CHECK(scores_json(scored, tokens, true, {}).dump() == R"({"tokens":[5,300],"logprobs":[-0.1,-0.6666666666666666]})");
  CHECK(scores_json(scored, tokens, false, {.likeliest = true}).dump() ==
        R"({"tokens":[256,5,300],"logprobs":[null,-0.1,-0.6666666666666666],)"
        R"("top_logprobs":[null,[[5,-0.1],[7,-3.0]],[[9,-0.5],[300,-0.6666666666666666]]]})");
}

TEST_CASE("text result: packed and unpacked it is the same to the bit") {
  using Results = std::vector<NumberedResult>;
  const auto results = unpacked<Results>(packed(Results{{.job = 4, .made = some_text()}, {.job = 9, .made = {}}}));
  REQUIRE(results.size() == 2);
  const Generated want = some_text(), &made = results[0].made;
  CHECK(results[0].job == 4);
  CHECK(results[1].job == 9);
  CHECK(results[1].made.tokens.empty());
  CHECK(made.tokens == want.tokens);
  CHECK(made.ending == want.ending);
  CHECK(made.log_probabilities == want.log_probabilities);
  CHECK(made.score == want.score);
  REQUIRE(made.likeliest.size() == 2);
  CHECK(made.likeliest[1][1].token == 300);
  CHECK(made.likeliest[1][1].value == -2.0 / 3);
}
