#include "inference/generation/conversation.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/core/error.h"
#include "base/text/text.h"
#include "base/text/utf8.h"
#include "inference/generation/text_pieces.h"
#include "inference/generation/text_request.h"

namespace megatron {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Gives the line that rank 0 has read to all ranks; false at the end.
bool share(Communicator& world, bool more, std::string& line) {
  const std::string shared = world.broadcast_text(more ? "+" + line : "", 0);
  if (shared.empty()) return false;
  line = shared.substr(1);
  return true;
}

const ModelConfig& model_of(const Conversation& conversation) {
  return conversation.generator.decoder().config().model;
}

Prompt encode(const Conversation& conversation, const std::string& text, const TextOptions& options,
              const std::string& name) {
  const std::int64_t room = room_for_prompt(options, conversation.search, model_of(conversation));
  return conversation.encoder.encode(text, room, options.truncate, name);
}

/// The next line of a person, on rank 0; false at the end.
bool read_typed(const Conversation& conversation, InterruptFlag& flag, const std::string& sign, std::string& line) {
  while (true) {
    flag.clear();
    conversation.print(sign);
    switch (conversation.input.next(line)) {
      case LineReader::Outcome::line: return true;
      case LineReader::Outcome::too_long: conversation.print("(that line is too long)\n"); break;
      case LineReader::Outcome::interrupted: conversation.print("\n"); break;
      case LineReader::Outcome::end:
        if (!sign.empty()) conversation.print("\n");
        return false;
    }
  }
}

/// Throws an error that is no fault of the text or its options, and so no answer to it.
void throw_defect(const Error& error) {
  if (error.kind() != ErrorKind::data && error.kind() != ErrorKind::configuration) throw error;
}

ordered_json error_answer(const json& id, const Error& error) {
  return {{"id", id}, {"error", error.what()}, {"kind", name_of(error.kind())}};
}

/// The next request, on rank 0; false at the end.
bool read_request(const Conversation& conversation, std::string& line) {
  while (true) {
    switch (conversation.input.next(line)) {
      case LineReader::Outcome::line: return true;
      case LineReader::Outcome::too_long:
        conversation.print(json_line(error_answer(nullptr, Error(ErrorKind::data, "the line is too long"))));
        break;
      case LineReader::Outcome::interrupted: break;
      case LineReader::Outcome::end: return false;
    }
  }
}

/// A request, and what it asks for.
struct Asked {
  TextRequest request;
  std::vector<GenerationJob> jobs;
};

/// The same on all ranks, and so are the errors.
Asked parse(const Conversation& conversation, const std::string& line, json& id) {
  Asked asked{.request = parse_request(line, conversation.options, conversation.search.beams > 0, id), .jobs = {}};
  const TextRequest& request = asked.request;
  add_jobs(asked.jobs, 0, request.options.samples, encode(conversation, request.prompt, request.options, "\"prompt\""));
  return asked;
}

void answer(const Conversation& conversation, const Asked& asked) {
  const TextRequest& request = asked.request;
  const std::vector<GenerationJob>& jobs = asked.jobs;
  const json& id = request.id;
  std::vector<Utf8Pieces> whole(jobs.size());
  const auto print_piece = [&](std::size_t job, const std::string& piece) {
    if (piece.empty()) return;
    conversation.print(json_line({{"id", id}, {"sample", jobs[job].sample}, {"piece", piece}}));
  };
  TextListeners listeners;
  if (request.stream) {
    listeners.piece = [&](std::size_t job, const std::string& piece) { print_piece(job, whole[job].add(piece)); };
  }
  const auto results = conversation.generator.make(jobs, request.options, conversation.search, listeners);
  for (std::size_t job = 0; job < results.size(); ++job) {
    print_piece(job, whole[job].rest());
    ordered_json all = {{"id", id}};
    all.update(result_json(results[job], members_of(request.options, conversation.search)));
    conversation.print(json_line(all));
  }
}

}  // namespace

void converse(const Conversation& conversation, InterruptFlag& flag, const std::string& sign) {
  TextGenerator& generator = conversation.generator;
  Communicator& world = generator.world();
  std::string line;
  for (std::int64_t prompt = 0;; ++prompt) {
    const bool more = world.rank() == 0 && read_typed(conversation, flag, sign, line);
    if (!share(world, more, line)) return;
    flag.clear();
    std::vector<GenerationJob> jobs;
    try {
      add_jobs(jobs, prompt, 1, encode(conversation, line, conversation.options, "the prompt"));
    } catch (const Error& error) {  // the same on all ranks
      throw_defect(error);
      if (world.rank() == 0) conversation.print(std::string("(") + error.what() + ")\n");
      continue;
    }
    const bool streams = conversation.search.beams == 0;
    TextListeners listeners;
    listeners.stop = [&] { return flag.raised() != 0; };
    if (streams) listeners.piece = [&](std::size_t, const std::string& piece) { conversation.print(piece); };
    if (world.rank() == 0 && !model_of(conversation).has_decoder()) conversation.print(line);
    const auto results = generator.make(jobs, conversation.options, conversation.search, listeners);
    if (world.rank() == 0) conversation.print((streams ? "" : results.front().text) + "\n");
  }
}

namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

std::string without_space_in_front(const std::string& text) {
  return text.substr(std::min(text.size(), text.find_first_not_of(kWhiteSpace)));
}

