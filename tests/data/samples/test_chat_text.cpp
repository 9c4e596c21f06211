// Conversations as training has them: the tokens of a prompt, what ends an answer, and the template for transformers,
// whose renderings by Jinja scripts/golden/make_chat_golden.py has stored.
#include "data/samples/chat_text.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/samples/instruction_samples.h"
#include "data/tokenizer_kinds/tokenizer_choice.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace megatron;
using nlohmann::json;

namespace {

const std::string kGolden = MEGATRON_GOLDEN_FOLDER;

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& name) {
  if (name == "byte") return make_tokenizer({.name = "byte", .vocab_file = {}, .merge_file = {}});
  if (name == "gpt2") return make_tokenizer({"gpt2", kGolden + "/bpe/vocab.json", kGolden + "/bpe/merges.txt"});
  const std::string file = kGolden + "/tokenizer_kinds/" + name;
  if (name.starts_with("spm")) return make_tokenizer({"sentencepiece", file + ".model", ""});
  return make_tokenizer({name.starts_with("unigram") ? "unigram" : "gpt2", file + ".json", ""});
}

/// [[prefix, suffix] of system, user, assistant].
ChatTemplate chat_of(const json& texts) {
  const auto role = [&](const char* name, std::size_t i) {
    return RoleTemplate{name, texts.at(i).at(0), texts.at(i).at(1), i == 2};
  };
  return {role("system", 0), role("user", 1), role("assistant", 2)};
}

std::vector<ChatMessage> messages_of(const json& list) {
  std::vector<ChatMessage> messages;
  for (const json& message : list) messages.push_back({message.at("role"), message.at("content")});
  return messages;
}

/// Calls `take` with the parts that training reads of a conversation.
void read_conversation(const json& messages, const ChatTemplate& chat, const TakeInstruction& take) {
  const std::string line = json::object({{"messages", messages}}).dump();
  read_instructions({"file", line}, chat, take);
}

const json kTemplates = json::parse(std::ifstream(kGolden + "/chat_templates.json"));
const json kDefault = json::parse(R"([["", "\n"], ["User: ", "\n"], ["Assistant: ", "\n"]])");
const json kMarked = json::parse(R"([["<|im_start|>system\n", "<|im_end|>\n"], ["<|im_start|>user\n", "<|im_end|>\n"],
                                     ["<|im_start|>assistant\n", "<|im_end|>\n"]])");

}  // namespace

TEST_CASE("chat template: Jinja renders the text that training has", "[chat]") {
  for (const json& golden : kTemplates.at("templates")) {
    CAPTURE(golden.at("name"));
    const ChatTemplate chat = chat_of(golden.at("texts"));
    const auto tokenizer = tokenizer_of(golden.at("tokenizer"));
    CHECK(jinja_template(chat, *tokenizer) == golden.at("jinja").get<std::string>());
    std::string trained;
    read_conversation(kTemplates.at("messages"), chat, [&](const Instruction& instruction) {
      for (const InstructionPart& part : instruction) trained += part.text;
    });
    CHECK(trained + tokenizer->eod_text() ==
          golden.at("rendered").get<std::string>());  // rendered from the golden "jinja"
  }
}

TEST_CASE("chat prompt: the tokens that training has in front of the answer", "[chat]") {
  const json talk = {{{"role", "system"}, {"content", "Be short."}},
                     {{"role", "user"}, {"content", "say <|im_end|> "}},
                     {{"role", "assistant"}, {"content", "four dogs"}}};
  for (const char* name : {"byte", "gpt2", "qwen2", "spm_llama", "unigram_t5"}) {
    const auto tokenizer = tokenizer_of(name);
    const auto encoder = tokenizer->make_encoder();
    for (const json& texts : {kDefault, kMarked}) {
      CAPTURE(name, texts.dump());
      const ChatTemplate chat = chat_of(texts);
      EncodedInstructions trained(*tokenizer, 1000);
      read_conversation(talk, chat, [&](const Instruction& instruction) { trained.add(instruction); });
      const EncodedInstructions::Text text = trained.text(0);
      const auto first = std::find(text.learned.begin(), text.learned.end(), 1) - text.learned.begin();
      REQUIRE(first > 3);
      const std::vector<std::int32_t> expected(text.tokens.begin(), text.tokens.begin() + first);
      const std::vector<ChatMessage> messages = messages_of({talk.at(0), talk.at(1)});
      CHECK(chat_prompt(chat, messages, *encoder) == expected);
    }
  }
}

