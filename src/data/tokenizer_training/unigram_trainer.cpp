#include "data/tokenizer_training/unigram_trainer.h"

#include <algorithm>
#include <cmath>

#include "base/core/error.h"
#include "base/text/utf8.h"
#include "data/tokenizer/piece_trie.h"
#include "data/tokenizer/special_names.h"
#include "data/tokenizer_training/unigram_seeds.h"

namespace megatron {

namespace {

constexpr double kShrink = 0.75;              ///< how much of the pieces a round keeps
constexpr double kLastRound = 1.1;            ///< rounds end at this many times the wanted size
constexpr int kPassesPerRound = 2;            ///< passes of expectation and maximisation
constexpr double kLeastExpected = 0.5;        ///< pieces that are expected to occur less often are dropped
constexpr double kLeastProbability = 1e-250;  ///< a part's, so that what is divided by it is finite

/// The derivative of log gamma, for x > 0: it makes rare pieces rarer, as a prior does that expects few pieces.
double digamma(double x) {
  double result = 0;
  for (; x < 7; ++x) result -= 1 / x;
  x -= 0.5;
  const double y = 1 / (x * x);
  return result + std::log(x) + y * (1.0 / 24 - y * (7.0 / 960 - y * (31.0 / 8064 - y * 127.0 / 30720)));
}

bool is_reserved(std::string_view piece) {
  return piece == "<pad>" || piece == "</s>" || piece == "<unk>" || piece.starts_with("<extra_id_");
}

class UnigramModel {
 public:
  explicit UnigramModel(std::vector<SeedPiece> seeds) : pieces_(std::move(seeds)) {
    std::erase_if(pieces_, [](const SeedPiece& piece) { return is_reserved(piece.text); });
    maximise();
    index();
  }

  std::size_t size() const { return pieces_.size(); }

  /// How often each piece occurs, by all ways to segment each part, weighted by their probabilities.
  void expect(const std::vector<WordPart>& parts) {
    for (SeedPiece& piece : pieces_) piece.count = 0;
    for (const WordPart& part : parts) expect(part);
  }

  /// Probabilities from counts. Drops rare pieces.
  void maximise() {
    std::erase_if(pieces_, [](const SeedPiece& p) { return !p.is_character && p.count < kLeastExpected; });
    double sum = 0;
    for (SeedPiece& piece : pieces_) sum += piece.count = std::max(piece.count, kLeastExpected);
    scores_.clear();
    for (const SeedPiece& piece : pieces_) scores_.push_back(digamma(piece.count) - digamma(sum));
  }

  void index() {
    std::vector<std::pair<std::string_view, std::int32_t>> named;
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      named.emplace_back(pieces_[id].text, static_cast<std::int32_t>(id));
    }
    trie_ = PieceTrie(std::move(named));
    probabilities_.clear();
    for (const double score : scores_) probabilities_.push_back(std::exp(score));
  }

