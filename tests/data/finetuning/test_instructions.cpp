// Instructions out of JSON lines: which text is read and which is learned, and what is refused with file and line.
#include "data/finetuning/instructions.h"
#include "support/catch.h"
#include "support/require_error.h"

using namespace megatron;
using namespace megatron::test;

namespace {

const ChatTemplate kChat = {
    {{"system", "<", ">", false}, {"user", "User: ", "\n", false}, {"assistant", "Bot: ", "!\n", true}}};

/// Each part in brackets: (read), [learned]; of a template with a star.
std::vector<std::string> read(const std::string& text) {
  std::vector<std::string> shown;
  read_instructions({"file", text}, kChat, [&](const Instruction& instruction) {
    std::string line;
    for (const InstructionPart& part : instruction) {
      line += (part.learned ? "[" : "(") + std::string(part.of_template ? "*" : "") + std::string(part.text) +
              (part.learned ? "]" : ")");
    }
    shown.push_back(line);
  });
  return shown;
}

void refused(const std::string& text, const std::string& part) {
  CAPTURE(text);
  require_error(ErrorKind::data, {part}, [&] { read(text); });
}

}  // namespace

TEST_CASE("instructions: completions and the assistant's parts are learned") {
  CHECK(read(R"({"prompt": "1+1=", "completion": "2", "id": 3})") == std::vector<std::string>{"(1+1=)[2]"});
  CHECK(
      read(R"({"messages": [{"role": "system", "content": "Be kind."}, {"content": "Hi", "role": "user", "x": [1]}, )"
           R"({"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Bye"}, )"
           R"({"role": "assistant", "content": ""}]})") ==
      std::vector<std::string>{"(*<)(Be kind.)(*>)(*User: )(Hi)(*\n)(*Bot: )[Hello][*!\n](*User: )(Bye)(*\n)(*Bot: )[]"
                               "[*!\n]"});
}

TEST_CASE("instructions: a message of weight 0 is not learned") {
  const auto learned = [](const std::string& weight) {
    const auto message = [](const std::string& text, const std::string& more) {
      return "{\"role\": \"assistant\", \"content\": \"" + text + "\"" + more + "}";
    };
    return read("{\"messages\": [" + message("bad", ", \"weight\": " + weight) + ", " + message("good", "") + "]}");
  };
  const std::vector<std::string> second = {"(*Bot: )(bad)(*!\n)(*Bot: )[good][*!\n]"};
  const std::vector<std::string> both = {"(*Bot: )[bad][*!\n](*Bot: )[good][*!\n]"};
  for (const char* weight : {"0", "0.0", "-0", "0e3"}) CHECK(learned(weight) == second);
  for (const char* weight : {"1", "1.0", "null"}) CHECK(learned(weight) == both);
  for (const char* weight : {"0.5", "2", "-1", "true", "\"0\"", "NaN", "[0]"}) {
    CAPTURE(weight);
    require_error(ErrorKind::data, {"file:1: \"weight\" is", "0 (not learned) or 1"}, [&] { learned(weight); });
  }
  const std::string all = R"({"messages": [{"role": "user", "content": "a", "weight": 0}, )"
                          R"({"role": "assistant", "content": "b", "weight": 0}]})";
  refused(all, "nothing to learn");
  refused(R"({"messages": [{"role": "user", "content": "a", "weight": 1}]})",
          "\"weight\" is 1 in a message of the role");
  refused(R"({"messages": [{"role": "user", "content": "a", "weight": 0, "weight": 0}]})", "two keys \"weight\"");
}

TEST_CASE("instructions: NaN and half surrogates are read outside of texts") {
  CHECK(
      read(R"({"x": [NaN, {"y": -Infinity}], "\ud800": Infinity, "prompt": "1", "z": "\udfff", "completion": "2"})") ==
      std::vector<std::string>{"(1)[2]"});
  refused(R"({"prompt": NaN, "completion": "2"})", "file:1: byte");
  refused(R"({"prompt": "\ud800", "completion": "2"})", "half of a surrogate pair");
}

TEST_CASE("instructions: malformed examples are refused with file and line") {
  refused("", "file has no examples");
  refused("\n{\"prompt\": \"x\"}", "file:2: no key \"completion\"");
  refused("{\"completion\": \"x\"}", "file:1: no key \"prompt\"");
  refused("{\"prompt\": \"x\", \"completion\": \"\"}", "\"completion\" is empty");
  refused("{\"text\": \"x\"}", "neither \"messages\" nor \"prompt\" with \"completion\"");
  refused("{\"prompt\": \"x\", \"completion\": \"y\", \"messages\": []}", "both \"messages\" and a prompt");
  refused("{\"messages\": []}", "nothing to learn");
  refused("{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}", "nothing to learn");
  refused("{\"messages\": [{\"role\": \"tool\", \"content\": \"x\"}]}", "the role \"tool\" is none of system, user");
  refused("{\"messages\": [{\"role\": \"user\"}]}", "file:1: no key \"content\"");
  refused("{\"messages\": [{\"content\": \"x\"}]}", "file:1: no key \"role\"");
  refused("\n{\"messages\": [{\"role\": \"user\", \"content\": null}]}",
          "file:2: byte 43 of the line, in the value of \"content\": expected a string, found null");
  refused("[\n  {\"prompt\": \"x\", \"completion\": \"y\"}\n]",
          "a JSON array, where each line is to be an object: jq -c");
  refused("{\n  \"prompt\": \"x\"\n}", "the object does not end on its line");
  refused(
      "{\"prompt\": \"x\", \"completion\": \"y\"}\n\xEF\xBB\xBF{\"prompt\": \"x\", \"completion\": \"y\"}",
      "file:2: byte 1 of the line: expected a JSON object, found byte 0xef; the line begins with a byte order mark");
  refused(std::string("\xFF\xFE{\0\"\0", 6), "file: it is UTF-16, and UTF-8 is needed: iconv");
  refused("{\"messages\": {\"role\": \"user\"}}", "file:1: byte");
  refused("{\"prompt\": \"x\", \"prompt\": \"y\", \"completion\": \"z\"}", "two keys \"prompt\"");
  refused("{\"prompt\": \"x\", \"completion\": \"z\"", "file:1: byte");
}