TEST_CASE("chat: an end token after each answer is learned in every turn", "[chat]") {
  // The ids are those of apply_chat_template() in transformers 4.57 with its LlamaTokenizer.
  using TokenIds = std::vector<std::int32_t>;
  const json talk = {{{"role", "user"}, {"content", "for while"}},
                     {{"role", "assistant"}, {"content", "return two"}},
                     {{"role", "user"}, {"content", "while"}},
                     {{"role", "assistant"}, {"content", "two"}}};
  struct Form {
    json texts;
    TokenIds tokens, learned;
  };
  const Form llama{
      json::parse(R"([["", ""], ["<s>[INST] ", " [/INST]"], [" ", " </s>"]])"),
      {1, 526, 94,  583, 81,  633, 87,  96, 310, 302, 318, 526, 94, 50, 583, 81, 633, 87, 96, 427, 262, 539, 530, 526,
       2, 1,   526, 94,  583, 81,  633, 87, 96,  302, 318, 526, 94, 50, 583, 81, 633, 87, 96, 262, 539, 530, 526, 2},
      {427, 262, 539, 530, 526, 2, 262, 539, 530, 526, 2}};
  const Form mistral{
      json::parse(R"([["", ""], ["[INST] ", " [/INST]"], [" ", "</s>"]])"),
      {526, 94,  583, 81,  633, 87,  96, 310, 302, 318, 526, 94, 50, 583, 81, 633, 87, 96, 427, 262, 539, 530,
       2,   526, 94,  583, 81,  633, 87, 96,  302, 318, 526, 94, 50, 583, 81, 633, 87, 96, 262, 539, 530, 2},
      {427, 262, 539, 530, 2, 262, 539, 530, 2}};
  const Form bytes{json::parse(R"([["", ""], ["U", ""], ["A", "<|endoftext|>"]])"), {}, {}};
  const auto trained = [&](const ChatTemplate& chat, const Tokenizer& tokenizer, TokenIds& learned) {
    EncodedInstructions examples(tokenizer, 1000);
    read_conversation(talk, chat, [&](const Instruction& instruction) { examples.add(instruction); });
    const EncodedInstructions::Text text = examples.text(0);
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
      if (text.learned[i] != 0) learned.push_back(text.tokens[i]);
    }
    return TokenIds(text.tokens.begin(), text.tokens.end());
  };
  for (const Form& form : {llama, mistral}) {
    const auto tokenizer = tokenizer_of("spm_llama");
    const ChatTemplate chat = chat_of(form.texts);
    TokenIds learned;
    CHECK(trained(chat, *tokenizer, learned) == form.tokens);
    CHECK(learned == form.learned);
    // A prompt of the second turn has the first one with its end.
    const auto end = std::find(form.tokens.begin(), form.tokens.end(), 2) + 1;
    const TokenIds prompt =
        chat_prompt(chat, messages_of({talk.at(0), talk.at(1), talk.at(2)}), *tokenizer->make_encoder());
    REQUIRE(prompt.size() > static_cast<std::size_t>(end - form.tokens.begin()));
    CHECK(std::equal(prompt.begin(), prompt.end(), form.tokens.begin()));
    CHECK(foreign_special_tokens(chat, *tokenizer).empty());
  }
  const auto tokenizer = tokenizer_of("byte");
  const ChatTemplate chat = chat_of(bytes.texts);
  TokenIds learned;
  trained(chat, *tokenizer, learned);
  TokenIds expected;
  for (const std::string answer : {"return two", "two"}) {
    expected.insert(expected.end(), answer.begin(), answer.end());
    expected.push_back(tokenizer->eod_id());
  }
  CHECK(learned == expected);
  CHECK(end_of_turn(chat, *tokenizer) == tokenizer->eod_id());
}

