// Texts from a tiny model: together on rank 0 whatever the layout, typed prompts, and requests of another program.
#include "inference/generation/conversation.h"
#include "support/byte_tokenizer.h"

#include <unistd.h>

#include <array>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/terminal/line_reader.h"
#include "inference/decoding/decoding.h"
#include "support/catch.h"

using namespace megatron;
using namespace megatron::test;
using nlohmann::json;

namespace {

constexpr std::int64_t kContext = 16;

const std::string& trained_run() {
  static const TrainedRun run([](ModelConfig& model) { model.vocab_size = 257; });
  return run.directory;
}

TextOptions options_of(std::int64_t tokens) {
  TextOptions options;
  options.sampling.max_new_tokens = tokens;
  return options;
}

/// `body` on every rank, with a decoder for any prompt.
void with_generator(const Layout& layout, const SearchOptions& search, std::int64_t samples,
                    const std::function<void(TextGenerator& generator)>& body) {
  const auto tokenizer = byte_tokenizer();
  const GenerationJob longest{.tokens = Tokens(static_cast<std::size_t>(kContext))};
  const DecoderSizes sizes = sizes_for(std::span(&longest, 1),
                                       generation_options(options_of(1), search, *tokenizer, {}), kContext, samples, 1);
  decode(trained_run(), layout, DType::f32, sizes, false, [&](Decoder& decoder) {
    TextGenerator generator(decoder, *tokenizer, decoder.grid().world());
    body(generator);
  });
}

std::vector<TextResult> texts_on(const Layout& layout, std::int64_t samples, const std::vector<GenerationJob>& jobs,
                                 const TextOptions& options, std::vector<std::string>* pieces = nullptr) {
  std::vector<TextResult> results;
  with_generator(layout, {}, samples, [&](TextGenerator& generator) {
    TextListeners listeners;
    if (pieces != nullptr) {
      pieces->resize(jobs.size());
      listeners.piece = [&](std::size_t job, const std::string& piece) { (*pieces)[job] += piece; };
    }
    std::vector<TextResult> all = generator.make(jobs, options, {}, listeners);
    if (generator.world().rank() == 0) results = std::move(all);
  });
  return results;
}

enum class Kind { serve, converse, chat };

const ChatTemplate kChat = {{{"system", "s", ";"}, {"user", "u", ";"}, {"assistant", "a", ";", true}}};

/// Text that a conversation with this input prints.
std::string said(const std::string& input, Kind kind, const TextOptions& options, const Layout& layout = {},
                 const SearchOptions& search = {}) {
  std::array<int, 2> ends{-1, -1};
  REQUIRE(::pipe(ends.data()) == 0);
  REQUIRE(::write(ends[1], input.data(), input.size()) == static_cast<ssize_t>(input.size()));
  ::close(ends[1]);
  std::string printed;
  InterruptFlag flag(kCtrlC);
  with_generator(layout, search, 2, [&](TextGenerator& generator) {
    const bool root = generator.world().rank() == 0;
    PromptEncoder encoder(generator.tokenizer(), {});
    LineReader reader(root ? ends[0] : -1);
    const Conversation conversation{.generator = generator,
                                    .encoder = encoder,
                                    .options = options,
                                    .search = search,
                                    .input = reader,
                                    .print = [&](const std::string& text) { printed += text; }};
    if (kind == Kind::serve) return serve(conversation);
    if (kind == Kind::chat) return chat(conversation, {.chat = kChat}, flag, "");
    converse(conversation, flag, "");
  });
  ::close(ends[0]);
  return printed;
}

std::vector<json> answers(const std::string& text) {
  std::vector<json> all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) all.push_back(json::parse(line));
  return all;
}

}  // namespace

TEST_CASE("texts: those of all data ranks come together, in the order of the jobs") {
  std::vector<GenerationJob> jobs;
  for (std::int32_t prompt = 0; prompt < 5; ++prompt) add_jobs(jobs, prompt, 2, {.tokens = {256, 'a' + prompt}});
  TextOptions options = options_of(6);
  options.likeliest = 2;
  const auto one = texts_on({}, 3, jobs, options);
  REQUIRE(one.size() == jobs.size());
  for (const Layout& layout : {Layout{.data = 3}, Layout{.tensor = 2, .pipeline = 2, .data = 2}}) {
    const auto several = texts_on(layout, 2, jobs, options);
    REQUIRE(several.size() == jobs.size());
    for (std::size_t job = 0; job < jobs.size(); ++job) {
      CHECK(several[job].prompt == jobs[job].prompt);
      CHECK(several[job].sample == jobs[job].sample);
      CHECK(several[job].text == one[job].text);
      CHECK(several[job].made.tokens == one[job].made.tokens);
      REQUIRE(several[job].made.likeliest.size() == one[job].made.likeliest.size());
      REQUIRE(several[job].made.log_probabilities.size() == one[job].made.tokens.size());
      CHECK(several[job].made.log_probabilities[0] == Approx(one[job].made.log_probabilities[0]).epsilon(1e-5));
    }
  }
}

TEST_CASE("texts: the pieces that are heard make the text, up to a stop text") {
  std::vector<GenerationJob> jobs;
  add_jobs(jobs, 0, 3, {.tokens = {256, 'x'}});
  TextOptions options = options_of(12);
  const auto free = texts_on({}, 3, jobs, options);
  // The middle of the first text, if no earlier one is the same.
  options.stops = {free[0].text.substr(4, 2)};
  std::vector<std::string> pieces;
  const auto stopped = texts_on({}, 3, jobs, options, &pieces);
  REQUIRE(stopped.size() == 3);
  CHECK(stopped[0].text == free[0].text.substr(0, free[0].text.find(options.stops[0])));
  CHECK(stopped[0].made.ending == Ending::stop_text);
  for (std::size_t job = 0; job < 3; ++job) CHECK(pieces[job] == stopped[job].text);
}

