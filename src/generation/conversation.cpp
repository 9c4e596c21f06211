#include "generation/conversation.h"

#include <optional>

#include "base/error.h"
#include "generation/text_pieces.h"
#include "generation/text_request.h"

namespace megatron {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// What rank 0 has read, on all ranks; false at the end.
bool share(Communicator& world, bool more, std::string& line) {
  const std::string shared = world.broadcast_text(more ? "+" + line : "", 0);
  if (shared.empty()) return false;
  line = shared.substr(1);
  return true;
}

std::vector<std::int32_t> encode(const Conversation& conversation, const std::string& text, const TextOptions& options,
                                 const std::string& name) {
  const std::int64_t context = conversation.generator.decoder().config().model.sequence_length;
  return conversation.encoder.encode(text, room_for_prompt(options, conversation.search, context), options.truncate,
                                     name);
}

/// The next line of a person, on rank 0; false at the end.
bool read_typed(const Conversation& conversation, InterruptFlag& flag, const std::string& sign, std::string& line) {
  while (true) {
    flag.clear();
    conversation.print(sign);
    switch (conversation.input.next(line)) {
      case LineSource::Outcome::line: return true;
      case LineSource::Outcome::too_long: conversation.print("(that line is too long)\n"); break;
      case LineSource::Outcome::interrupted: conversation.print("\n"); break;
      case LineSource::Outcome::end:
        if (!sign.empty()) conversation.print("\n");
        return false;
    }
  }
}

/// What is no fault of the text or its options is not an answer to it.
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
      case LineSource::Outcome::line:
        if (line.find_first_not_of(" \t\r") != std::string::npos) return true;
        break;
      case LineSource::Outcome::too_long:
        conversation.print(json_line(error_answer(nullptr, Error(ErrorKind::data, "the line is too long"))));
        break;
      case LineSource::Outcome::interrupted: break;
      case LineSource::Outcome::end: return false;
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
    if (world.rank() == 0) conversation.print(line);
    const auto results = generator.make(jobs, conversation.options, conversation.search, listeners);
    if (world.rank() == 0) conversation.print((streams ? "" : results.front().text) + "\n");
  }
}

void serve(const Conversation& conversation) {
  const TextGenerator& generator = conversation.generator;
  Communicator& world = generator.world();
  if (world.rank() == 0) {
    const ModelConfig& model = generator.decoder().config().model;
    conversation.print(
        json_line({{"ready", true}, {"context", model.sequence_length}, {"vocab_size", model.vocab_size}}));
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
