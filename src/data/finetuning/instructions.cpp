#include "data/finetuning/instructions.h"

#include <algorithm>
#include <charconv>

#include "base/text/text.h"
#include "data/evaluation_tasks/example_text.h"
#include "data/finetuning/members.h"

namespace megatron {

namespace {

struct Message {
  std::string role, content;
  std::optional<bool> learned;  ///< as the message says by itself
};

/// "weight": 0 or 1, also as 0.0 or 1.0; null says nothing.
std::optional<bool> read_weight(const ExampleLine& line, JsonReader& json) {
  json.peek();
  const std::size_t begin = json.position();
  json.skip_value();
  const std::string_view written = line.text.substr(begin, json.position() - begin);
  double weight = -1;
  std::from_chars(written.data(), written.data() + written.size(), weight);
  if (written == "null") return std::nullopt;
  if (weight != 0 && weight != 1) {
    line.refuse(fmt::format("\"weight\" is {}: 0 (not learned) or 1", printable(written.substr(0, 60))));
  }
  return weight == 1;
}

Message read_message(const ExampleLine& line, JsonReader& json) {
  std::optional<std::string> role, content;
  std::optional<std::optional<bool>> learned;
  std::string buffer;
  visit_object(json, "an object", [&](std::string_view key) {
    if (key == "role") {
      set_once(line, key, role, std::string(json.string(buffer)));
    } else if (key == "content") {
      set_once(line, key, content, std::string(json.string(buffer)));
    } else if (key == "weight") {
      set_once(line, key, learned, read_weight(line, json));
    } else {
      json.skip_value();
    }
  });
  return {required(line, "role", role), required(line, "content", content), learned.value_or(std::nullopt)};
}

std::vector<Message> read_messages(const ExampleLine& line, JsonReader& json) {
  std::vector<Message> messages;
  visit_array(json, "a list of messages", [&] { messages.push_back(read_message(line, json)); });
  return messages;
}

void take_conversation(const ExampleLine& line, const std::vector<Message>& messages, const ChatTemplate& chat,
                       const TakeInstruction& take) {
  Instruction parts;
  for (const Message& message : messages) {
    const auto* const role =
        std::find_if(chat.begin(), chat.end(), [&](const RoleTemplate& each) { return each.role == message.role; });
    if (role == chat.end()) {
      line.refuse(fmt::format("the role \"{}\" is none of system, user and assistant",
                              printable(std::string_view(message.role).substr(0, 60))));
    }
    if (message.learned == true && !role->learned) {
      line.refuse(fmt::format("\"weight\" is 1 in a message of the role {}, of which nothing is learned", role->role));
    }
    const bool learned = role->learned && message.learned.value_or(true);
    parts.push_back({role->prefix, false, true});
    parts.push_back({message.content, learned, false});
    parts.push_back({role->suffix, learned, true});
  }
  if (std::none_of(parts.begin(), parts.end(), [](const InstructionPart& part) { return part.learned; })) {
    line.refuse(
        "there is nothing to learn: \"messages\" has no message of the role assistant, or all of them have \"weight\" "
        "0");
  }
  take(parts);
}

}  // namespace

void read_instructions(const ExampleFile& file, const ChatTemplate& chat, const TakeInstruction& take) {
  const TaskInput input{.path = file.path, .text = file.text, .stride = {}, .encode = {}};
  visit_lines(input, [&](const ExampleLine& line) {
    std::optional<std::string> prompt, completion;
    std::optional<std::vector<Message>> messages;
    std::string buffer;
    line.visit_members([&](std::string_view key, JsonReader& json) {
      if (key == "prompt") {
        set_once(line, key, prompt, std::string(json.string(buffer)));
      } else if (key == "completion") {
        set_once(line, key, completion, std::string(json.string(buffer)));
      } else if (key == "messages") {
        set_once(line, key, messages, read_messages(line, json));
      } else {
        json.skip_value();
      }
    });
    if (messages && (prompt || completion)) line.refuse("both \"messages\" and a prompt with its completion");
    if (messages) return take_conversation(line, *messages, chat, take);
    if (!prompt && !completion) line.refuse("neither \"messages\" nor \"prompt\" with \"completion\"");
    required(line, "prompt", prompt);
    if (required(line, "completion", completion).empty()) line.refuse("\"completion\" is empty");
    take({{*prompt, false, false}, {*completion, true, false}});
  });
}

}  // namespace megatron