/// The options of an answer, which ends where training ended it.
TextOptions answer_options(const Conversation& conversation, const ChatTemplate& form) {
  TextOptions options = conversation.options;
  const Tokenizer& tokenizer = conversation.generator.tokenizer();
  // Training ends examples with it, whatever ends texts of the model that it began with.
  if (std::find(options.ends.begin(), options.ends.end(), tokenizer.eod_id()) == options.ends.end()) {
    options.ends.push_back(tokenizer.eod_id());
  }
  if (const std::optional<std::int32_t> turn = end_of_turn(form, tokenizer)) {
    options.ends.push_back(*turn);
  } else if (const std::string text = end_of_turn_text(form); !text.empty()) {
    options.stops.push_back(text);
  }
  return options;
}

/// The tokens of `messages`, of which the oldest after the first `kept`, each with its answer, are left out until the
/// others leave room for an answer. Error(data) where the last one alone is too long; then all stay.
std::vector<std::int32_t> fitted_prompt(const Conversation& conversation, const ChatForm& form, std::size_t kept,
                                        std::vector<ChatMessage>& messages, Encoder& encoder) {
  const std::string& typed = messages.back().content;
  const std::size_t bad = first_invalid_utf8(typed);
  verify(bad == typed.size(), ErrorKind::data, "the message: not valid UTF-8 (byte {})", bad + 1);
  const std::int64_t context = model_of(conversation).sequence_length;
  std::int64_t room = std::max(context - conversation.options.sampling.max_new_tokens, context / 2);
  room = std::min(room, room_for_prompt(conversation.options, conversation.search, model_of(conversation)));
  std::vector<ChatMessage> fitted = messages;
  std::vector<std::int32_t> tokens = chat_prompt(form.chat, fitted, encoder);
  while (static_cast<std::int64_t>(tokens.size()) > room) {
    verify(fitted.size() > kept + 1, ErrorKind::data,
           "the message: {}, but the model's context has room for {}; shorten it",
           counted(static_cast<std::int64_t>(tokens.size()), "token"), room);
    const auto oldest = fitted.begin() + static_cast<std::ptrdiff_t>(kept);
    fitted.erase(oldest, oldest + 2);
    tokens = chat_prompt(form.chat, fitted, encoder);
  }
  if (fitted.size() < messages.size() && conversation.generator.world().rank() == 0) {
    conversation.print(
        fmt::format("(the oldest {} messages are left out: the context is full)\n", messages.size() - fitted.size()));
  }
  messages = std::move(fitted);
  return tokens;
}

}  // namespace

void chat(const Conversation& conversation, const ChatForm& form, InterruptFlag& flag, const std::string& sign) {
  TextGenerator& generator = conversation.generator;
  Communicator& world = generator.world();
  const std::unique_ptr<Encoder> encoder = generator.tokenizer().make_encoder();
  const TextOptions options = answer_options(conversation, form.chat);
  std::vector<ChatMessage> messages;
  const std::size_t bad = first_invalid_utf8(form.system);
  verify(bad == form.system.size(), ErrorKind::configuration, "--system: not valid UTF-8 (byte {})", bad + 1);
  if (!form.system.empty()) messages.push_back({"system", form.system});
  const std::size_t kept = messages.size();
  std::string line;
  for (std::int64_t prompt = 0;; ++prompt) {
    const bool more = world.rank() == 0 && read_typed(conversation, flag, sign, line);
    if (!share(world, more, line)) return;
    flag.clear();
    if (line.empty()) continue;
    messages.push_back({"user", line});
    std::vector<GenerationJob> jobs;
    try {
      add_jobs(jobs, prompt, 1, {.tokens = fitted_prompt(conversation, form, kept, messages, *encoder)});
    } catch (const Error& error) {  // the same on all ranks
      throw_defect(error);
      if (world.rank() == 0) conversation.print(std::string("(") + error.what() + ")\n");
      messages.pop_back();
      continue;
    }
    const bool streams = conversation.search.beams == 0;
    bool begun = false;  // a space in front of an answer separates it from the text before it
    TextListeners listeners;
    listeners.stop = [&] { return flag.raised() != 0; };
    if (streams) {
      listeners.piece = [&](std::size_t, const std::string& piece) {
        const std::string shown = begun ? piece : without_space_in_front(piece);
        begun = begun || !shown.empty();
        conversation.print(shown);
      };
    }
    const auto results = generator.make(jobs, options, conversation.search, listeners);
    const std::string text = results.empty() ? "" : without_space_in_front(results.front().text);
    const std::string made = message_of(text, form.chat, generator.tokenizer());
    messages.push_back({"assistant", world.broadcast_text(made, 0)});
    if (world.rank() == 0) conversation.print((streams ? "" : made) + "\n");
  }
}

void serve(const Conversation& conversation) {
  const TextGenerator& generator = conversation.generator;
  Communicator& world = generator.world();
  if (world.rank() == 0) {
    const ModelConfig& model = model_of(conversation);
    ordered_json ready = {{"ready", true}, {"context", model.sequence_length}, {"vocab_size", model.vocab_size}};
    if (model.has_decoder()) ready["decoder_context"] = model.decoder_sequence_length;
    conversation.print(json_line(ready));
  }
  std::string line;
  while (share(world, world.rank() == 0 && read_request(conversation, line), line)) {
    json id;
    std::optional<Asked> asked;
    try {
      asked = parse(conversation, line, id);
    } catch (const Error& error) {
      throw_defect(error);
      if (world.rank() == 0) conversation.print(json_line(error_answer(id, error)));
      continue;
    }
    answer(conversation, *asked);
  }
}

}  // namespace megatron