TEST_CASE("typed prompts: each line is continued, and a mistake ends nothing") {
  const TextOptions options = options_of(4);
  const std::string all = said("a\nthis line is longer than sixteen tokens\nb\n", Kind::converse, options);
  std::vector<GenerationJob> jobs;
  add_jobs(jobs, 0, 1, {.tokens = {256, 'a'}});
  add_jobs(jobs, 2, 1, {.tokens = {256, 'b'}});
  const auto texts = texts_on({}, 2, jobs, options);
  const std::string first = "a" + texts[0].text + "\n(the prompt: 40 tokens";
  CHECK(all.substr(0, first.size()) == first);
  CHECK(all.ends_with(")\nb" + texts[1].text + "\n"));
  CHECK(said("a\nthis line is longer than sixteen tokens\nb\n", Kind::converse, options, {.tensor = 2}) == all);
}

TEST_CASE("requests: a line of JSON each, and errors do not end the service") {
  const std::string input =
      "{\"id\": 1, \"prompt\": \"a\", \"samples\": 2}\n\n"
      "nonsense\n"
      "{\"id\": \"x\", \"prompt\": \"a\", \"top_k\": -1}\n"
      "{\"id\": 3, \"prompt\": \"this is longer than sixteen tokens\"}\n"
      "{\"id\": 4, \"prompt\": \"this is longer than sixteen tokens\", \"truncate\": true}\n"
      "{\"id\": 5, \"prompt\": \"a\", \"stream\": true, \"logprobs\": 2}";
  const auto all = answers(said(input, Kind::serve, options_of(4)));
  REQUIRE(all.size() >= 9);
  CHECK(all[0] == json{{"ready", true}, {"context", kContext}, {"vocab_size", 257}});
  CHECK(all[1].at("id") == 1);
  CHECK(all[1].at("sample") == 0);
  CHECK(all[2].at("sample") == 1);
  CHECK(all[1].at("tokens").size() == 4);
  CHECK(all[1].at("logprobs").size() == 4);
  CHECK_FALSE(all[1].contains("top_logprobs"));
  for (const std::size_t wrong : {3, 4}) {  // the empty line, and the nonsense
    CHECK(all[wrong].at("id").is_null());
    CHECK(all[wrong].at("kind") == "data");
  }
  CHECK(all[5].at("id") == "x");
  CHECK(all[5].at("kind") == "configuration");
  CHECK(all[6].at("error").get<std::string>().find("\"prompt\": 35 tokens") != std::string::npos);
  CHECK(all[7].at("id") == 4);
  CHECK(all[7].contains("text"));
  std::string streamed;
  for (std::size_t i = 8; i + 1 < all.size(); ++i) streamed += all[i].at("piece").get<std::string>();
  CHECK(all.back().at("id") == 5);
  CHECK(all.back().at("text") == streamed);
  CHECK(all.back().at("text") == all[1].at("text"));  // the same seed, and a prompt of its own
  CHECK(all.back().at("top_logprobs").at(0).size() == 2);
  CHECK(answers(said(input, Kind::serve, options_of(4), {.pipeline = 2})).size() == all.size());
}

TEST_CASE("requests: beams") {
  const auto all =
      answers(said("{\"prompt\": \"a\"}\n{\"prompt\": \"a\", \"seed\": 1}\n"
                   "{\"prompt\": \"a\", \"max_new_tokens\": 17}\n",
                   Kind::serve, options_of(4), {}, {.beams = 2}));
  REQUIRE(all.size() == 4);
  CHECK(all[1].at("score").get<double>() < 0);
  CHECK(all[2].at("kind") == "configuration");
  CHECK(all[3].at("kind") == "configuration");
}

TEST_CASE("chat: answers know all messages; the oldest leave a full context") {
  TextOptions options = options_of(3);
  options.sampling.top_k = 1;
  std::string expected;
  with_generator({}, {}, 2, [&](TextGenerator& generator) {
    const auto encoder = generator.tokenizer().make_encoder();
    TextOptions stopping = options;
    stopping.stops = {";"};
    std::vector<ChatMessage> messages;
    for (const char* line : {"x", "y", "z"}) {
      messages.push_back({"user", line});
      if (messages.size() == 5) {  // "ux;a...;uy;a...;uz;a" is longer than the 13 tokens that 3 new ones leave
        messages.erase(messages.begin(), messages.begin() + 2);
        expected += "(the oldest 2 messages are left out: the context is full)\n";
      }
      std::vector<GenerationJob> jobs;
      add_jobs(jobs, 0, 1, {.tokens = chat_prompt(kChat, messages, *encoder)});
      std::string text = generator.make(jobs, stopping, {}, {}).front().text;
      text = text.substr(std::min(text.size(), text.find_first_not_of(" \t\r\n")));
      messages.push_back({"assistant", text});
      expected += text + "\n";
    }
  });
  CHECK(said("x\n\ny\nz\n", Kind::chat, options) == expected);
  CHECK(said("x\n\ny\nz\n", Kind::chat, options, {.tensor = 2}) == expected);
  // One that is too long alone is refused, and forgotten.
  const std::string refused = "(the message: 18 tokens, but the model's context has room for 13; shorten it)\n";
  CHECK(said("fifteen letters\nx\n", Kind::chat, options) == refused + said("x\n", Kind::chat, options));
}
