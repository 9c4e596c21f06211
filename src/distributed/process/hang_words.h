// HangWords: a word that each host of a job leaves for the others while its ranks stand still or work for long. Files
// in a folder that all hosts see, since MPI is what may not work then. One writer per host at a time.
//
// HangWatch uses it. It knows nothing of activities.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace megatron {

class HangWords {
 public:
  enum class Word { none, waits, works };

  /// `job`: words of other jobs in this folder are not heard. An empty `folder`: nothing is said or heard.
  HangWords(std::string folder, std::string job, std::string host);

  /// Replaces this host's word; false where the folder cannot be written.
  bool say(Word word);
  void fall_silent();
  /// From here on words are left in another folder.
  void move_to(std::string folder);
  /// A host's word. `works` counts only if it has been said again since it was last asked for here.
  Word heard_from(const std::string& host);

  /// Removes the words of all hosts; for a job that owns the folder.
  static void clear(const std::string& folder);

 private:
  std::string file_of(const std::string& host) const;

  std::string folder_;
  const std::string job_, host_;
  std::int64_t said_ = 0;
  std::map<std::string, std::int64_t> last_heard_;
};

}  // namespace megatron
