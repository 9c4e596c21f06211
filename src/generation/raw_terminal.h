// RawTerminal: a terminal that hands on every key at once, unseen, while this object lives. Gives the terminal back as
// it was: when it goes, and before a signal does what it would have done, be it the end of the process. One at a time:
// signal handlers reach only what is the process's. SIGKILL alone leaves the terminal as it is.
#pragma once

#include <string>

namespace megatron {

class RawTerminal {
 public:
  /// Error(filesystem) if it is no terminal, or none any more.
  explicit RawTerminal(int descriptor);
  ~RawTerminal();
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;

  enum class Event { keys, signal, end };
  /// Waits for keys and adds their bytes. `signal`: one has come that did not end the process; the terminal has been
  /// given back. `end`: the terminal has gone.
  Event read(std::string& bytes);

  /// Does what a key such as Ctrl-Z asks for: sends the signal to this process and those that were started with it,
  /// with the terminal given back until it continues.
  void raise(int signal);

 private:
  void enter();
  int descriptor_;
};

}  // namespace megatron
