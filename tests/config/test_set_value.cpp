// One key from a text: the same value, and the same words where it is wrong, as --set has.
#include "config/parse/set_value.h"

#include "config_support.h"

using namespace megatron;
using namespace megatron::test;

TEST_CASE("a typed value is read and refused as --set does it", "[config]") {
  const std::pair<const char*, const char*> typed[] = {{"model.layers", "6"},
                                                       {"model.layers", "1_2"},
                                                       {"model.layers", "0"},
                                                       {"model.layers", "six"},
                                                       {"model.layers", "1.5"},
                                                       {"model.layers", "99999999999999999999"},
                                                       {"model.layers", "1\nx = 2"},
                                                       {"model.layers", "[[[[[[[[[[[[[[[[[[["},
                                                       {"model.activation", "relu"},
                                                       {"model.activation", "\"relu\""},
                                                       {"model.activation", "rely"},
                                                       {"model.bias", "true"},
                                                       {"model.bias", "yes"},
                                                       {"model.preset", "gpt5"},
                                                       {"run.directory", "runs/a b#c"},
                                                       {"run.directory", "${NOT_THERE_AT_ALL}/x"},
                                                       {"data.train", "007"},
                                                       {"data.train", "[\"a\", \"b\"]"},
                                                       {"data.train", "[]"},
                                                       {"train.evaluate_every", "epoch"},
                                                       {"learning_rate.peak", "1e-3"},
                                                       {"learning_rate.peak", "1e-60"},
                                                       {"optimizer.betas", "[0.9, 0.95]"},
                                                       {"optimizer.betas", "0.9"}};
  int wrong = 0;
  for (const auto& [name, text] : typed) {
    CAPTURE(name, text);
    const std::string full = name;
    const Key* key = find_key(full.substr(0, full.find('.')), full.substr(full.find('.') + 1));
    REQUIRE(key != nullptr);
    Config config = parse_small();
    const std::string problem = set_value(*key, text, config);
    Config expected = parse_small();
    const std::string error = error_of([&] { expected = parse_small({full + "=" + text}); });
    if (problem.empty()) {
      CHECK(error.empty());
      CHECK(config == expected);
    } else {
      ++wrong;
      CHECK(error.substr(error.find(": error: ") + 9) == problem);
      CHECK(config == expected);  // as it was
    }
  }
  CHECK(wrong == 13);
}
