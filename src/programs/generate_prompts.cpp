#include "programs/generate_prompts.h"

#include <algorithm>
#include <optional>

#include "base/core/timers.h"
#include "base/system/notes.h"
#include "base/terminal/interrupt_flag.h"
#include "base/text/text.h"
#include "checkpoint/hugging_face/checkpoint_tokenizer.h"
#include "distributed/comm/agreement.h"
#include "inference/generation/text_output.h"

namespace megatron {

namespace {

/// Tokens so far, on a terminal's last line.
class GenerationProgress {
 public:
  GenerationProgress(Log& log, std::size_t texts) : log_(log), texts_(texts) {}
  ~GenerationProgress() { log_.show_status(""); }

  void add() {
    ++tokens_;
    const double seconds = watch_.elapsed_seconds();
    if (!log_.terminal().live() || seconds < shown_ + 0.1) return;
    shown_ = seconds;
    log_.show_status(fmt::format("{} of {} ({:.0f} per second)", counted(tokens_, "token"),
                                 counted(static_cast<std::int64_t>(texts_), "text"),
                                 static_cast<double>(tokens_) / seconds));
  }
  double seconds() const { return watch_.elapsed_seconds(); }

 private:
  Log& log_;
  std::size_t texts_;
  std::int64_t tokens_ = 0;
  double shown_ = 0;
  Timers watch_;
};

/// The prompts and the work on them: one job per sample.
struct Work {
  const GenerateArguments& arguments;
  const std::vector<std::string>& prompts;
  std::span<const GenerationJob> jobs;
};

std::string lines_of(const Work& work, const std::vector<TextResult>& results) {
  const ResultMembers members = members_of(work.arguments.text, work.arguments.search);
  std::string lines;
  for (std::size_t job = 0; job < results.size(); ++job) {
    const TextResult& result = results[job];
    nlohmann::ordered_json line = {{"prompt", work.prompts[static_cast<std::size_t>(result.prompt)]}};
    line.update(work.arguments.scores()
                    ? scores_json(result.made, work.jobs[job].tokens, work.arguments.begins(), members)
                    : result_json(result, members));
    lines += json_line(line);
  }
  return lines;
}

void write_results(const Work& work, const std::vector<TextResult>& results, double seconds) {
  const OutputFile& output = work.arguments.output;
  if (output.path.empty()) return print_text(lines_of(work, results));
  write_output(output, lines_of(work, results));
  if (work.arguments.scores()) return;
  std::int64_t tokens = 0;
  for (const TextResult& result : results) tokens += static_cast<std::int64_t>(result.made.tokens.size());
  print_note(fmt::format("{}: {}, {} in {:.2f} s ({:.1f} tokens per second)", output.path,
                         counted(static_cast<std::int64_t>(results.size()), "text"), counted(tokens, "token"), seconds,
                         static_cast<double>(tokens) / std::max(seconds, 1e-9)));
}

/// How many jobs a decoder makes at a time, on all copies of the model.
std::size_t jobs_together(const GenerateArguments& arguments, const Decoder& decoder) {
  const DecoderSizes& sizes = decoder.sizes();
  const std::int64_t own = arguments.search.beams > 0 ? sizes.groups : sizes.samples * sizes.groups;
  return static_cast<std::size_t>(own * decoder.grid().shape().data);
}

/// Each batch appears when it is done; the text of a single job while it is made.
void print_texts(const Work& work, TextGenerator& generator, TextListeners listeners) {
  const auto& [arguments, prompts, jobs] = work;
  const bool streams = jobs.size() == 1 && arguments.search.beams == 0;
  const bool continues = !generator.decoder().config().model.has_decoder();
  if (streams) {
    listeners.piece = [](std::size_t, const std::string& piece) { print_text(piece); };
    if (generator.world().rank() == 0 && continues) print_text(prompts.front());
  }
  // The file of logits numbers the jobs of one call.
  const std::size_t together =
      arguments.logits.path.empty() ? jobs_together(arguments, generator.decoder()) : jobs.size();
  for (std::size_t first = 0; first < jobs.size(); first += together) {
    const auto batch = jobs.subspan(first, std::min(together, jobs.size() - first));
    for (const TextResult& result : generator.make(batch, arguments.text, arguments.search, listeners)) {
      if (!streams) print_text((continues ? prompts[static_cast<std::size_t>(result.prompt)] : "") + result.text);
      print_text(jobs.size() == 1 ? "\n" : "\n\n");
    }
  }
}

}  // namespace

namespace {

/// The signal that any rank has got, on all of them.
int signal_of(const std::optional<InterruptFlag>& flag, Communicator& world) {
  if (!flag) return 0;
  return static_cast<int>(world.all_reduce_value(flag->raised(), kDecision));
}

}  // namespace

PromptRules prompt_rules(const GenerateArguments& arguments, const CheckpointReader& checkpoint,
                         const ModelConfig& model, const Tokenizer& tokenizer) {
  PromptRules rules{.begin_token = arguments.begins(),
                    .special = arguments.special_tokens ? SpecialTokens::tokens : SpecialTokens::text};
  if (!model.has_decoder()) {
    rules.begin = chosen_begin_token(arguments.begin_token, checkpoint, tokenizer);
    return rules;
  }
  const auto refuse = [&](bool given, const char* option) {
    verify(!given, ErrorKind::configuration,
           "{} has no meaning for model.family = \"{}\": a prompt is what its encoder reads", option, model.family);
  };
  refuse(arguments.no_begin_token, "--no-begin-token");
  refuse(arguments.begin_token != "auto", "--begin-token");
  refuse(arguments.unconditional, "--unconditional");
  refuse(arguments.scores(), "--max-new-tokens 0");
  const std::optional<EncoderDecoderTokens> known = encoder_decoder_tokens_of(checkpoint);
  rules.for_encoder = true;
  rules.decoder_start = known ? known->decoder_start : tokenizer.special_ids().bos;
  if (known) {
    rules.encoder_begin = known->encoder.begin;
    rules.encoder_end = known->encoder.end;
  } else if (const std::int32_t end = tokenizer.special_ids().eos; checkpoint.state().step == 0 && end >= 0) {
    rules.encoder_end = end;  // an import of an older version
  }
  verify(rules.decoder_start >= 0, ErrorKind::checkpoint,
         "{}: the vocabulary ({}) lacks a token that the decoder's texts begin with", checkpoint.path(),
         tokenizer.name());
  verify(std::max({rules.decoder_start, rules.encoder_begin.value_or(0), rules.encoder_end.value_or(0)}) <
             model.vocab_size,
         ErrorKind::checkpoint, "{}: texts begin or end with a token that the model has no row for", checkpoint.path());
  return rules;
}

std::vector<std::string> prompts_of(const GenerateArguments& arguments, Communicator& world) {
  if (arguments.prompts_file.empty()) return arguments.prompts;
  const std::string contents = read_on_first_rank(arguments.prompts_file, world);
  std::vector<std::string> prompts;
  agree(world, [&] { prompts = parse_prompts(contents, arguments.prompts_file); });
  return prompts;
}

std::vector<GenerationJob> jobs_of(const GenerateArguments& arguments, const std::vector<std::string>& prompts,
                                   PromptEncoder& encoder, const ModelConfig& model) {
  constexpr std::size_t kMostJobs = std::size_t{1} << 24;
  verify(prompts.size() <= kMostJobs / static_cast<std::size_t>(arguments.text.samples), ErrorKind::configuration,
         "{} prompts with {} texts each: at most {} texts are made at a time", prompts.size(), arguments.text.samples,
         kMostJobs);
  const std::int64_t room = room_for_prompt(arguments.text, arguments.search, model);
  std::vector<GenerationJob> jobs;
  for (std::size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    const std::string name =
        arguments.prompts_file.empty() ? "--prompt" : fmt::format("{}:{}", arguments.prompts_file, prompt + 1);
    add_jobs(jobs, static_cast<std::int64_t>(prompt), arguments.text.samples,
             encoder.encode(prompts[prompt], room, arguments.text.truncate, name));
  }
  return jobs;
}

int generate_texts(const GenerateArguments& arguments, const std::vector<std::string>& prompts,
                   const std::vector<GenerationJob>& jobs, TextGenerator& generator, Log& log) {
  const Decoder& decoder = generator.decoder();
  Communicator& world = generator.world();
  std::optional<LogitsFile> logits;
  std::optional<InterruptFlag> flag;
  TextListeners listeners;
  if (!arguments.logits.path.empty()) {  // a file that a signal must not leave half
    flag.emplace(kEndingSignals);
    listeners.stop = [&] { return flag->raised() != 0; };
    agree(world, [&] {
      if (!decoder.samples_here()) return;
      listeners.logits = &logits.emplace(arguments.logits, decoder.config().model.vocab_size);
    });
  }
  const Work work{arguments, prompts, jobs};
  const bool prints_texts = arguments.output.path.empty() && !arguments.scores();
  GenerationProgress progress(log, jobs.size());
  std::vector<TextResult> results;
  if (prints_texts) {
    print_texts(work, generator, std::move(listeners));
  } else {
    if (!arguments.output.path.empty()) listeners.token = [&] { progress.add(); };
    results = generator.make(jobs, arguments.text, arguments.search, listeners);
  }
  // One answer for both files.
  if (const int signal = signal_of(flag, world); signal != 0) return 128 + signal;
  agree(world, [&] {
    if (world.rank() == 0 && !prints_texts) write_results(work, results, progress.seconds());
  });
  agree(world, [&] {
    if (logits) logits->publish();
  });
  return 0;
}

}  // namespace megatron
