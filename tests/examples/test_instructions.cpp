// Instructions out of JSON lines: which text is read and which is learned, and what is refused with file and line.
#include <catch2/catch.hpp>

#include "examples/instructions.h"
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

TEST_CASE("instructions: of prompts the completion is learned, of conversations the assistant's part") {
  CHECK(read(R"({"prompt": "1+1=", "completion": "2", "id": 3})") == std::vector<std::string>{"(1+1=)[2]"});
  CHECK(
      read(R"({"messages": [{"role": "system", "content": "Be kind."}, {"content": "Hi", "role": "user", "x": [1]}, )"
           R"({"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Bye"}, )"
           R"({"role": "assistant", "content": ""}]})") ==
      std::vector<std::string>{"(*<)(Be kind.)(*>)(*User: )(Hi)(*\n)(*Bot: )[Hello][*!\n](*User: )(Bye)(*\n)(*Bot: )[]"
                               "[*!\n]"});
}

TEST_CASE("instructions: what is not as it should be is refused with file and line") {
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
  refused("{\"messages\": {\"role\": \"user\"}}", "file:1: byte");
  refused("{\"prompt\": \"x\", \"prompt\": \"y\", \"completion\": \"z\"}", "two keys \"prompt\"");
  refused("{\"prompt\": \"x\", \"completion\": \"z\"", "file:1: byte");
}