  /// Keeps the characters and, up to `most` in all, the pieces without which the text would lose most.
  void prune(const std::vector<WordPart>& parts, std::size_t most) {
    const std::vector<double> counts = best_counts(parts);
    double sum = 0;
    for (const double count : counts) sum += count;
    std::vector<std::pair<double, std::size_t>> losses;  // the largest first, then in the order of the bytes
    std::size_t kept = 0;
    std::vector<bool> keep(pieces_.size());
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      if (pieces_[id].is_character) {
        keep[id] = true;
        ++kept;
      } else if (counts[id] > 0) {
        const std::vector<std::int32_t> others = segment(pieces_[id].text, static_cast<std::int32_t>(id));
        if (score_of(others) < scores_[id]) losses.emplace_back(-loss(counts, sum, id, others), id);
      }
    }
    std::sort(losses.begin(), losses.end());
    for (const auto& [loss, id] : losses) {
      if (kept >= most) break;
      keep[id] = true;
      ++kept;
    }
    std::size_t to = 0;
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      if (!keep[id]) continue;
      if (to != id) pieces_[to] = std::move(pieces_[id]);
      scores_[to++] = scores_[id];
    }
    pieces_.resize(to);
    scores_.resize(to);
    index();
  }

  /// Characters, then the most probable; sorted by probability.
  std::vector<std::pair<std::string, double>> finish(std::size_t most) const {
    std::vector<std::size_t> order(pieces_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto by_score = [&](std::size_t a, std::size_t b) {
      return std::pair(-scores_[a], a) < std::pair(-scores_[b], b);
    };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      if (pieces_[a].is_character != pieces_[b].is_character) return pieces_[a].is_character;
      return by_score(a, b);
    });
    order.resize(std::min(order.size(), most));
    std::sort(order.begin(), order.end(), by_score);
    std::vector<std::pair<std::string, double>> result;
    for (const std::size_t id : order) result.emplace_back(pieces_[id].text, scores_[id]);
    return result;
  }

 private:
  struct Edge {
    std::uint32_t from, to;
    std::int32_t id;
  };

  /// Forward and backward: the sums over all ways from the front, and to the end. A part that is too improbable for a
  /// double counts by its best way.
  void expect(const WordPart& part) {
    const std::string_view text = part.text;
    forward_.assign(text.size() + 1, 0.0);
    backward_.assign(text.size() + 1, 0.0);
    edges_.clear();
    forward_[0] = 1;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (forward_[at] == 0) continue;  // within a character
      trie_.for_each_prefix(text.substr(at), [&](std::size_t length, std::int32_t id) {
        forward_[at + length] += forward_[at] * probabilities_[static_cast<std::size_t>(id)];
        edges_.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at + length), id});
      });
    }
    if (forward_.back() < kLeastProbability) {
      for (const std::int32_t id : segment(text)) {
        pieces_[static_cast<std::size_t>(id)].count += static_cast<double>(part.count);
      }
      return;
    }
    backward_[text.size()] = static_cast<double>(part.count) / forward_[text.size()];
    for (auto edge = edges_.rbegin(); edge != edges_.rend(); ++edge) {
      const auto id = static_cast<std::size_t>(edge->id);
      const double to_end = probabilities_[id] * backward_[edge->to];
      backward_[edge->from] += to_end;
      pieces_[id].count += forward_[edge->from] * to_end;
    }
  }

  /// The most probable pieces, without one of them.
  std::vector<std::int32_t> segment(std::string_view text, std::int32_t without = -1) {
    struct Best {
      double score = 0;
      std::int32_t id = -1;
    };
    std::vector<Best> best(text.size() + 1);
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (at > 0 && best[at].id < 0) continue;
      trie_.for_each_prefix(text.substr(at), [&](std::size_t length, std::int32_t id) {
        if (id == without) return;
        const double score = best[at].score + scores_[static_cast<std::size_t>(id)];
        Best& there = best[at + length];
        if (there.id < 0 || score > there.score) there = {score, id};
      });
    }
    std::vector<std::int32_t> ids;
    for (std::size_t end = text.size(); end > 0;) {
      ids.push_back(best[end].id);
      end -= pieces_[static_cast<std::size_t>(best[end].id)].text.size();
    }
    return ids;
  }

  double score_of(const std::vector<std::int32_t>& ids) const {
    double sum = 0;
    for (const std::int32_t id : ids) sum += scores_[static_cast<std::size_t>(id)];
    return sum;
  }

  /// How often each piece occurs in the most probable segmentations.
  std::vector<double> best_counts(const std::vector<WordPart>& parts) {
    std::vector<double> counts(pieces_.size());
    for (const WordPart& part : parts) {
      for (const std::int32_t id : segment(part.text)) {
        counts[static_cast<std::size_t>(id)] += static_cast<double>(part.count);
      }
    }
    return counts;
  }

  /// Loss of log likelihood, if `others` replaced the piece wherever it occurs.
  double loss(const std::vector<double>& counts, double sum, std::size_t id,
              const std::vector<std::int32_t>& others) const {
    const double count = counts[id];
    const double sum_without = std::log(sum + count * (static_cast<double>(others.size()) - 1));
    double without = 0;
    for (const std::int32_t other : others) {
      without += std::log(counts[static_cast<std::size_t>(other)] + count) - sum_without;
    }
    return count * (std::log(count) - std::log(sum) - without);
  }

  std::vector<SeedPiece> pieces_;  // in the order of their bytes
  std::vector<double> scores_, probabilities_;
  PieceTrie trie_;
  std::vector<double> forward_, backward_;
  std::vector<Edge> edges_;
};

}  // namespace

UnigramTrainer::UnigramTrainer() : steps_(1), normalizer_(steps_) {}

void UnigramTrainer::add_text(std::string_view text) {
  bytes_ += text.size();
  text = normalizer_.normalized(text);
  const auto end_word = [&] {
    if (!word_.empty()) words_.add(word_);
    word_.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at, 4));
    const std::string_view written = text.substr(at, c.bytes);
    at += c.bytes;
    if (has_white_space_property(c.value) || written == kSpaceMark) {
      end_word();
    } else {
      if (word_.empty()) word_ = kSpaceMark;
      word_ += written;
    }
  }
  end_word();
}

std::vector<std::pair<std::string, double>> UnigramTrainer::train(std::int64_t most, std::int64_t least_count) {
  internal_check(most > 0, "size of a vocabulary", most);
  const auto wanted = static_cast<std::size_t>(most);
  const std::vector<WordPart> parts = word_parts(words_, frequent_characters(words_, wanted / 2));
  UnigramModel model(seed_pieces(parts, least_count));
  const auto last = static_cast<std::size_t>(kLastRound * static_cast<double>(wanted));
  const auto fit = [&] {
    for (int pass = 0; pass < kPassesPerRound; ++pass) {
      model.expect(parts);
      model.maximise();
      model.index();
    }
  };
  for (;;) {
    fit();
    if (model.size() <= last) break;
    const std::size_t before = model.size();
    model.prune(parts, std::max(last, static_cast<std::size_t>(kShrink * static_cast<double>(before))));
    if (model.size() == before) break;
  }
  return model.finish(wanted);
}

}  // namespace megatron