TEST_CASE("chat: special tokens of another vocabulary are named", "[chat]") {
  const ChatTemplate llama =
      chat_of(json::parse(R"([["<<SYS>> <b>", "\n"], ["<s>[INST] ", " [/INST]"], [" ", " </s>"]])"));
  CHECK(foreign_special_tokens(llama, *tokenizer_of("qwen2")) ==
        std::vector<std::string>{
            "task.user_prefix has \"<s>\", which is no special token of this vocabulary and is learned as text; its "
            "end-of-document token is \"<|endoftext|>\"",
            "task.assistant_suffix has \"</s>\", which is no special token of this vocabulary and is learned as text; "
            "its "
            "end-of-document token is \"<|endoftext|>\""});
  CHECK(foreign_special_tokens(chat_of(kMarked), *tokenizer_of("qwen2")).empty());
  const std::vector<std::string> marks = foreign_special_tokens(chat_of(kMarked), *tokenizer_of("spm_llama"));
  REQUIRE(marks.size() == 6);
  CHECK_THAT(marks.back(), Contains("task.assistant_suffix has \"<|im_end|>\"") && Contains("token is \"</s>\""));
}

TEST_CASE("chat: an answer ends at a special token or at the text after it", "[chat]") {
  CHECK(end_of_turn(chat_of(kMarked), *tokenizer_of("qwen2")) == 650);
  CHECK_FALSE(end_of_turn(chat_of(kDefault), *tokenizer_of("qwen2")));
  CHECK_FALSE(end_of_turn(chat_of(kMarked), *tokenizer_of("byte")));  // it has no such token
  CHECK(end_of_turn_text(chat_of(kMarked)) == "<|im_end|>");
  CHECK(end_of_turn_text(chat_of(kDefault)) == "\nUser:");
  CHECK(end_of_turn_text(chat_of(json::parse(R"([["", ""], [" ", ""], ["", "\n\n"]])"))) == "\n\n");
}

TEST_CASE("chat: an answer that ends at the end token has no second suffix", "[chat]") {
  const ChatTemplate chat = chat_of(json::parse(R"([["System: ", "\n"], ["User: ", "\n"], ["Assistant:", "\n"]])"));
  const auto tokenizer = tokenizer_of("byte");
  CHECK(message_of("Hi\n", chat, *tokenizer) == "Hi");
  CHECK(message_of("Hi", chat, *tokenizer) == "Hi");
  CHECK(message_of("a\n\n", chat, *tokenizer) == "a\n");
  CHECK(message_of("", chat, *tokenizer).empty());
}

TEST_CASE("chat: a template that ends the document is not ended twice", "[chat]") {
  const auto tokenizer = tokenizer_of("qwen2");
  const std::string end = tokenizer->eod_text();
  const ChatTemplate chat = {
      {{"system", "", "\n", false}, {"user", "", "\n", false}, {"assistant", "", " " + end, true}}};
  const std::string jinja = jinja_template(chat, *tokenizer);
  CHECK_THAT(jinja, Contains("{% elif not messages or messages[-1]['role'] not in ['assistant'] %}{{ '" + end +
                             "' }}{% endif %}"));
  // The model makes the space, and the token after it shows nothing.
  CHECK(message_of("four dogs ", chat, *tokenizer) == "four dogs");
  CHECK(message_of("four dogs", chat, *tokenizer) == "four dogs");
}

TEST_CASE("chat: an end token may take the white space after it", "[chat]") {
  const TemporaryFolder folder;
  std::string file = contents_of(kGolden + "/tokenizer_kinds/qwen2.json");
  const std::string end = tokenizer_of("qwen2")->eod_text(), flag = "\"rstrip\":false";
  const auto at = file.find(flag, file.find("\"content\":\"" + end + "\""));
  REQUIRE(at != std::string::npos);
  write_file(folder.file("tokenizer.json"), file.replace(at, flag.size(), "\"rstrip\":true"));
  const auto tokenizer = make_tokenizer({"gpt2", folder.file("tokenizer.json"), ""});
  REQUIRE(tokenizer->eod_text() == end);
  const ChatTemplate chat = {
      {{"system", "", "\n", false}, {"user", "", "\n", false}, {"assistant", "", " " + end + "\n\n", true}}};
  CHECK(message_of("four dogs ", chat, *tokenizer) == "four dogs");
  CHECK(message_of("four dogs", chat, *tokenizer) == "four dogs");
}
