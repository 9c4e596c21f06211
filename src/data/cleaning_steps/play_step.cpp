#include "data/cleaning_steps/play_step.h"

#include <algorithm>
#include <exception>
#include <filesystem>
#include <numeric>
#include <optional>
#include <set>

#include "base/system/durable_file.h"
#include "data/cleaning_steps/block_reader.h"
#include "data/cleaning_steps/duplicate_filter.h"
#include "data/cleaning_steps/input_hashes.h"
#include "data/cleaning_steps/rank_messages.h"
#include "data/cleaning_steps/result_folder.h"
#include "data/cleaning_steps/shuffle_spill.h"
#include "data/preprocess/same_inputs.h"
#include "distributed/comm/together.h"

namespace megatron {

namespace {

using OrderedJson = nlohmann::ordered_json;

/// Whether the inputs are lists: all of them, or none.
bool are_lists(const TextCorpus& corpus, const StepJob& job) {
  if (has_pages(job)) return false;
  std::size_t lists = 0;
  const std::size_t files = corpus.files();
  for (std::size_t i = 0; i < files; ++i) lists += corpus.has_json(i) ? 0 : 1;
  verify(lists == 0 || job.step->inputs == InputKind::documents_and_lists, ErrorKind::configuration,
         "{}: {} reads JSON lines; give files of that kind, or --format jsonl", job.inputs.front(), job.step->name);
  verify(lists == 0 || lists == files, ErrorKind::configuration,
         "the inputs are lists and JSON lines; give one kind, or --format");
  return lists > 0;
}

std::string without_end_slash(std::string folder) {
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

class StepPlayer {
 public:
  StepPlayer(Communicator& world, const StepJob& job, const StepProgress& progress)
      : world_(world), job_(job), progress_(progress), folder_name_(without_end_slash(job.output)) {}

  StepResult play() {
    try {
      return play_all();
    } catch (const AgreedError&) {
      // Rank 0 removes the folder, in which no rank may have scratch files then.
      spill_.reset();
      world_.barrier();
      throw;
    }
  }

 private:
  StepResult play_all() {
    open();
    if (StepResult finished = open_folder(); finished.was_finished) return finished;
    look_first();
    if (step_->needs_count()) step_->prepare(count_documents());
    if (step_->reorders()) make_spill();
    read_all();
    if (step_->reorders()) write_in_order();
    return publish();
  }

  bool is_root() const { return world_.rank() == 0; }
  std::uint64_t ranks() const { return static_cast<std::uint64_t>(world_.size()); }

  /// Finds the inputs and makes the step, on every rank.
  void open() {
    std::vector<InputIdentity> files;
    agree(world_, [&] {
      verify(!job_.output.empty(), ErrorKind::configuration, "give --output FOLDER");
      corpus_.emplace(text_inputs(job_), TextCorpus::Sizes::told_later);
      list_ = are_lists(*corpus_, job_);
      step_ = job_.step->make(job_.keys, {job_.text_key, list_});
      for (std::size_t i = 0; i < corpus_->files(); ++i) files.push_back(identify_input(corpus_->path(i)));
      require_other_folder();
    });
    require_same_inputs(world_, files);
    share_sizes(world_, *corpus_);
    agree(world_, [&] { step_->see_inputs(*corpus_); });
    blocks_ = cut_into_blocks(corpus_->file_bytes(), job_.block_bytes);
    describe_inputs(files);
    reader_.emplace(*corpus_, *step_, job_.examples, has_pages(job_));
    findings_ = Findings(step_->rules().size(), job_.examples);
    kept_.assign(step_->outputs().size(), 0);
  }

  void require_other_folder() const {
    for (std::size_t i = 0; i < corpus_->files(); ++i) {
      std::error_code ignored;
      verify(!std::filesystem::equivalent(folder_of(corpus_->path(i)), folder_name_, ignored), ErrorKind::configuration,
             "{} lies in the output folder; choose another one", corpus_->path(i));
    }
  }

  /// Names and hashes of the inputs, and the hash of all that the result is made from.
  void describe_inputs(const std::vector<InputIdentity>& files) {
    const std::vector<std::string> hashes = job_.input_hashes.empty() ? hash_inputs(world_, files) : job_.input_hashes;
    agree(world_, [&] {
      verify(hashes.size() == files.size(), ErrorKind::data, "the input folder has changed while it was in use");
    });
    std::string identity = agreed_identity(world_, {&job_, 1});
    inputs_ = OrderedJson::array();
    for (std::size_t i = 0; i < files.size(); ++i) {
      inputs_.push_back({{"file", files[i].path}, {"bytes", files[i].bytes}, {"hash", hashes[i]}});
      identity += fmt::format("{} {} {}\n", list_, files[i].bytes, hashes[i]);
    }
    fingerprint_ = hash_in_words(identity);
  }

  /// Locks the result's folder; the result, if it is there already.
  StepResult open_folder() {
    std::string there;
    agree(world_, [&] {
      if (!is_root()) return;
      folder_.emplace(folder_name_, job_.overwrite);
      if (const std::optional<OrderedJson> finished = folder_->finished(fingerprint_)) {
        there = json_text(*finished);
        return;
      }
      folder_->require_free(fingerprint_);
      folder_->remove_leftovers();
      for (const std::string& name : step_->outputs()) {
        const std::string_view kind = list_ ? ".txt" : ".jsonl";
        files_.push_back(&folder_->begin(fmt::format("{}{}{}", name, kind, extension_of(job_.packing)), job_.packing));
      }
    });
    there = world_.broadcast_text(there, 0);
    if (there.empty()) return {};
    return {OrderedJson::parse(there), true};
  }

  /// The step's pass over all documents before the one that writes.
  void look_first() {
    std::unique_ptr<FirstPass> pass;
    agree(world_, [&] { pass = step_->first_pass(world_, folder_name_ + "/" + kScratchFolder); });
    if (pass == nullptr) return;
    passes_ = 2;
    for (std::uint64_t first = 0, done = 0; first < blocks_.size(); first += ranks()) {
      const std::uint64_t mine = first + static_cast<std::uint64_t>(world_.rank());
      const std::uint64_t busy = std::min<std::uint64_t>(ranks(), blocks_.size() - first);
      agree(world_, [&] {
        if (mine >= blocks_.size()) return;
        reader_->look(blocks_[mine], *pass, [&](std::uint64_t bytes) { report_progress(done + bytes * busy); });
      });
      pass->end_round();
      done += bytes_of_round(first);
      report_progress(done);
    }
    pass->finish();
    before_ = corpus_->bytes();
  }

  /// Bytes of the blocks that the ranks take from this one on.
  std::uint64_t bytes_of_round(std::uint64_t first) const {
    std::uint64_t bytes = 0;
    for (std::uint64_t block = first; block < std::min<std::uint64_t>(first + ranks(), blocks_.size()); ++block) {
      for (const Segment& segment : blocks_[block]) bytes += segment.end - segment.begin;
    }
    return bytes;
  }

  std::uint64_t count_documents() {
    double count = 0;
    // In rounds, so that the bad document that is told is the first one.
    for (std::uint64_t first = 0; first < blocks_.size(); first += ranks()) {
      const std::uint64_t mine = first + static_cast<std::uint64_t>(world_.rank());
      agree(world_, [&] {
        if (mine < blocks_.size()) count += static_cast<double>(reader_->count(blocks_[mine]));
      });
    }
    return static_cast<std::uint64_t>(world_.all_reduce_value(count, kReport));
  }

  void make_spill() {
    const std::uint64_t bytes = corpus_->bytes();
    agree(world_, [&] { spill_.emplace(world_, folder_name_ + "/" + kScratchFolder, bytes); });
  }

  void read_all() {
    std::uint64_t done = 0;
    for (std::uint64_t first = 0; first < blocks_.size(); first += ranks()) {
      const std::uint64_t mine = first + static_cast<std::uint64_t>(world_.rank());
      const std::uint64_t busy = std::min<std::uint64_t>(ranks(), blocks_.size() - first);
      Batch batch;
      batch.findings = Findings(step_->rules().size(), job_.examples);
      agree(world_, [&] {
        if (mine >= blocks_.size()) return;
        batch = reader_->read(blocks_[mine], [&](std::uint64_t bytes) { report_progress(done + bytes * busy); });
      });
      // Numbers are given before duplicates go: a block must not wait for those before it.
      const std::uint64_t number = number_of_first(batch.documents.size());
      std::vector<std::string> outputs = place(batch, first_of_identity(batch), number);
      for (const Findings& findings : gather(world_, batch.findings)) findings_.append(findings);
      if (spill_) {
        spill_round();
      } else {
        for (std::size_t i = 0; i < outputs.size(); ++i) write(i, outputs[i]);
      }
      done += bytes_of_round(first);
      report_progress(done);
    }
  }

  void report_progress(std::uint64_t done) const {
    if (progress_) progress_(before_ + done, passes_ * corpus_->bytes());
  }

  std::uint64_t number_of_first(std::size_t documents) {
    const std::vector<double> counts = numbers_of_all(world_, static_cast<double>(documents));
    const auto rank = static_cast<std::ptrdiff_t>(world_.rank());
    const double before = std::accumulate(counts.begin(), counts.begin() + rank, 0.0);
    const std::uint64_t number = numbered_ + static_cast<std::uint64_t>(before);
    numbered_ += static_cast<std::uint64_t>(std::accumulate(counts.begin(), counts.end(), 0.0));
    return number;
  }

  /// For each document whether it stays; empty if all do.
  std::vector<bool> first_of_identity(const Batch& batch) {
    std::vector<TextHash> identities;
    for (const KeptDocument& document : batch.documents) {
      if (document.identity) identities.push_back(*document.identity);
    }
    return world_.any_rank(!identities.empty()) ? duplicates_.first(identities) : std::vector<bool>();
  }

  /// This rank's texts of the round for each output; what is not kept becomes a finding. With a spill: nothing.
  std::vector<std::string> place(Batch& batch, const std::vector<bool>& first, std::uint64_t number) {
    std::vector<std::string> outputs(kept_.size());
    std::vector<double> counts(kept_.size());  // and of read and bad ones
    std::size_t asked = 0;
    const bool all_of_them = first.empty() && outputs.size() == 1 && !spill_;
    bool whole = all_of_them;  // no document has been left out
    for (const KeptDocument& document : batch.documents) {
      const std::uint64_t mine = number++;
      const bool is_first = !document.identity || first[asked++];
      const std::optional<std::size_t> output =
          is_first ? step_->place(mine, document.place_by) : std::optional<std::size_t>();
      if (!output) {
        if (whole) outputs[0].assign(batch.lines, 0, document.begin);
        whole = false;
        reader_->remove(batch, is_first ? 0 : step_->rules().size() - 1, document);
        continue;
      }
      counts[*output] += 1;
      if (spill_) {
        spill_->add(step_->order_key(mine), mine, batch.line(document));
      } else if (!whole) {
        outputs[*output] += batch.line(document);
      }
    }
    if (whole) outputs[0] = std::move(batch.lines);
    counts.insert(counts.end(), {static_cast<double>(batch.read), static_cast<double>(batch.bad)});
    world_.all_reduce_values(counts, kReport);
    for (std::size_t i = 0; i < kept_.size(); ++i) kept_[i] += static_cast<std::uint64_t>(counts[i]);
    read_ += static_cast<std::uint64_t>(counts[kept_.size()]);
    bad_ += static_cast<std::uint64_t>(counts[kept_.size() + 1]);
    return outputs;
  }

  void spill_round() {
    std::exception_ptr problem;
    try {
      spill_->end_round();
    } catch (const Error&) {
      problem = std::current_exception();
    }
    agree(world_, [&] {
      if (problem) std::rethrow_exception(problem);
    });
  }

  /// Writes all ranks' texts, in the order of the ranks.
  void write(std::size_t output, std::string_view mine) {
    std::exception_ptr problem;
    collect(world_, mine, [&](std::string_view text) {
      try {
        if (!problem) files_[output]->add(text);
      } catch (const Error&) {
        problem = std::current_exception();
      }
    });
    agree(world_, [&] {
      if (problem) std::rethrow_exception(problem);
    });
  }

  void write_in_order() {
    for (std::uint64_t first = 0; first < spill_->buckets(); first += ranks()) {
      const std::uint64_t mine = first + static_cast<std::uint64_t>(world_.rank());
      std::string text;
      std::uint64_t lines = 0;
      agree(world_, [&] {
        if (mine < spill_->buckets()) text = spill_->take(mine, lines);
      });
      write(0, text);
    }
    spill_.reset();
  }

  OrderedJson settings() const {
    OrderedJson keys = OrderedJson::object();
    for (const auto& [name, value] : job_.keys.all()) keys[name] = value;
    return {{"keys", keys}, {"text_key", job_.text_key}, {"skip_bad", job_.skip_bad}, {"longest", job_.longest}};
  }

  /// Adds the provenance of inputs that are results themselves; their reports, each once.
  OrderedJson add_earlier() {
    OrderedJson reports = OrderedJson::array();
    std::set<std::string> folders;
    LastProvenance last;
    for (OrderedJson& input : inputs_) {
      const std::string path = input["file"], folder = folder_of(path);
      const std::optional<OrderedJson>& earlier = last.in(folder);
      if (!earlier) continue;
      for (const OrderedJson& output : (*earlier)["outputs"]) {
        if (folder + "/" + output.value("file", "") != path) continue;
        input["from"] = *earlier;
        const std::optional<OrderedJson> report = folders.insert(folder).second ? report_in(folder) : std::nullopt;
        if (report) reports.push_back(*report);
      }
    }
    return reports;
  }

  StepResult publish() {
    OrderedJson provenance;
    agree(world_, [&] {
      if (!is_root()) return;
      const OrderedJson earlier = add_earlier();
      const std::uint64_t kept = std::accumulate(kept_.begin(), kept_.end(), std::uint64_t{0});
      const OrderedJson documents = {{"read", read_}, {"kept", kept}, {"bad", bad_}};
      OrderedJson report = {{"step", job_.step->name}, {"documents", documents}};
      report.update(findings_.report(step_->rules()));
      report.update(step_->facts());
      if (!earlier.empty()) report["earlier"] = earlier;
      provenance = {{"made_by", job_.program}, {"fingerprint", fingerprint_}, {"step", job_.step->name}};
      if (!job_.recipe.empty()) provenance["recipe"] = job_.recipe;
      provenance.update(settings());
      provenance["documents"] = documents;
      provenance.update(findings_.counts(step_->rules()));
      provenance["inputs"] = inputs_;
      provenance["outputs"] = folder_->finish_files(kept_);
      folder_->publish(report, provenance);
    });
    return {OrderedJson::parse(world_.broadcast_text(json_text(provenance), 0)), false};
  }

  Communicator& world_;
  const StepJob& job_;
  const StepProgress& progress_;
  std::string folder_name_, fingerprint_;
  std::optional<TextCorpus> corpus_;
  std::unique_ptr<Step> step_;
  bool list_ = false;
  std::vector<std::vector<Segment>> blocks_;
  OrderedJson inputs_;
  std::optional<ResultFolder> folder_;  // rank 0's, as the files
  std::vector<OutputText*> files_;
  std::optional<BlockReader> reader_;
  std::optional<ShuffleSpill> spill_;
  DuplicateFilter duplicates_{world_};
  Findings findings_;
  std::uint64_t numbered_ = 0, read_ = 0, bad_ = 0;
  std::uint64_t passes_ = 1, before_ = 0;  // over the input, and bytes of those that are finished
  std::vector<std::uint64_t> kept_;        // in each output
};

}  // namespace

StepResult play_step(Communicator& world, const StepJob& job, const StepProgress& progress) {
  return StepPlayer(world, job, progress).play();
}

}  // namespace megatron
